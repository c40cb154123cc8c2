"""Probing results from probes' scores, and the auxiliary tasks that they suggest.

A probing result is the score of a probe on a trained encoder less that of a probe on the encoder it began as, in
percentage points (section 3.2 of multilingual knowledge: "ceiling" less "probe").
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crossling.analyses.intervals import estimate_differences
from crossling.analyses.models import name_model
from crossling.errors import ArtefactError, DataError, nearest
from crossling.report.table import Table, restore_cell
from crossling.scores.significance.results import Estimate

ALL = "all"
"""The name of all languages' tests taken together."""
MIN_GAIN = 0.5
"""Percentage points by which a task's result must rise, for the task to be worth learning beside the main one."""


@dataclass(frozen=True)
class ProbingResult:
    """One model, one seed of it, one task's probe, one language, one score, one sample of the training rows."""

    model: str
    seed: str
    probe: str
    own: bool
    """Whether the model was trained for this very task."""
    language: str
    score: str
    sample: int
    """0: all training rows; others are bootstrap samples of them."""
    ceiling: float
    """In percent, on the model's encoder."""
    against: str
    base: float
    """In percent, on the encoder that it is compared with."""
    examples: int

    @property
    def result(self) -> float:
        """In percentage points."""
        return self.ceiling - self.base


def subtract_bases(rows: Iterable[Mapping[str, Any]], bases: Mapping[str, str]) -> list[ProbingResult]:
    """Results of all models that are compared with another: ``bases`` maps a model's name to the other's.

    ``rows`` are an analysis's: ``task``, ``model``, ``seed`` and a probe's columns. Where the other has several seeds,
    their mean counts.
    """
    named = [(name_model(row), row) for row in rows]
    base_values: dict[tuple[Any, ...], list[float]] = {}
    for name, row in named:
        if name in bases.values():
            base_values.setdefault((name, *_place(row)), []).append(float(row["value"]))
    results = []
    for name, row in named:
        if name not in bases:
            continue
        found = base_values.get((bases[name], *_place(row)))
        if found is None:
            raise ArtefactError(
                f"{bases[name]}: was not probed for {row['probe']} in {row['language']}, as {name} was; models that "
                "learnt from different languages are compared with encoders probed in them: name one --source for all"
            )
        results.append(
            ProbingResult(
                name,
                "" if row["seed"] is None else str(row["seed"]),
                str(row["probe"]),
                bool(row["own"]),
                str(row["language"]),
                str(row["score"]),
                int(row["sample"]),
                100 * float(row["value"]),
                bases[name],
                100 * fmean(found),
                int(row["examples"]),
            )
        )
    return results


Estimates = Mapping[tuple[Any, ...], Estimate]
"""By model, probe and language: a result with its interval, in percentage points."""


def estimate_results(
    table: pa.Table, bases: Mapping[str, str], pretrained: Collection[str], *, score: str
) -> dict[tuple[Any, ...], Estimate]:
    """The mean result over seeds with its interval; ``table`` is that of an analysis."""
    chosen = table.filter((pc.field("score") == score) & (pc.field("sample") == 0))
    return estimate_differences(chosen, bases, pretrained, value="value", by=("probe", "language"), scale=100)


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["probe"], row["language"], row["score"], row["sample"]


def results_to_csv(results: Sequence[ProbingResult]) -> str:
    """Every result on a line."""
    head = (*(field.name for field in fields(ProbingResult)), "result")
    lines = []
    for one in results:
        numbers = {name: f"{getattr(one, name):.4f}" for name in ("ceiling", "base", "result")}
        facts = {**asdict(one), **numbers, "own": str(one.own).lower()}
        lines.append(tuple(str(facts[name]) for name in head))
    return Table("", head, tuple(lines)).to_csv()


