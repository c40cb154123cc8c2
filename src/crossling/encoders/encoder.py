"""The encoder: one class around a Hugging Face model and its fast tokenizer.

Shapes: B sentences, S subwords, W words, D width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from crossling.encoders.special_tokens import special_layout
from crossling.encoders.structure import (
    Direction,
    append_end_token,
    choose_direction,
    describe_model,
    keep_relative_positions,
    make_mask,
    pool_first,
    take_encoder,
)
from crossling.errors import EncoderError, nearest

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]
_PASSING = ("transformers_version", "_name_or_path", "dtype")
"""Settings that do not affect what an encoder computes."""


class Encoder(nn.Module):
    """A pretrained encoder and its tokenizer; its forward pass returns the hidden states of chosen layers."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        identity: str | None = None,
        attention: Direction | None = None,
    ) -> None:
        """``attention``: whether subwords see those after them, where it is not as the model was trained."""
        super().__init__()
        model = take_encoder(model)
        keep_relative_positions(model)
        self.structure = describe_model(model, name)
        if not getattr(tokenizer, "is_fast", False):
            raise EncoderError(f"{name}: has no fast tokenizer. Convert it to one with a tokenizer.json.")
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        if self.structure.is_decoder:
            append_end_token(tokenizer)
        self.attention = choose_direction(self.structure, attention, name)
        # The pooler is separate, so that a tagger neither computes it nor waits for its gradients.
        self.pooler: nn.Module | None = getattr(model, "pooler", None)
        if self.pooler is not None:
            model.pooler = None
        self.model = model
        self.tokenizer = tokenizer
        self.name = name
        self.layers = self.structure.calls
        self.width = self.structure.width
        self.heads = self.structure.heads
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)
        self.max_length = self.structure.max_length
        self.uses_token_types = (
            int(getattr(model.config, "type_vocab_size", 0) or 0) > 1
            and "token_type_ids" in tokenizer.model_input_names
        )
        self.train(model.training)
        self.trimmed_rows: np.ndarray[Any, Any] | None = None
        self.write_blocks: Callable[[np.ndarray[Any, Any], Path, int], Path] | None = None
        """Writes a folder with these subwords and this many lowest layers alone, in the quantised blocks that the
        weights were read from."""
        self.origin: tuple[str, str | None] | None = None
        self.changed_rows: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        if identity is None:
            self.identity = hash_weights(self)
        else:
            self.identity = (
                _hash_text(f"{identity} {self.attention}") if identity and self.has_changed_attention else identity
            )

    @property
    def is_causal(self) -> bool:
        """Whether attention is causal: a subword sees only those before it, so that a word is read at its last one."""
        return self.attention == "causal"

    @property
    def has_changed_attention(self) -> bool:
        """Whether subwords see each other in another way than the model was trained with."""
        return self.is_causal != self.structure.is_decoder

    @cached_property
    def has_cls(self) -> bool:
        """Whether every input begins with a special token that can stand for all of it."""
        return not self.is_causal and bool(special_layout(self.tokenizer).prefix)

    def check_cls(self) -> None:
        """Refuse to read a first token that stands for nothing."""
        if not self.has_cls:
            why = "sees nothing but itself" if self.is_causal else "is an ordinary subword"
            raise EncoderError(
                f"{self.name}: the first token of its inputs {why}, so that it cannot stand for a text. Use pooling = "
                '"mean" or "last".'
            )

    @property
    def has_pooler(self) -> bool:
        """Whether the checkpoint has a pooler; a randomly initialised one is never used."""
        return self.pooler is not None

    @property
    def counts_from_pad(self) -> bool:
        """Whether positions begin after the pad id, as XLM-R's do."""
        return self.structure.counts_from_pad

    def get_layers(self) -> nn.ModuleList:
        """Its layers in their order; fewer than :attr:`layers` where they share their weights."""
        layers = self.model.get_submodule(self.structure.layers)
        assert isinstance(layers, nn.ModuleList)
        return layers

    def forward(
        self, ids_BS: Tensor, mask_BS: Tensor, types_BS: Tensor | None = None, *, layers: Sequence[int]
    ) -> dict[int, Tensor]:
        """Hidden states of the given layers: 0 is the embeddings' output, L the model's.

        Hooks keep these states only; ``output_hidden_states`` would keep all of them in memory.
        """
        self._check_layers(layers)
        mask = make_mask(self.structure, mask_BS, self.attention, self._mask_type())
        inputs: dict[str, Any] = {"input_ids": ids_BS, "attention_mask": mask}
        if self.structure.keeps_cache:
            inputs["use_cache"] = False
        if self.counts_from_pad:
            # The model would find padding by the pad id, which has another row in a trimmed vocabulary.
            real_BS = mask_BS.long()
            inputs["position_ids"] = real_BS.cumsum(1) * real_BS + self.structure.positions_from
        if types_BS is not None and self.uses_token_types:
            inputs["token_type_ids"] = types_BS
        return self._run(inputs, layers)

    def _run(self, inputs: dict[str, Any], layers: Sequence[int]) -> dict[int, Tensor]:
        kept: dict[int, Tensor] = {}
        # Layers above the highest one asked for are skipped, except in training, whose steps run all of them.
        enough = max(layers, default=self.layers)
        stop = enough if enough < self.layers and not self.training and not torch.is_grad_enabled() else None
        hook, hooked = (
            _keep_inputs(kept, frozenset(layers), stop),
            self.get_layers() if min(layers) < self.layers else (),
        )
        handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in hooked]
        weight: Tensor = self.model.get_input_embeddings().weight
        whole = weight.dtype == torch.float32
        # bf16 weights need no autocast; their outputs are converted back to float32 below.
        autocast = nullcontext() if whole else torch.autocast(weight.device.type, enabled=False)
        try:
            with autocast:
                output = self.model(**inputs)
            kept[self.layers] = output.last_hidden_state
        except _StopForwardError:
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
        return pool_first(self.pooler, hidden_BSD)

    def checkpoint_gradients(self, contexts: Contexts | None = None, *, keep_random_state: bool = True) -> None:
        """Gradient checkpointing: recompute each layer in the backward pass; less memory, more time.

        ``contexts`` makes two contexts for each layer: for its forward pass and for its recomputation. Not re-entrant:
        re-entrant checkpointing would cut the gradients of the states that hooks keep.
        """
        settings = {
            "use_reentrant": False,
            "context_fn": contexts or (lambda: (nullcontext(), nullcontext())),
            "preserve_rng_state": keep_random_state,
        }
        if self.model.supports_gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
        else:
            for layer in self.get_layers():
                layer.forward = partial(_checkpoint, layer, type(layer).forward, settings)


