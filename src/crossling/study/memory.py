"""Forecast the memory of a recipe (``crossling check``), and open all data that it names.

Measured on Linux as the most memory that was ever resident, with the offline encoder (12 layers, width 384, 250,037
subwords) on a CPU, in GB; ``python benchmarks/memory.py --device cpu`` does it. QA in batches of 32 x 90 subwords:

    settings                          trimmed: forecast, measured    whole: forecast, measured
    none                              3.1  3.1                       4.6  4.5
    lora, attention                   2.6  2.6                       3.4  3.3
    freeze = 6                        2.2  2.2                       2.9  2.9
    optimizer_states = "8bit"         2.9  3.0                       3.9  3.8
    gradient_checkpointing = true     2.3  2.2                       3.9  3.6

Activations of single steps, without weights and optimiser: 2.8 / 2.8 for 8 x 384 subwords, 3.2 / 3.2 for 6 x 500. So QA
in batches of 32 windows of 384 subwords takes 13 GB on a CPU, and 36 GB with consistency, whose copies double the batch
and may be 1.3 times as long. Other whole runs: NER of 32 x 22 with the whole vocabulary 3.4 / 3.2; measured earlier:
adapting of 16 x 96 with all subwords to choose from 4.6 / 4.3, averaging of two models 2.7 / 2.7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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
from crossling.recipe.recipe import EncoderSettings, Recipe
from crossling.stages import StageSettings
from crossling.stages.consistent_task import LEXICON
from crossling.stages.teachers import BATCH as TEACHER_BATCH
from crossling.study.layers import check_layers, explain_taken
from crossling.study.pool import Resources
from crossling.study.recipe_data import check_stages, open_recipe, resolve_recipe
from crossling.study.recipe_run import RecipeRun
from crossling.tasks import Task, build_task
from crossling.training.eight_bit import BLOCK
from crossling.training.settings import LoraSettings, TrainingSettings
from crossling.training.tracking import check_trackers
from crossling.training.trained_parts import choose_layers, list_frozen

MEGABYTE = 1e6
OVERHEAD = 750 * MEGABYTE
"""Resident before any weight: Python, torch, transformers, pyarrow and a tokenizer of 250,000 pieces."""
WEIGHT, GRADIENT = 4, 4
"""Bytes for each number of a model, and for the gradient of each that is trained."""
STATES = {"float32": 8.0, "bfloat16": 4.0, "8bit": 2 * (1 + 4 / BLOCK)}
"""Bytes of AdamW's two moments for each trained number: in 8 bits, with the scale of each block."""
LAYER_FLOATS = 22
"""Floats that a layer keeps for its backward pass, for each subword and unit of width: 18.5 are in use, the rest is
what one layer's backward pass takes and what the system's allocator does not give back."""
SCORE_FLOATS = 2.3
"""The same for each pair of subwords and each head of attention, of which 2 are in use."""
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

GPU_LAYER_BYTES = 36
"""Bytes that a layer keeps on a GPU in bf16 for each subword and unit of width: 17 numbers and two dropout masks, while
attention's kernel keeps no scores. Counted from its operations; docs/results/adapters.md compares sums with memory."""
GPU_CHECKPOINT_BYTES = 4
"""Instead, where activations are recomputed: the layer's input in float32. One layer at a time keeps twice the above,
since autocast keeps numbers in both precisions."""
GPU_WORK_SPACE = 200 * MEGABYTE
"""What matrix products take on each stream, and what the allocator cannot use."""
GPU_PREDICTED_SUBWORDS = 32_768
"""What a batch of predictions holds at most there."""
GPU_PREDICTION_BYTES = 20
"""For each of them and unit of width: fitted to 120 runs of the offline encoder."""
GPU_OVERHEAD = 1_500 * MEGABYTE
"""A process's CUDA context and its libraries."""


@dataclass(frozen=True)
class Inspection:
    """What ``crossling check`` shows."""

    recipe: str
    data: list[tuple[str, Rows]]
    forecast: dict[str, str]
    memory: tuple[MemoryForecast, ...] = ()
    """Main memory of each stage, in bytes."""

    @property
    def largest(self) -> str:
        """The name in the forecast of the stage that takes the most memory."""
        totals = [one.total for one in self.memory]
        return f"stage.{totals.index(max(totals))}"


