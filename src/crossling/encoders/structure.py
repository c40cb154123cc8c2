"""What an encoder consists of, found in transformers' model itself: layers, positions, masks, heads of attention.

A table lists the families that the tests run, with what cannot be seen from a model; one that is not listed is tried
out when it is loaded (``check_forward_pass``). L layers, H heads, D width, B sentences, S subwords.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from crossling.errors import EncoderError

UNLIMITED = 1 << 20
"""The longest input, in subwords, of a model whose positions are relative and have no limit."""
MASKED_SCORE = torch.finfo(torch.float16).min  # finite in every precision, and exp of it is 0 in each
"""What is added to a score of attention that must not count."""

Mask = Literal["scores", "places"]
Direction = Literal["bidirectional", "causal"]


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's models do not say of themselves."""

    mask: Mask = "scores"
    """``scores``: it takes what is added to scores of attention; ``places``: 1 for subwords and 0 for padding, from
    which it makes its own."""
    half: str = ""
    """The part of an encoder-decoder that is the encoder."""


_PLAIN = Family()
FAMILIES = {
    "albert": _PLAIN,
    "bert": _PLAIN,
    "camembert": _PLAIN,
    "deberta-v2": Family("places"),
    "distilbert": _PLAIN,
    "electra": _PLAIN,
    "eurobert": _PLAIN,
    "gemma3_text": _PLAIN,
    "gte": _PLAIN,
    "jina_embeddings_v3": _PLAIN,
    "modernbert": Family("places"),  # it makes the mask of its sliding window
    "mpnet": _PLAIN,
    "mt5": Family(half="encoder"),
    "nomic_bert": _PLAIN,
    "qwen3": _PLAIN,
    "rembert": _PLAIN,
    "roberta": _PLAIN,
    "t5": Family(half="encoder"),
    "umt5": Family(half="encoder"),
    "xlm-roberta": _PLAIN,
    "xlm-roberta-xl": _PLAIN,
}
"""The families that the tests run."""


def find_family(model_type: str, name: str) -> Family:
    """What is known of a family; an error for a type that transformers has no model of."""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    if model_type not in list_text_models():
        raise EncoderError(
            f"{name}: a model of type {model_type!r}, which transformers does not know by itself as a model that reads "
            f"text; encoders of the families {', '.join(sorted(FAMILIES))} (E5 is one of bert or xlm-roberta) are "
            f"supported.{ADVICE.get(model_type, '')}"
        )
    return Family("places")


ADVICE = {
    "new": ' This is the older code of gte: transformers has it as type "gte", so use the checkpoint\'s conversion to '
    "that type (its revision or a repository that ends in -hf).",
    "gemma3": " This one reads pictures, too; use a checkpoint of its text model, of type gemma3_text.",
}
"""What to do about some types that people meet."""


def list_text_models() -> frozenset[str]:
    """The types of which transformers has a model whose configuration names layers and a vocabulary."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        MODEL_MAPPING_NAMES,
    )

    text = MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys() | MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() | FAMILIES.keys()
    return frozenset(text & MODEL_MAPPING_NAMES.keys())


@dataclass(frozen=True, slots=True)
class Structure:
    """Where a model keeps its parts, and what its forward pass takes."""

    family: Family
    layers: str
    """The name of the list of layers."""
    width: int
    heads: int
    calls: int
    """How often a layer is run in a pass: L, even where layers share their weights."""
    positions_from: int
    """What the first position is counted from: -1, or the pad id, where positions begin after it."""
    max_length: int
    is_decoder: bool
    """Whether it was trained to continue text, with causal attention: a subword sees only those before it."""
    window: int | None
    """In layers with a sliding window: how far apart two subwords must be that do not see each other."""
    keeps_cache: bool
    """Whether it would keep keys and values, for a text that is continued."""

    @property
    def counts_from_pad(self) -> bool:
        """Whether positions begin after the pad id, as XLM-R's do."""
        return self.positions_from >= 0


def describe_model(model: Any, name: str) -> Structure:
    """The structure of a model, or an error that says what was not found."""
    config = model.config
    family = find_family(config.model_type, name)
    sizes = {}
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"):
        value = getattr(config, key, None)
        if type(value) is not int:
            raise EncoderError(f"{name}: the configuration of a model of type {config.model_type!r} names no {key}.")
        sizes[key] = value
    calls = sizes["num_hidden_layers"]
    positions = find_positions(model)
    offset = -1 if positions is None or positions.padding_idx is None else int(positions.padding_idx)
    longest = positions.num_embeddings if positions is not None else getattr(config, "max_position_embeddings", None)
    return Structure(
        family,
        find_layers(model, calls, name),
        sizes["hidden_size"],
        sizes["num_attention_heads"],
        calls,
        offset,
        UNLIMITED if longest is None else int(longest) - offset - 1,
        any(getattr(module, "is_causal", False) is True for module in model.modules()),
        int(config.sliding_window) if "sliding_attention" in (getattr(config, "layer_types", None) or ()) else None,
        config.model_type in _list_continuing(),
    )