class _StopForwardError(Exception):
    """Stops a forward pass after the highest layer that was asked for."""


def _keep_inputs(kept: dict[int, Tensor], layers: frozenset[int], stop: int | None) -> Callable[..., None]:
    """A hook that all layers share: the input of the n-th call is the state of layer n, as transformers counts them.

    What stands between two layers is thereby part of the lower one's state, and layers that share their weights are
    distinguished.
    """
    calls = count()

    def hook(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        layer = next(calls)
        if layer in layers:
            kept[layer] = inputs[0] if inputs else named["hidden_states"]
        if layer == stop:
            raise _StopForwardError

    return hook


def _checkpoint(
    layer: nn.Module, forward: Callable[..., Any], settings: dict[str, Any], *inputs: Any, **named: Any
) -> Any:
    """A layer's forward pass that is recomputed in the backward pass."""
    if not layer.training or not torch.is_grad_enabled():
        return forward(layer, *inputs, **named)
    return torch.utils.checkpoint.checkpoint(partial(forward, layer), *inputs, **settings, **named)


def check_forward_pass(encoder: Encoder) -> None:
    """Refuse an encoder of a family that no test runs, unless its states are complete and padding does not count."""
    ids_BS = (torch.arange(18).view(2, 9) * 7 + 3) % encoder.vocabulary
    mask_BS = torch.ones_like(ids_BS)
    mask_BS[0, 6:] = 0
    kind = f"{encoder.name}: a model of type {encoder.model.config.model_type!r}, a family that is not tested;"
    try:
        with torch.no_grad():
            padded = encoder(ids_BS, mask_BS, layers=range(encoder.layers + 1))
            alone = encoder(ids_BS[:1, :6], mask_BS[:1, :6], layers=range(encoder.layers + 1))
    except Exception as error:  # a model of transformers raises almost anything at inputs that it does not expect
        raise EncoderError(f"{kind} it cannot be run as an encoder: {error or type(error).__name__}") from error
    for layer, states_BSD in alone.items():
        if states_BSD.shape != (1, 6, encoder.width):
            raise EncoderError(f"{kind} the states of its layer {layer} have the shape {tuple(states_BSD.shape)}")
        if not torch.allclose(states_BSD[0], padded[layer][0, :6], rtol=1e-3, atol=1e-3):
            raise EncoderError(f"{kind} the states of its layer {layer} depend on padding")


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
    if encoder.has_changed_attention:
        digest.update(encoder.attention.encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
