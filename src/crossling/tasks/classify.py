"""Classification of a text (sentiment, topic, or the user's own classes), of a long one in overlapping windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from crossling.data.records import LabelledText
from crossling.scores.predictions import Predictions
from crossling.tasks.texts import TextSettings, TextTask, cut_windows

if TYPE_CHECKING:
    from crossling.data.batching import Batch, Examples
    from crossling.data.rows import Rows
    from crossling.encoders.encoder import Encoder
    from crossling.objectives.label_texts import Objective

VERSION = 1
ENCODING_SETTINGS = ("length", "overlap")
SPECIAL = 4
"""Special tokens that a window may need."""


class Settings(TextSettings):
    """What is classified and how it is scored."""

    kind: Literal["classify"] = "classify"
    overlap: int | None = Field(default=None, ge=0, le=8192)
    """Read all of a text that is longer than length, in windows that share this many subwords. Windows are trained on
    as texts of their own; the probabilities of a text are the mean over its windows, weighted by their new subwords.
    Default: one window, and the end of a longer text is cut off."""

    @model_validator(mode="after")
    def _windows_advance(self) -> Self:
        room = self.length - SPECIAL
        if self.overlap is not None and self.overlap >= room:
            raise ValueError(f"overlap = {self.overlap} leaves no new text in a window: at most {room - 1}")
        return self

    @model_serializer(mode="wrap")
    def _omit_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without windows the settings are those of versions that had none, and so are the identities of results."""
        table: dict[str, Any] = dump(self)
        return table if self.overlap is not None else {name: v for name, v in table.items() if name != "overlap"}


class Task(TextTask):
    """A class for each text."""

    record = LabelledText
    fields = ("text",)
    columns = ("text", "label")
    settings: Settings

    def read_whole(self) -> Task:
        """The task for new text: a text that is longer than a window is read to its end, however it was trained."""
        if self.settings.overlap is not None:
            return self
        return Task(self.settings.model_copy(update={"overlap": self.settings.length // 4}), self.labels)

    def build_objective(self, name: str) -> Objective:
        from crossling.objectives.label_texts import Objective

        return Objective(
            name,
            classes=len(self.labels),
            pooling=self.settings.pooling,
            dropout=self.settings.dropout,
            probabilities=self.settings.overlap is not None,
        )

    def encode(
        self, chunks: Iterable[dict[str, list[Any]]], encoder: Encoder, *, labels: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Examples are texts, or with ``overlap`` windows, each with its row and the number of its new subwords."""
        if self.settings.overlap is None:
            yield from super().encode(chunks, encoder, labels=labels)
            return
        from crossling.encoders.special_tokens import assemble, special_layout
        from crossling.encoders.tokenization import SubwordTokenizer, build_ragged

        subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
        room = min(self.settings.length, encoder.max_length) - layout.single_extra
        codes = {label: code for code, label in enumerate(labels)}
        row = 0
        for chunk in chunks:
            pieces = subwords.encode_pieces(chunk["text"])
            given = chunk.get("label") or [None] * len(pieces)
            windows: list[Any] = []
            facts: dict[str, list[int]] = {"row": [], "new": [], "gold": []}
            for place, label in enumerate(given):
                text, seen = pieces[place], 0
                for begin, end in cut_windows(len(text), room, self.settings.overlap):
                    windows.append(text[begin:end])
                    # A text without a subword has one window, which must count.
                    for name, value in (("row", row), ("new", max(end - seen, 1)), ("gold", codes.get(label, -1))):
                        facts[name].append(value)
                    seen = end
                row += 1
            ids, types = assemble(layout, build_ragged(windows))
            numbers = {name: np.array(values, np.int32) for name, values in facts.items()}
            yield {"ids": ids, **({"types": types} if encoder.uses_token_types else {}), **numbers}

    def collect(
        self,
        outputs: Iterable[tuple[Batch, dict[str, Any]]],
        examples: Examples,
        rows: Rows,
        *,
        labels: Sequence[str],
    ) -> Predictions:
        """The class of every row: of windows, by the weighted mean of their probabilities."""
        if self.settings.overlap is None:
            return super().collect(outputs, examples, rows, labels=labels)
        owners, new = examples.scalars("row"), examples.scalars("new")
        gold = np.full(len(rows), -1, dtype=np.int64)
        gold[owners] = examples.scalars("gold")
        total_RC = np.zeros((len(rows), len(self.labels)))
        for batch, arrays in outputs:
            np.add.at(total_RC, owners[batch.rows], arrays["probabilities"] * new[batch.rows, None])
        return Predictions.from_classes(
            rows.language,
            rows.name,
            labels=labels,
            gold=gold,
            predicted=total_RC.argmax(axis=1),
            confidence=total_RC.max(axis=1) / total_RC.sum(axis=1),
        )