def read_csv(path: Path) -> list[ProbingResult]:
    """What :func:`results_to_csv` wrote."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            return [_read_row({name: restore_cell(cell) for name, cell in row.items()}) for row in rows]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; crossling analyse probe writes one") from None
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise DataError(
            f"{path}: not a table of probing results ({error!r}); crossling analyse probe writes one"
        ) from None


def _read_row(row: Mapping[str, str]) -> ProbingResult:
    return ProbingResult(
        model=row["model"],
        seed=row["seed"],
        probe=row["probe"],
        own=row["own"] == "true",
        language=row["language"],
        score=row["score"],
        sample=int(row["sample"]),
        ceiling=float(row["ceiling"]),
        against=row["against"],
        base=float(row["base"]),
        examples=int(row["examples"]),
    )


def find_languages(results: Sequence[ProbingResult]) -> list[str]:
    """The languages, all together first where there are several."""
    found = list(dict.fromkeys(one.language for one in results))
    return [ALL, *(code for code in found if code != ALL)] if ALL in found else found


def list_results(
    results: Sequence[ProbingResult], *, score: str, language: str = "", samples: bool = False
) -> dict[tuple[str, str], list[float]]:
    """Each seed's result by model and probe, from all training rows; or from their bootstrap ``samples``."""
    chosen = language or find_languages(results)[0]
    scores = list(dict.fromkeys(one.score for one in results))
    if score not in scores:
        raise DataError(f"score {score!r}: the probes have no such score.{nearest(score, scores)}")
    found: dict[tuple[str, str], list[float]] = {}
    for one in results:
        if one.language == chosen and one.score == score and (one.sample > 0) == samples:
            found.setdefault((one.model, one.probe), []).append(one.result)
    return found


def list_axes(values: Mapping[tuple[str, str], Any]) -> tuple[list[str], list[str]]:
    """The models and the probes of results, in their order."""
    return list(dict.fromkeys(model for model, _ in values)), list(dict.fromkeys(probe for _, probe in values))


@dataclass(frozen=True)
class Gain:
    """By how much the multi-lingual model's result for a task is above the cross-lingual one's."""

    probe: str
    cross: float
    multi: float
    chosen: bool

    @property
    def gain(self) -> float:
        """In percentage points."""
        return self.multi - self.cross


@dataclass(frozen=True)
class TaskChoice:
    """The auxiliary tasks that two models' probing results suggest."""

    cross: str
    multi: str
    gains: tuple[Gain, ...]
    min_gain: float
    labels: str
    """Whose labels were used."""

    @property
    def chosen(self) -> tuple[str, ...]:
        return tuple(one.probe for one in self.gains if one.chosen)

    def describe(self) -> str:
        """One sentence for the reader."""
        listed = ", ".join(f"{one.probe} {one.gain:+.2f}" for one in self.gains)
        said = ", ".join(self.chosen) if self.chosen else "none"
        return (
            f"auxiliary tasks for what {self.cross} learnt: {said}. {self.multi} raises the probing results by "
            f"{listed}; at least {self.min_gain:g} is asked for. The choice used {self.labels}."
        )


def choose_tasks(
    cross: Mapping[str, float], multi: Mapping[str, float], *, min_gain: float = MIN_GAIN
) -> tuple[Gain, ...]:
    """For each task that both models have a probing result for: whether the multi-lingual one raises it enough.

    Results that are given with two decimals differ in more than their last digits, so a gain counts to nine.
    """
    gains = []
    for probe, value in cross.items():
        if probe in multi:
            enough = round(multi[probe] - value, 9) >= min_gain
            gains.append(Gain(probe, value, multi[probe], enough))
    return tuple(gains)


def choose_from_results(
    results: Sequence[ProbingResult], *, cross: str, multi: str, score: str, min_gain: float = MIN_GAIN
) -> TaskChoice:
    """Choose by two models' results; a task that one of them was trained for itself is not auxiliary to it."""
    values = list_results(results, score=score)
    models, probes = list_axes(values)
    for name in (cross, multi):
        if name not in models:
            raise DataError(f"{name!r}: no model of that name has probing results.{nearest(name, models)}")
    own = {one.probe for one in results if one.own and one.model in (cross, multi)}
    others = [probe for probe in probes if probe not in own]
    means = [{p: fmean(values[name, p]) for p in others if (name, p) in values} for name in (cross, multi)]
    gains = choose_tasks(means[0], means[1], min_gain=min_gain)
    return TaskChoice(cross, multi, gains, min_gain, name_labels(results))


def name_labels(results: Sequence[ProbingResult]) -> str:
    """Whose labels probing results took, in words."""
    languages = [code for code in find_languages(results) if code != ALL]
    return f"labels of the target languages: the probes' tests in {', '.join(languages)}"
