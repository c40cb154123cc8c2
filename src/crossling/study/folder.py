"""The files of the folders of runs and studies, by name; nothing heavy is imported to look at them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from crossling.errors import ArtefactError, UserError
from crossling.files import copy_atomic, read_json, write_once
from crossling.store.artefacts import Store

if TYPE_CHECKING:
    from crossling.recipe.recipe import EvaluateSettings

PLAN = "study.json"
"""What the study asks for, and all its cells."""
COMPLETE = "complete.json"
"""In a cell's folder: its results are all there."""
FAILED = "failed.json"
"""In a cell's folder: why it has no results."""
RUNNERS = "runners"
"""A file for each runner at work, renewed every second."""
EVENTS = "events.jsonl"
"""What began and ended, a line each."""
LOGS = "logs"
CHOICES = "choices.json"
COMPARISON = "comparison.json"
PICKS = "picks.json"


def find_out(given: Path, out: Path | None = None) -> Path:
    """The folder of a study: as given, or the default one of a study file."""
    if out is not None:
        return out
    return given if given.is_dir() else default_out(given)


def default_out(study: Path) -> Path:
    """Where a study's results go unless told otherwise."""
    return Path("studies") / study.stem


def read_plan(out: Path) -> dict[str, Any]:
    """The plan of a study, from its folder."""
    plan = read_json(out / PLAN)
    if not isinstance(plan, dict):
        raise ArtefactError(f"{out}: not the folder of a study ({PLAN} is missing); make one with crossling study run")
    return plan


def is_finished(out: Path, cell: str, identity: str) -> bool:
    """Whether a cell's marker is there, and is of this very work."""
    marker = read_json(out / cell / COMPLETE)
    return isinstance(marker, dict) and marker.get("identity") == identity


def prediction_path(out: Path, seed: int, entry: EvaluateSettings, language: str) -> Path:
    """Where the predictions of one seed, data set and language lie."""
    return out / f"seed-{seed}" / "predictions" / set_name(entry) / f"{_file_name(language)}.parquet"


def set_name(entry: EvaluateSettings) -> str:
    """A data set's name in tables and folders; another split than test is part of it."""
    if isinstance(entry.on, str):
        name = entry.on
    elif "data" in entry.on:
        name = str(entry.on["data"]).partition(":")[0]
    else:
        name = Path(str(entry.on.get("path", "data"))).stem
    return _file_name(name if entry.split == "test" else f"{name}-{entry.split}")


def name_file(*parts: str) -> str:
    """A file's name made of several, without an ending; nothing in it leads to another folder."""
    return "-".join(filter(None, map(_file_name, parts)))


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.@" else "-" for c in text).strip("-")


def mark_finished(folder: Path, facts: dict[str, Any]) -> None:
    """Write a cell's marker, last of all; another runner may have been first with the same work."""
    folder.mkdir(parents=True, exist_ok=True)
    if not write_once(folder / COMPLETE, facts):
        marker = read_json(folder / COMPLETE)
        if not isinstance(marker, dict) or marker.get("identity") != facts["identity"]:
            raise UserError(f"{folder}: holds the marker of other work; start the study again")


def send_results(store: Store, folder: Path, files: Iterable[Path], facts: dict[str, Any]) -> None:
    """Put a cell's predictions where all machines find them, if the store is at an address."""
    if store.archive is not None:
        named = {path.relative_to(folder).as_posix(): path for path in files}
        store.archive.publish(_result_name(facts["identity"]), named, facts)


def bring_results(store: Store, folder: Path, identity: str) -> bool:
    """Bring a cell's predictions from the store's address, then its marker; tells whether they were there."""
    if store.archive is None or not store.archive.is_complete(_result_name(identity)):
        return False
    with TemporaryDirectory(dir=store.root, prefix=".fetch-") as name:
        fetched = Path(name)
        facts = store.archive.fetch(_result_name(identity), fetched)
        for path in (path for path in fetched.rglob("*") if path.is_file()):
            copy_atomic(path, folder / path.relative_to(fetched))
    mark_finished(folder, facts)
    return True


def _result_name(identity: str) -> str:
    return f"predict-{identity}"
