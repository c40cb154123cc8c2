"""The folders of runs and studies: their files by name, and what each file holds.

    study.json              the plan: settings, variants, and every cell with the identities of its stages
    events.jsonl            a line for each job that began, ended or died
    runners/                a file for each process that runs the study now (see ``status``)
    VARIANT/                the folder of a run: recipe.toml, run.json, seed-N/predictions/SET/LANGUAGE.parquet
    VARIANT/seed-N/         a cell: complete.json, written last, or failed.json

Nothing heavy is imported to read them, so that ``crossling study status`` answers at once. The record
of a run, run.json, is in ``run_record.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossling.addresses import mask_credentials
from crossling.errors import ArtefactError, UserError, nearest
from crossling.files import (
    append_line,
    copy_atomic,
    read_json,
    read_lines,
    temporary_folder,
    write_atomic,
    write_once,
)

if TYPE_CHECKING:
    from crossling.recipe.recipe import EvaluateSettings
    from crossling.store.artefacts import Store
    from crossling.study.grid import StudySettings

PLAN = "study.json"
RUN = "run.json"
RECIPE = "recipe.toml"
COMPLETE = "complete.json"
FAILED = "failed.json"
RUNNERS = "runners"
EVENTS = "events.jsonl"
LOGS = "logs"
CHOICES = "choices.json"
COMPARISON = "comparison.json"
PICKS = "picks.json"


@dataclass(frozen=True)
class PlannedVariant:
    """A system with a value for each of its axes, on one task."""

    task: str
    """Empty in a study of one task."""
    system: str
    axes: Mapping[str, Any]
    label: str
    """The name in tables."""
    folder: str
    """Below the study's."""


@dataclass(frozen=True)
class Training:
    """One stage with one seed, and the identities of the trainings that it needs."""

    identity: str
    seed: int
    stage: int
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedCell:
    """One seed of a variant, with the identities of its stages and predictions."""

    name: str
    """Its folder below the study's."""
    folder: str
    """Its variant's."""
    task: str
    system: str
    label: str
    seed: int
    stages: tuple[str, ...]
    identity: str
    """Of its predictions."""
    trainings: tuple[Training, ...] = ()
    """Its stages and its teachers', each after what it needs; none: its stages one after another."""

    def list_trainings(self) -> tuple[Training, ...]:
        """All that is trained for it, in an order in which it can be trained."""
        chain = (
            Training(identity, self.seed, number, self.stages[number - 1 : number])
            for number, identity in enumerate(self.stages)
        )
        return self.trainings or tuple(chain)


@dataclass(frozen=True)
class StudyPlan:
    """What a study asks for, and all its cells: ``study.json``."""

    name: str
    settings: StudySettings
    variants: tuple[PlannedVariant, ...]
    cells: tuple[PlannedCell, ...]
    store: Path
    identity: str = ""
    overrides: tuple[str, ...] = ()
    command: str = ""
    device: str = ""
    threads: int | None = None
    """CPU threads of each worker: part of what results are known by."""

    def write(self, out: Path) -> None:
        """Write the plan into the study's folder."""
        facts = asdict(self)
        facts |= {"settings": self.settings.model_dump(mode="json"), "store": str(self.store)}
        for cell, known in zip(facts["cells"], self.cells, strict=True):
            if known.trainings == replace(known, trainings=()).list_trainings():
                del cell["trainings"]  # a third of a large plan, and its stages say the same
        write_atomic(out / PLAN, to_json(facts))


def read_plan(out: Path) -> StudyPlan:
    """The plan of a study, from its folder."""
    from crossling.recipe.recipe import validate_table
    from crossling.study.grid import StudySettings

    facts = _read_plan_facts(out)
    problems: list[str] = []
    settings = validate_table(StudySettings, facts.get("settings", {}), "settings", problems)
    if settings is None:
        listed = "; ".join(problems)
        raise ArtefactError(f"{out / PLAN}: not as this version of crossling writes it ({listed}); run the study again")
    try:
        return StudyPlan(
            name=facts["name"],
            settings=settings,
            variants=tuple(PlannedVariant(**variant) for variant in facts["variants"]),
            cells=tuple(_read_cell(cell) for cell in facts["cells"]),
            store=Path(facts["store"]),
            overrides=tuple(facts.get("overrides", ())),
            **{name: facts[name] for name in ("identity", "command", "device", "threads") if name in facts},
        )
    except (KeyError, TypeError) as error:
        raise _report_damage(out, error) from None


