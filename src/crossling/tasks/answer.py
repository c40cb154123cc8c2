"""Extractive question answering: the span of the context that answers the question, read in overlapping windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from crossling.data.records import Question
from crossling.recipe.recipe import FrozenSettings
from crossling.scores.predictions import Predictions
from crossling.tasks.texts import check_inputs, cut_windows, is_pair, read_fields, refuse_words

if TYPE_CHECKING:
    from crossling.data.batching import Batch, Examples
    from crossling.data.rows import Rows
    from crossling.encoders.encoder import Encoder
    from crossling.objectives.find_span import Objective
    from crossling.tasks import SplitWords

VERSION = 1
ENCODING_SETTINGS = ("length", "overlap", "question")
SCALARS = ("row", "context_from", "first", "last")
Array = np.ndarray[Any, np.dtype[Any]]


class Settings(FrozenSettings):
    """How contexts are read and answers scored."""

    kind: Literal["answer"] = "answer"
    score: Literal["qa_f1", "exact_match", "squad_f1", "squad_exact_match"] = "qa_f1"
    """The score that selects checkpoints and comes first in tables."""
    length: int = Field(default=384, ge=32, le=8192)
    """Subwords of a window: the question, a part of the context, special tokens."""
    overlap: int = Field(default=128, ge=0, le=8192)
    """Subwords of the context that neighbouring windows share."""
    question: int = Field(default=64, ge=4, le=8192)
    """Subwords of the question; the rest of a longer one is cut off."""
    answer: int = Field(default=30, ge=1, le=8192)
    """Subwords that an answer has at most."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of the representation that the head does not see while it learns."""

    @model_validator(mode="after")
    def _windows_advance(self) -> Self:
        room = self.length - self.question - 4
        if self.overlap >= room:
            raise ValueError(
                f"overlap = {self.overlap} leaves no new text beside the question in this length: at most {room - 1}"
            )
        return self


