"""The masked-word (MLM) head: a dense layer, an activation, layer normalisation, then the encoder's embedding table.

The tied embedding table is an argument of every call: it is one tensor, which is trimmed, moved, trained and stored in
one place. Shapes: K masked positions, D width, E width of the table (D in most families), V subwords.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import list_weights, locate_checkpoint
from crossling.errors import ArtefactError, EncoderError


class MaskedWordHead(nn.Module):
    """Logits of all subwords at each masked position, by the embedding table."""

    def __init__(
        self, width: int, vocabulary: int, *, table: int | None = None, activation: str = "gelu", eps: float = 1e-12
    ) -> None:
        """``table``: its width, where it is not the encoder's."""
        from transformers.activations import ACT2FN

        super().__init__()
        self.dense = nn.Linear(width, table or width)
        self.activation_name = activation
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(table or width, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, vectors_KD: Tensor, table_VE: Tensor) -> Tensor:
        hidden_KE = self.norm(self.activation(self.dense(vectors_KD)))
        return functional.linear(hidden_KE, table_VE, self.bias)

    def keep_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Keep the biases of these rows, in their order: the table was trimmed to them."""
        self.bias = nn.Parameter(self.bias.detach()[torch.from_numpy(rows).to(self.bias.device)].clone())

    def restore_rows(self, rows: np.ndarray[Any, Any], whole: Tensor) -> None:
        """Undo :meth:`keep_rows`: the biases of other rows are taken from ``whole``."""
        bias = whole.clone().to(self.bias.device)
        bias[torch.from_numpy(rows).to(bias.device)] = self.bias.detach()
        self.bias = nn.Parameter(bias)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a head's tensors in an architecture's checkpoints."""

    dense: str
    norm: str
    biases: tuple[str, ...]
    activation: str = ""
    """The setting of the model that names the activation; GELU where there is none."""


