"""Attention-head updates of a list of models: maps, differences between them, and how alike their heads rank."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossling.analyses._stored import Original
from crossling.errors import DataError, UserError, nearest
from crossling.report.head_maps import NORMALISE, Array, build_map, check_normalise, correlate_ranks, normalise_map
from crossling.report.heat_maps import HeatMap, draw_maps
from crossling.report.probing import name_model
from crossling.report.table import Table
from crossling.study.analysing import Analysis
from crossling.study.probing import show_sheets, write_files, write_markdown
from crossling.study.show_analysis import FOLDER, name_files
from crossling.study.subjects import find_subjects

PARTS = ("update", "query", "key", "value", "output")
"""Columns that can be mapped; the first is all of a head's weights."""


def find_against(models: Sequence[str], against: str | None) -> str:
    """What ``against`` names, as the analysis wants it: an encoder's name or the folder of a saved model; or nothing.

    Models that were not trained have no start to be held against.
    """
    if against is None:
        untrained = [one.label for one in find_subjects(models).subjects if isinstance(one.model, Original)]
        if untrained:
            raise UserError(
                f"{untrained[0]}: was not trained, so that none of its heads changed; name trained models, or what to "
                "hold it --against"
            )
        return ""
    (subject, *more) = find_subjects([against]).subjects
    if more:
        raise UserError(f"--against {against}: holds {1 + len(more)} models (seeds or systems); name one saved model")
    place = subject.model
    if isinstance(place, Path):
        return str(place)
    if place.revision:
        raise UserError(f"--against {against}: a revision cannot be named here; name a folder")
    return place.name


def average_maps(rows: Sequence[Mapping[str, Any]], *, part: str, normalise: Any) -> dict[str, Array]:
    """Each model's map of layers by heads: each seed's on the common scale, then their mean."""
    seeds: dict[str, dict[Any, list[Mapping[str, Any]]]] = {}
    for row in rows:
        seeds.setdefault(name_model(row), {}).setdefault(row["seed"], []).append(row)
    return {
        name: np.mean(
            [normalise_map(build_map(some, part), build_map(some, "weight"), normalise) for some in by_seed.values()],
            axis=0,
        )
        for name, by_seed in seeds.items()
    }


def check_choices(part: str, normalise: str) -> None:
    """Refuse what cannot be drawn, before anything is computed."""
    if part not in PARTS:
        raise DataError(f"--part {part!r}: unknown.{nearest(part, PARTS)}")
    check_normalise(normalise)


def present_updates(
    analysis: Analysis,
    *,
    part: str,
    normalise: Any,
    pairs: Sequence[tuple[str, str]],
    path: Path | None,
) -> None:
    """Show how alike models' updates are, and write maps, differences and figures."""
    maps = average_maps(analysis.table.to_pylist(), part=part, normalise=normalise)
    pairs = _check_pairs(pairs, maps)
    sheets = [tabulate_ranks(maps), tabulate_layers(maps, normalise)]
    place = path or (analysis.home or FOLDER) / f"{name_files(analysis)}.csv"
    place = place if place.suffix == ".csv" else place.with_name(f"{place.name}.csv")
    lines = [f"Note: {note}." for note in analysis.notes]
    files = {
        place: to_csv(analysis, maps),
        place.with_suffix(".md"): write_markdown(analysis, sheets, lines),
        place.with_suffix(".svg"): draw_updates(maps, pairs, part=part, normalise=normalise),
    }
    show_sheets(sheets if len(maps) > 1 else sheets[1:], lines)
    write_files(files)


def _check_pairs(pairs: Sequence[tuple[str, str]], maps: Mapping[str, Array]) -> list[tuple[str, str]]:
    """The pairs to compare; of two models, these."""
    shapes = {values.shape for values in maps.values()}
    if len(shapes) > 1:
        raise DataError(f"encoders of {len(shapes)} sizes; heads are compared within one kind of encoder")
    first, *others = maps
    return list(pairs) or ([(first, others[0])] if len(others) == 1 else [])


def tabulate_ranks(maps: Mapping[str, Array]) -> Table:
    """Spearman's rho between every two models' updates."""
    lines = []
    for first, second in combinations(maps, 2):
        found = correlate_ranks(maps[first], maps[second])
        lines.append((first, second, f"{found.rho:.3f}", f"{found.p:.2g}", str(found.count)))
    return Table(
        "How alike attention heads rank by their updates",
        ("model", "and", "Spearman's rho", "p", "heads"),
        tuple(lines),
        names=2,
    )


def tabulate_layers(maps: Mapping[str, Array], normalise: str) -> Table:
    """The mean update of each layer's heads."""
    layers = max(len(values) for values in maps.values())
    lines = tuple(
        (str(layer + 1), *(f"{values[layer].mean():.4g}" for values in maps.values())) for layer in range(layers)
    )
    notes = (f"Mean over a layer's heads of the absolute change of their weights, {NORMALISE[normalise]}.",)
    return Table("Updates by layer", ("layer", *maps), lines, notes=notes)


def to_csv(analysis: Analysis, maps: Mapping[str, Array]) -> str:
    """Every head of every model and seed, with the mean map's value beside it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = ("update", "query", "key", "value", "output", "weight")
    writer.writerow(["model", "seed", "layer", "head", *numbers, "normalised"])
    for row in analysis.table.to_pylist():
        name = name_model(row)
        seed = "" if row["seed"] is None else row["seed"]
        shown = [f"{row[number]:.6g}" for number in numbers]
        value = maps[name][row["layer"] - 1, row["head"] - 1]
        writer.writerow([name, seed, row["layer"], row["head"], *shown, f"{value:.6g}"])
    return text.getvalue()


def draw_updates(maps: Mapping[str, Array], pairs: Sequence[tuple[str, str]], *, part: str, normalise: str) -> str:
    """Figure 1: for each pair both maps and their difference; models of no pair below."""
    panels = []
    for first, second in pairs:
        ranks = correlate_ranks(maps[first], maps[second])
        difference = maps[second] - maps[first]
        note = f"blue: {second} more, red: {first}; rho {ranks.rho:.2f}, p {ranks.p:.1g}"
        panels += [
            _draw(first, maps[first]),
            _draw(second, maps[second]),
            _draw("difference", difference, colours="diverging", note=note),
        ]
    paired = {name for pair in pairs for name in pair}
    panels += [_draw(name, values) for name, values in maps.items() if name not in paired]
    what = "of attention heads" if part == "update" else f"of attention heads, {part}"
    scale = {"none": "as they are", "weights": "by the weights before"}.get(
        normalise, f"normalised by their {normalise}"
    )
    return draw_maps(panels, title=f"Updates {what}, {scale}", columns=min(3, len(panels)), shared=True)


def _draw(title: str, values: Array, **more: Any) -> HeatMap:
    layers, heads = values.shape
    return HeatMap(
        title,
        values.tolist(),
        rows=[str(number + 1) for number in range(layers)],
        columns=[str(number + 1) for number in range(heads)],
        axes=("layer", "head"),
        upwards=True,
        **more,
    )