def _list_continuing() -> frozenset[str]:
    """The types that transformers knows as models that continue text and as nothing else."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    return frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() - MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys())


def choose_direction(structure: Structure, wanted: Direction | None, name: str) -> Direction:
    """Which way subwords see each other: as asked for, else as the model was trained."""
    if wanted == "causal" and not structure.is_decoder:
        raise EncoderError(
            f'{name}: encoder.attention = "causal": it was trained to read in both directions; leave the setting out.'
        )
    if wanted == "bidirectional" and structure.is_decoder and structure.family.mask != "scores":
        raise EncoderError(
            f'{name}: encoder.attention = "bidirectional" is not known to work with models of its type; leave it out, '
            "so that it reads from left to right as it was trained to."
        )
    return wanted or ("causal" if structure.is_decoder else "bidirectional")


def make_mask(structure: Structure, mask_BS: Tensor, direction: Direction, dtype: torch.dtype) -> Any:
    """The mask that a model takes; by kind of layer, where some have a sliding window.

    Made here: from a mask of two dimensions, transformers would ask the device whether anything is padded.
    """
    if structure.family.mask == "places":
        return mask_BS
    visible_B11S = mask_BS[:, None, None, :].bool()
    if direction == "bidirectional" and structure.window is None:
        return _make_additive_mask(visible_B11S, dtype)
    place_S = torch.arange(mask_BS.shape[1], device=mask_BS.device)
    apart_SS = place_S[:, None] - place_S[None, :]
    seen_B1SS = visible_B11S & (apart_SS >= 0 if direction == "causal" else torch.ones_like(apart_SS, dtype=torch.bool))
    if structure.window is None:
        return _make_additive_mask(seen_B1SS, dtype)
    # A model that was trained to see one side of its window sees half of it on both, as transformers has it.
    window = structure.window // 2 + 1 if structure.is_decoder and direction == "bidirectional" else structure.window
    near_B1SS = seen_B1SS & (apart_SS.abs() < window)
    return {
        "full_attention": _make_additive_mask(seen_B1SS, dtype),
        "sliding_attention": _make_additive_mask(near_B1SS, dtype),
    }


def _make_additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to attention scores: 0 where a subword is visible, else a large negative number."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, MASKED_SCORE)


def append_end_token(tokenizer: Any) -> None:
    """Let the tokenizer put its end token after every text, where it puts nothing there.

    Models that continue text are trained without it at the end of what they read. As encoders they need it: between the
    two texts of a pair, and as the one token that has seen all of a text.
    """
    from tokenizers import processors

    backend, end = tokenizer.backend_tokenizer, tokenizer.eos_token
    alone = backend.encode("a", add_special_tokens=True)
    if end is None or not alone.sequence_ids or alone.sequence_ids[-1] is None:
        return
    start = alone.tokens[: next(n for n, sequence in enumerate(alone.sequence_ids) if sequence is not None)]
    special = dict.fromkeys([*start, end])
    around = " ".join(start)
    template = processors.TemplateProcessing(
        single=f"{around} $A {end}".strip(),
        pair=f"{around} $A {end} $B {end}".strip(),
        special_tokens=[(token, backend.token_to_id(token)) for token in special],
    )
    before = backend.post_processor
    keeps = before is not None and not start  # it changes offsets only
    backend.post_processor = processors.Sequence([before, template]) if keeps else template


def find_layers(model: nn.Module, count: int, name: str) -> str:
    """The name of the list of layers: the outermost list with L modules, or with as many as share their weights."""
    lists = [(str(path), module) for path, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    shared = getattr(getattr(model, "config", None), "num_hidden_groups", None)
    for length in (count, shared):
        found = [path for path, module in lists if len(module) == length]
        if found:
            return min(found, key=lambda path: path.count("."))
    raise EncoderError(f"{name}: its model has no list of {count} layers, so that their states cannot be read.")


def find_positions(model: nn.Module) -> nn.Embedding | None:
    """The table of learnt absolute positions, if the model has one."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding) and path.rpartition(".")[2] in ("position_embeddings", "wpe"):
            return module
    return None