@dataclass(frozen=True)
class Load:
    """What a stage's data asks of memory: its largest batch, and the subwords in use."""

    batch: int
    length: int
    subwords: int
    next_length: int = 0
    """Of the largest batch but one."""
    predicted: int = 0
    """Subwords of what is predicted at once while training."""


@dataclass(frozen=True)
class MemoryForecast:
    """Bytes of main memory that a stage takes at most, by what takes them."""

    weights: float
    activations: float
    rest: float
    is_trimmed: bool

    @property
    def total(self) -> float:
        """Weights, activations and the rest."""
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
    loaded = {one: load_encoder(one.name, revision=one.revision) for one in recipe.encoders}
    encoders = [loaded[recipe.encoder_of(number)] for number in range(len(recipe.stage))]
    loads, data = [], []
    for number, (settings, opened) in enumerate(zip(recipe.stage, stages, strict=True)):
        encoder = encoders[number]
        with problems.collect(f"stage.{number}"), explain_taken(recipe, number):
            check_layers(settings, layers=encoder.layers, width=encoder.width)
            count_trained(settings, encoder)  # refuses adapters of linear layers that the encoder does not have
        problems.raise_all()
        read = [rows for role, rows in opened.described() if role != LEXICON]
        loads.append(measure_load(settings, read, encoder))
        data += [(f"stage.{number}: {role}", rows) for role, rows in opened.described()]
    data += [(f"evaluate.{recipe.evaluate.index(entry)}", rows) for entry, _, rows in targets]
    memory = tuple(forecast_stages(recipe, encoders, loads))
    forecast = describe_memory(recipe, encoders, loads)
    return Inspection(to_toml(recipe.model_dump(mode="json")), data, forecast, memory)


def measure_load(settings: StageSettings, data: Sequence[Rows], encoder: Encoder) -> Load:
    """The largest batch and the subwords in use, from the first rows of each set."""
    task_settings = getattr(settings, "task", None)
    task = build_task(task_settings, ()) if task_settings is not None else None
    used, met, expected = np.zeros(0, np.int64), 0, 0.0
    lengths: list[tuple[float, np.ndarray[Any, Any]]] = []
    """Of each set: the subwords of all its rows, and the lengths of those that are encoded, the longest first."""
    for rows in data:
        examples = _encode_sample(task, rows, encoder, length=length_of(settings))
        if not examples:
            continue
        share = len(rows) / min(len(rows), SAMPLE)
        sizes = np.sort([len(example) for example in examples])[::-1]
        lengths.append((share * float(sizes.sum()), sizes))
        ids = np.unique(np.concatenate(examples))
        used, met = np.union1d(used, ids), met + len(ids)
        expected += _extrapolate(examples, len(ids), share=share)
    subwords = len(used) * expected / met if met else 0
    rows_of_batch = min(settings.batch, sum(map(len, data)))
    largest = max(lengths, key=lambda one: one[0], default=(0.0, np.zeros(1, np.int64)))
    # Batches are made of rows of about the same length: the next one begins where the longest is full.
    begins = min(len(largest[1]) - 1, max(1, round(rows_of_batch * float(largest[1].sum()) / max(1.0, largest[0]))))
    longest = max((int(sizes[0]) for _, sizes in lengths), default=0)
    batch, longest = _add_copies(settings, encoder, rows_of_batch, longest)
    next_length = _add_copies(settings, encoder, 1, int(largest[1][begins]))[1]
    predicted = sum(total for total, sizes in lengths if sizes is not largest[1])
    return Load(
        batch,
        pad_length(longest),
        min(int(subwords), encoder.vocabulary),
        pad_length(next_length),
        min(round(predicted), GPU_PREDICTED_SUBWORDS),
    )