_BERT = _Names(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "hidden_act",
)
_ROBERTA = _Names("lm_head.dense", "lm_head.layer_norm", ("lm_head.bias", "lm_head.decoder.bias"))
HEADS = {
    "albert": _Names(
        "predictions.dense", "predictions.LayerNorm", ("predictions.bias", "predictions.decoder.bias"), "hidden_act"
    ),
    "bert": _BERT,
    "camembert": _ROBERTA,
    "deberta-v2": _BERT,
    "distilbert": _Names("vocab_transform", "vocab_layer_norm", ("vocab_projector.bias",), "activation"),
    "electra": _Names("generator_predictions.dense", "generator_predictions.LayerNorm", ("generator_lm_head.bias",)),
    "gte": _Names("lm_head.dense", "lm_head.norm", ("lm_head.decoder.bias",)),
    "jina_embeddings_v3": _ROBERTA,
    "modernbert": _Names("head.dense", "head.norm", ("decoder.bias",), "classifier_activation"),
    "mpnet": _ROBERTA,
    "nomic_bert": replace(_BERT, norm="cls.predictions.transform.layer_norm"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
}
"""Families whose masked-word heads have this form. ELECTRA's generators have one, its discriminators have none;
EuroBERT's and RemBERT's heads have embedding tables of their own."""


def build_head(encoder: Encoder, counts: np.ndarray[Any, Any] | None = None) -> MaskedWordHead:
    """A new head like BERT's; ``counts`` of subwords initialise its bias with their log frequencies."""
    head = MaskedWordHead(encoder.width, encoder.vocabulary, table=_width_of_table(encoder))
    if counts is not None:
        chances = (counts + 0.5) / (counts + 0.5).sum()  # half an occurrence for what was not met yet
        head.bias.data.copy_(torch.from_numpy(np.log(chances)))
    return head


def _width_of_table(encoder: Encoder) -> int:
    return int(encoder.model.get_input_embeddings().weight.shape[1])


def check_masking(encoder: Encoder) -> None:
    """Refuse an encoder that cannot read masked words."""
    if encoder.tokenizer.mask_token_id is None:
        raise EncoderError(
            f"{encoder.name}: its tokenizer has no mask, so that it cannot learn masked words. Models that continue "
            "text, and T5, are fine-tuned or adjusted without the adapt stage."
        )
    if encoder.is_causal:
        raise EncoderError(
            f"{encoder.name}: its attention is causal, so that a masked word cannot be predicted from what follows "
            'it. Set attention = "bidirectional" in the table [encoder].'
        )


def load_head(encoder: Encoder) -> MaskedWordHead | None:
    """The masked-word head of an encoder's checkpoint, if it has one."""
    folder = locate_checkpoint(encoder.origin[0], revision=encoder.origin[1]) if encoder.origin else None
    config = encoder.model.config
    names = HEADS.get(config.model_type)
    stored = _read_head(folder, names) if folder and names else {}
    if names is None or not stored:
        return None
    if not getattr(config, "tie_word_embeddings", True):
        raise EncoderError(
            f"{encoder.name}: its masked-word head has an embedding table of its own; only heads that share the "
            "encoder's are supported."
        )
    activation = getattr(config, names.activation, "gelu") if names.activation else "gelu"
    eps: Any = getattr(config, "layer_norm_eps", None) or getattr(config, "norm_eps", 1e-12)
    table = _width_of_table(encoder)
    head = MaskedWordHead(encoder.width, encoder.vocabulary, table=table, activation=activation, eps=float(eps))
    zeros = torch.zeros(table)
    weights = {"dense.bias": zeros, "norm.bias": zeros, **stored}
    try:
        head.load_state_dict(weights)
    except RuntimeError as error:
        raise EncoderError(f"{encoder.name}: its masked-word head does not fit it: {error}") from error
    return head


def store_head(head: MaskedWordHead, folder: Path, *, model: Any) -> None:
    """Add a head to the weights in a model's folder, under the names that its architecture uses."""
    names, path = HEADS[model.config.model_type], folder / "model.safetensors"
    own = {"dense": names.dense, "norm": names.norm}
    # Without the prefix, transformers would not recognise a model with a head.
    weights = {f"{model.base_model_prefix}.{name}": tensor for name, tensor in load_file(path).items()}
    for name, tensor in head.state_dict().items():
        part, _, kind = name.partition(".")
        if kind == "bias" and not tensor.any():
            continue  # some families have none there
        for stored in [f"{own[part]}.{kind}"] if part in own else names.biases:
            weights[stored] = tensor.clone().contiguous()
    save_file(weights, path, metadata={"format": "pt"})


def save_head(head: MaskedWordHead, path: Path) -> None:
    """Write a head alone, to stand beside the encoder that it was trained with; see :func:`read_head`."""
    weights = {name: tensor.detach().cpu().float().contiguous() for name, tensor in head.state_dict().items()}
    save_file(weights, path, metadata={"activation": head.activation_name, "eps": repr(head.norm.eps)})


def read_head(path: Path, encoder: Encoder) -> MaskedWordHead:
    """A head that :func:`save_head` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata()
            settings = {"activation": facts["activation"], "eps": float(facts["eps"])}
            head = MaskedWordHead(encoder.width, encoder.vocabulary, table=_width_of_table(encoder), **settings)
            head.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path}: no masked-word head of its encoder ({error}); run the recipe again") from None
    return head


def has_head(name: str, *, revision: str | None = None) -> bool:
    """Whether an encoder's checkpoint has a masked-word head; the encoder is not loaded."""
    folder = locate_checkpoint(name, revision=revision)
    if folder is None or not (folder / "config.json").is_file():
        return False
    names = HEADS.get(str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")))
    if names is None:
        return False
    wanted, found = _list_tensors(names), set()
    for path in list_weights(folder):
        with safe_open(path, framework="numpy") as file:
            found |= {wanted[key] for key in file.keys() if key in wanted}  # noqa: SIM118 (not a dict)
    return found >= _NEEDED


def _list_tensors(names: _Names) -> dict[str, str]:
    """Our names of a head's tensors by those in checkpoints."""
    wanted = {f"{names.dense}.{kind}": f"dense.{kind}" for kind in ("weight", "bias")}
    wanted |= {f"{names.norm}.{kind}": f"norm.{kind}" for kind in ("weight", "bias")}
    wanted |= {f"{names.norm}.gamma": "norm.weight", f"{names.norm}.beta": "norm.bias"}  # of the first BERTs
    return wanted | dict.fromkeys(names.biases, "bias")


_NEEDED = {"dense.weight", "norm.weight", "bias"}
"""Without these a head is not complete. Some layers have no bias."""


def _read_head(folder: Path, names: _Names) -> dict[str, Tensor]:
    """The head's tensors under our names; nothing unless it is complete."""
    wanted = _list_tensors(names)
    found: dict[str, Tensor] = {}
    for path in list_weights(folder):
        with safe_open(path, framework="pt") as file:
            for key in set(file.keys()) & set(wanted):
                found[wanted[key]] = file.get_tensor(key).float()
    return found if found.keys() >= _NEEDED else {}
