"""Attention-head probing of a list of models: maps of heads, and which of the best ones models share (table 4)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossling.errors import DataError, nearest
from crossling.report.head_maps import SIGNIFICANT, Array, Overlap, build_map, compare_best, count_top, rank_heads
from crossling.report.heat_maps import HeatMap, draw_maps
from crossling.report.probing import ALL, name_model
from crossling.report.table import Table
from crossling.study.probing import Compared, show_sheets, write_files, write_markdown

BEST = 5
"""Heads that are named."""
MEASURES = ("difference", "score")
SCORES = ("macro_f1", "accuracy")


@dataclass(frozen=True)
class Heads:
    """What the probes of all heads are worth, for every model and task: layers by heads, in percent or points."""

    maps: Mapping[tuple[str, str], Array]
    """By model and probe: the mean over seeds."""
    own: frozenset[tuple[str, str]]
    """Models with the tasks that they were trained for."""

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(model for model, _ in self.maps))

    @property
    def probes(self) -> list[str]:
        return list(dict.fromkeys(probe for _, probe in self.maps))


@dataclass(frozen=True)
class Shared:
    """A model beside the baseline of a task."""

    probe: str
    model: str
    baseline: str
    overlap: Overlap


def collect_heads(compared: Compared, *, score: str, measure: str) -> Heads:
    """Maps of all models: each head's score less what the same head had before training, or the score as it is.

    The paper probes heads "using the same probing method" as models, whose result is such a difference.
    """
    check_choices(score, measure)
    groups: dict[tuple[str, str], dict[Any, list[dict[str, Any]]]] = {}
    own = set()
    for row in _choose_rows(compared.analysis.table.to_pylist(), score):
        key = (name_model(row), row["probe"])
        groups.setdefault(key, {}).setdefault(row["seed"], []).append(row)
        if row["own"]:
            own.add(key)
    scores = {
        key: np.mean([100 * build_map(some, "value") for some in seeds.values()], axis=0)
        for key, seeds in groups.items()
    }
    if measure == "score":
        return Heads(scores, frozenset(own))
    bases = compared.bases
    return Heads({(m, p): v - scores[bases[m], p] for (m, p), v in scores.items() if m in bases}, frozenset(own))


def check_choices(score: str, measure: str) -> None:
    """Refuse what cannot be shown, before anything is computed."""
    if measure not in MEASURES:
        raise DataError(f"--measure {measure!r}: unknown.{nearest(measure, MEASURES)}")
    if score not in SCORES:
        raise DataError(f"--score {score!r}: heads have no such score.{nearest(score, SCORES)}")


def _choose_rows(rows: Sequence[dict[str, Any]], score: str) -> list[dict[str, Any]]:
    """One score of all languages together (or of the one that there is), from all training rows."""
    together = {(row["probe"], row["language"]) for row in rows if row["language"] == ALL}
    return [
        row
        for row in rows
        if row["score"] == score
        and row["sample"] == 0
        and (row["language"] == ALL or (row["probe"], ALL) not in together)
    ]


def find_baselines(heads: Heads, named: Mapping[str, str]) -> dict[str, str]:
    """For each task the model that others are compared with: the one named, else the first that was trained for it."""
    for probe, model in named.items():
        if probe not in heads.probes:
            raise DataError(f"--baseline {probe}={model}: no such task.{nearest(probe, heads.probes)}")
        if model not in heads.models:
            raise DataError(f"--baseline {probe}={model}: no such model.{nearest(model, heads.models)}")
    found = {}
    for probe in heads.probes:
        trained = [model for model in heads.models if (model, probe) in heads.own]
        if probe in named or trained:
            found[probe] = named.get(probe) or trained[0]
    return found


def compare_heads(heads: Heads, baselines: Mapping[str, str], tops: Sequence[str]) -> list[Shared]:
    """Every model beside every task's baseline."""
    shared = []
    for probe, baseline in baselines.items():
        best = heads.maps[baseline, probe]
        for model in heads.models:
            if model == baseline or (model, probe) not in heads.maps:
                continue
            if heads.maps[model, probe].shape != best.shape:
                raise DataError(f"{model} and {baseline}: encoders of different sizes; their heads cannot be compared")
            for top in count_top(tops, best.size):
                shared.append(Shared(probe, model, baseline, compare_best(heads.maps[model, probe], best, top)))
    return shared


