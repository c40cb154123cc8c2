"""The encoder: one class around a Hugging Face model and its fast tokenizer.

Shapes: B sentences, S subwords, W words, D width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crossling.errors import EncoderError, nearest

_PASSING = ("transformers_version", "_name_or_path", "dtype")
"""Settings that do not affect what an encoder computes."""
_MASKED = torch.finfo(torch.float16).min  # finite in every precision, and exp of it is 0 in each


@dataclass(frozen=True, slots=True)
class Family:
    """Where a model architecture keeps its layers, and what its forward pass needs."""

    layers: str
    pooler: bool = True
    positions_after_pad: bool = False
    own_mask: bool = True
    """Whether it takes an attention mask that is made outside."""


FAMILIES = {
    "bert": Family("encoder.layer"),
    "distilbert": Family("transformer.layer", pooler=False),
    "modernbert": Family("layers", pooler=False, own_mask=False),  # it makes its sliding-window mask itself
    "roberta": Family("encoder.layer", positions_after_pad=True),
    "xlm-roberta": Family("encoder.layer", positions_after_pad=True),
}


class Encoder(nn.Module):
    """A pretrained encoder and its tokenizer; its forward pass returns the hidden states of chosen layers."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str, identity: str | None = None) -> None:
        super().__init__()
        config = model.config
        self._family = find_family(config.model_type, name)
        if not getattr(tokenizer, "is_fast", False):
            raise EncoderError(f"{name}: has no fast tokenizer. Convert it to one with a tokenizer.json.")
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        # The pooler is separate, so that a tagger neither computes it nor waits for its gradients.
        self.pooler: nn.Module | None = getattr(model, "pooler", None)
        if self.pooler is not None:
            model.pooler = None
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.layers = int(config.num_hidden_layers)
        self.width = int(config.hidden_size)
        self.heads = int(config.num_attention_heads)
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        self._position_offset = int(config.pad_token_id) if self._family.positions_after_pad else -1
        self.max_length = int(config.max_position_embeddings) - self._position_offset - 1
        self.uses_token_types = (
            int(getattr(config, "type_vocab_size", 0) or 0) > 1 and "token_type_ids" in tokenizer.model_input_names
        )
        self.train(model.training)
        self.trimmed_rows: np.ndarray[Any, Any] | None = None
        self.blocks_file: Path | None = None
        self.origin: tuple[str, str | None] | None = None
        self.changed_rows: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        self.identity = identity if identity is not None else hash_weights(self)

    @property
    def has_pooler(self) -> bool:
        """Whether the checkpoint has a pooler; a randomly initialised one is never used."""
        return self.pooler is not None

    @property
    def counts_from_pad(self) -> bool:
        """Whether positions begin after the pad id, as XLM-R's do."""
        return self._family.positions_after_pad

    def forward(
        self, ids_BS: Tensor, mask_BS: Tensor, types_BS: Tensor | None = None, *, layers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Hidden states of the given layers: 0 is the embeddings' output, L the model's.

        Forward hooks keep these states only; ``output_hidden_states`` would keep all of them in memory.
        """
        self._check_layers(layers)
        inputs: dict[str, Tensor] = {"input_ids": ids_BS}
        if self._family.own_mask:
            # Made here: from a mask of two dimensions, transformers would ask the device whether anything is padded.
            visible_B11S = mask_BS[:, None, None, :].bool()
            blank_B11S = torch.zeros_like(visible_B11S, dtype=self._mask_type())
            inputs["attention_mask"] = blank_B11S.masked_fill(~visible_B11S, _MASKED)
        else:
            inputs["attention_mask"] = mask_BS
        if self._family.positions_after_pad:
            # The model would find padding by the pad id, which has another row in a trimmed vocabulary.
            real_BS = mask_BS.long()
            inputs["position_ids"] = real_BS.cumsum(1) * real_BS + self._position_offset
        if types_BS is not None and self.uses_token_types:
            inputs["token_type_ids"] = types_BS
        return self._run(inputs, layers)

    def _run(self, inputs: dict[str, Tensor], layers: Sequence[int]) -> dict[int, Tensor]:
        kept: dict[int, Tensor] = {}
        modules = (self.model.embeddings, *self.model.get_submodule(self._family.layers))
        # Layers above the highest one asked for are skipped, except in training, whose steps run all of them.
        enough = max(layers, default=self.layers)
        stop = enough if enough < self.layers and not self.training and not torch.is_grad_enabled() else None
        handles = [
            modules[layer].register_forward_hook(_keep(kept, layer, last=layer == stop))
            for layer in set(layers)
            if layer < self.layers
        ]
        weight: Tensor = self.model.get_input_embeddings().weight
        whole = weight.dtype == torch.float32
        # bf16 weights need no autocast; their outputs are converted back to float32 below.
        autocast = nullcontext() if whole else torch.autocast(weight.device.type, enabled=False)
        try:
            with autocast:
                output = self.model(**inputs)
            kept[self.layers] = output.last_hidden_state
        except _EnoughError:
            pass
        finally:
            for handle in handles:
                handle.remove()
        return {layer: kept[layer] if whole else kept[layer].float() for layer in layers}

    def _mask_type(self) -> torch.dtype:
        """The type in which attention computes: some kernels refuse masks of another type."""
        weight: Tensor = self.model.get_input_embeddings().weight
        if weight.dtype == torch.float32 and torch.is_autocast_enabled(weight.device.type):
            return torch.get_autocast_dtype(weight.device.type)
        return weight.dtype

    def _check_layers(self, layers: Sequence[int]) -> None:
        wrong = [layer for layer in layers if not 0 <= layer <= self.layers]
        if wrong:
            raise EncoderError(f"{self.name}: no layer {wrong[0]}; it has 0 (embeddings) to {self.layers} (last).")

    def pool_cls(self, hidden_BSD: Tensor) -> Tensor:
        """The first token's vector through the checkpoint's pretrained pooler (dense layer and tanh)."""
        if self.pooler is None:
            raise EncoderError(f'{self.name}: its checkpoint has no pooler. Use pooling = "mean".')
        pooled_BD: Tensor = self.pooler(hidden_BSD)
        return pooled_BD

    def checkpoint_gradients(self, surround: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        """Gradient checkpointing: recompute each layer in the backward pass; less memory, a third more time.

        ``surround`` makes the context in which a layer is recomputed. Not re-entrant: re-entrant checkpointing would
        cut the gradients of the states that hooks keep.
        """
        settings = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), surround())}
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


class _EnoughError(Exception):
    """Stops a forward pass after the highest layer that was asked for."""


def _keep(kept: dict[int, Tensor], layer: int, *, last: bool) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        kept[layer] = output[0] if isinstance(output, tuple) else output
        if last:
            raise _EnoughError

    return hook


def find_family(model_type: str, name: str) -> Family:
    if model_type not in FAMILIES:
        raise EncoderError(
            f"{name}: a model of type {model_type!r}; encoders of the families "
            f"{', '.join(sorted(FAMILIES))} (E5 is one of bert or xlm-roberta) are supported."
        )
    return FAMILIES[model_type]


def pool_words(hidden_BSD: Tensor, word_BS: Tensor, *, words: int, how: str = "mean") -> Tensor:
    """One vector per word from its subwords: their ``mean``, the ``first`` or the ``last``.

    ``word_BS`` is each subword's word number, -1 for none; a word without subwords gets zeros. Only scatter and gather
    along a dimension are used, whose backward pass is deterministic.
    """
    batch, length, width = hidden_BSD.shape
    slot_BS = torch.where(word_BS < 0, words, word_BS).long()
    count_BW = hidden_BSD.new_zeros(batch, words + 1).scatter_add(1, slot_BS, torch.ones_like(hidden_BSD[..., 0]))
    if how == "mean":
        slot_BSD = slot_BS[:, :, None].expand(-1, -1, width)
        sums_BWD = hidden_BSD.new_zeros(batch, words + 1, width).scatter_add(1, slot_BSD, hidden_BSD)
        return (sums_BWD / count_BW.clamp(min=1)[:, :, None])[:, :words]
    if how not in ("first", "last"):
        raise EncoderError(f"unknown pooling of subwords {how!r}.{nearest(how, ('mean', 'first', 'last'))}")
    place_BS = torch.arange(length, device=hidden_BSD.device).expand(batch, -1)
    chosen_BW = torch.zeros_like(count_BW, dtype=torch.long).scatter_reduce(
        1, slot_BS, place_BS, reduce="amin" if how == "first" else "amax", include_self=False
    )[:, :words]
    vectors_BWD = hidden_BSD.gather(1, chosen_BW[:, :, None].expand(-1, -1, width))
    return vectors_BWD * (count_BW[:, :words, None] > 0)


def hash_weights(encoder: Encoder) -> str:
    """The identity of an encoder in memory: a hash of its configuration, tokenizer and weights."""
    settings = {key: value for key, value in encoder.model.config.to_dict().items() if key not in _PASSING}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    digest.update(encoder.tokenizer.backend_tokenizer.to_str().encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
