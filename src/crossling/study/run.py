"""A recipe carried out: every stage of every seed, once by identity, then predictions, scores and a page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.encoder import Encoder, load_encoder
from crossling.errors import ArtefactError, RecipeError
from crossling.evaluation import check_kind, predict_rows
from crossling.model import load_model, save_model
from crossling.predictions import write_predictions
from crossling.recipe import EvaluateSettings, Recipe, content_hash, to_toml
from crossling.registry import load_kind
from crossling.stages._context import StageContext
from crossling.study.hardware import describe_machine
from crossling.study.store import Store
from crossling.study.tracking import open_trackers
from crossling.tasks import build_task, restore_task
from crossling.training.progress import Progress, Silence
from crossling.training.world import World, join_world

PREDICTION_VERSION = 1


@dataclass
class Runner:
    """All that the steps of one run share."""

    recipe: Recipe
    store: Store
    out: Path
    world: World
    progress: Progress = field(default_factory=Silence)

    def run(self, *, command: str = "") -> None:
        """Train and predict for every seed; what is already there is not done again."""
        if not self.recipe.stage:
            raise RecipeError('stage: missing; a run trains at least once: [[stage]] with kind = "finetune"')
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "recipe.toml").write_text(to_toml(self.recipe.model_dump(mode="json")), encoding="utf-8")
        opened = [self._open_stage(settings) for settings in self.recipe.stage]
        targets = self._open_targets()
        self._check_targets(targets)
        stages: dict[str, list[str]] = {}
        with open_trackers(self.recipe, self.out, self.world) as track:
            for seed in self.recipe.seeds:
                stages[str(seed)] = self._train_seed(seed, opened, track)
                self._write_run_file(stages, command)
                if self.world.leads:
                    self._predict_seed(seed, stages[str(seed)][-1], targets)
                self.world.wait()

    def _open_stage(self, settings: Any) -> Any:
        kind = load_kind("stages", settings.kind)
        return kind.open_stage_data(settings, source=self.recipe.source, store=self.store.root)

    def _open_targets(self) -> list[tuple[EvaluateSettings, str, Rows]]:
        """Everything to be predicted, opened before any training, so that a missing file costs no hours."""
        return [
            (entry, language, open_data(spec, split=entry.split, store=self.store.root))
            for entry in self.recipe.evaluate
            for language, spec in entry.specs()
        ]

    def _check_targets(self, targets: list[tuple[EvaluateSettings, str, Rows]]) -> None:
        task = build_task(self.recipe.stage[-1].task, ())
        for _, _, rows in targets:
            check_kind(task, rows)

    def _train_seed(self, seed: int, opened: list[Any], track: Callable[..., None]) -> list[str]:
        identities: list[str] = []
        for settings, data in zip(self.recipe.stage, opened, strict=True):
            parent = identities[-1] if identities else None
            identities.append(self._train_stage(settings, data, seed=seed, parent=parent, track=track))
        return identities

    def _train_stage(
        self, settings: Any, data: Any, *, seed: int, parent: str | None, track: Callable[..., None]
    ) -> str:
        kind = load_kind("stages", settings.kind)
        encoder = self._load_start(parent)
        identity = self.store.identify(
            settings.kind,
            kind.VERSION,
            {
                **kind.identity_inputs(settings, data),
                "start": parent or encoder.identity,
                "seed": seed,
                **self._numerics(),
            },
        )
        with self._claim(identity) as done:
            if not done:
                context = StageContext(
                    seed,
                    self.recipe.source,
                    encoder,
                    self.recipe.encoder,
                    self.world,
                    self.store.work(identity),
                    self.store.root,
                    checkpoint_seconds=self.recipe.run.checkpoint_seconds,
                    progress=self.progress,
                    track=lambda values, step: track(values, step, seed),
                )
                model, card, record = kind.train(settings, data, context)
                if self.world.leads:
                    save_model(model, card, self.store.artefact(identity))
                    self.store.complete(identity, {**record, "machine": describe_machine(self.world)})
            else:
                self.progress.say(f"{settings.kind} (seed {seed}): already trained, {identity}")
        self.world.wait()
        return identity

    def _load_start(self, parent: str | None) -> Encoder:
        """The encoder that a stage starts from: the recipe's, or what the stage before made of it."""
        if parent is None:
            return load_encoder(self.recipe.encoder.name, revision=self.recipe.encoder.revision)
        return load_model(self.store.artefact(parent))[0].encoder

    def _numerics(self) -> dict[str, Any]:
        """What changes bits without changing settings."""
        on_cpu = self.world.device.type == "cpu"
        return {
            "precision": str(self.world.precision),
            "processes": self.world.size,
            "threads": torch.get_num_threads() if on_cpu else None,
            "deterministic": self.recipe.run.deterministic,
        }

    @contextmanager
    def _claim(self, identity: str) -> Iterator[bool]:
        """Hold an artefact's lock (the leading process does); tells whether it is already complete."""
        with self.store.lock(identity) if self.world.leads else nullcontext():
            self.world.wait()
            done = torch.tensor(int(self.store.is_complete(identity)), device=self.world.device)
            yield bool(self.world.broadcast(done))

    def _predict_seed(self, seed: int, identity: str, targets: list[tuple[EvaluateSettings, str, Rows]]) -> None:
        """Predictions of one seed's model, copied from the store where they were made before."""
        waiting = []
        for entry, language, rows in targets:
            path = prediction_path(self.out, seed, entry, language)
            stored = self._stored_predictions(identity, rows)
            if stored.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(stored, path)
            else:
                waiting.append((entry, rows, stored, path))
        if not waiting:
            return
        model, card = load_model(self.store.artefact(identity))
        model.to(self.world.device)
        head, settings = next(iter(card.tasks.items()))
        task = restore_task(settings)
        for entry, rows, stored, path in waiting:
            predictions = predict_rows(
                model,
                task,
                rows,
                head=head,
                world=self.world,
                cache=self.store.root / "encoded",
                batch=entry.batch,
                progress=self.progress,
                meta={"seed": seed},
            )
            write_predictions(stored, predictions)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(stored, path)

    def _stored_predictions(self, identity: str, rows: Rows) -> Path:
        key = content_hash({"rows": rows.fingerprint, "version": PREDICTION_VERSION, **self._numerics()})
        return self.store.root / "predictions" / identity / f"{key}.parquet"

    def _write_run_file(self, stages: dict[str, list[str]], command: str) -> None:
        if self.world.leads:
            facts = {"store": str(self.store.root.resolve()), "stages": stages, "command": command}
            text = json.dumps({**facts, "machine": describe_machine(self.world)}, indent=1, ensure_ascii=False)
            (self.out / "run.json").write_text(text, encoding="utf-8")


