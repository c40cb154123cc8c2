"""The engine for models in ONNX: it imports neither torch nor transformers, whose start takes seconds.

B examples, S subwords.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from crossling.data.batching import Array, Batch, Examples, plan_prediction
from crossling.encoders.tokenization import TRIMMED_FROM
from crossling.errors import ArtefactError, UserError
from crossling.models.card import CARD, GRAPH, ModelCard, OnnxFacts, check_files
from crossling.progress import Progress

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.objectives import TaskObjective

TOKENIZER = "tokenizer.json"
TOKENS = 1024
"""Subwords of a batch: with more of them, what lies between two layers leaves a CPU's cache."""


@dataclass(frozen=True, eq=False)
class StoredTokenizer:
    """The part of a fast tokenizer that predictions need, without transformers."""

    backend_tokenizer: Any
    pad_token_id: int
    unk_token_id: int | None
    mask_token_id: int | None
    all_special_ids: list[int]
    init_kwargs: dict[str, Any]


@dataclass(frozen=True)
class StoredEncoder:
    """The part of an encoder that reading text needs."""

    tokenizer: StoredTokenizer
    identity: str
    max_length: int
    uses_token_types: bool
    is_causal: bool = False
    """Models that are have no form for ONNX."""


class OnnxEngine:
    """A model that ONNX Runtime runs on the CPU.

    As many batches run side by side as there are threads: threads that share a batch wait for each other at every
    operator. A single batch has all of them.
    """

    def __init__(self, folder: Path, card: ModelCard, *, threads: int | None = None) -> None:
        if card.onnx is None:
            raise UserError(f"{folder}: is no model for ONNX Runtime. Make one: crossling export RUN OUT --to onnx")
        self.threads = threads or count_cores()
        # Each takes a part of a second. A file that was changed is reported first, whatever else it led to.
        with ThreadPoolExecutor(max_workers=3) as workers:
            checked = workers.submit(check_files, folder, card)
            opened = workers.submit(open_session, folder, card, threads=self.threads)
            tokenizer = workers.submit(_load_tokenizer, folder, card.onnx)
            identity = checked.result()[GRAPH]
            self.session = opened.result()
            self._encoder = StoredEncoder(
                tokenizer.result(), identity, card.onnx["max_length"], card.onnx["token_types"]
            )
        self._inputs = [one.name for one in self.session.get_inputs()]

    @property
    def encoder(self) -> Encoder:
        """What tasks read of an encoder, and no more of it."""
        return cast("Encoder", self._encoder)

    def predict(
        self, objective: TaskObjective, examples: Examples, *, batch: int, progress: Progress
    ) -> Iterator[tuple[Batch, dict[str, Any]]]:
        """Every example with what the objective makes of its logits."""

        def run(planned: Batch) -> tuple[Batch, dict[str, Any]]:
            planned = Batch(planned.rows, int(examples.lengths[planned.rows].max()))
            arrays = objective.collate(examples, planned, size=len(planned.rows))
            return planned, objective.decode(self.compute_logits(objective.name, arrays), arrays)

        plan = plan_prediction(examples.lengths, batch, TOKENS)
        with ThreadPoolExecutor(max_workers=self.threads) as workers:
            for found in map(run, plan) if len(plan) == 1 else workers.map(run, plan):
                progress.advance(len(found[0].rows))
                yield found

    def compute_logits(self, head: str, arrays: dict[str, Array]) -> Array:
        """The logits of one head for a batch of subwords (-1 is padding), mask and, where it has them, segments."""
        padding = self._encoder.tokenizer.pad_token_id
        given = {**arrays, "ids": np.where(arrays["ids"] < 0, padding, arrays["ids"])}
        if "types" in self._inputs and "types" not in given:
            given["types"] = np.zeros_like(given["ids"])
        try:
            logits: Array = self.session.run([head], {name: given[name] for name in self._inputs})[0]
        except Exception as error:  # its errors have no common class
            raise ArtefactError(
                f"ONNX Runtime cannot compute {head!r}: {error}. The tokenizer or the card is of another model: export "
                "the model again."
            ) from None
        return logits


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_session(folder: Path, card: ModelCard, *, threads: int) -> Any:
    """A session of ONNX Runtime; a graph that it refuses, or that is not the card's, is an error that says why."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(
            f"{folder}: runs on ONNX Runtime, which is not installed: pip install 'crossling[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait for work by spinning would take the time of batches that run beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # what goes wrong is raised
    # Constants are folded; operators are fused already as they are fastest.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = onnxruntime.InferenceSession(
            str(folder / GRAPH), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its errors have no common class
        raise ArtefactError(
            f"{folder / GRAPH}: ONNX Runtime {onnxruntime.__version__} cannot load it: {error}. Export the model again."
        ) from None
    _check_shapes(folder, card, session)
    return session


def _check_shapes(folder: Path, card: ModelCard, session: Any) -> None:
    """Compare inputs and outputs with the card: a graph of another model would fail later, or give other labels."""
    assert card.onnx is not None
    inputs = {"ids", "mask"} | ({"types"} if card.onnx["token_types"] else set())
    found = {one.name for one in session.get_inputs()}
    if found != inputs:
        raise ArtefactError(
            f"{folder / GRAPH}: has the inputs {', '.join(sorted(found))}, not {', '.join(sorted(inputs))}. "
            f"Its {CARD} is of another model: export it again."
        )
    widths = {one.name: one.shape[-1] for one in session.get_outputs()}
    for name in card.tasks:
        if widths.get(name) != card.heads[name]["classes"]:
            raise ArtefactError(
                f"{folder / GRAPH}: gives {widths.get(name, 'no')} classes for {name!r}, but {CARD} names "
                f"{card.heads[name]['classes']}. Export the model again."
            )


def _load_tokenizer(folder: Path, facts: OnnxFacts) -> StoredTokenizer:
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # its errors have no class of their own
        raise ArtefactError(f"{folder / TOKENIZER}: cannot be read: {error}. Export the model again.") from None
    pieces = backend.get_vocab_size()
    named = [facts["padding"], facts["unknown"], facts["mask"], *facts["special"]]
    if any(index is not None and index >= pieces for index in named):
        raise ArtefactError(
            f"{folder / CARD}: names subwords beyond the {pieces} of {TOKENIZER}. Export the model again."
        )
    trimmed = {TRIMMED_FROM: facts["trimmed_from"]} if facts["trimmed_from"] is not None else {}
    return StoredTokenizer(backend, facts["padding"], facts["unknown"], facts["mask"], facts["special"], trimmed)