class RelativePositions:
    """DeBERTa's relative positions, computed once for each length.

    They depend on the length alone, but computing them copies a number from main memory, which a CUDA graph refuses.
    """

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        self.compute = compute
        self.by_length: dict[tuple[int, torch.device], Tensor] = {}

    def __call__(self, hidden_BSD: Tensor, query_states: None = None, relative_pos: None = None) -> Tensor:
        """The positions of all subwords relative to all others, on the device of the states."""
        key = (hidden_BSD.shape[1], hidden_BSD.device)
        if key not in self.by_length:
            with torch.inference_mode(False):  # a later pass may have gradients
                self.by_length[key] = self.compute(torch.empty(1, key[0], 1)).to(hidden_BSD.device)
        return self.by_length[key]


def keep_relative_positions(model: Any) -> None:
    """Compute relative positions once for each length, where a model computes them anew in every pass."""
    part: Any = getattr(model, "encoder", None)
    compute = getattr(part, "get_rel_pos", None)
    if compute is not None and part.relative_attention and not isinstance(compute, RelativePositions):
        part.get_rel_pos = RelativePositions(compute)


def takes_pooler(model_class: type) -> bool:
    """Whether a model of this class can be built with or without a pooler."""
    return "add_pooling_layer" in inspect.signature(model_class.__init__).parameters  # type: ignore[misc]


def find_class(config: Any) -> Any:
    """The class of transformers that a configuration is for: the encoder alone, where there is one."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

    half = find_family(config.model_type, config.model_type).half
    return (MODEL_FOR_TEXT_ENCODING_MAPPING if half else MODEL_MAPPING)[type(config)]


def take_encoder(model: Any) -> Any:
    """The encoder of a model that may be more than that."""
    half = find_family(model.config.model_type, model.config.model_type).half
    return getattr(model, half) if half and hasattr(model, half) else model


def to_saved(model: Any) -> Any:
    """The model that transformers saves and loads for an encoder that is a half of one."""
    whole_class = find_class(model.config)
    if isinstance(model, whole_class):
        return model
    with torch.device("meta"):
        whole = whole_class(copy.deepcopy(model.config))
    setattr(whole, find_family(model.config.model_type, "").half, model)
    whole.set_input_embeddings(model.get_input_embeddings())
    return whole


def pool_first(pooler: nn.Module, hidden_BSD: Tensor) -> Tensor:
    """The first token's vector through a pooler: a module of its own, or ALBERT's bare linear layer, then tanh."""
    bare = isinstance(pooler, nn.Linear)
    pooled_BD: Tensor = torch.tanh(pooler(hidden_BSD[:, 0])) if bare else pooler(hidden_BSD)
    return pooled_BD


def find_foreign(keys: Any, model: Any) -> list[str]:
    """Names of weights that belong into the encoder's own modules, but that its model has no place for.

    They show that the weights are of another architecture than the configuration says. Heads of other tasks, a decoder
    and counters that older versions stored are none.
    """
    own = {f"{name}." for name, _ in model.named_children()} - {"pooler."}
    prefix = f"{model.base_model_prefix}."
    return sorted(
        key
        for key in keys
        if key.removeprefix(prefix).startswith(tuple(own)) and not key.endswith(("_ids", "inv_freq", "embed_scale"))
    )


@dataclass(frozen=True)
class Attention:
    """The projections of one layer."""

    output: nn.Linear
    projections: tuple[nn.Linear, ...]
    """Query, key and value; or one that is all three, below each other."""


_QUERY, _KEY, _VALUE, _JOINED = (
    ("query", "q_lin", "q_proj", "query_proj", "q"),
    ("key", "k_lin", "k_proj", "key_proj", "k"),
    ("value", "v_lin", "v_proj", "value_proj", "v"),
    ("Wqkv", "qkv_proj", "qkv"),
)
"""What the projections of attention are called."""


def find_projections(layer: nn.Module) -> Attention | None:
    """The projections of a layer's attention, none where there are no such ones.

    The output projection is the one linear layer besides query, key and value in the smallest module that holds all;
    projections of relative positions (``pos_…``) are none of them.
    """
    linear = {path: module for path, module in layer.named_modules() if isinstance(module, nn.Linear)}
    inputs = [
        path for names in (_JOINED, _QUERY, _KEY, _VALUE) for path in list(linear) if path.rpartition(".")[2] in names
    ]
    if not inputs or (len(inputs) != 3 and inputs[0].rpartition(".")[2] not in _JOINED):
        return None
    place = inputs[0].rpartition(".")[0]
    while True:
        others = [
            path
            for path in linear
            if path.startswith(f"{place}." if place else "")
            and path not in inputs
            and not path.rpartition(".")[2].startswith("pos_")
        ]
        if others:
            output = others[0] if len(others) == 1 else ""
            return Attention(linear[output], tuple(linear[path] for path in inputs)) if output else None
        if not place:
            return None
        place = place.rpartition(".")[0]