def tabulate_shared(shared: Sequence[Shared], *, score: str, measure: str) -> Table:
    """Table 4: for each model and number of best heads, how many are shared and how alike those rank."""
    probes = list(dict.fromkeys(one.probe for one in shared))
    cells = {(one.model, one.overlap.top, one.probe): one for one in shared}
    head = ["model", "top", *(name for probe in probes for name in (f"{probe}: shared", "rho"))]
    lines = []
    for model, top in dict.fromkeys((one.model, one.overlap.top) for one in shared):
        line = [model, str(top)]
        for probe in probes:
            one = cells.get((model, top, probe))
            line += [str(one.overlap.shared), str(one.overlap.ranks)] if one else ["–", "–"]
        lines.append(tuple(line))
    tops = {one.overlap.top: one.overlap.expected for one in shared}
    chance = ", ".join(f"{expected:.0f} of {top}" for top, expected in tops.items())
    baselines = ", ".join(f"{p} with {b}" for p, b in dict.fromkeys((one.probe, one.baseline) for one in shared))
    what = "by what training added to a head's probe" if measure == "difference" else "by the score of a head's probe"
    notes = (
        f"Compared for {baselines}: how many of the best heads ({what}, {score}) both have, and Spearman's rho over "
        f"those alone; * p < {SIGNIFICANT:g}.",
        f"Rankings that have nothing to do with each other share {chance}.",
    )
    return Table("Best attention heads that models share", tuple(head), tuple(lines), notes=notes)


def tabulate_best(heads: Heads) -> Table:
    """The best heads of each model for each task."""
    lines = []
    for (model, probe), values in heads.maps.items():
        places = [divmod(int(place), values.shape[1]) for place in rank_heads(values)[:BEST]]
        listed = ", ".join(f"{layer + 1}.{head + 1} ({values[layer, head]:.1f})" for layer, head in places)
        lines.append((probe, model, listed))
    return Table(f"The {BEST} best heads, as layer.head", ("probe", "model", "heads"), tuple(lines), names=3)


def draw_heads(heads: Heads, probe: str, *, title: str) -> str:
    """Figures A1 to A4: a task's map for each model, green for the best heads and red for the worst."""
    panels = []
    for (model, name), values in heads.maps.items():
        if name == probe:
            panels.append(
                HeatMap(
                    model,
                    values.tolist(),
                    rows=[str(number + 1) for number in range(values.shape[0])],
                    columns=[str(number + 1) for number in range(values.shape[1])],
                    colours="ranked",
                    axes=("layer", "head"),
                    upwards=True,
                )
            )
    return draw_maps(panels, title=title, columns=min(4, len(panels)))


def present_heads(
    compared: Compared,
    *,
    score: str,
    measure: str,
    tops: Sequence[str],
    baselines: Mapping[str, str],
    path: Path | None,
) -> None:
    """Show table 4, and write it with all figures behind it and a picture for each task."""
    heads = collect_heads(compared, score=score, measure=measure)
    found = find_baselines(heads, baselines)
    shared = compare_heads(heads, found, tops)
    missing = [probe for probe in heads.probes if probe not in found]
    lines = [f"Note: {note}." for note in compared.analysis.notes]
    if missing:
        lines.append(
            f"Note: no model here was trained for {', '.join(missing)}; --baseline TASK=MODEL names what others are "
            "compared with."
        )
    best = tabulate_best(heads)
    sheets = [*([tabulate_shared(shared, score=score, measure=measure)] if shared else []), best]
    place = compared.find_path(path)
    files = {
        place: to_csv(compared),
        place.with_name(f"{place.stem}-shared.csv"): shared_to_csv(shared),
        place.with_suffix(".md"): write_markdown(compared.analysis, sheets, lines),
    }
    unit = "points above what they were before training" if measure == "difference" else "percent"
    for probe in heads.probes:
        title = f"Attention heads probed for {probe}: {score}, {unit}"
        files[place.with_name(f"{place.stem}-{probe}.svg")] = draw_heads(heads, probe, title=title)
    show_sheets(sheets[:1], lines)
    write_files(files)


def to_csv(compared: Compared) -> str:
    """Every head's scores in percent, for every model and seed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("probe", "own", "language", "score", "sample", "layer", "head")
    writer.writerow(["model", "seed", *columns, "percent"])
    for row in compared.analysis.table.to_pylist():
        seed = "" if row["seed"] is None else row["seed"]
        facts = [str(row[name]).lower() if name == "own" else row[name] for name in columns]
        writer.writerow([name_model(row), seed, *facts, f"{100 * row['value']:.4f}"])
    return text.getvalue()


def shared_to_csv(shared: Sequence[Shared]) -> str:
    """Every comparison on a line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["probe", "model", "baseline", "top", "shared", "expected", "p_shared", "rho", "p_rho"])
    for one in shared:
        overlap = one.overlap
        figures = (overlap.expected, overlap.p, overlap.ranks.rho, overlap.ranks.p)
        shown = [f"{value:.6g}" for value in figures]
        writer.writerow([one.probe, one.model, one.baseline, overlap.top, overlap.shared, *shown])
    return text.getvalue()
