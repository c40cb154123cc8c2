"""Tiny tokenizers of every kind, built in memory: each family's real pipeline over a few words of eleven scripts.

A kind has the normalizer, pre-tokenizer, model, post-processor and special tokens that the ``tokenizer.json`` of its
family has; only the vocabulary is small. ``build_tokenizer("gemma3")`` cuts as Gemma 3 does, with fewer subwords.
"""

from __future__ import annotations

import base64
import json
import string
import struct
import unicodedata
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast

SCRIPTS = {
    "Latin": "The cat sleeps in London . walk walking walks house été Straße",
    "Cyrillic": "Кошка спит в доме . йод ёж",
    "Greek": "Η γάτα κοιμάται στο σπίτι .",
    "Arabic": "القطة تنام في البيت ، مدرسة",
    "Hebrew": "החתול ישן בבית .",
    "Devanagari": "बिल्ली घर में सोती है ।",
    "Tamil": "பூனை வீட்டில் தூங்குகிறது .",
    "Ethiopic": "ድመቷ ቤት ውስጥ ትተኛለች ።",
    "Thai": "แมวนอนในบ้าน ครับ",
    "Hangul": "고양이 가 집 에서 자요 .",
    "Han": "猫 在 家里 睡觉 。 我 是 学生",
}
"""A few words of each script, with spaces between them; the vocabularies are made of these."""
WORDS = [word for text in SCRIPTS.values() for word in dict.fromkeys(text.split())]
LETTERS = sorted({*string.ascii_letters, *string.digits, *string.punctuation, *"".join(WORDS)})
UNKNOWN = "🙂☂Ω"
"""Characters that no vocabulary holds; tokenizers of bytes can write them."""
_MARKED = [*(f" {word}" for word in WORDS), "The", *SCRIPTS["Thai"].split(), *SCRIPTS["Han"].split()]
"""Words as BPE learns them: after a space, and at the beginning of a text."""

_GPT4_PATTERN = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""How Llama 3 and its descendants split a text; Qwen splits numbers into single digits."""


def build_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer of one of :data:`KINDS`."""
    return KINDS[kind]()


def _wrap(
    tokenizer: Tokenizer, *, inputs: tuple[str, ...] = ("input_ids", "attention_mask"), **special: Any
) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=list(inputs), **special)


def _template(tokenizer: Tokenizer, single: str, pair: str | None) -> Any:
    """A post-processor from the two patterns of special tokens."""
    names = {part.split(":")[0] for part in f"{single} {pair or ''}".split() if not part.startswith("$")}
    special = [(name, tokenizer.token_to_id(name)) for name in sorted(names)]
    return processors.TemplateProcessing(single=single, pair=pair and pair.split(), special_tokens=special)


# WordPiece


