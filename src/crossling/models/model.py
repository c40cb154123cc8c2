"""A model: an encoder, the fusion of its layers, and a head for each task; saved and loaded as one.

A model in the store holds the subword rows that its training used and takes the others from its base encoder, which
they equal: loaded, it has the encoder's whole vocabulary again and reads any language, at a fraction of the disk space.
A standalone model (``standalone.py``) needs no base: its folder holds an encoder of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import join_digests, load_encoder, load_folder
from crossling.encoders.masked_word_head import MaskedWordHead, read_head, save_head
from crossling.encoders.structure import Direction
from crossling.encoders.untrusted import is_finite
from crossling.encoders.vocabulary import Trimmed, trim_encoder
from crossling.errors import ArtefactError
from crossling.files import explain_failures
from crossling.fusions import Fusion, build_fusion
from crossling.limits import check_inside
from crossling.models.card import CARD, HEADS, HeadShape, ModelCard, check_files, read_card
from crossling.models.heads import Head

__all__ = [
    "Model",
    "ModelCard",
    "build_model",
    "load_model",
    "load_original",
    "load_weights",
    "read_card",
    "read_weights",
    "save_model",
    "to_device",
    "weights_of",
    "write_card",
]

MASKED_WORDS = "words"
"""The name of the masked-word head among a model's heads."""
HEAD_FILE = "masked_word_head.safetensors"
ROWS = "vocabulary.rows"
"""The name under which a weights file lists the subword rows that it holds."""


