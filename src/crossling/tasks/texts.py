"""What classification of texts and of pairs has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from crossling.errors import DataError, RecipeError
from crossling.recipe.recipe import FrozenSettings
from crossling.scores.predictions import Predictions

if TYPE_CHECKING:
    from crossling.data.batching import Batch, Examples
    from crossling.data.rows import Rows
    from crossling.encoders.encoder import Encoder
    from crossling.encoders.tokenization import Ragged
    from crossling.objectives.label_texts import Objective
    from crossling.tasks import SplitWords


class TextSettings(FrozenSettings):
    """What is classified and how it is scored."""

    score: Literal["accuracy", "macro_f1"] = "accuracy"
    """The score that selects checkpoints and comes first in tables."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords an example may have; of a longer one the end is cut off, in a pair the longer text's first."""
    pooling: Literal["auto", "cls", "mean", "last"] = "auto"
    """auto: [CLS] through the checkpoint's pooler where it has one, else the mean of the tokens; the last token where
    attention is causal."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the representation that the head does not see while it learns."""


class TextTask:
    """Classification with a fixed label set; ``fields`` are the one or two texts."""

    fields: tuple[str, ...]

    def __init__(self, settings: TextSettings, labels: tuple[str, ...]) -> None:
        self.settings = settings
        self.labels = labels

    @staticmethod
    def collect_labels(rows: Iterable[Rows]) -> tuple[str, ...]:
        """All classes of the training data, sorted."""
        return tuple(sorted({label for part in rows for label in part.labels()}))

    def build_objective(self, name: str) -> Objective:
        from crossling.objectives.label_texts import Objective

        return Objective(name, classes=len(self.labels), pooling=self.settings.pooling, dropout=self.settings.dropout)

    def encode(
        self, chunks: Iterable[dict[str, list[Any]]], encoder: Encoder, *, labels: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Examples: subwords of one text or two, segments where the encoder has them, the class's code."""
        from crossling.encoders.special_tokens import assemble, special_layout
        from crossling.encoders.tokenization import SubwordTokenizer

        subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
        length = min(self.settings.length, encoder.max_length)
        codes = {label: code for code, label in enumerate(labels)}
        for chunk in chunks:
            texts = [subwords.encode_pieces(chunk[field]) for field in self.fields]
            extra = layout.single_extra if len(texts) == 1 else layout.pair_extra
            ids, types = assemble(layout, *shorten(texts, length - extra))
            given = chunk.get("label") or [None] * len(ids)
            gold = np.array([codes.get(label, -1) for label in given], np.int32)
            yield {"ids": ids, **({"types": types} if encoder.uses_token_types else {}), "gold": gold}

    def collect(
        self,
        outputs: Iterable[tuple[Batch, dict[str, Any]]],
        examples: Examples,
        rows: Rows,
        *,
        labels: Sequence[str],
    ) -> Predictions:
        """The class of every row, from the outputs of batches in any order."""
        predicted = np.full(len(rows), -1, dtype=np.int64)
        confidence = np.zeros(len(rows), dtype=np.float32)
        for batch, arrays in outputs:
            predicted[batch.rows] = arrays["best"]
            confidence[batch.rows] = arrays["confidence"]
        return Predictions.from_classes(
            rows.language,
            rows.name,
            labels=labels,
            gold=examples.scalars("gold"),
            predicted=predicted,
            confidence=confidence,
        )

    def read_lines(self, lines: Sequence[str], *, words: bool, name: str) -> list[tuple[int, Any]]:
        """Inputs from lines of a file, each with its line: a text, or two with a tab between."""
        refuse_words(words)
        return read_fields(lines, len(self.fields), name=name)

    def arrange(self, inputs: Sequence[Any], split: SplitWords) -> dict[str, list[Any]]:
        """Columns of rows to predict."""
        if len(self.fields) == 1:
            check_inputs(inputs, lambda item: isinstance(item, str), "a text")
        else:
            check_inputs(inputs, is_pair, "a pair of texts")
        texts = [(item,) if isinstance(item, str) else tuple(item) for item in inputs]
        columns = {field: [text[place] for text in texts] for place, field in enumerate(self.fields)}
        return {**columns, "label": [""] * len(texts)}

    def present(self, predictions: Predictions, inputs: Sequence[Any], split: SplitWords) -> list[dict[str, Any]]:
        """Every input with its class and confidence."""
        codes, sure = predictions.column("predicted").tolist(), predictions.column("confidence").tolist()
        texts = zip(*(self.arrange(inputs, split)[field] for field in self.fields), strict=True)
        return [
            {
                **dict(zip(self.fields, text, strict=True)),
                "label": predictions.labels[code],
                "confidence": round(c, 4),
            }
            for text, code, c in zip(texts, codes, sure, strict=True)
        ]


def refuse_words(words: bool) -> None:
    """Reject ``--words``, which only taggers read."""
    if words:
        raise DataError("--words: only a tagger reads words that are split already; this model reads running text")


def check_inputs(inputs: Sequence[Any], fits: Callable[[Any], bool], what: str) -> None:
    """Raise an error for the first input that a task cannot read."""
    for number, item in enumerate(inputs):
        if not isinstance(item, str | list | tuple) or not fits(item):
            raise DataError(f"input {number}: {str(item)[:60]!r} is not {what}, which this model reads")


def is_pair(item: Any) -> bool:
    """Whether an input is two texts."""
    return not isinstance(item, str) and len(item) == 2 and all(isinstance(text, str) for text in item)


def read_fields(lines: Sequence[str], count: int, *, name: str) -> list[tuple[int, Any]]:
    """Texts, or pairs of texts with a tab between, each with the number of its line; an empty line is no text."""
    texts = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if count == 1:
        return texts
    pairs = []
    for number, line in texts:
        fields = line.split("\t")
        if len(fields) != 2:
            found = "no tab" if len(fields) == 1 else f"{len(fields) - 1} tabs"
            raise DataError(f"{name}:{number}: {found}; write both texts on one line with one tab between them")
        if not all(field.strip() for field in fields):
            side = "before" if not fields[0].strip() else "after"
            raise DataError(f"{name}:{number}: nothing {side} the tab; write both texts on one line")
        pairs.append((number, (fields[0], fields[1])))
    return pairs


def cut_windows(count: int, room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Spans that cover ``count`` subwords, each at most ``room`` long, sharing ``overlap`` with the one before."""
    if overlap >= room < count:
        raise RecipeError(
            f"overlap = {overlap} leaves no new text in a window: beside special tokens and a question this encoder "
            f"reads {room} subwords of a text. Set overlap to {max(room - 1, 0)} or less."
        )
    start = 0
    while True:
        yield start, min(start + room, count)
        if start + room >= count:
            return
        start += room - overlap


def shorten(texts: list[Ragged], room: int) -> list[Ragged]:
    """Cut off the ends of texts that are too long, alone or together."""
    from crossling.encoders.special_tokens import shorten_pair
    from crossling.encoders.tokenization import build_ragged

    if int(np.sum([text.lengths for text in texts], axis=0).max(initial=0)) <= room:
        return texts
    if len(texts) == 1:
        return [build_ragged([texts[0][i][:room].tolist() for i in range(len(texts[0]))])]
    kept = [shorten_pair(int(a), int(b), room=room) for a, b in zip(*(t.lengths for t in texts), strict=True)]
    return [
        build_ragged([text[row][: lengths[side]].tolist() for row, lengths in enumerate(kept)])
        for side, text in enumerate(texts)
    ]
