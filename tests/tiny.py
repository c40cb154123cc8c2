"""Tiny encoders built in memory: each family's real code, a few thousand random weights, a real tokenizer."""

from __future__ import annotations

import copy
import string
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
    XLMRobertaModel,
)

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import save_encoder

FAMILIES = ("bert", "xlm-r", "distilbert", "modernbert")

CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюя"
DEVANAGARI = "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह" + "ािीुूृेैोौ्ंँः"
HAN = "我你他她们的是在有人大小中国日本学生老师书看吃喝猫狗去来不了一二三四五好北京上海水"
PUNCTUATION = ".,!?;:'\"()-। 。，"
CHARACTERS = [c for c in string.ascii_letters + string.digits + CYRILLIC + DEVANAGARI + HAN + PUNCTUATION if c != " "]
WORDS = [
    "the",
    "cat",
    "dog",
    "sleeps",
    "eats",
    "fish",
    "in",
    "London",
    "Berlin",
    "house",
    "red",
    "не",
    "кошка",
]


def tiny_encoder(
    family: str = "bert",
    *,
    layers: int = 3,
    width: int = 16,
    heads: int = 2,
    seed: int = 0,
    pooler: bool = False,
) -> Encoder:
    """A small encoder of a family with fixed random weights, in evaluation mode; a copy, which a test may change."""
    return copy.deepcopy(_build_encoder(family, layers, width, heads, seed, pooler))


@cache
def _build_encoder(family: str, layers: int, width: int, heads: int, seed: int, pooler: bool) -> Encoder:
    tokenizer = tiny_tokenizer(family)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer) + 3,  # real checkpoints have more rows than pieces, too
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * width,
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": 512,
    }
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        model = _BUILDERS[family](sizes, pooler)
        for parameter in model.parameters():  # wider than the usual 0.02, so that differences can be seen
            torch.nn.init.normal_(parameter, std=0.3)
    finally:
        torch.random.set_rng_state(state)
    return Encoder(model.eval(), tokenizer, name=f"tiny-{family}")


def _build_bert(sizes: dict[str, Any], pooler: bool) -> Any:
    return BertModel(BertConfig(**sizes), add_pooling_layer=pooler)


def _build_xlm_roberta(sizes: dict[str, Any], pooler: bool) -> Any:
    config = XLMRobertaConfig(**sizes | {"max_position_embeddings": 514, "type_vocab_size": 1})
    return XLMRobertaModel(config, add_pooling_layer=pooler)


def _build_distilbert(sizes: dict[str, Any], pooler: bool) -> Any:
    assert not pooler, "DistilBERT has no pooler"
    return DistilBertModel(
        DistilBertConfig(
            vocab_size=sizes["vocab_size"],
            dim=sizes["hidden_size"],
            n_layers=sizes["num_hidden_layers"],
            n_heads=sizes["num_attention_heads"],
            hidden_dim=sizes["intermediate_size"],
            pad_token_id=sizes["pad_token_id"],
        )
    )


def _build_modernbert(sizes: dict[str, Any], pooler: bool) -> Any:
    assert not pooler, "ModernBERT has no pooler"
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    return ModernBertModel(ModernBertConfig(**sizes, local_attention=8, global_attn_every_n_layers=2, **special))


_BUILDERS = {
    "bert": _build_bert,
    "xlm-r": _build_xlm_roberta,
    "xlm-r-initials": _build_xlm_roberta,
    "distilbert": _build_distilbert,
    "modernbert": _build_modernbert,
}


def tiny_tokenizer(family: str = "bert") -> PreTrainedTokenizerFast:
    """The kind of tokenizer that a family uses, over a few letters of four scripts and a few words."""
    if family in ("xlm-r", "xlm-r-initials"):
        return _build_unigram(initials=family == "xlm-r-initials")
    return _build_byte_level() if family == "modernbert" else _build_wordpiece(types=family == "bert")


def _build_wordpiece(*, types: bool) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + WORDS + CHARACTERS + ["##" + c for c in CHARACTERS] + ["##ing", "##s", "walk"]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = ["input_ids", "token_type_ids", "attention_mask"] if types else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=names, **_names(special))


def _names(special: list[str]) -> dict[str, str]:
    return dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))


def _build_unigram(*, initials: bool = False) -> PreTrainedTokenizerFast:
    """``initials``: with pieces for the first letters of words, as real ones have; words can be cut in more ways."""
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    scored = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -4.0)]
    scored += [(f"▁{word}", -6.0 - index / 100) for index, word in enumerate(WORDS)]
    scored += [("▁walk", -7.0), ("ing", -5.5), ("s", -5.0), ("▁猫", -8.0)]
    known = {piece for piece, _ in scored}
    scored += [(c, -9.0 - index / 1000) for index, c in enumerate(CHARACTERS) if c not in known]
    scored += [(f"▁{c}", -10.0) for c in CHARACTERS if initials and f"▁{c}" not in known] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(scored, 3, False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "model_input_names": ["input_ids", "attention_mask"]}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_names(special), **names)


def _build_byte_level() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    merges: list[tuple[str, str]] = []
    for word in (" the", " cat", " dog", " sleeps", " in", " fish"):
        left = "Ġ"
        for letter in word[1:]:
            if (left, letter) not in merges:
                merges.append((left, letter))
                pieces.append(left + letter)
            left += letter
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=names, **_names(special))


def save_tiny(folder: Path, family: str = "bert", **settings: Any) -> Path:
    """A tiny encoder as a Hugging Face folder."""
    return save_encoder(tiny_encoder(family, **settings), folder)


def save_with_head(folder: Path, family: str = "bert", **config: Any) -> Any:
    """A tiny encoder's checkpoint with a head for masked words, all random; gives transformers' model of it."""
    encoder = tiny_encoder(family)
    for name, value in config.items():
        setattr(encoder.model.config, name, value)
    state = torch.random.get_rng_state()
    torch.manual_seed(5)
    whole = _WITH_HEAD[family](encoder.model.config).eval()
    for name, parameter in whole.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3)
        if parameter.dim() == 1 and name.endswith("weight"):  # of a normalisation: so that context matters
            torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
    torch.random.set_rng_state(state)
    whole.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    return whole


_WITH_HEAD: dict[str, Any] = {
    "bert": BertForMaskedLM,
    "xlm-r": XLMRobertaForMaskedLM,
    "distilbert": DistilBertForMaskedLM,
    "modernbert": ModernBertForMaskedLM,
}