class Model(nn.Module):
    """What is trained: an encoder, a fusion, heads by name."""

    def __init__(self, encoder: Encoder, fusion: Fusion, heads: dict[str, nn.Module] | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.fusion = fusion
        self.heads = nn.ModuleDict(heads or {})
        self.trimmed: Trimmed | None = None
        self.kept: dict[str, nn.Module] = {}
        """What is saved beside the model without being part of it: the masked-word head that was adapted with it."""

    def represent(self, batch: dict[str, Tensor]) -> Tensor:
        """The representation that heads read, B x S x D."""
        hidden = self.encoder(batch["ids"], batch["mask"], batch.get("types"), layers=self.fusion.reads)
        return self.fusion(hidden, batch["mask"])

    def prepare(self, arrays: dict[str, np.ndarray[Any, Any]], device: torch.device) -> dict[str, Tensor]:
        """A batch as tensors: subwords as rows of the table at hand, padding as the encoder's own.

        For a GPU they lie in pinned memory, from which copying does not hold up the CPU.
        """
        ids = np.where(arrays["ids"] < 0, self.encoder.tokenizer.pad_token_id, arrays["ids"])
        if self.trimmed is not None:
            ids = self.trimmed.map_ids(ids)
        tensors = {name: torch.from_numpy(values) for name, values in {**arrays, "ids": ids}.items()}
        return {name: t.pin_memory() for name, t in tensors.items()} if device.type == "cuda" else tensors

    def trim(self, used_ids: np.ndarray[Any, Any]) -> None:
        """Keep only the subword rows in use. The others never change, so a saved model takes them from its base."""
        self.trimmed = trim_encoder(self.encoder, used_ids)

    def table_name(self) -> str:
        """The name of the subword table among the model's weights."""
        table = self.encoder.model.get_input_embeddings().weight
        return next(name for name, weight in self.named_parameters() if weight is table)


def to_device(batch: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """A batch where the model is."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def build_model(encoder: Encoder, fusion: dict[str, Any]) -> Model:
    """An encoder with the fusion that a recipe names, and no head yet."""
    return Model(encoder, build_fusion(fusion, layers=encoder.layers, width=encoder.width))


def weights_of(model: Model) -> dict[str, Tensor]:
    """The weights to store, on the CPU, with the list of subword rows where the table is trimmed."""
    weights = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    if model.trimmed is not None:
        weights[ROWS] = torch.from_numpy(np.asarray(model.trimmed.rows, dtype=np.int64))
    return weights


def count_bytes(weights: dict[str, Tensor]) -> int:
    """How much room weights take on disk."""
    return sum(weight.nbytes for weight in weights.values())


def update_mean(mean: dict[str, Tensor] | None, weights: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """The mean of ``count`` models' weights, from the mean of those before, in its place, and the last one's.

    Batch statistics count as weights do; of what are whole numbers (counters, lists of rows) the last are taken.
    """
    if mean is None:
        return {name: weight.clone() for name, weight in weights.items()}
    for name, weight in weights.items():
        if weight.is_floating_point():
            mean[name].lerp_(weight, 1 / count)
        else:
            mean[name].copy_(weight)
    return mean


def save_model(model: Model, card: ModelCard, folder: Path) -> None:
    """Write weights and card into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_of(model)
    path = folder / "model.safetensors"
    with explain_failures(path, needed=count_bytes(weights)):
        save_file(weights, path)
    if (head := model.kept.get(MASKED_WORDS)) is not None:
        assert isinstance(head, MaskedWordHead)
        save_head(head, folder / HEAD_FILE)
    base = Path(card.encoder).expanduser()
    # The full path of a folder, so that the model is found from any working directory.
    encoder = str(base.resolve()) if base.is_dir() else card.encoder
    write_card(model, replace(card, encoder=encoder, files={}), folder)


def write_card(model: Model, card: ModelCard, folder: Path) -> None:
    """Write the card of a model, with the shapes of its heads and the hashes of custom kinds."""
    shapes: dict[str, HeadShape] = {
        name: {"classes": head.linear.out_features, "dropout": head.dropout.p}
        for name, head in model.heads.items()
        if isinstance(head, Head)
    }
    card = replace(card, heads=shapes, plugins=card.custom_kinds())
    with explain_failures(folder / CARD):
        table = asdict(card)
        if card.attention is None:
            del table["attention"]  # of the few models that can be asked for it
        (folder / CARD).write_text(json.dumps(table, indent=1, ensure_ascii=False), encoding="utf-8")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Stored weights, all of them numbers; a damaged file is an :class:`ArtefactError`."""
    try:
        check_inside(path, path.parent)
        weights: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ArtefactError(f"{path}: cannot be read: {what}. Delete its folder and run the recipe again.") from None
    for name, weight in weights.items():
        if not is_finite(weight):
            raise ArtefactError(f"{path}: {name} holds values that are infinite or not a number. Run the recipe again.")
    return weights


def load_weights(model: Model, weights: dict[str, Tensor]) -> None:
    """Put stored weights into a model whose subword table is whole, or trimmed to the very same rows.

    The encoder then knows which rows differ from its base's, so that a later stage stores them too.
    """
    rows = weights.pop(ROWS, None)
    _check_types(model, weights)
    if rows is not None:
        _check_rows(rows, weights[model.table_name()])
    if model.trimmed is None:
        model.encoder.changed_rows = np.arange(model.encoder.vocabulary) if rows is None else rows.numpy()
    if rows is not None and model.trimmed is None:
        name = model.table_name()
        whole = model.state_dict()[name]  # the very table, so that nothing is held twice
        whole[rows] = weights[name].to(whole.dtype)
        weights = {**weights, name: whole}
    model.load_state_dict(weights)


def _check_types(model: Model, weights: dict[str, Tensor]) -> None:
    """Refuse whole numbers in the place of weights: converted silently, they would be other weights."""
    own = model.state_dict()
    for name in sorted(weights.keys() & own.keys()):
        if weights[name].is_floating_point() != own[name].is_floating_point():
            raise RuntimeError(f"{name} is stored as {weights[name].dtype}")


def _check_rows(rows: Tensor, table: Tensor) -> None:
    """The list of stored subword rows: whole numbers of the vocabulary, rising, one for each row of the table."""
    if rows.dtype != torch.int64 or rows.shape != table.shape[:1]:
        raise RuntimeError(f"{ROWS} lists {tuple(rows.shape)} rows as {rows.dtype}, the table has {tuple(table.shape)}")
    if len(rows) and (int(rows[0]) < 0 or not bool((rows.diff() > 0).all())):
        raise RuntimeError(f"{ROWS} does not list rows in rising order, each once")


def load_original(name: str, *, revision: str | None = None) -> tuple[Model, ModelCard]:
    """An encoder as it was pretrained, as a model: it has no heads, and what is read of it is its last layer."""
    encoder = load_encoder(name, revision=revision)
    return build_model(encoder, {"kind": "last"}).eval(), ModelCard(name, encoder.identity, revision)


def load_model(
    folder: str | Path, *, load: Callable[[str, str | None, Direction | None], Encoder] | None = None
) -> tuple[Model, ModelCard]:
    """A saved model with its whole vocabulary, on the CPU, ready to predict; ``load`` finds its encoder by name."""
    folder = Path(folder)
    card = read_card(folder)
    if card.onnx is not None:
        raise ArtefactError(
            f"{folder}: has no weights for torch, for it was exported to ONNX: it only predicts. Name the run that it "
            "was exported from."
        )
    if card.files:
        digests = join_digests(check_files(folder, card))
        encoder = load_folder(folder, name=card.encoder, identity=digests, attention=card.attention)
        encoder.origin = (str(folder), None)
    else:
        encoder = _load_base(folder, card, load)
    model = build_model(encoder, card.fusion)
    if card.custom_kinds() != card.plugins:
        raise ArtefactError(
            f"{folder}: the code of {', '.join(card.plugins)} has changed since the model was trained; "
            "restore the old file, or run the recipe again"
        )
    for name, shape in card.heads.items():
        model.heads[name] = Head(encoder.width, shape["classes"], shape["dropout"])
    try:
        if card.files:
            own = {name: weight for name, weight in model.state_dict().items() if name.startswith("encoder.")}
            heads = read_weights(folder / HEADS)
            _check_types(model, heads)
            model.load_state_dict({**own, **heads})
        else:
            load_weights(model, read_weights(folder / "model.safetensors"))
    except (RuntimeError, KeyError, IndexError) as error:
        raise ArtefactError(f"{folder}: its weights do not fit its card: {error}. Run the recipe again.") from None
    if (folder / HEAD_FILE).is_file():
        read_weights(folder / HEAD_FILE)  # refuses what is damaged or lies elsewhere
        model.kept[MASKED_WORDS] = read_head(folder / HEAD_FILE, encoder).eval()
    return model.eval(), card


def _load_base(
    folder: Path, card: ModelCard, load: Callable[[str, str | None, Direction | None], Encoder] | None
) -> Encoder:
    """The encoder that a model was trained from, if it is still the same."""
    asked = (card.encoder, card.revision, card.attention)
    encoder = load(*asked) if load else load_encoder(asked[0], revision=asked[1], attention=asked[2])
    if encoder.identity != card.encoder_identity:
        raise ArtefactError(
            f"{folder}: was trained from {card.encoder} with identity {card.encoder_identity[:12]}, but what is found "
            f"under that name now is {encoder.identity[:12]}. Name the same revision, or run the recipe again."
        )
    return encoder