class Task:
    """Extractive answers; there is no label set."""

    record = Question
    columns = ("question", "context", "answers", "starts")

    def __init__(self, settings: Settings, labels: tuple[str, ...] = ()) -> None:
        self.settings = settings
        self.labels = labels

    @staticmethod
    def collect_labels(rows: Iterable[Rows]) -> tuple[str, ...]:
        return ()

    def build_objective(self, name: str) -> Objective:
        from crossling.objectives.find_span import Objective

        return Objective(name, longest=self.settings.answer, dropout=self.settings.dropout)

    def encode(
        self, chunks: Iterable[dict[str, list[Any]]], encoder: Encoder, *, labels: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Examples are windows: subwords, each context subword's characters, the answer's first and last subword.

        Where attention is causal, a subword has not seen those after it. The answer's beginning is then read at the
        last subword of its first word, every subword begins where its word does, and windows without the answer point
        to the last token instead of the first.
        """
        from crossling.encoders.special_tokens import assemble, special_layout
        from crossling.encoders.tokenization import SubwordTokenizer, build_ragged

        subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
        length = min(self.settings.length, encoder.max_length) - layout.pair_extra
        row = 0
        for chunk in chunks:
            columns: dict[str, list[Any]] = {n: [] for n in ("question", "context", "starts", "ends", *SCALARS)}
            questions = subwords.encode_pieces(chunk["question"])
            contexts = subwords.encode_texts(chunk["context"])
            for place in range(len(questions)):
                question = questions[place][: self.settings.question]
                pieces, starts, ends = (part[place] for part in (contexts.pieces, contexts.starts, contexts.ends))
                answer = chunk["answers"][place] if "answers" in chunk else ()
                span = find_subwords(starts, ends, answer, chunk["starts"][place] if answer else ())
                if encoder.is_causal:
                    words = number_words(chunk["context"][place], starts, ends)
                    span = span and (
                        min(int(np.searchsorted(words, words[span[0]], side="right")) - 1, span[1]),
                        span[1],
                    )
                    starts = starts[np.searchsorted(words, words)]
                context_from = len(layout.prefix) + len(question) + len(layout.middle)
                for begin, end in cut_windows(len(pieces), length - len(question), self.settings.overlap):
                    inside = span is not None and begin <= span[0] and span[1] < end
                    nowhere = context_from + end - begin + len(layout.suffix) - 1 if encoder.is_causal else 0
                    first, last = (s - begin + context_from for s in span) if inside and span else (nowhere, nowhere)
                    values = (question, pieces[begin:end], starts[begin:end], ends[begin:end])
                    for name, value in zip(columns, (*values, row, context_from, first, last), strict=True):
                        columns[name].append(value)
                row += 1
            ids, types = assemble(layout, build_ragged(columns.pop("question")), build_ragged(columns.pop("context")))
            yield {
                "ids": ids,
                **({"nowhere": np.array(ids.lengths - 1, np.int32)} if encoder.is_causal else {}),
                **({"types": types} if encoder.uses_token_types else {}),
                **{n: np.array(v, np.int32) if n in SCALARS else v for n, v in columns.items()},
            }

    def collect(
        self,
        outputs: Iterable[tuple[Batch, dict[str, Any]]],
        examples: Examples,
        rows: Rows,
        *,
        labels: Sequence[str],
    ) -> Predictions:
        """The best span over all windows of each question, as text of the context."""
        best = np.full(len(rows), -np.inf)
        confidence = np.zeros(len(rows), dtype=np.float32)
        spans = np.full((len(rows), 2), -1, dtype=np.int64)
        for batch, arrays in outputs:
            for place, example in enumerate(batch.rows.tolist()):
                row, context_from = (int(examples.get(n, example)[0]) for n in ("row", "context_from"))
                starts = examples.get("starts", example)
                if not len(starts) or not arrays["score"][place] > best[row]:
                    continue
                first, last = (int(arrays[side][place]) - context_from for side in ("start", "end"))
                best[row], confidence[row] = arrays["score"][place], arrays["confidence"][place]
                spans[row] = starts[first], examples.get("ends", example)[last]
        texts = [cut_answer(context, *span) for context, span in zip(_texts(rows), spans.tolist(), strict=True)]
        return Predictions.from_answers(
            rows.language,
            rows.name,
            ids=[str(i) for i in rows.column("id").to_pylist()],
            gold=rows.column("answers").to_pylist(),
            predicted=[text for text, _ in texts],
            starts=[start for _, start in texts],
            confidence=confidence,
        )

    def read_lines(self, lines: Sequence[str], *, words: bool, name: str) -> list[tuple[int, Any]]:
        """Inputs from lines of a file, each with its line: a question and a context with a tab between."""
        refuse_words(words)
        return read_fields(lines, 2, name=name)

    def arrange(self, inputs: Sequence[Any], split: SplitWords) -> dict[str, list[Any]]:
        """Columns of rows to predict from pairs of question and context."""
        check_inputs(inputs, is_pair, "a pair of question and context")
        nothing: list[list[Any]] = [[] for _ in inputs]
        return {
            "id": [str(number) for number in range(len(inputs))],
            "question": [question for question, _ in inputs],
            "context": [context for _, context in inputs],
            "answers": nothing,
            "starts": nothing,
        }

    def present(self, predictions: Predictions, inputs: Sequence[Any], split: SplitWords) -> list[dict[str, Any]]:
        """Every question with its answer, the answer's characters in the context, and confidence."""
        return [
            {
                "question": question,
                "context": context,
                "answer": row["predicted"],
                "start": row["start"],
                "end": row["start"] + len(row["predicted"]) if row["start"] >= 0 else -1,
                "confidence": round(row["confidence"], 4),
            }
            for (question, context), row in zip(inputs, predictions.table.to_pylist(), strict=True)
        ]


def _texts(rows: Rows) -> Iterator[str]:
    for chunk in rows.chunks(500):
        yield from chunk["context"]


def cut_answer(context: str, start: int, end: int) -> tuple[str, int]:
    """The text of a span and where it starts, without the white space that some tokenizers count in."""
    if start < 0:
        return "", -1
    text = context[start:end]
    return text.strip(), start + len(text) - len(text.lstrip())


def number_words(text: str, starts: Array, ends: Array) -> Array:
    """The word that each subword belongs to, rising: it goes on where two letters or digits meet.

    In scripts without spaces every subword is one.
    """
    from crossling.encoders.tokenization import is_unspaced

    joined = [
        start == end
        and 0 < start < len(text)
        and text[start - 1].isalnum()
        and text[start].isalnum()
        and not is_unspaced(text[start])
        for start, end in zip(starts[1:].tolist(), ends[:-1].tolist(), strict=True)
    ]
    return np.cumsum([0, *(not one for one in joined)])[: len(starts)]


def find_subwords(starts: Array, ends: Array, answers: Sequence[str], begins: Sequence[int]) -> tuple[int, int] | None:
    """The first and last subword of the first answer; none where there is no answer or no subword of it."""
    if not answers or not len(starts):
        return None
    begin, end = begins[0], begins[0] + len(answers[0])
    first = int(np.searchsorted(ends, begin, side="right"))
    last = int(np.searchsorted(starts, end, side="left")) - 1
    return (first, last) if first <= last < len(starts) else None
