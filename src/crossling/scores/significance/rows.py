"""Which rows belong together: between systems, seeds and languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossling.errors import ArtefactError
from crossling.scores.predictions import UNSEEN, Predictions
from crossling.scores.spans import Array


@dataclass(frozen=True, eq=False)
class Group:
    """Languages that share rows: for each language the key of every row, from 0 to `size`."""

    keys: Mapping[str, Array]
    size: int


def group_rows(languages: Mapping[str, Predictions]) -> list[Group]:
    """Languages that share rows, grouped: questions by their ids, other rows by their number and place."""
    groups: list[list[str]] = []
    for language in languages:
        related = [g for g in groups if any(_share_rows(languages[language], languages[other]) for other in g)]
        joined = [member for group in related for member in group]
        groups = [*(group for group in groups if group not in related), [*joined, language]]
    return [_key_rows({language: languages[language] for language in group}) for group in groups]


def sort_runs(runs: Sequence[Predictions], *, where: str) -> list[Predictions]:
    """Runs in the order of their seeds, where these are on record, so that equal seeds of two systems meet."""
    if not runs:
        raise ArtefactError(f"{where}: no predictions; run the recipe first")
    seeds = [run.meta.get("seed") for run in runs]
    known = [seed for seed in seeds if seed is not None]
    if len(set(known)) < len(known):
        raise ArtefactError(f"{where}: has two runs of one seed (seeds {', '.join(map(str, known))})")
    return sorted(runs, key=lambda run: run.meta["seed"]) if len(known) == len(runs) else list(runs)


def check_same_rows(runs: Mapping[str, Sequence[Predictions]], *, where: str) -> None:
    """Refuse to compare predictions for different rows: paired tests would be silently wrong."""
    flat = [(system, run) for system, some in runs.items() for run in some]
    first_system, first = flat[0]
    if not first.n_rows:
        raise ArtefactError(f"{where}: {first_system} has predictions for no rows at all")
    for system, run in flat[1:]:
        fault = _find_fault(first, run)
        if fault:
            raise ArtefactError(
                f"{where}: predictions of {first_system} and {system} cannot be compared: {fault}; "
                "evaluate both on the same version of the data"
            )


def _find_fault(first: Predictions, other: Predictions) -> str:
    """How two predictions differ in what they are predictions for; empty if they do not."""
    if (first.kind, first.scheme) != (other.kind, other.scheme):
        return f"one holds {first.kind} (scheme {first.scheme}), the other {other.kind} (scheme {other.scheme})"
    if first.n_rows != other.n_rows or len(first.table) != len(other.table):
        return f"{first.n_rows} rows with {len(first.table)} labels against {other.n_rows} with {len(other.table)}"
    prints = [run.meta.get("fingerprint") for run in (first, other)]
    if None not in prints and prints[0] != prints[1]:
        return f"the data have other fingerprints ({prints[0]}, {prints[1]})"
    if not np.array_equal(first.column("row"), other.column("row")):
        return "their sentences differ in length"
    if first.kind == "answers":
        same = all(first.table.column(name).equals(other.table.column(name)) for name in ("id", "gold"))
        return "" if same else "questions or their right answers differ"
    return "" if _same_gold(first, other) else "the gold labels differ"


def _same_gold(first: Predictions, other: Predictions) -> bool:
    """Whether gold labels agree by name; a label that one of the models lacks agrees with any."""
    codes, others = first.column("gold"), other.column("gold")
    names = {label: code for code, label in enumerate(other.labels)}
    translated = np.array([*(names.get(label, UNSEEN) for label in first.labels), UNSEEN])[codes]
    return bool(np.all((translated == others) | (translated == UNSEEN) | (others == UNSEEN)))


def _share_rows(first: Predictions, other: Predictions) -> bool:
    if first.kind == other.kind == "answers":
        return not set(_ids(first)).isdisjoint(_ids(other))
    return first.kind == other.kind and first.n_rows == other.n_rows


def _key_rows(languages: Mapping[str, Predictions]) -> Group:
    if any(predictions.kind != "answers" for predictions in languages.values()):
        size = next(iter(languages.values())).n_rows
        return Group({language: np.arange(size) for language in languages}, size)
    ids = [_ids(predictions) for predictions in languages.values()]
    distinct, keys = np.unique(np.concatenate(ids), return_inverse=True)
    parts = np.split(keys, np.cumsum([len(part) for part in ids])[:-1])
    return Group(dict(zip(languages, parts, strict=True)), len(distinct))


def _ids(predictions: Predictions) -> Array:
    return np.array(predictions.table.column("id").to_pylist(), dtype=str)
