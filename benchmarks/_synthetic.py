"""Random encoders, and synthetic examples with the lengths of real ones: no download, the same everywhere.

Subwords follow Zipf's law, the k-th most frequent one with a probability of about 1/k, among those of one language.
Crossling and its peers get the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

CLASSES = 3
TAGS = 7
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MASK = SPECIAL.index("[MASK]")
IGNORED = -100
WINDOW = 100
"""Batches that are sorted by length together; an epoch of at least this number keeps its drawn lengths."""
Array = np.ndarray[Any, np.dtype[Any]]
Example = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How large an encoder is."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int

    @property
    def drawn(self) -> int:
        """The subwords that examples are drawn among."""
        return min(self.vocabulary, LANGUAGE)

    def config(self) -> dict[str, int]:
        """By the names of transformers."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
            "max_position_embeddings": 512,
        }


MBERT = Size(119_547, 768, 12, 12, 3_072)
OFFLINE = Size(250_037, 384, 12, 12, 1_536)
TINY = Size(500, 32, 2, 2, 64)
LANGUAGE = 28_000
"""Subwords of one language, at most: 3.4 million subwords of English text of many kinds have 25,523 of XLM-R's, the 2.0
million of 56,879 pairs of premise and hypothesis 15,907."""


@dataclass(frozen=True)
class Kind:
    """A kind of example: gamma-distributed lengths, cut at the length that peers pad to."""

    name: str
    shape: float
    scale: float
    longest: int
    model: str
    """The class of transformers that is trained for it."""


TEXTS = Kind("texts", 4.0, 10.0, 128, "BertForSequenceClassification")
WORDS = Kind("words", 3.0, 9.0, 128, "BertForTokenClassification")
ANSWERS = Kind("answers", 9.0, 19.0, 384, "BertForQuestionAnswering")
MASKED = Kind("masked", 3.0, 9.0, 128, "BertForMaskedLM")
PAIRS = Kind("pairs", 3.0, 8.0, 128, "BertModel")


def make_lengths(kind: Kind, count: int, *, batch: int = 0, seed: int = 0) -> Array:
    """Subwords of each example.

    Real sets have many batches, so that examples of one are alike in length. With ``batch``, so are those of a few:
    they are evenly spread among the batches of a larger set that is sorted by length.
    """
    generator = np.random.default_rng(seed)
    batches = count // batch if batch else WINDOW
    if batches >= WINDOW:
        return _draw_lengths(kind, count, generator)
    pool = np.sort(_draw_lengths(kind, WINDOW * batch, generator)).reshape(WINDOW, batch)
    chosen = ((np.arange(batches) + 0.5) / batches * WINDOW).astype(int)
    return generator.permutation(pool[chosen].reshape(-1))


def _draw_lengths(kind: Kind, count: int, generator: np.random.Generator) -> Array:
    return np.clip(generator.gamma(kind.shape, kind.scale, count) + 3, 8, kind.longest).astype(int)


def make_rows(kind: Kind, count: int, vocabulary: int, *, batch: int = 0, seed: int = 0) -> list[Example]:
    """Examples with labels."""
    generator = np.random.default_rng([seed, 1])
    return [_make_row(kind, n, vocabulary, generator) for n in make_lengths(kind, count, batch=batch, seed=seed)]


