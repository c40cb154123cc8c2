"""Run a recipe: train every stage for every seed, once by identity, then predict.

How a killed run continues: the same command computes the same identities. A stage whose artefact is complete in the
store is not trained again. One that was interrupted is: its lease is free as soon as its process is dead, and training
continues from the last checkpoint in the store's ``work/IDENTITY`` (``training/checkpoint.py``), which the artefact
replaces in the end. Predictions are stored one data set at a time; those that exist are copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from crossling.data.rows import Rows
from crossling.encoders.cache import EncoderCache
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import import_transformers, paused_collection
from crossling.errors import ArtefactError, Problems
from crossling.files import copy_atomic, is_filled, temporary_folder, write_atomic
from crossling.gpu_context import begin_context
from crossling.inference.evaluate import encode_ahead, predict_sets
from crossling.models.model import Model, ModelCard, load_model, save_model
from crossling.progress import NoProgress, Progress
from crossling.recipe.identity import content_hash
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import Recipe
from crossling.registry import identify_plugins
from crossling.scores.predictions import read_predictions, write_predictions
from crossling.stages import StageData, load_stage
from crossling.stages.context import StageContext
from crossling.store.artefacts import DamagedError, Store
from crossling.store.leases import Lease
from crossling.study.folder import RECIPE, Training, prediction_path
from crossling.study.layers import check_recipe_layers
from crossling.study.recipe_data import (
    Target,
    check_stages,
    count_subwords,
    open_recipe,
    open_stages,
    open_targets,
    resolve_recipe,
)
from crossling.study.run_record import DataRecord, RunRecord
from crossling.tasks import Task, restore_task
from crossling.training import loop
from crossling.training.distributed import Distributed, setup_distributed
from crossling.training.hardware import describe_hardware, measure_peak, release_memory
from crossling.training.tracking import open_trackers

PREDICTION_VERSION = 1
LEASE_SECONDS = 1.0
"""Between two checks of a lease: hundreds of workers ask one file system. A process that was asleep checks at once."""


@dataclass
class RecipeRun:
    """One recipe, its store and its folder: identifies, trains and predicts."""

    recipe: Recipe
    store: Store
    out: Path
    distributed: Distributed
    progress: Progress = field(default_factory=NoProgress)
    track: Callable[..., None] = lambda values, step, seed: None
    encoders: EncoderCache = field(default_factory=lambda: EncoderCache(keep=True))

    def run(self, *, command: str = "") -> None:
        """Train and predict for every seed; what is already there is not done again."""
        check_stages(self.recipe)
        self.check_targets()
        problems = Problems()
        self.check_layers(problems)  # an encoder that is missing is reported now
        problems.raise_all()
        self._create_folder()
        stages: dict[str, tuple[str, ...]] = {}
        with open_trackers(self.recipe, self.out, self.distributed) as self.track:
            for seed in self.recipe.seeds:
                stages[str(seed)] = self.identify_stages(seed)
                for number, identity in enumerate(stages[str(seed)]):
                    self._train_once(number, seed, identity)
                if self.distributed.is_main:
                    self.describe(stages, command).write(self.out)
                    self.predict(seed, last=seed == self.recipe.seeds[-1])
                self.distributed.wait()

    def _create_folder(self) -> None:
        """Create the folder of results, after all checks."""
        write_atomic(self.out / RECIPE, to_toml(self.resolved.model_dump(mode="json")))

    @cached_property
    def opened(self) -> list[StageData]:
        """What each stage reads, opened."""
        problems = Problems()
        found = open_stages(self.recipe, self.store.root, problems, progress=self.progress)
        problems.raise_all()
        return found

    @property
    def resolved(self) -> Recipe:
        """The recipe with what depends on the data filled in: what is stored beside results."""
        return resolve_recipe(self.recipe, self.opened)

    @cached_property
    def targets(self) -> list[Target]:
        """Everything to be predicted, opened before any training, so that a missing file costs no hours."""
        problems = Problems()
        found = open_targets(self.recipe, self.store.root, problems)
        problems.raise_all()
        return found

    def describe(self, stages: Mapping[str, Sequence[str]], command: str) -> RunRecord:
        """The record of the run: its artefacts by seed, the data it read, and what it was made with."""
        read = [(f"stage {n}: {role}", rows) for n, data in enumerate(self.opened) for role, rows in data.described()]
        data = (*read, *((entry.split, rows) for entry, _, rows in self.targets))
        return RunRecord(
            self.store.root.resolve(),
            {seed: tuple(identities) for seed, identities in stages.items()},
            encoder=self.encoders.label(self.recipe.encoder),
            teachers=tuple(map(self.encoders.label, self.recipe.encoders[1:])),
            command=command,
            data=tuple(DataRecord(role, rows.name, rows.language, len(rows), rows.fingerprint) for role, rows in data),
            machine=describe_hardware(self.distributed),
        )

    def check_targets(self, problems: Problems | None = None) -> None:
        """Open everything and see that the last stage's task can read what is to be predicted; all that is wrong is
        added to ``problems``, or is one error."""
        found = Problems() if problems is None else problems
        opened, targets = open_recipe(self.recipe, self.store.root, found, progress=self.progress)
        if not found:
            self.opened, self.targets = opened, targets
        elif problems is None:
            found.raise_all()

    def check_layers(self, problems: Problems) -> None:
        """See that each stage's encoder has all layers that the stage names."""
        check_recipe_layers(self.recipe, self.encoders.measure, problems)

    def identify_stages(self, seed: int, *, count: int | None = None) -> tuple[str, ...]:
        """The identity of each stage's artefact, or of the first few: known without training, from all that affects
        it."""
        identities: list[str] = []
        for number, (settings, data) in enumerate(zip(self.recipe.stage[:count], self.opened[:count], strict=True)):
            stage = load_stage(settings)
            first = self._find_start(number)
            start = identities[first] if first >= 0 else self.encoders.identify(self.recipe.encoder_of(number))
            version = loop.VERSION if self.distributed.device.type == "cpu" else loop.GPU_VERSION
            facts: dict[str, Any] = {"start": start, "seed": seed, "loop": version, **self._numerics()}
            if earlier := self.list_earlier(number, seed):
                # Called so since teachers were the first models that a stage read: stored results are known by it.
                facts["teachers"] = [self.identify_stages(other, count=number)[-1] for other in earlier]
            if plugins := identify_plugins(settings.model_dump(mode="json")):
                facts["plugins"] = plugins
            inputs = {**stage.identity_inputs(settings, data), **facts}
            identities.append(self.store.identify(settings.kind, stage.VERSION, inputs))
        return tuple(identities)

    def list_earlier(self, number: int, seed: int) -> tuple[int, ...]:
        """Seeds whose models of the stage before are read by a stage: its teachers', or the parts of an average."""
        settings = self.recipe.stage[number]
        earlier = getattr(load_stage(settings), "list_earlier", None)
        return tuple(earlier(settings, seed)) if earlier is not None else ()

    def list_trainings(self, seed: int, *, count: int | None = None) -> dict[str, Training]:
        """All that is trained for a seed, by identity: its stages and models that they read, each after what it
        needs."""
        found: dict[str, Training] = {}
        identities = self.identify_stages(seed, count=count)
        for number in self._list_parts(len(identities) - 1):
            identity, start = identities[number], self._find_start(number)
            needs = dict.fromkeys(identities[start : start + 1] if start >= 0 else ())
            for other in self.list_earlier(number, seed):
                trainings = self.list_trainings(other, count=number)
                needs[next(reversed(trainings))] = None
                found |= {name: one for name, one in trainings.items() if name not in found}
            found[identity] = Training(identity, seed, number, tuple(needs))
        return found

    def _list_parts(self, number: int) -> range:
        """Numbers of the stages that a stage's model is made by: none before one with an encoder of its own."""
        return range(number if number >= 0 and self.recipe.own_encoder(number) else 0, number + 1)

    def _find_start(self, number: int) -> int:
        """The number of the stage whose encoder a stage starts from; -1: its own encoder, or the recipe's."""
        settings = self.recipe.stage[number]
        find = getattr(load_stage(settings), "find_start", None)
        return int(find(settings, self.recipe.stage, number)) if find is not None else number - 1

    def identify_predictions(self, seed: int) -> str:
        """The identity of all that one seed's model predicts: what a finished cell of a study is known by."""
        stages = self.identify_stages(seed)
        stored = [self._stored_predictions(stages[-1], rows).name for _, _, rows in self.targets]
        places = [str(prediction_path(Path(), seed, entry, language)) for entry, language, _ in self.targets]
        return content_hash([stages, stored, places])

    def _train_once(self, number: int, seed: int, identity: str) -> None:
        """Train a stage while holding its lease, unless it is already there."""
        with self._claim(identity) as (done, lease):
            if done:
                self.progress.say(f"{self.recipe.stage[number].kind} (seed {seed}): already trained, {identity}")
            else:
                self.train(number, seed, check_lease=lease.check if lease else None)
        self.distributed.wait()

    def train(self, number: int, seed: int, *, check_lease: Callable[[], None] | None = None) -> None:
        """Train one stage and publish its artefact; ``check_lease`` raises where the work was taken over."""
        settings, began = self.recipe.stage[number], time.monotonic()
        identities = self.identify_stages(seed, count=number + 1)
        start = self._find_start(number)
        identity, parent = identities[number], identities[start] if start >= 0 else None
        context = StageContext(
            seed,
            self.recipe.source,
            self._load(parent, start, seed)[0].encoder if parent else self._load_base(number),
            self.recipe.encoder_of(number),
            self.distributed,
            self.store.work(identity),
            self.store.root,
            checkpoint_seconds=self.recipe.run.checkpoint_seconds,
            progress=LeaseCheckedProgress(self.progress, check_lease) if check_lease else self.progress,
            track=lambda values, step: self.track(self._name_values(values, number), step, seed),
            on_start=self._encode_targets if number == len(self.recipe.stage) - 1 else None,
            base=(lambda: self._load_base(number)) if parent else None,
            load_earlier=(lambda other: self._load_trained(number - 1, other)) if number else None,
        )
        release_memory(self.distributed.device)
        model, card, record = load_stage(settings).train(settings, self.opened[number], context)
        if not self.distributed.is_main:
            return
        if check_lease:
            check_lease()
        work = {
            "encoder": self.recipe.encoder_of(number).name,
            "seconds": round(max(time.monotonic() - began, record.get("training_seconds", 0.0)), 3),
            "subwords": round(settings.epochs * count_subwords(self.opened[number])),
            **measure_peak(self.distributed.device),
        }
        with temporary_folder(self.store.work(identity) / "model") as folder:
            save_model(model, card, folder)
            machine = describe_hardware(self.distributed)
            self.store.publish(identity, folder, {**record, "work": work, "machine": machine})

    def _encode_targets(self, task: Task, encoder: Encoder) -> None:
        """Encode what is to be predicted while a GPU trains; a CPU has no time to spare."""
        if self.distributed.is_main and self.distributed.device.type == "cuda":
            encode_ahead(task, [rows for *_, rows in self.targets], encoder, cache=self.store.root / "encoded")

    def _name_values(self, values: dict[str, float], number: int) -> dict[str, float]:
        """Losses of several stages get different names, since each counts its steps from 0."""
        if len(self.recipe.stage) == 1:
            return values
        return {f"{number}-{self.recipe.stage[number].kind}/{name}": value for name, value in values.items()}

    def _load_base(self, number: int) -> Encoder:
        """The encoder of a stage, untrained: the recipe's, or its own."""
        base = self.recipe.encoder_of(number)
        return self.encoders.load(base.name, base.revision, base.attention)

    def _load_trained(self, number: int, seed: int) -> tuple[Model, ModelCard]:
        """The model of a stage with some seed; it and the stages before it are trained first where they are missing."""
        identities = self.identify_stages(seed, count=number + 1)
        if not self.store.is_complete(identities[-1]):
            for place in self._list_parts(number):
                self._train_once(place, seed, identities[place])
        return self._load(identities[-1], number, seed)

    def _load(self, identity: str, number: int, seed: int, *, last: bool = False) -> tuple[Model, ModelCard]:
        """The model of an artefact; a damaged one is set aside and trained again. ``last``: no other will be loaded."""
        try:
            folder = self.store.fetch(identity)
        except DamagedError:
            self._train_once(number, seed, identity)
            folder = self.store.fetch(identity)
        return load_model(folder, load=self.encoders.load_last if last else self.encoders.load)

    def _numerics(self) -> dict[str, Any]:
        """What changes bits without changing settings."""
        on_cpu = self.distributed.device.type == "cpu"
        return {
            "precision": str(self.distributed.precision),
            "processes": self.distributed.size,
            "threads": torch.get_num_threads() if on_cpu else None,
            "deterministic": self.recipe.run.deterministic,
        }

    @contextmanager
    def _claim(self, identity: str) -> Iterator[tuple[bool, Lease | None]]:
        """Hold an artefact's lease (the main process does); yields whether it is already complete, and the lease."""
        with self.store.leases.hold(identity) if self.distributed.is_main else nullcontext() as lease:
            self.distributed.wait()
            done = torch.tensor(
                int(self.distributed.is_main and self.store.heal(identity, self.progress.say)),
                device=self.distributed.device,
            )
            yield bool(self.distributed.broadcast(done)), lease

    def predict(self, seed: int, *, last: bool = False) -> None:
        """Predictions of one seed's model, copied from the store where they were made before; ``last``: nothing is
        trained or predicted after it."""
        identity = self.identify_stages(seed)[-1]
        waiting = []
        for entry, language, rows in self.targets:
            path = prediction_path(self.out, seed, entry, language)
            stored = self._stored_predictions(identity, rows)
            if is_filled(stored) and self._is_whole(stored, rows, seed, identity):
                copy_atomic(stored, path)
            else:
                waiting.append((entry, rows, stored, path))
        if not waiting:
            return
        model, card = self._load(identity, len(self.recipe.stage) - 1, seed, last=last)
        model.to(self.distributed.device)
        head, settings = next(iter(card.tasks.items()))
        task = restore_task(settings)
        for batch, group in groupby(waiting, key=lambda one: one[0].batch):
            places = list(group)
            found = predict_sets(
                model,
                task,
                [rows for _, rows, _, _ in places],
                head=head,
                distributed=self.distributed,
                cache=self.store.root / "encoded",
                batch=batch,
                progress=self.progress,
                meta={"seed": seed, "model": identity},
            )
            for (_, _, stored, path), predictions in zip(places, found, strict=True):
                write_predictions(stored, predictions)
                copy_atomic(stored, path)

    def _is_whole(self, stored: Path, rows: Rows, seed: int, identity: str) -> bool:
        """Whether predictions in the store are what was written; others are set aside, and made again."""
        if _are_predictions(stored, rows, seed, identity):
            return True
        moved = stored.with_name(f"{stored.name}.damaged")
        stored.replace(moved)
        self.progress.say(f"{stored}: is damaged. The predictions are kept as {moved} and made again.")
        return False

    def has_predictions(self, seed: int) -> bool:
        """Whether all predictions of one seed's model are in the run's folder, and are what was written."""
        identity = self.identify_stages(seed)[-1]
        return all(
            _are_predictions(prediction_path(self.out, seed, entry, language), rows, seed, identity)
            for entry, language, rows in self.targets
        )

    def _stored_predictions(self, identity: str, rows: Rows) -> Path:
        known_by = {"rows": rows.fingerprint, "language": rows.language, "name": rows.name}
        key = content_hash({**known_by, "version": PREDICTION_VERSION, **self._numerics()})
        return self.store.root / "predictions" / identity / f"{key}.parquet"


