"""Probing results from probes' scores, and the auxiliary tasks that they speak for.

A probing result is the score of a probe on a trained encoder less that of a probe on the encoder it began as, in
percentage points (section 3.2 of multilingual knowledge: "ceiling" less "probe").
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from crossling.errors import ArtefactError, DataError, nearest
from crossling.report.heat_maps import HeatMap, draw_maps
from crossling.report.table import Table, format_mean

ALL = "all"
"""The name of all languages' tests taken together."""
MIN_GAIN = 0.5
"""Percentage points by which a task's result must rise, for the task to be worth learning beside the main one."""


@dataclass(frozen=True)
class Result:
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
    """In percent, on the encoder that it is held against."""
    examples: int

    @property
    def result(self) -> float:
        """In percentage points."""
        return self.ceiling - self.base


def subtract_bases(rows: Iterable[Mapping[str, Any]], bases: Mapping[str, str]) -> list[Result]:
    """Results of all models that are held against another: ``bases`` maps a model's name to the other's.

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
                "learnt from different languages are held against encoders probed in them: name one --source for all"
            )
        results.append(
            Result(
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


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["probe"], row["language"], row["score"], row["sample"]


def name_model(row: Mapping[str, Any]) -> str:
    """A model's name, with its task where a study has several."""
    return f"{row['task']}: {row['model']}" if row["task"] else str(row["model"])


def to_csv(results: Sequence[Result]) -> str:
    """Every result on a line."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*(field.name for field in fields(Result)), "result"], lineterminator="\n")
    writer.writeheader()
    for one in results:
        numbers = {name: f"{getattr(one, name):.4f}" for name in ("ceiling", "base", "result")}
        writer.writerow({**asdict(one), **numbers, "own": str(one.own).lower()})
    return text.getvalue()


def read_csv(path: Path) -> list[Result]:
    """What :func:`to_csv` wrote."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_read_row(row) for row in csv.DictReader(file)]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; crossling probe writes one") from None
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise DataError(f"{path}: not a table of probing results ({error!r}); crossling probe writes one") from None


def _read_row(row: Mapping[str, str]) -> Result:
    return Result(
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


def find_languages(results: Sequence[Result]) -> list[str]:
    """The languages, all together first where there are several."""
    found = list(dict.fromkeys(one.language for one in results))
    return [ALL, *(code for code in found if code != ALL)] if ALL in found else found


def list_results(
    results: Sequence[Result], *, score: str, language: str = "", samples: bool = False
) -> dict[tuple[str, str], list[float]]:
    """Each seed's result by model and probe, from all training rows; or from their bootstrap ``samples``."""
    chosen = language or find_languages(results)[0]
    scores = list(dict.fromkeys(one.score for one in results))
    if score not in scores:
        raise DataError(f"--score {score!r}: the probes have no such score.{nearest(score, scores)}")
    found: dict[tuple[str, str], list[float]] = {}
    for one in results:
        if one.language == chosen and one.score == score and (one.sample > 0) == samples:
            found.setdefault((one.model, one.probe), []).append(one.result)
    return found


def tabulate_results(results: Sequence[Result], *, score: str) -> Table:
    """Table 3: a line for each model, a column for each task; in brackets what a model was trained for itself."""
    values, samples = (list_results(results, score=score, samples=choice) for choice in (False, True))
    own = {(one.model, one.probe) for one in results if one.own}
    models, probes = _axes(values)
    lines = []
    for model in models:
        cells = []
        for key in ((model, probe) for probe in probes):
            cell = format_mean(values.get(key, []), sign=True)
            if len(values.get(key, [])) == 1 and len(samples.get(key, [])) > 1:
                cell += f" ± {stdev(samples[key]):.2f}"
            cells.append(f"({cell})" if key in own else cell)
        lines.append((model, *cells))
    return Table(
        f"Probing results, {score} of {_describe(results)}",
        ("model", *probes),
        tuple(lines),
        notes=_explain(results, own=bool(own)),
    )


def tabulate_languages(results: Sequence[Result], *, score: str) -> Table:
    """The same in each language, with the scores that they are differences of."""
    lines = []
    chosen = [one for one in results if one.score == score and one.sample == 0]
    for probe in dict.fromkeys(one.probe for one in chosen):
        for language in find_languages(chosen):
            some = [one for one in chosen if (one.probe, one.language) == (probe, language)]
            for model in dict.fromkeys(one.model for one in some):
                ours = [one for one in some if one.model == model]
                lines.append(
                    (
                        probe,
                        language,
                        model,
                        format_mean([one.ceiling for one in ours]),
                        format_mean([ours[0].base]),
                        format_mean([one.result for one in ours], sign=True),
                        f"{ours[0].examples:,}",
                    )
                )
    head = ("task", "language", "model", "ceiling", "base", "result", "examples")
    return Table("By language", head, tuple(lines), names=3)


def _axes(values: Mapping[tuple[str, str], Any]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(model for model, _ in values)), list(dict.fromkeys(probe for _, probe in values))


def _describe(results: Sequence[Result]) -> str:
    languages = find_languages(results)
    return f"{', '.join(languages[1:])} together" if languages[0] == ALL else languages[0]


def _explain(results: Sequence[Result], *, own: bool) -> tuple[str, ...]:
    bases = ", ".join(dict.fromkeys(one.against for one in results))
    notes = [
        "Percentage points by which a linear probe on a model's frozen encoder (the ceiling) is better than one on "
        f"{bases} (the base)."
    ]
    if own:
        notes.append("In brackets: the task that the model itself was trained for.")
    if len({one.seed for one in results}) > 1:
        notes.append("± standard deviation over the models' seeds.")
    elif any(one.sample for one in results):
        notes.append("± standard deviation over bootstrap samples of the training rows.")
    return tuple(notes)


def draw_results(results: Sequence[Result], *, score: str) -> str:
    """Table 3 as a picture: all languages together, then each, blue where training helped the probe."""
    panels = []
    for language in find_languages(results):
        values = list_results(results, score=score, language=language)
        models, probes = _axes(values)
        grid = [[fmean(values[m, p]) if (m, p) in values else None for p in probes] for m in models]
        panels.append(HeatMap(language, grid, rows=models, columns=probes, colours="diverging", write=True))
    return draw_maps(
        panels, title=f"Probing results, {score}, percentage points", columns=min(3, len(panels)), shared=True
    )


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
    """The auxiliary tasks that two models' probing results speak for."""

    cross: str
    multi: str
    gains: tuple[Gain, ...]
    min_gain: float
    labels: str
    """Whose labels it took."""

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
    results: Sequence[Result], *, cross: str, multi: str, score: str, min_gain: float = MIN_GAIN
) -> TaskChoice:
    """Choose by two models' results; a task that one of them was trained for itself is not auxiliary to it."""
    values = list_results(results, score=score)
    models, probes = _axes(values)
    for name in (cross, multi):
        if name not in models:
            raise DataError(f"{name!r}: no model of that name has probing results.{nearest(name, models)}")
    own = {one.probe for one in results if one.own and one.model in (cross, multi)}
    others = [probe for probe in probes if probe not in own]
    means = [{p: fmean(values[name, p]) for p in others if (name, p) in values} for name in (cross, multi)]
    gains = choose_tasks(means[0], means[1], min_gain=min_gain)
    return TaskChoice(cross, multi, gains, min_gain, name_labels(results))


def name_labels(results: Sequence[Result]) -> str:
    """Whose labels probing results took, in words."""
    languages = [code for code in find_languages(results) if code != ALL]
    return f"labels of the target languages: the probes' tests in {', '.join(languages)}"