class ListedCell(NamedTuple):
    """What is shown of a planned cell."""

    name: str
    task: str
    label: str
    seed: int
    identity: str
    stages: int


def list_cells(out: Path) -> tuple[str, list[ListedCell]]:
    """The name of a study and its cells; of thousands in a fraction of the time that the whole plan takes."""
    facts = _read_plan_facts(out)
    try:
        return facts["name"], [
            ListedCell(c["name"], c["task"], c["label"], c["seed"], c["identity"], len(c["stages"]))
            for c in facts["cells"]
        ]
    except (KeyError, TypeError) as error:
        raise _report_damage(out, error) from None


def _read_plan_facts(out: Path) -> dict[str, Any]:
    facts = read_json(out / PLAN)
    if not isinstance(facts, dict):
        check_is_there(out, "crossling study run")
        raise ArtefactError(f"{out}: not the folder of a study ({PLAN} is missing); make one with crossling study run")
    return facts


def check_is_there(folder: Path, command: str) -> None:
    """Refuse a folder that does not exist: which command makes such folders, and the nearest of those beside it."""
    if folder.exists():
        return
    beside: list[str] = []
    with suppress(OSError):
        beside = [one.name for one in folder.parent.iterdir() if one.is_dir()]
    others = nearest(folder.name, beside).replace("Valid:", f"In {folder.parent}:")
    raise ArtefactError(f"{folder}: no such folder; {command} makes one.{others}")


def _report_damage(out: Path, error: Exception) -> ArtefactError:
    return ArtefactError(f"{out / PLAN}: damaged ({error!r}); run the study again")


def _read_cell(facts: dict[str, Any]) -> PlannedCell:
    trainings = (Training(**{**one, "needs": tuple(one["needs"])}) for one in facts.get("trainings", ()))
    return PlannedCell(**{**facts, "stages": tuple(facts["stages"]), "trainings": tuple(trainings)})


@dataclass(frozen=True)
class CellMarker:
    """``complete.json``: written last, so all results of a cell are there."""

    identity: str
    """Of the predictions."""
    stages: tuple[str, ...] = ()
    seconds: float | None = None
    """For its last stage and its predictions."""
    finished: float | None = None
    """When, as a Unix time."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Hardware and versions."""


def read_marker(out: Path, cell: PlannedCell) -> CellMarker | None:
    """A cell's marker; none where it is missing, or of other work."""
    facts = read_marker_facts(out, cell)
    if facts is None:
        return None
    return CellMarker(**{**known_fields(CellMarker, facts), "stages": tuple(facts.get("stages", ()))})


def read_marker_facts(out: Path, cell: PlannedCell | ListedCell) -> dict[str, Any] | None:
    """What a cell's marker says, as it is in the file; none where it is missing, or of other work."""
    facts = read_json(f"{out}/{cell.name}/{COMPLETE}")
    return facts if isinstance(facts, dict) and facts.get("identity") == cell.identity else None


def is_finished(out: Path, cell: PlannedCell) -> bool:
    """Whether a cell's marker is there, and is of this very work."""
    return read_marker_facts(out, cell) is not None


@dataclass(frozen=True)
class CellFailure:
    """``failed.json``: why a cell has no results."""

    error: str = "?"
    log: str = ""
    """The file with the traceback, below the study's folder."""
    time: float | None = None


def read_failure(out: Path, cell: PlannedCell | ListedCell) -> CellFailure | None:
    """Why a cell failed; none where it did not."""
    facts = read_json(f"{out}/{cell.name}/{FAILED}")
    return CellFailure(**known_fields(CellFailure, facts)) if isinstance(facts, dict) else None