def _build_wordpiece(
    *,
    lowercase: bool = False,
    accents: bool | None = None,
    types: bool = True,
    special: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    middle: str = "",
) -> PreTrainedTokenizerFast:
    """BERT, with accents stripped where it lower-cases; ``middle``: MPNet's second separator."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=accents)
    letters = sorted({letter for one in LETTERS for letter in normalizer.normalize_str(one).strip()})
    whole = [normalizer.normalize_str(word) for word in WORDS if len(normalizer.normalize_str(word).split()) == 1]
    pieces = [*special, *whole, *letters, *("##" + letter for letter in letters), "##ing", "##s"]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    padding, unknown, first, between, mask = special
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    second = 1 if types else 0
    tokenizer.post_processor = _template(
        tokenizer,
        f"{first}:0 $A:0 {between}:0",
        f"{first}:0 $A:0 {between}:0 {middle} $B:{second} {between}:{second}",
    )
    inputs = ("input_ids", "token_type_ids", "attention_mask") if types else ("input_ids", "attention_mask")
    names = {"pad_token": padding, "unk_token": unknown, "cls_token": first, "sep_token": between, "mask_token": mask}
    return _wrap(tokenizer, inputs=inputs, **names)


# Unigram


def _build_unigram(
    *,
    before: tuple[str, ...],
    after: tuple[str, ...] = (),
    single: str,
    pair: str,
    steps: Iterable[Any] = (),
    splits: bool = True,
    fallback: bool = False,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    **special: Any,
) -> PreTrainedTokenizerFast:
    """SentencePiece's unigram model; ``before`` and ``after`` are the special pieces at both ends of the vocabulary.

    ``steps`` come before the normalisation of SentencePiece; where it ``splits``, words go to the model one by one.
    """
    normalizer = normalizers.Sequence([*steps, _build_charsmap(), normalizers.Replace(Regex(" {2,}"), " ")])
    scored: dict[str, float] = dict.fromkeys(before, 0.0)
    scored |= {f"<0x{byte:02X}>": -20.0 for byte in range(256)} if fallback else {}
    scored["▁"] = -4.0
    for place, word in enumerate(normalizer.normalize_str(word) for word in WORDS):
        scored.setdefault(f"▁{word}", -6.0 - place / 100)
    for piece, score in {"ing": -5.5, "s": -5.0, "▁walk": -7.0, "நி": -8.0}.items():
        scored.setdefault(piece, score)
    for place, letter in enumerate(normalizer.normalize_str("".join(LETTERS))):
        if not letter.isspace():
            scored.setdefault(letter, -9.0 - place / 1000)
    scored |= dict.fromkeys(after, 0.0)
    unknown = list(scored).index(str(special["unk_token"]))
    tokenizer = Tokenizer(models.Unigram(list(scored.items()), unknown, fallback))
    tokenizer.normalizer = normalizer
    marks = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks]) if splits else marks
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.post_processor = _template(tokenizer, single, pair)
    return _wrap(tokenizer, inputs=inputs, **special)


def _build_charsmap() -> Any:
    """SentencePiece's normalisation as its files carry it: a trie of strings and what replaces them.

    NFKC of some characters, all kinds of space, and a control character that is dropped.
    """
    rules = dict.fromkeys("\t\n\r\xa0\u2003\u200b\u3000", " ") | {"\x01": ""}
    wide = [chr(code) for code in range(0xFF01, 0xFF5F)]
    composed = [unicodedata.normalize("NFD", one) for one in "éàüőй" if unicodedata.normalize("NFD", one) != one]
    for one in ["ﬁ", "½", "㎏", "…", "ﷲ", "²", "ｱ", "①", *wide, *composed]:
        rules[one] = unicodedata.normalize("NFKC", one)
    texts, places = b"", {}
    for target in dict.fromkeys(rules.values()):
        places[target] = len(texts)
        texts += target.encode() + b"\0"
    trie = _build_double_array({source.encode(): places[target] for source, target in rules.items()})
    packed = struct.pack("<I", 4 * len(trie)) + struct.pack(f"<{len(trie)}I", *trie) + texts
    step = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(packed).decode()}
    # Only a whole tokenizer can be read from JSON.
    carrier = json.loads(Tokenizer(models.WordLevel({"a": 0}, "a")).to_str()) | {"normalizer": step}
    return Tokenizer.from_str(json.dumps(carrier)).normalizer


def _build_double_array(values: dict[bytes, int]) -> list[int]:
    """A double-array trie in the format of Darts-clone: a unit has a label, an offset to its children, and a flag."""
    children: dict[bytes, set[int]] = {}
    for key in values:
        for end in range(len(key)):
            children.setdefault(key[:end], set()).add(key[end])
    units: dict[int, int] = {0: 0}
    waiting = [(b"", 0)]
    while waiting:
        prefix, place = waiting.pop()
        labels = sorted(children.get(prefix, ()))
        # The place of a value is that of a child with the label 0.
        wanted = ([0] if prefix in values else []) + labels
        offset = next(
            offset
            for offset in range(1, 1 << 20)
            if offset ^ place and all(place ^ offset ^ label not in units for label in wanted)
        )
        units[place] |= offset << 10 | (1 << 8 if prefix in values else 0)
        if prefix in values:
            units[place ^ offset] = values[prefix] | 1 << 31
        for label in labels:
            units[place ^ offset ^ label] = label
            waiting.append((prefix + bytes([label]), place ^ offset ^ label))
    size = (max(units) | 0xFF) + 1
    return [units.get(place, 0) for place in range(size)]


# BPE


def _learn_merges(words: Iterable[str]) -> list[tuple[str, str]]:
    """Merges that make each word of its letters, from left to right."""
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        for end in range(1, len(word)):
            merges.setdefault((word[:end], word[end]))
    return list(merges)


def _build_byte_level(
    *,
    special: tuple[str, ...],
    single: str = "$A",
    pair: str | None = "$A $B",
    normalizer: Any = None,
    prefix: bool = False,
    pattern: str = "",
    trims: bool = True,
    roberta: bool = False,
    spaces: tuple[int, ...] = (),
    **names: Any,
) -> PreTrainedTokenizerFast:
    """Byte-level BPE, with a ``prefix`` space or without; ``pattern`` splits a text other than GPT-2 does.

    ``spaces`` are lengths of runs of spaces that are subwords of their own, as ModernBERT has them.
    """
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merges = _learn_merges(to_bytes.pre_tokenize_str(word)[0][0] for word in _MARKED)
    pieces = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=prefix, trim_offsets=trims, use_regex=not pattern)
    if pattern:
        cut = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
        splitter = pre_tokenizers.Sequence([cut, splitter])
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(" " * size, normalized=True) for size in spaces])
    if roberta:
        ends = [(token, tokenizer.token_to_id(token)) for token in ("</s>", "<s>")]
        tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=trims, add_prefix_space=prefix)
    elif single == "$A":
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
    else:
        steps = [processors.ByteLevel(trim_offsets=trims), _template(tokenizer, single, pair)]
        tokenizer.post_processor = processors.Sequence(steps)
    if special:
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return _wrap(tokenizer, **names)


def _build_byte_fallback(
    *, special: tuple[str, ...], single: str, pair: str, prefix: bool = False, splits: bool = True, **names: Any
) -> PreTrainedTokenizerFast:
    """SentencePiece's BPE with bytes for characters that it lacks: Gemma's, or Llama 2's with its ``prefix``."""
    letters = sorted({*"".join(WORDS), *LETTERS, "▁"})
    merges = _learn_merges(["▁" * 4, *(word.replace(" ", "▁") for word in _MARKED)])
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "\n", "\n\n"]
    pieces += [*("".join(merge) for merge in merges), *letters]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    if splits:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = _template(tokenizer, single, pair)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return _wrap(tokenizer, **names)


_BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
_ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
_ROBERTA |= {"pad_token": "<pad>", "unk_token": "<unk>"}
_MASK = AddedToken("<mask>", lstrip=True, normalized=False, special=True)  # it takes the space before it

_build_roberta = partial(
    _build_byte_level, special=("<s>", "<pad>", "</s>", "<unk>", "<mask>"), roberta=True, mask_token=_MASK, **_ROBERTA
)
_build_gemma = partial(
    _build_byte_fallback,
    pad_token="<pad>",
    eos_token="<eos>",
    bos_token="<bos>",
    unk_token="<unk>",
)

KINDS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "bert": _build_wordpiece,
    "bert-uncased": partial(_build_wordpiece, lowercase=True),
    "bert-accents": partial(_build_wordpiece, lowercase=True, accents=False),
    "distilbert": partial(_build_wordpiece, types=False),
    "mpnet": partial(
        _build_wordpiece,
        lowercase=True,
        types=False,
        special=("<pad>", "[UNK]", "<s>", "</s>", "<mask>"),
        middle="</s>",
    ),
    "xlm-roberta": partial(
        _build_unigram,
        before=("<s>", "<pad>", "</s>", "<unk>"),
        after=("<mask>",),
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        mask_token=_MASK,
        **_ROBERTA,
    ),
    "camembert": partial(
        _build_unigram,
        before=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"),
        after=("<mask>",),
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        mask_token=_MASK,
        **_ROBERTA,
    ),
    "albert": partial(
        _build_unigram,
        before=("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        steps=(
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
        ),
        inputs=("input_ids", "token_type_ids", "attention_mask"),
        **_BERT | {"pad_token": "<pad>", "unk_token": "<unk>"},
    ),
    "deberta-v2": partial(
        _build_unigram,
        before=("[PAD]", "[CLS]", "[SEP]", "[UNK]"),
        after=("[MASK]",),
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        steps=(normalizers.Strip(),),
        splits=False,
        inputs=("input_ids", "token_type_ids", "attention_mask"),
        **_BERT,
    ),
    "t5": partial(
        _build_unigram,
        before=("<pad>", "</s>", "<unk>"),
        after=("<extra_id_1>", "<extra_id_0>"),
        single="$A </s>",
        pair="$A </s> $B </s>",
        extra_special_tokens=["<extra_id_0>", "<extra_id_1>"],
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    ),
    "umt5": partial(
        _build_unigram,
        before=("<pad>", "</s>", "<s>", "<unk>"),
        single="$A </s>",
        pair="$A </s> $B </s>",
        fallback=True,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    ),
    "roberta": _build_roberta,
    "roberta-prefix": partial(_build_roberta, prefix=True),
    "modernbert": partial(
        _build_byte_level,
        special=("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        normalizer=normalizers.NFC(),
        spaces=(4, 3, 2),
        **_BERT,
    ),
    "eurobert": partial(
        _build_byte_level,
        special=("<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|pad|>", "<|reserved|>"),
        single="<|begin_of_text|> $A <|end_of_text|>",
        pair="<|begin_of_text|> $A <|end_of_text|> $B <|end_of_text|>",
        pattern=_GPT4_PATTERN,
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
        mask_token="<|mask|>",
        pad_token="<|pad|>",
    ),
    "qwen3": partial(
        _build_byte_level,
        special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        normalizer=normalizers.NFC(),
        pattern=_GPT4_PATTERN.replace("{1,3}", ""),
        trims=False,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    ),
    "qwen3-embedding": partial(
        _build_byte_level,
        special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        single="$A <|endoftext|>",
        pair="$A $B <|endoftext|>",
        normalizer=normalizers.NFC(),
        pattern=_GPT4_PATTERN.replace("{1,3}", ""),
        trims=False,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    ),
    "llama3": partial(
        _build_byte_level,
        special=("<|begin_of_text|>", "<|end_of_text|>"),
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        pattern=_GPT4_PATTERN,
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
    ),
    "plain": partial(_build_byte_level, special=()),
    "gemma3": partial(
        _build_gemma,
        special=("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"),
        single="<bos> $A",
        pair="<bos> $A <bos> $B",
    ),
    "mmbert": partial(
        _build_gemma,
        special=("<pad>", "<eos>", "<bos>", "<unk>", "<mask>"),
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> $B <eos>",
        cls_token="<bos>",
        sep_token="<eos>",
        mask_token=_MASK,
    ),
    "llama2": partial(
        _build_byte_fallback,
        special=("<unk>", "<s>", "</s>"),
        single="<s> $A",
        pair="<s> $A <s> $B",
        prefix=True,
        splits=False,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ),
}
"""By model family; ``plain`` has no special tokens, ``llama3`` and ``llama2`` none for padding."""