def _make_row(kind: Kind, length: int, vocabulary: int, generator: np.random.Generator) -> Example:
    row: Example = {"input_ids": _draw_ids(length, vocabulary, generator)}
    if kind is TEXTS:
        row["gold"] = int(generator.integers(CLASSES))
    elif kind is WORDS:
        row["firsts"] = np.cumsum(generator.integers(1, 4, length))
        row["firsts"] = row["firsts"][row["firsts"] < length - 1].astype(np.int32)
        row["gold"] = generator.integers(0, TAGS, len(row["firsts"])).astype(np.int32)
    elif kind is ANSWERS:
        row["context_from"] = min(15, length // 2)
        row["first"] = int(generator.integers(row["context_from"], length - 1))
        row["last"] = min(row["first"] + 2, length - 2)
    elif kind is PAIRS:
        other = max(8, min(kind.longest, int(length * generator.uniform(0.8, 1.25))))
        row["target_ids"] = _draw_ids(other, vocabulary, generator)
        row["words"], row["target_words"] = (_number_words(n, generator) for n in (length, other))
        common = min(int(row[name].max()) for name in ("words", "target_words")) + 1
        linked = np.flatnonzero(generator.random(common) < 0.7).astype(np.int32)
        row["links"] = np.repeat(linked if len(linked) else np.zeros(1, np.int32), 2)
    return row


def _draw_ids(length: int, vocabulary: int, generator: np.random.Generator) -> Array:
    ranks = (vocabulary - len(SPECIAL)) ** generator.random(length)
    return (len(SPECIAL) - 1 + ranks.astype(np.int64)).astype(np.int32)


def _number_words(length: int, generator: np.random.Generator) -> Array:
    """The word of each subword; the first and the last are special and have none."""
    numbers = np.cumsum(generator.random(length - 2) < 0.7)
    return np.concatenate([[-1], numbers - numbers[0], [-1]]).astype(np.int32)


def write_rows(kind: Kind, rows: Sequence[Example], path: Path) -> Any:
    """Rows as crossling's encoded examples."""
    from crossling.data.batching import write_examples
    from crossling.objectives.aligned_words import PairedExamples

    columns: dict[str, Any] = {"ids": [row["input_ids"] for row in rows]}
    for name in rows[0].keys() - {"input_ids"}:
        values = [row[name] for row in rows]
        columns[name] = values if isinstance(values[0], np.ndarray) else np.asarray(values, np.int32)
    if kind is ANSWERS:
        columns["starts"] = [np.arange(len(row["input_ids"]) - row["context_from"] - 1) for row in rows]
    examples = write_examples(path, [columns])
    return PairedExamples(path) if kind is PAIRS else examples


def collate(kind: Kind, batch: Sequence[Example], *, length: int) -> dict[str, torch.Tensor]:
    """Rows as a batch of transformers' models."""
    ids = np.zeros((len(batch), length), dtype=np.int64)
    for place, row in enumerate(batch):
        ids[place, : len(row["input_ids"])] = row["input_ids"]
    found = {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}
    if kind is TEXTS:
        found["labels"] = np.asarray([row["gold"] for row in batch])
    elif kind is WORDS:
        found["labels"] = np.full_like(ids, IGNORED)
        for place, row in enumerate(batch):
            found["labels"][place, row["firsts"]] = row["gold"]
    elif kind is ANSWERS:
        found["start_positions"] = np.asarray([row["first"] for row in batch])
        found["end_positions"] = np.asarray([row["last"] for row in batch])
    elif kind is MASKED:
        chosen = (np.random.default_rng(int(ids.sum())).random(ids.shape) < 0.15) & (ids > 0)
        found["labels"] = np.where(chosen, ids, IGNORED)
        found["input_ids"] = np.where(chosen, MASK, ids)
    return {name: torch.from_numpy(values) for name, values in found.items()}


def build_model(kind: Kind, size: Size) -> Any:
    """A model of transformers with random weights; the same at every call."""
    import transformers

    torch.manual_seed(0)
    labels = {TEXTS.name: CLASSES, WORDS.name: TAGS}.get(kind.name, 2)
    return getattr(transformers, kind.model)(transformers.BertConfig(**size.config(), num_labels=labels))


def build_encoder(kind: Kind, size: Size) -> Any:
    """The same weights as crossling's encoder, with a tokenizer of as many subwords."""
    from crossling.encoders.encoder import Encoder

    model = build_model(kind, size)
    return Encoder(getattr(model, "bert", model), build_tokenizer(size), name="random", identity="random")


def build_tokenizer(size: Size) -> Any:
    """A tokenizer of made-up words."""
    from tokenizers import Tokenizer, models, processors
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL, *(f"w{number}" for number in range(size.vocabulary - len(SPECIAL)))]
    pieces = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    around = [(name, SPECIAL.index(name)) for name in ("[SEP]", "[CLS]")]
    pieces.post_processor = processors.BertProcessing(*around)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(tokenizer_object=pieces, **dict(zip(names, SPECIAL, strict=True)))
