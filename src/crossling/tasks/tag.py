"""Tagging: a label for every word (parts of speech, named entities, or the user's own)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from crossling.data.records import TaggedSentence
from crossling.errors import DataError
from crossling.recipe.recipe import FrozenSettings
from crossling.scores.predictions import SCHEMAS, Predictions
from crossling.scores.spans import list_spans
from crossling.tasks.texts import check_inputs, read_fields

if TYPE_CHECKING:
    from crossling.data.batching import Batch, Examples
    from crossling.data.rows import Rows
    from crossling.encoders.encoder import Encoder
    from crossling.objectives.label_words import Objective
    from crossling.tasks import SplitWords

VERSION = 1
ENCODING_SETTINGS = ("length",)
SPAN_LABEL = re.compile(r"[BIES]-.+")
Score = Literal[
    "accuracy",
    "macro_f1",
    "token_micro_f1",
    "span_f1",
    "span_macro_f1",
    "span_precision",
    "span_recall",
    "xtreme_pos_f1",
    "xtreme_pos_f1_2020",
]


class Settings(FrozenSettings):
    """What is tagged and how it is scored."""

    kind: Literal["tag"] = "tag"
    scheme: Literal["auto", "none", "bio"] = "auto"
    """bio: labels are spans (B-PER, I-PER, O) and span scores are given. auto: bio if training labels are such."""
    score: Score | Literal["auto"] = "auto"
    """The score that selects checkpoints and comes first in tables; auto: span_f1 of spans, else accuracy."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords an example may have; longer sentences are split between words, never cut off."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the representation that the head does not see while it learns."""

    @model_validator(mode="after")
    def _fitting_score(self) -> Self:
        if self.score.startswith("span_") and self.scheme == "none":
            raise ValueError(f'score = {self.score!r} is about spans; set scheme = "bio"')
        if self.score.startswith("xtreme_") and self.scheme == "bio":
            raise ValueError(f'score = {self.score!r} is about tags that are no spans; set scheme = "none"')
        return self

    @property
    def is_open(self) -> bool:
        """Whether the training labels decide on something."""
        return "auto" in (self.scheme, self.score)

    def fit(self, labels: Sequence[str]) -> Settings:
        """The settings with scheme and score as the training labels ask for."""
        found: Literal["none", "bio"] = "bio" if mark_spans(labels) else "none"
        scheme = found if self.scheme == "auto" else self.scheme
        score = self.score if self.score != "auto" else "span_f1" if scheme == "bio" else "accuracy"
        if score.startswith("span_") != (scheme == "bio") and score.startswith(("span_", "xtreme_")):
            kind = "mark no spans" if scheme == "none" else "mark spans"
            raise DataError(f"score = {score!r}: the training labels {kind} ({', '.join(labels[:5])}, …)")
        return self.model_copy(update={"scheme": scheme, "score": score})


class Task:
    """Tagging with a fixed label set."""

    record = TaggedSentence
    columns = ("words", "tags")

    def __init__(self, settings: Settings, labels: tuple[str, ...]) -> None:
        self.settings = settings.fit(labels) if settings.is_open and labels else settings
        self.labels = labels

    @staticmethod
    def collect_labels(rows: Iterable[Rows]) -> tuple[str, ...]:
        """All tags of the training data, sorted."""
        return tuple(sorted({label for part in rows for label in part.labels()}))

    def build_objective(self, name: str) -> Objective:
        from crossling.objectives.label_words import Objective

        return Objective(name, classes=len(self.labels), dropout=self.settings.dropout)

    def encode(
        self, chunks: Iterable[dict[str, list[Any]]], encoder: Encoder, *, labels: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Examples: subwords, the one that stands for each word, its label's code (-1: not among ``labels``).

        A word is read at its first subword, or at its last where only that one has seen the others (``firsts``).
        """
        from crossling.encoders.special_tokens import special_layout
        from crossling.encoders.tokenization import SubwordTokenizer, first_pieces

        subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
        prefix, suffix = np.array(layout.prefix, np.int32), np.array(layout.single_suffix, np.int32)
        room = min(self.settings.length, encoder.max_length) - layout.single_extra
        codes = {label: code for code, label in enumerate(labels)}
        row = 0
        for chunk in chunks:
            columns: dict[str, list[Any]] = {n: [] for n in ("ids", "firsts", "gold", "row", "word_from")}
            encoded = subwords.encode_words(chunk["words"])
            tags = chunk.get("tags") or [(None,) * len(words) for words in chunk["words"]]
            for place, sentence_tags in enumerate(tags):
                pieces = encoded.pieces[place]
                starts = first_pieces(encoded.words[place])
                gold = np.array([codes.get(tag, -1) for tag in sentence_tags], dtype=np.int32)
                for first, last in split_to_fit(np.diff(np.append(starts, len(pieces))), room):
                    begin, end = starts[first], starts[last] if last < len(starts) else len(pieces)
                    ids = pieces[begin : min(end, begin + room)]
                    columns["ids"].append(np.concatenate([prefix, ids, suffix]))
                    read = starts[first:last] - begin
                    if encoder.is_causal:
                        read = np.append(read[1:], len(ids)) - 1
                    columns["firsts"].append(read + len(prefix))
                    columns["gold"].append(gold[first:last])
                    columns["row"].append(row)
                    columns["word_from"].append(first)
                row += 1
            yield {n: np.array(v, np.int32) if n in ("row", "word_from") else v for n, v in columns.items()}

    def collect(
        self,
        outputs: Iterable[tuple[Batch, dict[str, Any]]],
        examples: Examples,
        rows: Rows,
        *,
        labels: Sequence[str],
    ) -> Predictions:
        """Predictions of every word of every sentence, from the outputs of batches in any order."""
        counts = np.asarray(pc.list_value_length(rows.column("words")).to_numpy(), dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)])
        gold = np.full(starts[-1], -1, dtype=np.int64)
        predicted = np.full(starts[-1], -1, dtype=np.int64)
        confidence = np.zeros(starts[-1], dtype=np.float32)
        for batch, arrays in outputs:
            for place, example in enumerate(batch.rows.tolist()):
                firsts = examples.get("firsts", example)
                begin = starts[examples.get("row", example)[0]] + examples.get("word_from", example)[0]
                span = slice(begin, begin + len(firsts))
                gold[span] = examples.get("gold", example)
                predicted[span] = arrays["best"][place, firsts]
                confidence[span] = arrays["confidence"][place, firsts]
        columns = {
            "row": np.repeat(np.arange(len(counts)), counts),
            "gold": gold,
            "predicted": predicted,
            "confidence": confidence,
        }
        table = pa.table(columns).cast(SCHEMAS["tags"])
        meta, scheme = {"n_rows": len(rows)}, self.settings.scheme
        assert scheme != "auto", "the labels have decided"
        return Predictions("tags", rows.language, rows.name, table, tuple(labels), scheme, meta)

    def read_lines(self, lines: Sequence[str], *, words: bool, name: str) -> list[tuple[int, Any]]:
        """Inputs from lines of a file, each with its line: a text, or with ``words`` a word a line, a blank between."""
        if not words:
            return read_fields(lines, 1, name=name)
        sentences: list[tuple[int, list[str]]] = []
        for number, line in enumerate(lines, 1):
            word = line.split("\t")[0].strip()
            if line.strip() and not word:
                raise DataError(f"{name}:{number}: no word before the tab; write one word a line")
            if word and (not sentences or not lines[number - 2].strip()):
                sentences.append((number, []))
            if word:
                sentences[-1][1].append(word)
        return sentences

    def arrange(self, inputs: Sequence[Any], split: SplitWords) -> dict[str, list[Any]]:
        """Columns of rows to predict from texts or lists of words."""
        check_inputs(inputs, lambda item: all(isinstance(word, str) for word in item), "a text or a list of words")
        words = [[word for word, _, _ in locate_words(item, split)] for item in inputs]
        return {"words": words, "tags": [[""] * len(sentence) for sentence in words]}

    def present(self, predictions: Predictions, inputs: Sequence[Any], split: SplitWords) -> list[dict[str, Any]]:
        """For every input its words, each with characters, tag and confidence; of spans also where each one lies.

        Words that were given are shown as if one space stood between them. A span is as sure as its least sure word.
        """
        codes, sure = predictions.column("predicted").tolist(), predictions.column("confidence").tolist()
        tags = zip(codes, sure, strict=True)
        items = []
        for item in inputs:
            found = [
                {
                    "word": word,
                    "start": start,
                    "end": end,
                    "tag": predictions.labels[code],
                    "confidence": round(c, 4),
                }
                for (word, start, end), (code, c) in zip(locate_words(item, split), tags, strict=False)
            ]
            text = item if isinstance(item, str) else " ".join(item)
            spans = {"spans": join_spans(text, found)} if self.settings.scheme == "bio" else {}
            items.append({"text": text, **spans, "words": found})
        return items