def write_failure(out: Path, cell: str, failure: CellFailure) -> None:
    """Say why a cell has no results."""
    write_atomic(out / cell / FAILED, to_json(asdict(failure)))


@dataclass(frozen=True)
class Event:
    """A line of ``events.jsonl``: a job began, ended, died or failed."""

    time: float
    event: str
    job: str = ""
    cell: str = ""
    process: int | None = None
    machine: str = ""
    reason: str | None = None


def append_event(out: Path, event: Event) -> None:
    """Add a line to the log of a study."""
    append_line(out / EVENTS, {name: value for name, value in asdict(event).items() if value is not None})


def read_events(out: Path) -> list[Event]:
    """The log of a study; lines that a killed process left unfinished are skipped."""
    lines = [line for line in read_lines(out / EVENTS) if isinstance(line.get("time"), int | float)]
    return [Event(**known_fields(Event, {"event": "", **line})) for line in lines]


def find_out(given: Path, out: Path | None = None) -> Path:
    """The folder of a study: as given, or the default one of a study file."""
    if out is not None:
        return out
    return given if given.is_dir() else default_out(given)


def default_out(study: Path) -> Path:
    """Where a study's results go by default."""
    return Path("studies") / study.stem


def prediction_path(out: Path, seed: int, entry: EvaluateSettings, language: str) -> Path:
    """Where the predictions of one seed, data set and language lie."""
    return out / f"seed-{seed}" / "predictions" / set_name(entry) / f"{_file_name(language)}.parquet"


def set_name(entry: EvaluateSettings) -> str:
    """A data set's name in tables and folders; another split than test is part of it, unless the recipe names it."""
    if entry.name:
        return _file_name(entry.name)
    if isinstance(entry.on, str):
        name = entry.on
    elif "data" in entry.on:
        name = str(entry.on["data"]).partition(":")[0]
    else:
        path = Path(str(entry.on.get("path", "data")))
        name = path.stem
        if "{language}" in name:  # the files of several languages are one set, by what their names have in common
            name = name.replace("{language}", "").strip("-_.") or path.parent.name or "data"
    return _file_name(name if entry.split == "test" else f"{name}-{entry.split}")


def name_file(*parts: str) -> str:
    """A file's name made of several, without an ending; nothing in it leads to another folder."""
    return "-".join(filter(None, map(_file_name, parts)))


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.@" else "-" for c in text).strip("-")


def mark_finished(folder: Path, marker: CellMarker) -> None:
    """Write a cell's marker, last of all; another process may have been first with the same work."""
    if not write_once(folder / COMPLETE, asdict(marker)):
        found = read_json(folder / COMPLETE)
        if not isinstance(found, dict) or found.get("identity") != marker.identity:
            raise UserError(f"{folder}: holds the marker of other work; start the study again")


def send_results(store: Store, folder: Path, files: Iterable[Path], marker: CellMarker) -> None:
    """Put a cell's predictions where all machines find them, if the store is at an address."""
    if store.archive is not None:
        named = {path.relative_to(folder).as_posix(): path for path in files}
        store.archive.publish(_result_name(marker.identity), named, asdict(marker))


def fetch_results(store: Store, folder: Path, identity: str) -> bool:
    """Fetch a cell's predictions from the store's address, then its marker; says whether they were there."""
    if store.archive is None or not store.archive.is_complete(_result_name(identity)):
        return False
    with temporary_folder(store.root / "fetched") as fetched:
        facts = store.archive.fetch(_result_name(identity), fetched)
        for path in (path for path in fetched.rglob("*") if path.is_file()):
            copy_atomic(path, folder / path.relative_to(fetched))
    mark_finished(folder, CellMarker(**facts))
    return True


def _result_name(identity: str) -> str:
    return f"predict-{identity}"


def known_fields(kind: type[Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a file that this version knows."""
    return {one.name: facts[one.name] for one in fields(kind) if one.name in facts}


def to_json(facts: Mapping[str, Any]) -> str:
    """The content of a file, with the credentials of addresses masked."""
    return mask_credentials(json.dumps(facts, indent=1, ensure_ascii=False))
