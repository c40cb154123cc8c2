"""What probes read: an encoder's vectors of words or texts, computed once and kept on disk in half precision.

N examples (words or texts), G groups, D features of a group, B sentences, S subwords, L layers. Neither writing nor
reading holds more than a batch of them in memory, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from crossling.analyses.attention_heads import capture_heads
from crossling.data.batching import Batch, Examples, plan_prediction
from crossling.encoders.encoder import Encoder, hash_weights
from crossling.files import is_intact, replacing, reserve
from crossling.inference.evaluate import encode_rows
from crossling.models.heads import pool_sentence
from crossling.objectives.inputs import collate_inputs
from crossling.recipe.identity import content_hash
from crossling.training.loop import predict_examples

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext
    from crossling.data.rows import Rows
    from crossling.models.model import Model
    from crossling.objectives import Arrays

Array = np.ndarray[Any, np.dtype[Any]]
LARGEST = 65_000.0
"""The largest absolute value: half precision ends at 65,504."""
VERSION = 1
"""Counts up when features change, so that nothing stale is read from the store."""


@dataclass(frozen=True)
class OnDisk:
    """Features on disk, in half precision."""

    path: Path
    shape: tuple[int, int, int]
    device: torch.device

    def parts(self, rows: int) -> Iterator[Tensor]:
        """All features in their order; a part is read when it is asked for.

        Read, not mapped: what is mapped counts as this program's memory for as long as the system keeps it.
        """
        count, groups, width = self.shape
        with self.path.open("rb") as file:
            for start in range(0, count, rows):
                size = min(rows, count - start)
                part = np.fromfile(file, dtype=np.float16, count=size * groups * width)
                values = torch.from_numpy(part).to(self.device).float()
                yield values.view(size, groups, width)


@dataclass(frozen=True)
class LabelledPositions:
    """What has labels: the words of examples, or the examples themselves."""

    starts: Array
    """The first position of each example, and the number of all."""
    gold: Array
    """The label's code at each position, -1 where training never saw it."""
    row: Array
    """The row of the data set at each position."""

    def __len__(self) -> int:
        return len(self.gold)


def find_labelled_positions(examples: Examples) -> LabelledPositions:
    """Every word of taggers' examples, in the order of the text; every text of classifiers'."""
    if "firsts" not in examples.columns:
        gold = examples.scalars("gold").astype(np.int64)
        return LabelledPositions(np.arange(len(gold) + 1), gold, np.arange(len(gold)))
    golds = [examples.get("gold", number) for number in range(len(examples))]
    counts = np.array([len(gold) for gold in golds], np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    gold = np.concatenate([*golds, np.zeros(0, np.int32)]).astype(np.int64)
    return LabelledPositions(starts, gold, np.repeat(examples.scalars("row"), counts))


Extract = Callable[["Model", "dict[str, Tensor]"], Tensor]
"""From a batch to features: n x (G * D), a row for each of its positions."""


@dataclass
class FeatureObjective:
    """The features of each position; padding takes no part."""

    extract: Extract

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Inputs, and the positions as places in the flattened batch."""
        places = []
        for place, row in enumerate(plan.rows):
            firsts = examples.get("firsts", int(row)) if "firsts" in examples.columns else np.zeros(1, np.int64)
            places.append(place * plan.length + firsts.astype(np.int64))
        return {**collate_inputs(examples, plan, size=size), "positions": np.concatenate(places)}

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"features": self.extract(model, batch).clamp(-LARGEST, LARGEST).half()}


def extract_words(layer: int | None) -> Extract:
    """A word's vector at its first subword, in a layer; None: the last."""

    def extract(model: Model, batch: dict[str, Tensor]) -> Tensor:
        hidden_BSD = _encode(model, batch, layer)
        return hidden_BSD.flatten(0, 1).index_select(0, batch["positions"])

    return extract


def extract_texts(layer: int | None, how: Literal["auto", "cls", "mean", "last", "first"]) -> Extract:
    """A text's vector, pooled as a classifier pools it."""

    def extract(model: Model, batch: dict[str, Tensor]) -> Tensor:
        hidden_BSD = _encode(model, batch, layer)
        if how == "first":
            model.encoder.check_cls()
            return hidden_BSD[:, 0]
        return pool_sentence(model.encoder, hidden_BSD, batch["mask"], how=how)

    return extract


def extract_heads(model: Model, batch: dict[str, Tensor]) -> Tensor:
    """The output of every head of every layer at a word's first subword, or at a text's first token."""
    with capture_heads(model.encoder) as seen:
        _encode(model, batch, None)
    positions = batch["positions"]
    return torch.stack([heads_BSD.flatten(0, 1).index_select(0, positions) for heads_BSD in seen], dim=1).flatten(1)


def _encode(model: Model, batch: dict[str, Tensor], layer: int | None) -> Tensor:
    chosen = model.encoder.layers if layer is None else layer
    hidden_BSD: Tensor = model.encoder(batch["ids"], batch["mask"], batch.get("types"), layers=(chosen,))[chosen]
    return hidden_BSD


def find_folder(encoder: Encoder, store: Path) -> Path:
    """Where an encoder's features are kept: under the hash of its weights, on which alone they depend."""
    return store / "features" / hash_weights(encoder)[:20]


def collect_features(
    model: Model,
    task: Any,
    rows: Rows,
    *,
    extract: Extract,
    key: Sequence[Any],
    groups: int,
    labels: Sequence[str],
    folder: Path,
    context: AnalysisContext,
) -> tuple[OnDisk, LabelledPositions]:
    """The features of every position of a data set, from ``folder`` where they were computed before.

    ``key`` is what they depend on besides the rows, the task and the model, whose own folder it is.
    """
    examples = encode_rows(task, [rows], model.encoder, cache=context.encoded, labels=labels)
    positions = find_labelled_positions(examples)
    width = model.encoder.width if groups == 1 else model.encoder.layers * model.encoder.width
    shape = (len(positions), groups, width // groups)
    settings = task.settings.model_dump(mode="json")
    name = content_hash([VERSION, list(key), rows.fingerprint, settings])
    path = folder / f"{name}.f16"
    device = context.distributed.device
    if not is_intact(path, needs_seal=False) or path.stat().st_size != 2 * shape[0] * width:
        context.progress.begin(f"reading {rows.name}", len(examples))
        outputs = predict_examples(
            model,
            FeatureObjective(extract),
            examples,
            distributed=replace(context.distributed, precision=torch.float32),
            plan=plan_prediction(examples.lengths, context.batch),
            progress=context.progress,
        )
        write_features(path, outputs, positions, width)
        context.progress.end()
    return OnDisk(path, shape, device), positions


def write_features(
    path: Path, outputs: Iterator[tuple[Batch, dict[str, Any]]], positions: LabelledPositions, width: int
) -> None:
    """Write each example's features in their place, whatever the order of the batches; complete or not at all."""
    size = 2 * len(positions) * width
    with replacing(path, seal=True, needed=size) as partial, partial.open("wb") as file:
        reserve(file, size)
        for batch, arrays in outputs:
            start = 0
            for example in batch.rows.tolist():
                first, last = int(positions.starts[example]), int(positions.starts[example + 1])
                block = arrays["features"][start : start + last - first]
                os.pwrite(file.fileno(), block.tobytes(), 2 * first * width)
                start += last - first
