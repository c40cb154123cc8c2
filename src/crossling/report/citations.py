"""What a study should cite: the works behind its methods, encoders, data and tests, as its recipes name them."""

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
    "Multilingual BERT. arXiv:2205.08497, 2022."
)
_KNOWLEDGE = (
    "Enhancing Cross-Lingual Training with Knowledge Learned from Multi-Lingual Training. Anonymous ACL submission."
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
            "analyses/head_updates",
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
        "Fabian David Schmidt, Ivan Vulić and Goran Glavaš. Free Lunch: Robust Cross-Lingual Transfer via Model "
        "Checkpoint Averaging. ACL 2023.",
        ("stages/average",),
    ),
    Citation(
        "Bo Zheng et al. Consistency Regularization for Cross-Lingual Fine-Tuning. ACL 2021.",
        ("finetune/consistency", "teach/consistency"),
    ),
    Citation(
        "Taku Kudo. Subword Regularization: Improving Neural Network Translation Models with Multiple Subword "
        "Candidates. ACL 2018.",
        ("finetune/consistency", "teach/consistency"),
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
    Citation(
        "Student. The Probable Error of a Mean. Biometrika, 1908.",
        ("test/paired t-test", "test/t-test over seeds and examples", "test/t-test over examples"),
    ),
    Citation(
        "Sture Holm. A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics, "
        "1979.",
        ("test/Holm",),
    ),
    Citation(
        "Bradley Efron and Robert J. Tibshirani. An Introduction to the Bootstrap. Chapman & Hall, 1993.",
        ("test/bootstrap",),
    ),
)
DATA_WORKS = {
    "nivre-etal-2020-universal": "Joakim Nivre et al. Universal Dependencies v2: An Evergrowing Multilingual Treebank "
    "Collection. LREC 2020.",
    "rahimi-etal-2019-massively": "Afshin Rahimi, Yuan Li and Trevor Cohn. Massively Multilingual Transfer for NER. "
    "ACL 2019.",
    "adelani-etal-2022-masakhaner": "David Adelani et al. MasakhaNER 2.0: Africa-centric Transfer Learning for Named "
    "Entity Recognition. EMNLP 2022.",
    "conneau-etal-2018-xnli": "Alexis Conneau et al. XNLI: Evaluating Cross-lingual Sentence Representations. EMNLP "
    "2018.",
    "joshi-etal-2020-taxinli": "Pratik Joshi, Somak Aditya, Aalok Sathe and Monojit Choudhury. TaxiNLI: Taking a Ride "
    "up the NLU Hill. CoNLL 2020.",
    "yang-etal-2019-paws": "Yinfei Yang, Yuan Zhang, Chris Tar and Jason Baldridge. PAWS-X: A Cross-lingual "
    "Adversarial Dataset for Paraphrase Identification. EMNLP-IJCNLP 2019.",
    "keung-etal-2020-multilingual": "Phillip Keung, Yichao Lu, György Szarvas and Noah A. Smith. The Multilingual "
    "Amazon Reviews Corpus. EMNLP 2020.",
    "barbieri-etal-2022-xlm": "Francesco Barbieri, Luis Espinosa Anke and Jose Camacho-Collados. XLM-T: Multilingual "
    "Language Models in Twitter for Sentiment Analysis and Beyond. LREC 2022.",
    "adelani-etal-2024-sib": "David Ifeoluwa Adelani et al. SIB-200: A Simple, Inclusive, and Big Evaluation Dataset "
    "for Topic Classification in 200+ Languages and Dialects. EACL 2024.",
    "rajpurkar-etal-2016-squad": "Pranav Rajpurkar, Jian Zhang, Konstantin Lopyrev and Percy Liang. SQuAD: 100,000+ "
    "Questions for Machine Comprehension of Text. EMNLP 2016.",
    "miller-etal-2020-effect": "John Miller, Karl Krauth, Benjamin Recht and Ludwig Schmidt. The Effect of Natural "
    "Distribution Shift on Question Answering Models. ICML 2020.",
    "artetxe-etal-2020-cross": "Mikel Artetxe, Sebastian Ruder and Dani Yogatama. On the Cross-lingual "
    "Transferability of Monolingual Representations. ACL 2020.",
    "clark-etal-2020-tydi": "Jonathan H. Clark et al. TyDi QA: A Benchmark for Information-Seeking Question Answering "
    "in Typologically Diverse Languages. TACL 8, 2020.",
    "lewis-etal-2020-mlqa": "Patrick Lewis, Barlas Oğuz, Ruty Rinott, Sebastian Riedel and Holger Schwenk. MLQA: "
    "Evaluating Cross-lingual Extractive Question Answering. ACL 2020.",
    "federmann-etal-2022-ntrex": "Christian Federmann, Tom Kocmi and Ying Xin. NTREX-128: News Test References for MT "
    "Evaluation of 128 Languages. First Workshop on Scaling Up Multilingual Evaluation, 2022.",
    "elliott-etal-2016-multi30k": "Desmond Elliott, Stella Frank, Khalil Sima'an and Lucia Specia. Multi30K: "
    "Multilingual English-German Image Descriptions. 5th Workshop on Vision and Language, 2016.",
    "akerman-etal-2023-ebible": "Vesa Akerman et al. The eBible Corpus: Data and Model Benchmarks for Bible "
    "Translation for Low-Resource Languages. arXiv:2304.09919, 2023.",
    "artetxe-schwenk-2019-massively": "Mikel Artetxe and Holger Schwenk. Massively Multilingual Sentence Embeddings "
    "for Zero-Shot Cross-Lingual Transfer and Beyond. TACL 7, 2019.",
    "goyal-etal-2022-flores": "Naman Goyal et al. The Flores-101 Evaluation Benchmark for Low-Resource and "
    "Multilingual Machine Translation. TACL 10, 2022.",
    "tiedemann-2020-tatoeba": "Jörg Tiedemann. The Tatoeba Translation Challenge – Realistic Data Sets for Low "
    "Resource and Multilingual MT. WMT 2020.",
    "zhang-etal-2020-improving": "Biao Zhang, Philip Williams, Ivan Titov and Rico Sennrich. Improving Massively "
    "Multilingual Neural Machine Translation and Zero-Shot Translation. ACL 2020.",
    "schwenk-etal-2021-wikimatrix": "Holger Schwenk, Vishrav Chaudhary, Shuo Sun, Hongyu Gong and Francisco Guzmán. "
    "WikiMatrix: Mining 135M Parallel Sentences in 1620 Language Pairs from Wikipedia. EACL 2021.",
}
"""The works behind data sets, by the catalogue's keys, most of which are the ACL Anthology's."""


def find_citations(used: Iterable[str]) -> tuple[str, ...]:
    """The works behind what was used, in a fixed order; encoders go by a part of their name."""
    names = {name.casefold() for name in used}
    encoders = [name for name in names if name.startswith("encoder/")]

    def is_used(wanted: str) -> bool:
        if wanted.startswith("encoder/"):
            return any(wanted.removeprefix("encoder/") in name for name in encoders)
        return wanted.casefold() in names

    return tuple(citation.text for citation in CITATIONS if any(map(is_used, citation.used_as)))
