"""Forecast the memory of a recipe (``crossling check``), and open all data that it names.

Measured on Linux as the most memory that was ever resident, with the offline encoder (12 layers, width 384, 250,037
subwords) on a CPU; the constants come from single steps of 32 x 16 to 8 x 384 subwords. Whole runs, forecast against
measured, in GB: NER in batches of 32 x 24 subwords 2.0 / 1.9 trimmed and 3.5 / 3.5 whole, NLI of 16 x 24 1.9 / 1.9 and
3.5 / 3.4, QA of 32 x 104 3.5 / 3.0 and 5.1 / 4.5, QA with recomputed activations 2.4 / 2.2 trimmed, adapting of 16 x 96
with all subwords to choose from 4.8 / 4.3, averaging of two models 2.7 / 2.7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.batching import pad_length
from crossling.data.rows import Rows
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.encoders.unlabelled import Chunking, sample_texts
from crossling.errors import Problems
from crossling.objectives.changed_copies import ROOM
from crossling.progress import Progress
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import Recipe
from crossling.stages import StageSettings
from crossling.stages.consistent_task import LEXICON
from crossling.study.pool import Resources
from crossling.study.recipe_run import RecipeRun, check_layers, check_stages, open_recipe, resolve_recipe
from crossling.tasks import Task, build_task
from crossling.training.tracking import check_trackers

MEGABYTE = 1e6
OVERHEAD = 750 * MEGABYTE
"""Resident before any weight: Python, torch, transformers, pyarrow and a tokenizer of 250,000 pieces."""
TRAINED = 16
"""Bytes for each trained number: itself, its gradient and AdamW's two moments."""
LAYER_FLOATS = 26
"""Floats that a layer keeps for its backward pass, for each subword and unit of width: what 16 x 256, 8 x 384 and
32 x 64 or 128 subwords took (24 are in use, the rest is what the system's allocator does not give back)."""
SCORE_FLOATS = 3
"""The same for each pair of subwords and each head of attention."""
CHECKPOINTED_FLOATS = 12
"""Instead of both, where activations are recomputed; one layer at a time keeps all."""
WORD_FLOATS = 3
"""For each masked subword and each subword to choose from: scores, their softmax, their gradient."""
PREDICTION_FLOATS = 18
"""Floats for each subword and unit of width while predicting, whatever the number of layers."""
PREDICTED_SUBWORDS = 16_384
"""What a batch of predictions holds at most."""
SAMPLE = 2_000
"""Rows of a data set that are encoded to see how long they are and how many subwords they use."""

GPU_OVERHEAD = 1_500 * MEGABYTE
"""A process's CUDA context, its libraries and their work space."""
CAPTURE_FACTOR = 1.5
"""Captured steps keep their buffers apart from what evaluation uses."""


@dataclass(frozen=True)
class Inspection:
    """What ``crossling check`` shows."""

    recipe: str
    data: list[tuple[str, Rows]]
    forecast: dict[str, str]


@dataclass(frozen=True)
class Load:
    """What a stage's data asks of memory: its largest batch, and the subwords in use."""

    batch: int
    length: int
    subwords: int


@dataclass(frozen=True)
class Need:
    """Bytes of main memory that a stage takes at most, by what takes them."""

    weights: float
    activations: float
    rest: float
    is_trimmed: bool

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.activations + self.rest


