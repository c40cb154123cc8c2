"""The smaller tables of a report: how far a study is, its machines, its data, its choices, its recipes."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crossling.data.declarations import list_names, load_declaration
from crossling.files import read_json
from crossling.recipe.identity import canonical_json
from crossling.recipe.overrides import read_toml
from crossling.recipe.recipe import Recipe, load_recipe
from crossling.report.citations import DATA_WORKS
from crossling.report.table import Table
from crossling.scores.predictions import read_predictions
from crossling.study.choices import Choice
from crossling.study.layout import PICKS, prediction_path
from crossling.study.status import STATES, StudyStatus

Finished = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Markers of finished cells, by folder of their variant and seed."""


def count_cells(status: StudyStatus) -> Table:
    """Cells by state: all of them, those of every variant that is not finished, and what failed."""
    rows = [
        (task, label, *(str(status.count(state, cells)) for state in STATES))
        for (task, label), cells in status.groups.items()
        if status.count("done", cells) < len(cells)
    ]
    rows.append(("", f"{len(status.cells)} cells", *(str(status.count(state)) for state in STATES)))
    failed = [f"{cell.name} failed: {cell.error.splitlines()[0]}" for cell in status.cells if cell.state == "failed"]
    head = ("task", "system", *STATES)
    table = Table("How far the study is", head, tuple(rows), names=2, notes=tuple(failed), stem="cells")
    return table.without_empty_names()


def list_machines(finished: Finished) -> Table:
    """Hardware and versions, with the number of cells where they differ."""
    facts: dict[str, Counter[str]] = {}
    for seeds in finished.values():
        for marker in seeds.values():
            for name, value in marker.get("machine", {}).items():
                facts.setdefault(name, Counter())[str(value)] += 1
    rows = []
    for name, values in facts.items():
        told = [value if len(values) == 1 else f"{value} ({count} cells)" for value, count in values.most_common()]
        rows.append((name, ", ".join(told)))
    notes = () if rows else ("No finished cell says what it was made with.",)
    return Table("Hardware and versions", ("fact", "value"), tuple(rows), names=2, notes=notes, stem="machines")


def list_data(plan: Mapping[str, Any], finished: Finished, out: Path) -> Table:
    """Every set that was trained or tested on, with the fingerprint of its rows."""
    rows: dict[tuple[str, ...], None] = {}
    for variant in plan["variants"]:
        facts = read_json(out / variant["folder"] / "run.json")
        known = facts.get("data") if isinstance(facts, dict) else None
        for one in known or _read_tested(variant, finished, out):
            count = f"{one['rows']:,}" if isinstance(one.get("rows"), int) else "–"
            rows.setdefault((variant["task"], one["role"], one["name"], one["language"], count, one["fingerprint"]))
    head = ("task", "role", "set", "language", "rows", "fingerprint")
    notes = () if rows else ("The fingerprints of this study's data are not on record in its folder.",)
    table = Table("Data", head, tuple(rows), names=4, notes=notes, stem="data")
    return table.without_empty_names() if rows else table


def _read_tested(variant: Mapping[str, Any], finished: Finished, out: Path) -> Iterator[dict[str, Any]]:
    """What predictions say of the rows that they are of, for a study that has no record of its data."""
    folder = out / variant["folder"]
    for seed in sorted(finished.get(variant["folder"], {}))[:1]:
        recipe = load_recipe(folder / "recipe.toml")
        for entry in recipe.evaluate:
            for language, _ in entry.specs():
                path = prediction_path(folder, seed, entry, language)
                if path.is_file():
                    found = read_predictions(path)
                    known = {"role": "test", "name": found.data, "language": found.language, "rows": found.n_rows}
                    yield {**known, "fingerprint": str(found.meta.get("fingerprint", "–"))}


def list_choices(choices: tuple[Choice, ...], out: Path) -> list[Table]:
    """What criteria chose, and how good that was where it was judged."""
    tables = []
    if choices:
        rows = tuple((c.task, c.system, c.axis.rpartition(".")[2], c.criterion, c.chosen, c.labels) for c in choices)
        head = ("task", "system", "axis", "criterion", "chosen", "labels used")
        told = tuple(choice.describe() for choice in choices)
        tables.append(Table("Choices", head, rows, names=6, notes=told, stem="choices").without_empty_names())
    path = out / PICKS
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as stream:
            lines = [tuple(line) for line in csv.reader(stream)]
        if len(lines) > 1:
            note = "Rank and regret (points below the best) by the mean score over languages not trained on."
            names = min(5, len(lines[0]))
            table = Table("How good the choices were", lines[0], tuple(lines[1:]), names, (note,), stem="picks")
            tables.append(table.without_empty_names())
    return tables


def list_recipes(plan: Mapping[str, Any], out: Path) -> tuple[list[tuple[str, str]], Table | None]:
    """The first recipe of each task whole, and of the others what differs from it, key by key."""
    first: dict[str, dict[str, str]] = {}
    whole, others = [], []
    for variant in plan["variants"]:
        path = out / variant["folder"] / "recipe.toml"
        if not path.is_file():
            continue
        name = ": ".join(filter(None, (variant["task"], variant["label"])))
        flat = dict(flatten(read_toml(path)))
        if variant["task"] not in first:
            first[variant["task"]] = flat
            whole.append((name, path.read_text(encoding="utf-8")))
            continue
        base = first[variant["task"]]
        lines = [f"{key} = {value}" for key, value in flat.items() if base.get(key) != value]
        lines += [f"without {key}" for key in base if key not in flat]
        others.append((variant["task"], variant["label"], "; ".join(lines) or "nothing"))
    head, title = ("task", "system", "keys that differ"), "What differs from the recipe above"
    table = Table(title, head, tuple(others), names=3, stem="recipes").without_empty_names() if others else None
    return whole, table


def flatten(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys and values; lists of plain values stay whole."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from flatten(inside, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        for number, inside in enumerate(value):
            yield from flatten(inside, f"{key}.{number}")
    else:
        yield key, json.dumps(value, ensure_ascii=False)


def list_identities(plan: Mapping[str, Any]) -> Table:
    """The identities of every cell's stages and of its predictions."""
    rows = tuple((cell["name"], " → ".join(cell["stages"]), cell["identity"]) for cell in plan["cells"])
    note = "A hash of all that affects a result: settings, seed, data, encoder, precision, versions of the code."
    return Table("Identities", ("cell", "stages", "predictions"), rows, names=3, notes=(note,), stem="identities")


def list_used(recipes: list[Recipe]) -> set[str]:
    """Kinds and encoders that recipes name, as citations know them."""
    used = set()
    for recipe in recipes:
        used.add(f"encoder/{recipe.encoder.name}")
        for stage in recipe.stage:
            used.add(f"stages/{stage.kind}")
            table = stage.model_dump(mode="json")
            used |= {f"{stage.kind}/{name}" for name, value in table.items() if value}
            if isinstance(table.get("fusion"), dict):
                used.add(f"fusions/{table['fusion'].get('kind')}")
    return used


def cite_data(recipes: list[Recipe]) -> list[str]:
    """What the catalogue says of the sets that recipes name."""
    text = canonical_json([recipe.model_dump(mode="json") for recipe in recipes])
    cited = []
    for name in list_names():
        if any(f'"{name}{mark}' in text for mark in ('"', ":", "@")):
            declaration = load_declaration(name)
            work = f" {DATA_WORKS[declaration.citation]}" if declaration.citation else ""
            cited.append(f"{name}: {declaration.title}. Licence: {declaration.licence}.{work}")
    return cited