def _add_copies(settings: StageSettings, encoder: Encoder, batch: int, length: int) -> tuple[int, int]:
    """Rows of a batch and their length, with both sides of a pair, and with changed copies, which may be longer."""
    batch, length = batch * (1 + (settings.kind == "adjust")), min(length, encoder.max_length)
    if getattr(settings, "consistency", None) is None:
        return batch, length
    return 2 * batch, min(math.ceil(ROOM * length), encoder.max_length)


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


def forecast_stages(recipe: Recipe, encoders: Sequence[Encoder], loads: Sequence[Load]) -> list[MemoryForecast]:
    """For each stage and its encoder, the most memory that training on a CPU and predicting afterwards take."""
    forecasts = []
    for number, (encoder, load) in enumerate(zip(encoders, loads, strict=True)):
        forecast = forecast_stage(recipe, number, encoder, load)
        if number and recipe.own_encoder(number - 1):
            labelling = _forecast_labelling(encoder, encoders[number - 1], load)
            forecast = max(forecast, labelling, key=lambda one: one.total)
        forecasts.append(forecast)
    return forecasts


def describe_memory(recipe: Recipe, encoders: Sequence[Encoder], loads: Sequence[Load]) -> dict[str, str]:
    """For each stage, in words, the memory that it takes, and what takes it."""
    facts = {"encoder": _describe_size(encoders[-1])}
    forecasts = forecast_stages(recipe, encoders, loads)
    for number, (encoder, load, forecast) in enumerate(zip(encoders, loads, forecasts, strict=True)):
        if recipe.own_encoder(number):
            facts[f"stage.{number}.encoder"] = _describe_size(encoder)
        facts[f"stage.{number}"] = (
            f"about {forecast.total / 1e9:.1f} GB on a CPU: {forecast.weights / 1e9:.1f} weights and optimiser, "
            f"{forecast.activations / 1e9:.1f} activations of {load.batch} x {load.length} subwords, "
            f"{forecast.rest / 1e9:.1f} Python and the encoder that predicts"
        )
        if forecast.is_trimmed:
            facts[f"stage.{number}"] += f"; trimmed to about {load.subwords:,} of {encoder.vocabulary:,} subwords"
        if recipe.stage[number].kind != "average":
            on_gpu = GPU_OVERHEAD + forecast_gpu_stage(recipe, number, encoder, load)
            facts[f"stage.{number}"] += f"; about {on_gpu / 1e9:.1f} GB on a GPU"
    return facts


def _describe_size(encoder: Encoder) -> str:
    return f"{encoder.name}: {_count_parameters(encoder) / 1e6:.1f} million parameters"


def _forecast_labelling(student: Encoder, teacher: Encoder, load: Load) -> MemoryForecast:
    """Before a student is trained, a teacher of another encoder predicts while the student's is loaded."""
    weights = float(WEIGHT * (_count_parameters(student) + _count_parameters(teacher)))
    return MemoryForecast(weights, _prediction_bytes(teacher, TEACHER_BATCH, load.length), OVERHEAD, False)


def forecast_stage(recipe: Recipe, number: int, encoder: Encoder, load: Load) -> MemoryForecast:
    """The most bytes that a stage, and predicting with what it made, hold in main memory."""
    settings, whole = recipe.stage[number], _count_parameters(encoder)
    trims = _is_trimmed(recipe, number)
    width = int(encoder.model.get_input_embeddings().weight.shape[1])
    left_out = (encoder.vocabulary - load.subwords) * width if trims else 0
    batch = max((entry.batch for entry in recipe.evaluate), default=1)
    if settings.kind == "average":  # nothing is trained: the mean, one model after the other, and room to read it
        return MemoryForecast(
            12.0 * whole, _prediction_bytes(encoder, batch, load.length), OVERHEAD + 4.0 * whole, False
        )
    activations = max(_activation_bytes(settings, encoder, load), _prediction_bytes(encoder, batch, load.length))
    trained = count_trained(settings, encoder, left_out=left_out)
    held = float(WEIGHT * (whole - left_out))
    # Where gradients and means take less than the weights, most is needed once they are gone: for a copy of these.
    weights = held + max(trained.count_bytes(settings), held)
    # Once more the whole encoder: the best epoch's weights are read back, and what predicts is not trimmed.
    return MemoryForecast(weights, activations, OVERHEAD + 4.0 * whole, trims)