def run_recipe(
    recipe: Recipe, *, store: Store, out: Path, progress: Progress | None = None, command: str = ""
) -> Runner:
    """Carry a recipe out; predictions and the record of the run are then in ``out``."""
    runner = Runner(recipe, store, out, join_world(recipe.run), progress or Silence())
    runner.run(command=command)
    return runner


def prediction_path(out: Path, seed: int, entry: EvaluateSettings, language: str) -> Path:
    """Where the predictions of one seed, data set and language lie."""
    return out / f"seed-{seed}" / "predictions" / set_name(entry) / f"{_file_name(language)}.parquet"


def set_name(entry: EvaluateSettings) -> str:
    """A data set's name in tables and folders; another split than test is part of it."""
    name = entry.on if isinstance(entry.on, str) else Path(str(entry.on.get("path", "data"))).stem
    return _file_name(name if entry.split == "test" else f"{name}-{entry.split}")


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.@" else "-" for c in text).strip("-")


def read_run_file(out: Path) -> dict[str, Any]:
    """The record of a run, from its folder."""
    try:
        facts: dict[str, Any] = json.loads((out / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtefactError(
            f"{out}: not the folder of a run (run.json is missing); make one with crossling run"
        ) from None
    except json.JSONDecodeError as error:
        raise ArtefactError(f"{out / 'run.json'}: damaged: {error}; run the recipe again") from None
    return facts


def find_model(run: Path, *, seed: int | None = None) -> Path:
    """The folder of a run's trained model: the first seed's, or that of ``seed``."""
    if (run / "model.json").exists():
        return run
    facts = read_run_file(run)
    seeds = list(facts["stages"])
    wanted = str(seed) if seed is not None else seeds[0]
    if wanted not in seeds:
        raise ArtefactError(f"{run}: has no seed {wanted}; it has {', '.join(seeds)}")
    folder = Path(str(facts["store"])) / "artefacts" / str(facts["stages"][wanted][-1])
    if not (folder / "model.json").exists():
        raise ArtefactError(
            f"{folder}: the model of {run} is gone; run its recipe again: crossling run {run}/recipe.toml"
        )
    return folder