def inspect_recipe(recipe: Recipe, *, store: Path, progress: Progress | None = None) -> Inspection:
    """Open everything that a recipe names, without training; all that is missing is reported at once."""
    check_trackers(recipe)
    problems = Problems()
    with problems.collect():
        check_stages(recipe)
    stages, targets = open_recipe(recipe, store, problems, progress=progress)
    problems.raise_all()
    recipe = resolve_recipe(recipe, stages)
    encoder = load_encoder(recipe.encoder.name, revision=recipe.encoder.revision)
    loads, data = [], []
    for number, (settings, opened) in enumerate(zip(recipe.stage, stages, strict=True)):
        with problems.collect(f"stage.{number}"):
            check_layers(settings, layers=encoder.layers, width=encoder.width)
        problems.raise_all()
        read = [rows for role, rows in opened.described() if role != LEXICON]
        loads.append(measure_load(settings, read, encoder))
        data += [(f"stage.{number}: {role}", rows) for role, rows in opened.described()]
    data += [(f"evaluate.{recipe.evaluate.index(entry)}", rows) for entry, _, rows in targets]
    return Inspection(to_toml(recipe.model_dump(mode="json")), data, forecast_memory(recipe, encoder, loads))


def measure_load(settings: StageSettings, data: Sequence[Rows], encoder: Encoder) -> Load:
    """The largest batch and the subwords in use, from the first rows of each set."""
    task_settings = getattr(settings, "task", None)
    task = build_task(task_settings, ()) if task_settings is not None else None
    longest, used, met, expected = 0, np.zeros(0, np.int64), 0, 0.0
    for rows in data:
        examples = _encode_sample(task, rows, encoder, length=length_of(settings))
        if not examples:
            continue
        longest = max(longest, *map(len, examples))
        ids = np.unique(np.concatenate(examples))
        used, met = np.union1d(used, ids), met + len(ids)
        expected += _extrapolate(examples, len(ids), share=len(rows) / min(len(rows), SAMPLE))
    subwords = len(used) * expected / met if met else 0
    batch = min(settings.batch, sum(map(len, data))) * (1 + (settings.kind == "adjust"))  # both sides of a pair
    if getattr(settings, "consistency", None) is not None:
        batch, longest = 2 * batch, min(math.ceil(ROOM * longest), max(longest, encoder.max_length))
    return Load(batch, pad_length(longest), min(int(subwords), encoder.vocabulary))


def length_of(settings: StageSettings) -> int:
    """Subwords of an example at most: by the task, or by the stage."""
    with_length: Any = getattr(settings, "task", settings)
    return int(with_length.length)


def _encode_sample(task: Task | None, rows: Rows, encoder: Encoder, *, length: int) -> list[np.ndarray[Any, Any]]:
    """The first rows as the stage reads them; what its task does not read (translations, other tasks' rows) as text."""
    if task is not None and rows.kind is task.record:
        chunks = islice(rows.chunks(SAMPLE), 1)
        return [ids for chunk in task.encode(chunks, encoder, labels=()) for ids in _list_rows(chunk["ids"])]
    return list(sample_texts(rows.head(SAMPLE), encoder, Chunking(length=min(length, encoder.max_length))))


def _list_rows(ids: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(ids[row]) for row in range(len(ids))]


