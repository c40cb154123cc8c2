"""What 8 bits cost a model: its scores with float32 and with int8, by data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.data.catalogue import open_data
from crossling.data.languages import name_of
from crossling.inference.engines import load_engine, run_by_torch
from crossling.inference.evaluate import check_kind, predict_with
from crossling.models.model import Model, ModelCard
from crossling.report.table import Table
from crossling.scores.metrics import score
from crossling.tasks import restore_task


@dataclass(frozen=True)
class PrecisionScore:
    """The main score of a model on one data set, as fractions."""

    name: str
    language: str
    rows: int
    score: str
    float32: float
    int8: float

    @property
    def cost(self) -> float:
        """Points of 100 that 8 bits cost; negative where the score rose."""
        return 100 * (self.float32 - self.int8)


def measure_precisions(
    model: Model, card: ModelCard, folder: Path, *, on: Sequence[str], store: Path
) -> list[PrecisionScore]:
    """Score a model and its copy in 8 bits, in ``folder``, on labelled data sets such as ``panx:de:dev``."""
    head, stored = next(iter(card.tasks.items()))
    task = restore_task(stored)
    sets = [check_kind(task, open_data(spec, split="test", store=store)) for spec in on]
    name = task.settings.score
    whole, rounded = (
        [score(found)[name] for found in predict_with(engine, task, sets, head=head, cache=None)]
        for engine in (run_by_torch(model), load_engine(folder)[0])
    )
    return [
        PrecisionScore(spec, rows.language, len(rows), name, before, after)
        for spec, rows, before, after in zip(on, sets, whole, rounded, strict=True)
    ]


def describe_cost(found: Sequence[PrecisionScore]) -> str:
    """A sentence on what was measured, or that nothing was."""
    what = "Weights and what they are multiplied with are rounded to 8 bits."
    if not found:
        return f"{what} What that costs was not measured; the scores are those of float32."
    mean = sum(one.cost for one in found) / len(found)
    cost = f"costs {mean:.2f}" if mean > 0 else f"does not lower it; it gains {-mean:.2f}"
    return (
        f"{what} On the mean of {len(found)} data sets that {cost} points of {found[0].score}; other scores are those "
        "of float32."
    )


def tabulate(found: Sequence[PrecisionScore]) -> str:
    """A section of a README: scores of both precisions and the mean."""
    if not found:
        return ""
    columns = ("data set", "language", "rows", "float32", "int8", "loss")
    rows = [
        (one.name, name_of(one.language), f"{one.rows:,}", *_show(one.float32, one.int8, one.cost)) for one in found
    ]
    means = (sum(values) / len(found) for values in zip(*((o.float32, o.int8, o.cost) for o in found), strict=True))
    rows.append(("mean", "", f"{sum(one.rows for one in found):,}", *_show(*means)))
    return Table(f"Scores in 8 bits ({found[0].score})", columns, tuple(rows), names=2).to_markdown()


def _show(float32: float, int8: float, cost: float) -> tuple[str, str, str]:
    return f"{100 * float32:.2f}", f"{100 * int8:.2f}", f"{cost:+.2f}"
