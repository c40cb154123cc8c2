"""What an analysis looks at: models named on the command line, each as ``WHERE`` or ``LABEL=WHERE``.

WHERE is the folder (or the file) of a study, the folder of a run or of a saved model, or an encoder as it was
pretrained: by name, or its folder. ``RUN@0`` is the model after a run's first stage (``STUDY@0`` likewise), where none
is named after the last; ``ENCODER@REVISION`` is a revision of the hub's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.analyses._stored import Original, Place
from crossling.encoders.offline import is_blocks_folder
from crossling.errors import ArtefactError, nearest
from crossling.models.model import read_card
from crossling.recipe.recipe import load_recipe
from crossling.store.artefacts import Store, find_artefact, find_store
from crossling.study.folder import PLAN, default_out, is_finished, read_plan, read_run_record


@dataclass(frozen=True)
class Subject:
    """A model to look at."""

    task: str
    label: str
    seed: int | None
    model: Place
    source: str | None
    """The language that its labels came from; an original encoder has none of its own."""
    store: Path
    """Where what is found out about it is kept."""
    encoder: Original
    """What it was before any training."""


@dataclass(frozen=True)
class Named:
    """One argument, taken apart."""

    where: str
    label: str = ""
    after: str = ""
    """What follows ``@``: the number of a stage, or a revision."""

    @property
    def folder(self) -> Path:
        """Where it lies, if it is a folder; of a study's file: where its results go."""
        path = Path(self.where).expanduser()
        return default_out(path) if path.suffix == ".toml" and not path.is_dir() else path

    @property
    def is_study(self) -> bool:
        return (self.folder / PLAN).is_file()


@dataclass(frozen=True)
class Found:
    """All that the arguments name."""

    subjects: tuple[Subject, ...]
    named: tuple[Named, ...]
    notes: tuple[str, ...] = ()

    def home(self) -> Path | None:
        """The folder where results belong: that of a study, a run or a model, if it is the only argument."""
        if len(self.named) > 1 or isinstance(self.subjects[0].model, Original):
            return None
        return self.named[0].folder

    def title(self) -> str:
        """What is looked at, in few words."""
        home = self.home()
        if home is not None:
            return home.resolve().name
        labels = list(dict.fromkeys(subject.label for subject in self.subjects))
        return ", ".join(labels) if len(labels) < 6 else f"{len(labels)} models"


def find_subjects(arguments: Iterable[str | Path]) -> Found:
    """The models that are named, each of which must have a name of its own."""
    named = tuple(split_argument(str(argument)) for argument in arguments)
    subjects: list[Subject] = []
    notes: list[str] = []
    for one in named:
        found, said = _find(one)
        subjects += found
        notes += said
    counts = Counter((subject.task, subject.label, subject.seed) for subject in subjects)
    twice = next((key[1] for key, count in counts.items() if count > 1), None)
    if twice is not None:
        raise ArtefactError(f"two models are called {twice!r}; give each a name: {twice}-1=WHERE {twice}-2=WHERE")
    return Found(tuple(subjects), named, tuple(notes))


def split_argument(text: str) -> Named:
    """``LABEL=WHERE@AFTER`` taken apart; what exists as a path is a path, whatever letters it has."""
    label = ""
    first, sign, rest = text.partition("=")
    if sign and "/" not in first and not Path(text).expanduser().exists():
        label, text = first.strip(), rest
    where, sign, after = text.rpartition("@")
    if sign and where and not Path(text).expanduser().exists():
        return Named(where, label, after)
    return Named(text, label)


