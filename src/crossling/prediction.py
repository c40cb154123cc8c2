"""Prediction on new text: tags, classes or answers, with character offsets and confidences."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossling.data.rows import SCHEMAS, Rows
from crossling.errors import DataError
from crossling.evaluation import predict_rows
from crossling.languages import get_language
from crossling.model import Model, ModelCard, load_model, save_model
from crossling.recipe import RunSettings, content_hash
from crossling.tasks import restore_task
from crossling.training.world import World, join_world
from crossling.words import split_words


class Predictor:
    """A trained model, ready to read new text in any language that its encoder knows."""

    def __init__(self, model: Model, card: ModelCard, *, world: World | None = None) -> None:
        self.world = world or join_world(RunSettings())
        self.model = model.to(self.world.device).eval()
        self.card = card
        self.head, stored = next(iter(card.tasks.items()))
        self.task = restore_task(stored)

    @classmethod
    def load(cls, folder: str | Path) -> Predictor:
        """A model from the folder that it was saved in."""
        return cls(*load_model(folder))

    def save(self, folder: str | Path) -> None:
        """Write the model, from which :meth:`load` makes it again."""
        save_model(self.model, self.card, Path(folder))

    def predict(self, inputs: Sequence[Any], *, language: str) -> list[dict[str, Any]]:
        """What the model says of each input.

        Inputs are texts or lists of words (tags), texts (classes), pairs of texts, or ``(question, context)``.
        """
        language = get_language(language).code
        split = partial(split_words, language=language, pieces=self._cut_pieces)
        columns = self.task.arrange(inputs, split)
        rows = Rows(
            pa.table(columns, schema=SCHEMAS[self.task.record]),
            self.task.record,
            language=language,
            name="new text",
            fingerprint=content_hash(columns),
        )
        with tempfile.TemporaryDirectory() as cache:
            predictions = predict_rows(
                self.model, self.task, rows, head=self.head, world=self.world, cache=Path(cache), batch=32
            )
        found: list[dict[str, Any]] = self.task.present(predictions, inputs, split)
        return found

    def _cut_pieces(self, text: str) -> list[tuple[int, int]]:
        """Where the encoder's own subwords lie: the only words that scripts without spaces have here."""
        encoding = self.model.encoder.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        return list(encoding.offsets)


def predict_file(model: Path, file: Path | None, *, language: str, words: bool) -> list[dict[str, Any]]:
    """Predictions for a file or the standard input: a line a text, a tab between the two texts of a pair."""
    name = str(file) if file else "standard input"
    try:
        text = file.read_text(encoding="utf-8-sig") if file else sys.stdin.read()
    except FileNotFoundError:
        raise DataError(f"{name}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: cannot be read as UTF-8 text: {error}") from None
    predictor = Predictor.load(model)
    lines = [line.rstrip("\r") for line in text.split("\n")]
    return predictor.predict(predictor.task.read_lines(lines, words=words, name=name), language=language)
