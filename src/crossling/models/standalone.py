"""Standalone models: a folder that needs neither the store nor the base encoder.

    config.json, model.safetensors, tokenizer files    the trained encoder, as transformers' ``AutoModel`` reads it
    heads.safetensors                                  the weights of the fusion and of the heads
    model.json                                         the card, with size and digest of every file above

``load_model`` reads it; as an ordinary encoder folder it is also what a recipe can start from.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from safetensors.torch import save_file

from crossling.data.ragged import IntArray
from crossling.encoders.loading import save_encoder
from crossling.encoders.trimming import write_trimmed
from crossling.files import hash_file
from crossling.models.card import HEADS, FileFacts, ModelCard, list_loaded
from crossling.models.model import Model, weights_of, write_card


def write_standalone(model: Model, card: ModelCard, folder: Path, *, used: IntArray | None = None) -> None:
    """Write a model with the encoder's whole vocabulary, or with the subwords ``used`` and those tokenization needs."""
    if used is None:
        save_encoder(model.encoder, folder)
    else:
        write_trimmed(model.encoder, used, folder)
    own = {name: weight for name, weight in weights_of(model).items() if not name.startswith("encoder.")}
    save_file(own, folder / HEADS)
    for path in list_loaded(folder):
        path.chmod(0o644)  # safetensors writes files that only their owner can read
    files: dict[str, FileFacts] = {
        path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)} for path in list_loaded(folder)
    }
    # A path would name folders of the machine that it was trained on; the name alone says what it was trained from.
    base = Path(card.encoder)
    name = base.name if base.is_absolute() or base.is_dir() else card.encoder
    write_card(model, replace(card, encoder=name, files=files), folder)