class Trained(NamedTuple):
    """How many numbers a stage trains, and how many of them are adapters', which the encoder itself does not have."""

    numbers: int
    adapters: int

    def count_bytes(self, settings: TrainingSettings) -> float:
        """What training adds to a model's weights: gradients and the optimiser's means, and adapters themselves."""
        return WEIGHT * self.adapters + self.numbers * (GRADIENT + STATES[settings.optimizer_states])


def count_trained(settings: TrainingSettings, encoder: Encoder, *, left_out: int = 0) -> Trained:
    """What of an encoder a stage trains; ``left_out``: numbers that a trimmed embedding table does not have."""
    if settings.lora is None:
        frozen = sum(p.numel() for p in list_frozen(encoder, settings.freeze))
        return Trained(_count_parameters(encoder) - (frozen or left_out), 0)
    adapted = choose_layers(encoder, settings.lora, skipped=_count_frozen(settings))
    adapters = sum(settings.lora.rank * (one.in_features + one.out_features) for one in adapted.values())
    others = sum(p.numel() for p in encoder.pooler.parameters()) if encoder.pooler is not None else 0
    if settings.lora.embeddings:
        others += sum(p.numel() for p in list_frozen(encoder, "embeddings")) - left_out
    return Trained(adapters + others, adapters)


def _count_frozen(settings: TrainingSettings) -> int:
    """Lowest layers that are not trained."""
    return settings.freeze if isinstance(settings.freeze, int) else 0


def forecast_gpu_stage(recipe: Recipe, number: int, encoder: Encoder, load: Load) -> float:
    """Bytes that training a stage holds on a GPU at most, without the CUDA context."""
    settings, reduced = recipe.stage[number], recipe.run.precision != "float32"
    width = int(encoder.model.get_input_embeddings().weight.shape[1])
    left_out = (encoder.vocabulary - load.subwords) * width if _is_trimmed(recipe, number) else 0
    held = _count_parameters(encoder) - left_out
    trained = count_trained(settings, encoder, left_out=left_out)
    weights = WEIGHT * held + trained.count_bytes(settings)
    numbers = load.batch * load.length * encoder.width
    layer = numbers * (GPU_LAYER_BYTES + 2 * count_adapter_floats(settings, encoder)) * (1 if reduced else 2)
    layers = max(1, encoder.layers - _count_frozen(settings))
    words = _count_word_floats(settings, encoder, load) * 4
    if settings.gradient_checkpointing:
        # The embedding table's gradient is made apart from what it is added to.
        learns_table = settings.freeze == "none" and (settings.lora is None or settings.lora.embeddings)
        table = WEIGHT * (encoder.vocabulary * width - left_out) if learns_table else 0
        return weights + table + layers * numbers * GPU_CHECKPOINT_BYTES + 2 * layer + words + GPU_WORK_SPACE
    copies = 2 * (held + trained.adapters) if reduced else 0
    # A length is first run without a graph, beside the memory of graphs; so is what is predicted.
    next_batch = layers * layer * load.next_length / max(1, load.length)
    beside = next_batch + load.predicted * encoder.width * GPU_PREDICTION_BYTES
    return weights + copies + layers * layer + beside + words + GPU_WORK_SPACE


def forecast_prediction(encoder: Encoder, *, batch: int, length: int) -> float:
    """The most bytes of main memory that predicting alone takes."""
    return OVERHEAD + 4.0 * _count_parameters(encoder) + _prediction_bytes(encoder, batch, length)


def forecast_gpu_bytes(recipe: Recipe, encoder: Encoder) -> float:
    """GPU memory to set aside for one run, with the CUDA context: inputs of full length, and the whole vocabulary."""
    needs = []
    for number, settings in enumerate(recipe.stage):
        batch, length = _add_copies(settings, encoder, settings.batch, length_of(settings))
        load = Load(batch, length, encoder.vocabulary, length, GPU_PREDICTED_SUBWORDS)
        needs.append(forecast_gpu_stage(recipe, number, encoder, load))
    return GPU_OVERHEAD + max(needs)


