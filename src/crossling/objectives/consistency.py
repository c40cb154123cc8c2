"""Consistency training: an example and a changed (augmented) copy of it should get the same prediction.

``task + weight * KL(p(example) || p(copy))``, where the example's own distribution is held fixed: it teaches the copy.
The divergence is a mean over predictions: words of a tagger, texts of a classifier, questions (both ends of the span,
as distributions over words). A batch holds B examples as 2B rows, the copies below, so that one pass reads both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from crossling.aligners.parallel_lexicon import ParallelLexicon
from crossling.data.batching import Array, Batch, Examples
from crossling.errors import RecipeError
from crossling.limits import LARGEST_NUMBER
from crossling.objectives import Terms
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from crossling.aligners.lexicon import Lexicon
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import Arrays, Objective, TaskObjective
    from crossling.objectives.changed_copies import VariedExamples

VERSION = 2
"""Raised where the same settings give other weights than before; part of a stage's identity."""
VARIANTS = 104
"""What random numbers are for, so that no two uses draw the same."""


LexiconSource = Annotated[
    Annotated[str, Tag("str")] | Annotated[ParallelLexicon, Tag("dict[]")],
    Discriminator(lambda value: "str" if isinstance(value, str) else "dict[]"),
]
"""A file, or a table of parallel text: distinguished by its type, so that one fault is one error."""


class ConsistencySettings(FrozenSettings):
    """How copies differ from their examples, and what is learnt from them."""

    subwords: float = Field(default=0.0, ge=0, le=1)
    """The probability that a word is cut into subwords anew."""
    words: float = Field(default=0.0, ge=0, le=1)
    """The probability that a word in a lexicon is replaced by one of its translations (code-switching)."""
    lexicon: tuple[LexiconSource, ...] = ()
    """Where translations come from, each for text in its source language: tables of parallel text to make them from,
    { parallel = ["ntrex:en-de", "flores:en-de"] }, or files that crossling align lexicon wrote."""
    weight: float = Field(default=1.0, ge=0, le=LARGEST_NUMBER)
    """The weight of the divergence between the predictions for an example and for its copy."""
    learn: Literal["both", "original"] = "both"
    """What the task is learnt from: examples and copies, each with half of the weight, or examples alone."""
    alpha: float = Field(default=0.2, ge=0, le=1)
    """For unigram tokenizers (XLM-R, E5): probabilities of segmentations to this power. 0 all alike, 1 as they are."""
    dropout: float = Field(default=0.3, ge=0, lt=1)
    """For WordPiece and BPE tokenizers (mBERT, ModernBERT): the probability that a match, or a merge, is skipped."""

    @field_validator("lexicon", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return value if isinstance(value, list | tuple) else (value,)

    @model_validator(mode="after")
    def _some_change(self) -> Self:
        if not self.subwords and not self.words:
            raise ValueError("subwords = 0 and words = 0: a copy would equal its example; set subwords = 0.3")
        if self.words and not self.lexicon:
            raise ValueError('lexicon: missing; words are replaced from it: lexicon = [{ parallel = "ntrex:en-de" }]')
        if self.lexicon and not self.words:
            raise ValueError("words = 0: no word is replaced from the lexicon; set words, or leave lexicon out")
        return self


class ConsistentTask:
    """A task's objective, with copies of its examples."""

    def __init__(self, task: TaskObjective, settings: ConsistencySettings) -> None:
        self.name, self.task, self.settings = task.name, task, settings
        self.weights = Terms(task=1.0, consistency=settings.weight)

    def build_head(self, width: int) -> nn.Module | None:
        """The task's."""
        return self.task.build_head(width)

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """The task's batch, with copies of its rows below, and the places of all predictions."""
        copies = examples.copy(plan.rows, plan.epoch)  # type: ignore[attr-defined]
        both = [
            {**self.task.collate(some, plan, size=size), **self.task.locate_predictions(some, plan, size=size)}
            for some in (examples, copies)
        ]
        return {name: np.concatenate([part[name] for part in both]) for name in both[0]}

    def count_targets(self, batch: Arrays) -> Terms[int]:
        """Labels that are learnt, and predictions that are compared."""
        half = len(batch["ids"]) // 2
        learnt = {name: values[: self._count_learnt(half)] for name, values in batch.items()}
        return Terms(task=self.task.count_targets(learnt).task, consistency=int(batch["compared"][:half].sum()))

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        half = len(batch["ids"]) // 2
        logits = self.task.logits(model, batch)
        rows = self._count_learnt(half)
        task = self.task.sum_task(logits[:rows], {name: values[:rows] for name, values in batch.items()})
        log_p_BPC = self.task.log_probabilities(logits[:half], batch["places"][:half]).detach()
        log_q_BPC = self.task.log_probabilities(logits[half:], batch["places"][half:])
        divergence_BP = (log_p_BPC.exp() * (log_p_BPC - log_q_BPC)).sum(-1)
        return Terms(task=task, consistency=divergence_BP.mul(batch["compared"][:half]).sum())

    def _count_learnt(self, half: int) -> int:
        return half if self.settings.learn == "original" else 2 * half

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the task predicts; nothing is copied for it."""
        return self.task.predict(model, batch)


def make_consistent(objective: Objective, settings: ConsistencySettings) -> ConsistentTask:
    """A task's objective with copies of its examples, or an error if the objective cannot compare predictions."""
    if not all(hasattr(objective, name) for name in ("logits", "sum_task", "locate_predictions", "log_probabilities")):
        raise RecipeError(f"consistency: the loss of {objective.name!r} cannot compare predictions; leave it out")
    return ConsistentTask(objective, settings)  # type: ignore[arg-type]


def vary_examples(
    examples: Examples,
    settings: ConsistencySettings,
    encoder: Encoder,
    *,
    seed: int,
    lexicons: Sequence[Lexicon] = (),
    languages: Sequence[str] = (),
) -> VariedExamples:
    """Examples with all that their copies need; ``languages``: of each example, where words are to be replaced."""
    from crossling.data.ragged import Ragged, to_offsets
    from crossling.encoders.subword_sampling import SubwordSampler
    from crossling.encoders.tokenization import SubwordTokenizer
    from crossling.objectives.changed_copies import Changes, VariedExamples, cut_units, draw_variants

    def gather(column: str) -> Ragged:
        rows = [examples.get(column, row) for row in range(len(examples))]
        empty = [np.zeros(0, np.int32)]
        return Ragged(np.concatenate(empty + rows), to_offsets(np.array([len(row) for row in rows], np.int64)))

    sampler = SubwordSampler(encoder.tokenizer, alpha=settings.alpha, dropout=settings.dropout)
    # Words that are read at their last subwords are distinguished by the marks of the tokenizer alone.
    known = "firsts" in examples.columns and not encoder.is_causal
    units, distinct = cut_units(gather("ids"), sampler, gather("firsts") if known else None)
    changes = Changes(settings.subwords, settings.words)
    by_source: dict[str, list[Lexicon]] = {}
    for lexicon in lexicons:
        by_source.setdefault(lexicon.language_pair[0], []).append(lexicon)
    variants = draw_variants(
        distinct,
        sampler,
        changes,
        generator=np.random.default_rng([seed, VARIANTS]),
        lexicons=by_source,
        subwords=SubwordTokenizer(encoder.tokenizer) if by_source else None,
    )
    sources = {language: number for number, language in enumerate(by_source)}
    codes: Array = np.array([sources.get(language, -1) for language in languages], np.int64)
    return VariedExamples(
        examples,
        units,
        variants,
        changes,
        seed=seed,
        limit=encoder.max_length,
        languages=codes if len(codes) else None,
    )
