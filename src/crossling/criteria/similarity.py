"""What the criteria on sentence similarity share: they need no label, only parallel text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from crossling.criteria import ChoiceContext, FinishedCell
from crossling.limits import LARGEST_SEED, MOST_COUNTED
from crossling.recipe.recipe import FrozenSettings

LABELS = "no label of any language, only parallel text: {settings.described}"


class SimilaritySettings(FrozenSettings):
    """Which parallel text decides."""

    on: str = "ntrex"
    """A parallel set, or one whose rows are the same in all languages: xnli, pawsx, xquad."""
    languages: tuple[str, ...] = Field(min_length=1)
    """The languages that are compared with the source."""
    split: str = ""
    """Default: test where there is one."""
    text: Literal["first", "second", "pair"] = "first"
    """Of a set of pairs: the first text, the second, or both together."""
    pool: Literal["mean", "cls", "task"] = "mean"
    """What stands for a sentence."""
    sentences: int = Field(default=2_000, ge=2, le=MOST_COUNTED)
    """The most sentences."""
    seed: int | None = Field(default=None, ge=0, le=LARGEST_SEED)
    """None: the first sentences; else random ones."""

    @property
    def described(self) -> str:
        """The text, for the reader."""
        return f"{self.on} in {', '.join(self.languages)}"


def mean_similarity(cells: Sequence[FinishedCell], context: ChoiceContext[SimilaritySettings], *, column: str) -> float:
    """The mean over seeds and languages of one column of the similarity analysis."""
    from crossling.analyses import AnalysisContext, similarity
    from crossling.analyses.stored import analyse_model
    from crossling.training.distributed import setup_distributed

    settings = similarity.Settings(**context.settings.model_dump(exclude={"kind"}))
    key = f"similarity {context.recipe.source}"
    if key not in context.facts:
        context.facts[key] = similarity.open_analysis_data(settings, source=context.recipe.source, store=context.store)
    where = AnalysisContext(setup_distributed(context.recipe.run), context.store)
    tables = [analyse_model(settings, context.facts[key], cell.model_folder, where) for cell in cells]
    values: list[Any] = [value for table in tables for value in table.column(column).to_pylist()]
    return float(sum(values) / len(values))
