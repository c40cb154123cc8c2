"""The record of a run, ``run.json``: which models it trained and what they were made from, and where they are now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crossling.errors import ArtefactError
from crossling.files import is_filled, write_atomic
from crossling.study.folder import PLAN, RECIPE, RUN, check_is_there, known_fields, list_cells, to_json


@dataclass(frozen=True)
class DataRecord:
    """A data set that a run trained or tested on."""

    role: str
    name: str
    language: str
    rows: int | None
    fingerprint: str


@dataclass(frozen=True)
class RunRecord:
    """``run.json``: the models of a run, and what they were made from and with."""

    store: Path
    stages: Mapping[str, tuple[str, ...]]
    """By seed, the identities of the artefacts of its stages."""
    encoder: str = ""
    """What the encoder calls itself."""
    teachers: tuple[str, ...] = ()
    """The same of teachers' encoders that are not the recipe's."""
    command: str = ""
    data: tuple[DataRecord, ...] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    """Hardware and versions."""

    def to_json(self) -> str:
        """The content of the file."""
        return to_json({**asdict(self), "store": str(self.store)})

    def write(self, out: Path) -> None:
        """Write the record into the folder of a run."""
        write_atomic(out / RUN, self.to_json())


def read_run_record(out: Path) -> RunRecord:
    """The record of a run, from its folder."""
    if out.is_file():
        raise ArtefactError(f"{out}: is a file; name the folder of a run, or of a saved model")
    if not is_filled(out / RUN):
        check_is_there(out, "crossling run")
        _refuse_study(out)
        raise ArtefactError(f"{out}: not the folder of a run ({RUN} is missing); make one with crossling run")
    try:
        facts = json.loads((out / RUN).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArtefactError(f"{out / RUN}: damaged: {error}; run the recipe again") from None
    stages = facts.get("stages") if isinstance(facts, dict) else None
    if not isinstance(stages, dict) or not stages or not all(isinstance(s, list) and s for s in stages.values()):
        raise ArtefactError(f"{out / RUN}: damaged: it names no trained stages; run the recipe again")
    return RunRecord(
        **{
            **known_fields(RunRecord, facts),
            "store": Path(str(facts.get("store"))),
            "stages": {seed: tuple(identities) for seed, identities in stages.items()},
            "teachers": tuple(facts.get("teachers", ())),
            "data": tuple(DataRecord(**one) for one in facts.get("data", ())),
        }
    )


def _refuse_study(out: Path) -> None:
    if not is_filled(out / PLAN):
        return
    folders = dict.fromkeys(str(Path(cell.name).parent) for cell in list_cells(out)[1])
    listed = ", ".join(str(out / folder) for folder in list(folders)[:12]) + (", …" if len(folders) > 12 else "")
    raise ArtefactError(f"{out}: is the folder of a study; name one of its runs: {listed}")


def find_run_record(out: Path) -> RunRecord | None:
    """The record of a run; none where it is missing or damaged."""
    if not is_filled(out / RUN):
        return None
    try:
        return read_run_record(out)
    except ArtefactError:
        return None


def find_model(run: Path, *, seed: int | None = None) -> Path:
    """The folder of a run's trained model: the first seed's, or that of ``seed`` or of ``RUN/seed-N``."""
    from crossling.recipe.recipe import reload_plugins
    from crossling.store.artefacts import find_artefact

    if (run / "model.json").exists():
        return run
    run, seed = split_seed(run, seed)
    record = read_run_record(run)
    if (run / RECIPE).is_file():
        reload_plugins(run / RECIPE)
    seeds = list(record.stages)
    wanted = str(seed) if seed is not None else seeds[0]
    if wanted not in seeds:
        raise ArtefactError(f"{run}: has no seed {wanted}; it has {', '.join(seeds)}")
    folder = find_artefact(record.store, record.stages[wanted][-1])
    if not (folder / "model.json").exists():
        again = f"crossling run {run / RECIPE} --out {run}"
        raise ArtefactError(f"{folder}: the model of {run} is gone; run its recipe again: {again}")
    return folder


def split_seed(run: Path, seed: int | None = None) -> tuple[Path, int | None]:
    """``RUN/seed-N`` as the folder of the run and the seed; another path as it is."""
    number = run.name.removeprefix("seed-")
    if seed is None and number != run.name and number.isdecimal() and (run.parent / RUN).is_file():
        return run.parent, int(number)
    return run, seed