def fit_gpu_memory(resources: Resources, runs: Mapping[str, RecipeRun]) -> Resources:
    """On GPUs, as many workers as hold the largest run, unless the user said how many; each encoder is read once."""
    if resources.device == "cpu" or resources.is_fixed:
        return resources
    needs = []
    for settings in {settings for run in runs.values() for settings in run.recipe.encoders}:
        encoder = load_encoder(settings.name, revision=settings.revision)
        parts = [_take_stages(run.recipe, settings) for run in runs.values()]
        needs += [forecast_gpu_bytes(recipe, encoder) for recipe in parts if recipe.stage]
    return resources.fit_gpu_memory(max(needs))


def _take_stages(recipe: Recipe, encoder: EncoderSettings) -> Recipe:
    """A recipe with the stages that train this encoder."""
    stages = (settings for number, settings in enumerate(recipe.stage) if recipe.encoder_of(number) == encoder)
    return recipe.model_copy(update={"encoder": encoder, "stage": tuple(stages)})


def _is_trimmed(recipe: Recipe, number: int) -> bool:
    """Whether a stage trains the rows in use only: not while all subwords are chosen among, nor after that."""
    settings = recipe.stage[number]
    chosen = [getattr(stage, "vocabulary", None) for stage in recipe.stage[: number + 1]]
    if "whole" in chosen or chosen[-1] == "seen":
        return "whole" not in chosen
    trim = recipe.encoder_of(number).trim
    return trim if trim != "auto" else settings.weight_decay == 0


def _count_parameters(encoder: Encoder) -> int:
    return sum(parameter.numel() for parameter in encoder.parameters())


def _activation_bytes(settings: Any, encoder: Encoder, load: Load) -> float:
    numbers = load.batch * load.length * encoder.width
    layer = (
        numbers * (LAYER_FLOATS + count_adapter_floats(settings, encoder))
        + load.batch * encoder.heads * load.length**2 * SCORE_FLOATS
    )
    words = _count_word_floats(settings, encoder, load)
    layers = encoder.layers - _count_frozen(settings)
    if settings.gradient_checkpointing:
        return 4.0 * (layers * numbers * CHECKPOINTED_FLOATS + layer + words)
    return 4.0 * (max(layers, 1) * layer + words)


def _count_word_floats(settings: Any, encoder: Encoder, load: Load) -> float:
    """For a stage that predicts masked words: scores of all subwords at masked places."""
    if not hasattr(settings, "vocabulary"):
        return 0.0
    rows = encoder.vocabulary if settings.vocabulary == "whole" else load.subwords
    return float(load.batch * load.length * settings.share * rows * WORD_FLOATS)


def count_adapter_floats(settings: TrainingSettings, encoder: Encoder) -> float:
    """What adapters change in the floats that a layer keeps, for each subword and unit of width.

    A linear layer that is not trained does not keep its input, unless an adapter reads it: of those with the same
    parent module, one input is counted. An adapter's dropout keeps a mask for each number that it reads.
    """
    if settings.lora is None:
        return 0.0
    adapted = choose_layers(encoder, settings.lora)
    inputs: dict[str, int] = {}
    for name, linear in choose_layers(encoder, LoraSettings(targets="all")).items():
        parent = name.rpartition(".")[0]
        inputs[parent] = max(inputs.get(parent, 0), linear.in_features)
    read = {name.rpartition(".")[0] for name in adapted}
    floats = -float(sum(size for parent, size in inputs.items() if parent not in read))
    if settings.lora.dropout:
        floats += sum(linear.in_features for linear in adapted.values())
    return floats / (len(encoder.get_layers()) * encoder.width)


def _prediction_bytes(encoder: Encoder, batch: int, length: int) -> float:
    return 4.0 * min(batch * length, PREDICTED_SUBWORDS) * encoder.width * PREDICTION_FLOATS