def _extrapolate(examples: Sequence[np.ndarray[Any, Any]], distinct: int, *, share: float) -> float:
    """Distinct subwords in ``share`` times as many examples: their number grows as a power (Heaps' law)."""
    half = len(np.unique(np.concatenate(examples[: max(1, len(examples) // 2)])))
    power = float(np.log2(distinct / half))
    return float(distinct * share**power)


def forecast_memory(recipe: Recipe, encoder: Encoder, loads: Sequence[Load]) -> dict[str, str]:
    """For each stage, the most memory that training on a CPU and predicting afterwards take, and what takes it."""
    facts = {"encoder": f"{encoder.name}: {_count_parameters(encoder) / 1e6:.1f} million parameters"}
    for number, load in enumerate(loads):
        need = forecast_stage(recipe, number, encoder, load)
        facts[f"stage.{number}"] = (
            f"about {need.total / 1e9:.1f} GB on a CPU: {need.weights / 1e9:.1f} weights and optimiser, "
            f"{need.activations / 1e9:.1f} activations of {load.batch} x {load.length} subwords, "
            f"{need.rest / 1e9:.1f} Python and the encoder that predicts"
        )
        if need.is_trimmed:
            facts[f"stage.{number}"] += f"; trimmed to about {load.subwords:,} of {encoder.vocabulary:,} subwords"
    return facts


def forecast_stage(recipe: Recipe, number: int, encoder: Encoder, load: Load) -> Need:
    """The most bytes that a stage, and predicting with what it made, hold in main memory."""
    settings, whole = recipe.stage[number], _count_parameters(encoder)
    trims = _is_trimmed(recipe, number)
    width = int(encoder.model.get_input_embeddings().weight.shape[1])
    trained = whole - ((encoder.vocabulary - load.subwords) * width if trims else 0)
    batch = max((entry.batch for entry in recipe.evaluate), default=1)
    if settings.kind == "average":  # nothing is trained: the mean, one model after the other, and room to read it
        return Need(12.0 * whole, _prediction_bytes(encoder, batch, load.length), OVERHEAD + 4.0 * whole, False)
    activations = max(_activation_bytes(settings, encoder, load), _prediction_bytes(encoder, batch, load.length))
    # Once more the whole encoder: the best epoch's weights are read back, and what predicts is not trimmed.
    return Need(float(TRAINED * trained), activations, OVERHEAD + 4.0 * whole, trims)


def forecast_gpu_bytes(recipe: Recipe, encoder: Encoder) -> float:
    """GPU memory that one run takes at most, with the CUDA context and the captured steps' own buffers."""
    longest = [
        Load(settings.batch, min(length_of(settings), encoder.max_length), encoder.vocabulary)
        for settings in recipe.stage
    ]
    activations = max(
        _activation_bytes(settings, encoder, load) for settings, load in zip(recipe.stage, longest, strict=True)
    )
    return GPU_OVERHEAD + TRAINED * _count_parameters(encoder) + CAPTURE_FACTOR * activations


def fit_gpu_memory(resources: Resources, runs: Mapping[str, RecipeRun]) -> Resources:
    """On GPUs, as many workers as hold the largest run, unless the user said how many; each encoder is read once."""
    if resources.device == "cpu" or resources.is_fixed:
        return resources
    needs = []
    for settings in {run.recipe.encoder for run in runs.values()}:
        encoder = load_encoder(settings.name, revision=settings.revision)
        of_encoder = [run.recipe for run in runs.values() if run.recipe.encoder == settings]
        needs += [forecast_gpu_bytes(recipe, encoder) for recipe in of_encoder]
    return resources.fit_gpu_memory(max(needs))


def _is_trimmed(recipe: Recipe, number: int) -> bool:
    """Whether a stage trains the rows in use only: not while all subwords are chosen among, nor after that."""
    settings = recipe.stage[number]
    chosen = [getattr(stage, "vocabulary", None) for stage in recipe.stage[: number + 1]]
    if "whole" in chosen or chosen[-1] == "seen":
        return "whole" not in chosen
    return recipe.encoder.trim if recipe.encoder.trim != "auto" else settings.weight_decay == 0


def _count_parameters(encoder: Encoder) -> int:
    return sum(parameter.numel() for parameter in encoder.parameters())


def _activation_bytes(settings: Any, encoder: Encoder, load: Load) -> float:
    numbers = load.batch * load.length * encoder.width
    layer = numbers * LAYER_FLOATS + load.batch * encoder.heads * load.length**2 * SCORE_FLOATS
    words = 0.0
    if hasattr(settings, "vocabulary"):
        rows = encoder.vocabulary if settings.vocabulary == "whole" else load.subwords
        words = load.batch * load.length * settings.share * rows * WORD_FLOATS
    if settings.gradient_checkpointing:
        return 4.0 * (encoder.layers * numbers * CHECKPOINTED_FLOATS + layer + words)
    return 4.0 * (encoder.layers * layer + words)


def _prediction_bytes(encoder: Encoder, batch: int, length: int) -> float:
    return 4.0 * min(batch * length, PREDICTED_SUBWORDS) * encoder.width * PREDICTION_FLOATS
