"""A trained model as a folder that ONNX Runtime runs.

model.onnx, model.onnx.data          the graph, from subwords to the logits of every head, and its weights
tokenizer.json                       the tokenizer
model.json                           the card: tasks, labels, special tokens, size and digest of every file above
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crossling.encoders.tokenization import TRIMMED_FROM
from crossling.files import hash_file
from crossling.inference.onnx.dependencies import Precision
from crossling.inference.onnx.engine import TOKENIZER
from crossling.inference.onnx.graph import Graph
from crossling.inference.onnx.heads import emit_model
from crossling.models.card import FileFacts, ModelCard, list_loaded
from crossling.models.model import write_card
from crossling.tasks import restore_task

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.models.card import OnnxFacts
    from crossling.models.model import Model


def export_onnx(model: Model, card: ModelCard, folder: Path, *, precision: Precision = "float32") -> None:
    """Write a model for ONNX Runtime into a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = Graph(precision)
    objectives = [restore_task(stored).build_objective(name) for name, stored in card.tasks.items()]
    outputs = emit_model(graph, model, objectives)
    inputs = ["ids", "mask", *(["types"] if model.encoder.uses_token_types else [])]
    graph.save(folder, inputs=inputs, outputs=outputs)
    model.encoder.tokenizer.backend_tokenizer.save(str(folder / TOKENIZER))
    for path in list_loaded(folder):
        path.chmod(0o644)
    files: dict[str, FileFacts] = {
        path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)} for path in list_loaded(folder)
    }
    # A path would name folders of the machine that it was trained on; the name alone says what it was trained from.
    base = Path(card.encoder)
    name = base.name if base.is_absolute() or base.is_dir() else card.encoder
    facts = describe_encoder(model.encoder, precision)
    write_card(model, replace(card, encoder=name, files=files, onnx=facts), folder)


def describe_encoder(encoder: Encoder, precision: Precision) -> OnnxFacts:
    """What the engine must know of an encoder and its tokenizer."""
    tokenizer = encoder.tokenizer
    return {
        "precision": precision,
        "max_length": encoder.max_length,
        "token_types": encoder.uses_token_types,
        "padding": int(tokenizer.pad_token_id),
        "unknown": tokenizer.unk_token_id,
        "mask": tokenizer.mask_token_id,
        "special": sorted(int(index) for index in tokenizer.all_special_ids),
        "trimmed_from": tokenizer.init_kwargs.get(TRIMMED_FROM),
    }
