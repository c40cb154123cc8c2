"""A tiny encoder of every family that is supported: transformers' own code, two layers, random weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tokenizers import processors
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
)

from crossling.encoders.encoder import Encoder
from crossling.encoders.structure import FAMILIES, Direction, find_class, take_encoder, takes_pooler
from tiny import tiny_tokenizer

ENCODER_DECODERS = ("mt5", "t5", "umt5")
DECODERS = ("gemma3_text", "qwen3")
LAYERS, WIDTH, HEADS = 2, 16, 2
INSTALLED = [family for family in FAMILIES if family in CONFIG_MAPPING]
"""The families that the installed transformers has."""
CASES: dict[str, tuple[str, Direction | None]] = {
    **{family: (family, None) for family in INSTALLED},
    **{f"{family}-bidirectional": (family, "bidirectional") for family in DECODERS},
}
"""By label: every one of them, and those that can read in both directions again."""

_OWN: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "conv_kernel_size": 3,
        "type_vocab_size": 0,
    },
    "electra": {"embedding_size": 8},
    "eurobert": {"num_key_value_heads": 1, "mask_token_id": 4, "tie_word_embeddings": True},
    "gemma3_text": {
        "num_key_value_heads": 1,
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "qwen3": {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True},
    "rembert": {"input_embedding_size": 8, "output_embedding_size": 24},
    "xlm-roberta": {"type_vocab_size": 1},
}
_T5 = {"d_kv": 8, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
_UNIGRAM = ("camembert", "jina_embeddings_v3", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl", *ENCODER_DECODERS)
_BYTES = ("eurobert", "modernbert", *DECODERS)


def make_tokenizer(family: str) -> Any:
    """A tokenizer of the kind that the family has, with its special tokens."""
    kind = "xlm-r" if family in _UNIGRAM else "modernbert" if family in _BYTES else "bert"
    tokenizer = tiny_tokenizer(kind)
    if family in ENCODER_DECODERS:  # nothing before a text, and no mask
        end = ("</s>", tokenizer.eos_token_id)
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[end]
        )
        tokenizer.mask_token = tokenizer.cls_token = tokenizer.sep_token = None
    if family in DECODERS:  # as they come: Gemma's puts one token before a text, Qwen's none
        first = {"gemma3_text": "[CLS] ", "qwen3": ""}[family]
        tokenizer.backend_tokenizer.post_processor = (
            processors.TemplateProcessing(single=f"{first}$A", pair=f"{first}$A $B", special_tokens=[("[CLS]", 2)])
            if first
            else processors.ByteLevel(trim_offsets=False)
        )
        tokenizer.eos_token, tokenizer.mask_token = "[SEP]", None
        tokenizer.cls_token = tokenizer.sep_token = None
    return tokenizer


def make_config(family: str, tokenizer: Any) -> Any:
    """The configuration of a tiny model without dropout."""
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer) + 3,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": 66,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if family == "distilbert":
        sizes = {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 32} | {
            name: sizes[name] for name in ("vocab_size", "max_position_embeddings", "pad_token_id")
        }
    if family in ENCODER_DECODERS:
        sizes = {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": 32, **_T5} | {
            name: sizes[name] for name in ("vocab_size", "pad_token_id")
        }
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    config = CONFIG_MAPPING[family](**sizes, **special, **_OWN.get(family, {}))
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def fill(model: Any, seed: int = 0) -> Any:
    """Random weights, wide enough that differences can be seen; of normalisations around 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            mean = 1.0 if weight.dim() == 1 and name.endswith("weight") else 0.0
            weight.copy_(mean + 0.2 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def list_cases(*quick: str) -> list[Any]:
    """All cases for a test of which the quick ones run every time, the others with the slow tests."""
    return [pytest.param(label, marks=() if label in quick else pytest.mark.slow) for label in CASES]


def make_family(label: str, *, pooler: bool = False) -> Encoder:
    """The encoder of a case."""
    family, attention = CASES[label]
    tokenizer = make_tokenizer(family)
    config = make_config(family, tokenizer)
    model_class = find_class(config)
    model = model_class(config, **({"add_pooling_layer": pooler} if takes_pooler(model_class) else {}))
    return Encoder(take_encoder(fill(model)), tokenizer, name=f"tiny-{label}", attention=attention)


def make_pretrained(family: str) -> tuple[Any, Any]:
    """A model as it comes from the hub, with the head that it was pretrained with; and its tokenizer."""
    tokenizer = make_tokenizer(family)
    config = make_config(family, tokenizer)
    mappings = (MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING)
    if family in ENCODER_DECODERS:
        mappings = (MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,)
    model_class = next(mapping[type(config)] for mapping in mappings if type(config) in mapping)
    return fill(model_class(copy.deepcopy(config)), seed=3), tokenizer
