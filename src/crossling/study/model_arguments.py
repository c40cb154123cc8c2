"""Models named on the command line, each as ``WHERE`` or ``LABEL=WHERE``.

WHERE is the folder (or the file) of a study, the folder of a run or of a saved model, or a pretrained encoder: its name
or its folder. ``RUN/seed-2`` is one seed of a run. ``RUN@0`` is the model after a run's first stage (``STUDY@0``
likewise), by default after the last;
``ENCODER@REVISION`` is a revision of the hub's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.analyses.models import AnalysedModel, AnalysedModels, Pretrained, pretrained_model
from crossling.encoders.loading import is_quantised_folder
from crossling.errors import ArtefactError, nearest
from crossling.models.model import read_card
from crossling.recipe.recipe import Recipe, load_recipe
from crossling.store.artefacts import Store, find_artefact, find_store
from crossling.study.folder import PLAN, default_out, is_finished, read_plan
from crossling.study.run_record import read_run_record, split_seed


@dataclass(frozen=True)
class ModelArgument:
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
class FoundModels:
    """All models that the arguments name."""

    models: tuple[AnalysedModel, ...]
    arguments: tuple[ModelArgument, ...]
    notes: tuple[str, ...] = ()

    def home(self) -> Path | None:
        """The folder where results belong: that of a study, a run or a model, if it is the only argument."""
        if len(self.arguments) > 1 or isinstance(self.models[0].location, Pretrained):
            return None
        return self.arguments[0].folder

    def title(self) -> str:
        """Which models these are, in few words."""
        home = self.home()
        if home is not None:
            return home.resolve().name
        labels = list(dict.fromkeys(model.label for model in self.models))
        return ", ".join(labels) if len(labels) < 6 else f"{len(labels)} models"


def find_models(texts: Iterable[str | Path]) -> FoundModels:
    """The models that are named, each of which must have a name of its own."""
    arguments = tuple(split_argument(str(text)) for text in texts)
    models: list[AnalysedModel] = []
    notes: list[str] = []
    for argument in arguments:
        found, said = _find(argument)
        models += found
        notes += said
    AnalysedModels(tuple(models)).check_unique()
    return FoundModels(tuple(models), arguments, tuple(notes))


def split_argument(text: str) -> ModelArgument:
    """``LABEL=WHERE@AFTER`` taken apart; what exists as a path is a path, whatever letters it has."""
    label = ""
    first, sign, rest = text.partition("=")
    if sign and "/" not in first and not Path(text).expanduser().exists():
        label, text = first.strip(), rest
    where, sign, after = text.rpartition("@")
    if sign and where and not Path(text).expanduser().exists():
        return ModelArgument(where, label, after)
    return ModelArgument(text, label)


def _find(argument: ModelArgument) -> tuple[list[AnalysedModel], list[str]]:
    folder = argument.folder
    if argument.is_study:
        return _find_cells(argument)
    if (folder / "model.json").is_file():
        return [_find_saved(argument)], []
    if (split_seed(folder)[0] / "run.json").is_file():
        return _find_seeds(argument), []
    if Path(argument.where).suffix == ".toml":
        raise ArtefactError(f"{argument.where}: its study has no results yet ({folder / PLAN} is missing)")
    if folder.exists() and not ((folder / "config.json").is_file() or is_quantised_folder(str(folder))):
        raise ArtefactError(
            f"{argument.where}: neither the folder of a study, of a run or of a saved model, nor an encoder's "
            f"({PLAN}, run.json, model.json and config.json are missing)"
        )
    _refuse_lost_path(argument)
    return [pretrained_model(Pretrained(argument.where, argument.after or None), argument.label)], []


def _refuse_lost_path(argument: ModelArgument) -> None:
    """A mistyped folder must not be taken for an encoder on the hub, whose names have a slash, too."""
    path = Path(argument.where).expanduser()
    is_path = argument.where.startswith((".", "/", "~")) or argument.where.count("/") > 1
    if path.exists() or not (is_path or (path.parent != Path() and path.parent.is_dir())):
        return
    siblings = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    raise ArtefactError(
        f"{argument.where}: no such folder. Name the folder of a study, of a run or of a saved model, or an encoder."
        + nearest(path.name, siblings).replace("Valid:", f"In {path.parent}:")
    )


def _find_saved(argument: ModelArgument) -> AnalysedModel:
    if argument.after:
        raise ArtefactError(
            f"{argument.where}@{argument.after}: a saved model has no other stages; leave @ out, or name a run"
        )
    card = read_card(argument.folder)
    label = argument.label or argument.folder.resolve().name
    base = Pretrained(card.encoder, card.revision)
    return AnalysedModel("", label, None, argument.folder, card.source, find_store(), base)


def _find_seeds(argument: ModelArgument) -> list[AnalysedModel]:
    run, wanted = split_seed(argument.folder.resolve())
    record, recipe = read_run_record(run), load_recipe(run / "recipe.toml")
    if wanted is not None and str(wanted) not in record.stages:
        raise ArtefactError(f"{run}: has no seed {wanted}; it has {', '.join(record.stages)}")
    label = _label(argument, run.name)
    found = {
        seed: _find_stage(argument, record.store, stages, recipe)
        for seed, stages in record.stages.items()
        if wanted in (None, int(seed))
    }
    return [
        AnalysedModel("", label, int(seed), model, recipe.source, record.store, base)
        for seed, (model, base) in found.items()
    ]


def _find_stage(argument: ModelArgument, store: Path, stages: Sequence[str], recipe: Recipe) -> tuple[Path, Pretrained]:
    """The model after the stage that is asked for, and the encoder that it was before, as the recipe names it."""
    try:
        number = int(argument.after) if argument.after else len(stages) - 1
        identity = stages[number]
    except (ValueError, IndexError):
        raise ArtefactError(
            f"{argument.where}@{argument.after}: no such stage; it has {len(stages)}: @0 to @{len(stages) - 1}"
        ) from None
    folder = find_artefact(store, identity)
    if not (folder / "model.json").is_file():
        raise ArtefactError(
            f"{folder}: the model is gone, though {argument.where} has its results. Bring the store back, or run again "
            "into another folder."
        )
    encoder = recipe.encoder_of(number)
    return folder, Pretrained(encoder.name, encoder.revision)


def _find_cells(argument: ModelArgument) -> tuple[list[AnalysedModel], list[str]]:
    folder = argument.folder
    plan = read_plan(folder)
    store = Store(plan.store).root
    recipes = {v.folder: load_recipe(folder / v.folder / "recipe.toml") for v in plan.variants}
    cells = [cell for cell in plan.cells if is_finished(folder, cell)]
    if not cells:
        raise ArtefactError(f"{folder}: no cell is finished yet; crossling study run continues it")
    models = []
    for cell in cells:
        recipe, label = recipes[cell.folder], label_cell(argument, cell.label)
        model, base = _find_stage(argument, store, cell.stages, recipe)
        models.append(AnalysedModel(cell.task, label, cell.seed, model, recipe.source, store, base))
    missing = len(plan.cells) - len(cells)
    return models, [f"{missing} of {len(plan.cells)} cells of {folder} are not finished"] if missing else []


def label_cell(argument: ModelArgument, label: str) -> str:
    """A variant's name among models of several arguments."""
    return (f"{argument.label} {label}" if argument.label else label) + (f"@{argument.after}" if argument.after else "")


def _label(argument: ModelArgument, name: str) -> str:
    return argument.label or (f"{name}@{argument.after}" if argument.after else name)