def _are_predictions(path: Path, rows: Rows, seed: int, identity: str) -> bool:
    """Whether a file holds whole predictions for these rows by this model: files may be exchanged.

    Those of earlier versions do not name their model.
    """
    try:
        found = read_predictions(path)
    except ArtefactError:
        return False
    wanted = {"fingerprint": rows.fingerprint, "seed": seed, "model": identity}
    return found.language == rows.language and {**wanted, **found.meta}.items() >= wanted.items()


@dataclass
class LeaseCheckedProgress:
    """Progress that also checks the lease: a process that lost it must not write to the other's checkpoints."""

    progress: Progress
    check_lease: Callable[[], None]
    checked: float = float("-inf")

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.progress.begin(what, total, done)

    def advance(self, steps: int = 1, **facts: str) -> None:
        now = time.monotonic()
        if now - self.checked >= LEASE_SECONDS:
            self.check_lease()
            self.checked = now
        self.progress.advance(steps, **facts)

    def end(self) -> None:
        self.progress.end()

    def say(self, line: str) -> None:
        self.progress.say(line)


def run_recipe(
    recipe: Recipe, *, store: Store, out: Path, progress: Progress | None = None, command: str = ""
) -> RecipeRun:
    """Run a recipe; predictions and the record of the run are then in ``out``."""
    with paused_collection():  # it imports much
        if begin_context(recipe.run.device):
            import_transformers()  # while the driver works: from here on Python would wait for it
        distributed = setup_distributed(recipe.run)
    shown = progress if progress and distributed.is_main else NoProgress()  # else every process would say the same
    run = RecipeRun(recipe, store, out, distributed, shown)
    run.run(command=command)
    return run
