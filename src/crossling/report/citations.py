"""What a study owes to others: the works behind its methods, encoders and tests, found by what its recipes name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Citation:
    """A work, and what a study has to use for it to be cited."""

    text: str
    used_as: tuple[str, ...]
    """``family/kind`` of a recipe, ``encoder/NAME`` (a part of the name), or ``test/NAME``."""


_LAYER_FUSION = (
    "Beiduo Chen, Wu Guo, Quan Liu and Kun Tao. Feature Aggregation in Zero-Shot Cross-Lingual Transfer Using "
    "Multilingual BERT. ICPR 2022."
)
_KNOWLEDGE = (
    "Enhancing Cross-Lingual Training with Knowledge Learned from Multi-Lingual Training. Anonymous submission."
)
_ADJUSTMENT = (
    "Pavel Efimov, Leonid Boytsov, Elena Arslanova and Pavel Braslavski. The Impact of Cross-Lingual Adjustment of "
    "Contextual Word Representations on Zero-Shot Transfer. ECIR 2023."
)
CITATIONS = (
    Citation(_LAYER_FUSION, ("fusions/dlfa", "analyses/similarity")),
    Citation(
        _KNOWLEDGE,
        (
            "stages/adapt",
            "finetune/auxiliary",
            "analyses/perplexity",
            "analyses/probe",
            "analyses/heads",
            "analyses/head_probe",
        ),
    ),
    Citation(_ADJUSTMENT, ("stages/adjust", "finetune/replay", "analyses/distances")),
    Citation(
        "Steven Cao, Nikita Kitaev and Dan Klein. Multilingual Alignment of Contextual Word Representations. ICLR "
        "2020.",
        ("stages/adjust",),
    ),
    Citation(
        "Matthew E. Peters et al. Deep Contextualized Word Representations. NAACL 2018.",
        ("fusions/scalar_mix",),
    ),
    Citation(
        "Julian Salazar, Davis Liang, Toan Q. Nguyen and Katrin Kirchhoff. Masked Language Model Scoring. ACL 2020.",
        ("analyses/perplexity",),
    ),
    Citation(
        "Jacob Devlin, Ming-Wei Chang, Kenton Lee and Kristina Toutanova. BERT: Pre-training of Deep Bidirectional "
        "Transformers for Language Understanding. NAACL 2019.",
        ("encoder/bert-base-multilingual", "encoder/mbert"),
    ),
    Citation(
        "Alexis Conneau et al. Unsupervised Cross-lingual Representation Learning at Scale. ACL 2020.",
        ("encoder/xlm-roberta",),
    ),
    Citation(
        "Liang Wang et al. Multilingual E5 Text Embeddings: A Technical Report. arXiv:2402.05672, 2024.",
        ("encoder/multilingual-e5",),
    ),
    Citation(
        "Alexander Yeh. More Accurate Tests for the Statistical Significance of Result Differences. COLING 2000.",
        ("test/permutation test",),
    ),
    Citation("Student. The Probable Error of a Mean. Biometrika, 1908.", ("test/paired t-test",)),
    Citation(
        "Sture Holm. A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics, "
        "1979.",
        ("test/Holm",),
    ),
    Citation(
        "Bradley Efron. Bootstrap Methods: Another Look at the Jackknife. Annals of Statistics, 1979.",
        ("test/bootstrap",),
    ),
)


def find_citations(used: Iterable[str]) -> tuple[str, ...]:
    """The works behind what was used, in a fixed order; encoders go by a part of their name."""
    names = {name.casefold() for name in used}
    encoders = [name for name in names if name.startswith("encoder/")]

    def is_used(wanted: str) -> bool:
        if wanted.startswith("encoder/"):
            return any(wanted.removeprefix("encoder/") in name for name in encoders)
        return wanted.casefold() in names

    return tuple(citation.text for citation in CITATIONS if any(map(is_used, citation.used_as)))