def mark_spans(labels: Sequence[str]) -> bool:
    """Whether labels mark spans: each is O, or begins with B-, I- or what ends spans and marks single words."""
    types = {label for label in labels if label != "O"}
    return all(SPAN_LABEL.fullmatch(label) for label in types) and any(label[:2] in ("B-", "I-") for label in types)


def locate_words(item: str | Sequence[str], split: SplitWords) -> list[tuple[str, int, int]]:
    """The words of a text with their characters; of given words, as if one space stood between them."""
    if isinstance(item, str):
        return list(split(item))
    ends = np.cumsum([len(word) + 1 for word in item]).tolist()
    return [(word, end - 1 - len(word), end - 1) for word, end in zip(item, ends, strict=True)]


def join_spans(text: str, words: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans that tagged words form, each with its text, label, characters and confidence."""
    spans = []
    for first, last, label in list_spans([word["tag"] for word in words]):
        start, end = words[first]["start"], words[last]["end"]
        confidence = min(word["confidence"] for word in words[first : last + 1])
        spans.append({"span": text[start:end], "label": label, "start": start, "end": end, "confidence": confidence})
    return spans


def split_to_fit(counts: np.ndarray[Any, Any], room: int) -> Iterator[tuple[int, int]]:
    """Spans of words whose subwords fit into ``room``; a word that is longer alone gets its own span."""
    start, used = 0, 0
    for word, count in enumerate(counts.tolist()):
        if used and used + count > room:
            yield start, word
            start, used = word, 0
        used += count
    if len(counts):
        yield start, len(counts)