def _find(named: Named) -> tuple[list[Subject], list[str]]:
    folder = named.folder
    if named.is_study:
        return _find_cells(named)
    if (folder / "model.json").is_file():
        return [_find_saved(named)], []
    if (folder / "run.json").is_file():
        return _find_seeds(named), []
    if Path(named.where).suffix == ".toml":
        raise ArtefactError(f"{named.where}: its study has no results yet ({folder / PLAN} is missing)")
    if folder.exists() and not ((folder / "config.json").is_file() or is_blocks_folder(folder)):
        raise ArtefactError(
            f"{named.where}: neither the folder of a study, of a run or of a saved model, nor an encoder's "
            f"({PLAN}, run.json, model.json and config.json are missing)"
        )
    _refuse_lost_path(named)
    original = Original(named.where, named.after or None)
    label = named.label or "@".join(filter(None, (folder.name if folder.is_dir() else named.where, named.after)))
    return [Subject("", label, None, original, None, find_store(), original)], []


def _refuse_lost_path(named: Named) -> None:
    """A mistyped folder must not be taken for an encoder on the hub, whose names have a slash, too."""
    path = Path(named.where).expanduser()
    is_path = named.where.startswith((".", "/", "~")) or named.where.count("/") > 1
    if path.exists() or not (is_path or (path.parent != Path() and path.parent.is_dir())):
        return
    siblings = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    raise ArtefactError(
        f"{named.where}: no such folder. Name the folder of a study, of a run or of a saved model, or an encoder."
        + nearest(path.name, siblings).replace("Valid:", f"In {path.parent}:")
    )


def _find_saved(named: Named) -> Subject:
    if named.after:
        raise ArtefactError(
            f"{named.where}@{named.after}: a saved model has no other stages; leave @ out, or name a run"
        )
    card = read_card(named.folder)
    label = named.label or named.folder.resolve().name
    base = Original(card.encoder, card.revision)
    return Subject("", label, None, named.folder, card.source, find_store(), base)


def _find_seeds(named: Named) -> list[Subject]:
    record, recipe = read_run_record(named.folder), load_recipe(named.folder / "recipe.toml")
    store = record.store
    label = _label(named, named.folder.resolve().name)
    base = Original(recipe.encoder.name, recipe.encoder.revision)
    return [
        Subject("", label, int(seed), _find_stage(named, store, stages), recipe.source, store, base)
        for seed, stages in record.stages.items()
    ]


def _find_stage(named: Named, store: Path, stages: Sequence[str]) -> Path:
    """The model after the stage that is asked for."""
    try:
        number = int(named.after) if named.after else len(stages) - 1
        identity = stages[number]
    except (ValueError, IndexError):
        raise ArtefactError(
            f"{named.where}@{named.after}: no such stage; it has {len(stages)}: @0 to @{len(stages) - 1}"
        ) from None
    folder = find_artefact(store, identity)
    if not (folder / "model.json").is_file():
        raise ArtefactError(
            f"{folder}: the model is gone, though {named.where} has its results. Bring the store back, or run again "
            "into another folder."
        )
    return folder


def _find_cells(named: Named) -> tuple[list[Subject], list[str]]:
    folder = named.folder
    plan = read_plan(folder)
    store = Store(plan.store).root
    recipes = {v.folder: load_recipe(folder / v.folder / "recipe.toml") for v in plan.variants}
    cells = [cell for cell in plan.cells if is_finished(folder, cell)]
    if not cells:
        raise ArtefactError(f"{folder}: no cell is finished yet; crossling study run goes on")
    subjects = []
    for cell in cells:
        recipe = recipes[cell.folder]
        model, base = _find_stage(named, store, cell.stages), Original(recipe.encoder.name, recipe.encoder.revision)
        label = label_cell(named, cell.label)
        subjects.append(Subject(cell.task, label, cell.seed, model, recipe.source, store, base))
    missing = len(plan.cells) - len(cells)
    return subjects, [f"{missing} of {len(plan.cells)} cells of {folder} are not finished"] if missing else []


def label_cell(named: Named, label: str) -> str:
    """A variant's name among models of several arguments."""
    return (f"{named.label} {label}" if named.label else label) + (f"@{named.after}" if named.after else "")


def _label(named: Named, name: str) -> str:
    return named.label or (f"{name}@{named.after}" if named.after else name)
