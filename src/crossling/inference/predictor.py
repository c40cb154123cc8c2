"""Prediction on new text: tags, classes or answers, with character offsets and confidences."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crossling.data.languages import get_language
from crossling.data.rows import SCHEMAS, Rows
from crossling.data.words import cut_by_tokenizer, split_words
from crossling.errors import ArtefactError, DataError
from crossling.inference.engines import load_engine, run_by_torch
from crossling.inference.evaluate import Engine, TorchEngine, predict_with
from crossling.limits import LARGEST_DOCUMENT, read_limited, read_regular
from crossling.models.card import ModelCard
from crossling.progress import NoProgress, Progress
from crossling.recipe.identity import content_hash
from crossling.tasks import SplitWords, restore_task

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.training.distributed import Distributed

CHUNK = 1_000
"""Inputs of a file that are predicted at a time: results come early, and a long file does not fill the memory."""


class Predictor:
    """A trained model that predicts new text in any language of its encoder."""

    def __init__(self, engine: Engine, card: ModelCard) -> None:
        if not card.tasks:
            raise ArtefactError("the model has no task to predict: train one with a finetune stage")
        self.engine = engine
        self.card = card
        self.head, stored = next(iter(card.tasks.items()))
        self.task = restore_task(stored)
        # Scores are of the task as it was trained; new text is read to its end.
        self._whole = self.task.read_whole() if hasattr(self.task, "read_whole") else self.task

    @classmethod
    def load(
        cls, folder: str | Path, *, engine: str = "auto", threads: int | None = None, precision: str = "auto"
    ) -> Predictor:
        """A model from the folder that it was saved in; ``engine`` is torch, onnx or auto: what the folder is for."""
        return cls(*load_engine(Path(folder), engine, threads=threads, precision=precision))

    @classmethod
    def from_model(cls, model: Model, card: ModelCard, *, distributed: Distributed | None = None) -> Predictor:
        """A model in memory, on the device of the given processes."""
        return cls(run_by_torch(model, distributed), card)

    @property
    def model(self) -> Model:
        """The model in memory; only torch has one."""
        if not isinstance(self.engine, TorchEngine):
            raise ArtefactError("a model for ONNX Runtime has no weights in memory; load the folder of its run")
        return self.engine.model

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder for :meth:`load`, here or on a machine that has no other file of it."""
        from crossling.models.standalone import write_standalone

        if not isinstance(self.engine, TorchEngine):
            raise ArtefactError(f"{folder}: a model for ONNX Runtime is saved by copying its folder")
        write_standalone(self.engine.model, self.card, Path(folder))

    def predict(self, inputs: Sequence[Any], *, language: str | None = None) -> list[dict[str, Any]]:
        """Predictions for each input, in the source language unless another is given.

        Inputs are texts or lists of words (tags), texts (classes), pairs of texts, or ``(question, context)``.
        Characters are counted in the text as it was given; of an answer, in the context.
        """
        if isinstance(inputs, str):
            raise DataError("inputs is a list of texts, not one text: write [text]")
        return self.predict_mixed(inputs, [language] * len(inputs))

    def predict_mixed(self, inputs: Sequence[Any], languages: Sequence[str | None]) -> list[dict[str, Any]]:
        """Predictions for inputs that each have a language; inputs of all languages share the model's batches."""
        groups: dict[str, list[int]] = {}
        for place, language in enumerate(languages):
            groups.setdefault(get_language(language or self.card.source).code, []).append(place)
        parts = [[inputs[place] for place in places] for places in groups.values()]
        splits = [self._split_words(language) for language in groups]
        sets = [
            self._arrange(part, language, split) for part, language, split in zip(parts, groups, splits, strict=True)
        ]
        found: list[dict[str, Any]] = [{}] * len(inputs)
        predicted = predict_with(self.engine, self._whole, sets, head=self.head, cache=None, batch=32)
        for places, part, split, one in zip(groups.values(), parts, splits, predicted, strict=True):
            for place, result in zip(places, self.task.present(one, part, split), strict=True):
                found[place] = result
        return found

    def _split_words(self, language: str) -> SplitWords:
        """What cuts texts into words, each text once: rows are made of them, and later what is shown."""
        pieces = cut_by_tokenizer(self.engine.encoder.tokenizer)
        return cache(partial(split_words, language=language, pieces=pieces))

    def _arrange(self, inputs: Sequence[Any], language: str, split: SplitWords) -> Rows:
        """Inputs of one language as rows to predict."""
        columns = self.task.arrange(inputs, split)
        return Rows(
            pa.table(columns, schema=SCHEMAS[self.task.record]),
            self.task.record,
            language=language,
            name="new text",
            fingerprint=content_hash(columns),
        )


def predict_file(
    model: Path,
    file: Path | None,
    *,
    language: str | None = None,
    words: bool = False,
    engine: str = "auto",
    threads: int | None = None,
    precision: str = "auto",
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Predictions for a file or the standard input: a line a text, a tab between the two texts of a pair.

    Every fault of the input is raised before the first result.
    """
    predictor, found = read_inputs(
        model, file, language=language, words=words, engine=engine, threads=threads, precision=precision
    )
    return _predict_lines(predictor, found, language=language, progress=progress or NoProgress())


def read_inputs(
    model: Path,
    file: Path | None,
    *,
    language: str | None,
    words: bool,
    engine: str = "auto",
    threads: int | None = None,
    precision: str = "auto",
) -> tuple[Predictor, list[tuple[int, Any]]]:
    """A model, and the inputs of a file or of the standard input, each with the line that it begins in."""
    if language is not None:
        get_language(language)
    name = str(file) if file else "standard input"
    lines = read_text(file, name=name).split("\n")
    predictor = Predictor.load(model, engine=engine, threads=threads, precision=precision)
    found = predictor.task.read_lines([line.removesuffix("\r") for line in lines], words=words, name=name)
    if not found:
        raise DataError(f"{name}: holds no text; write one text a line")
    return predictor, found


def _predict_lines(
    predictor: Predictor, found: Sequence[tuple[int, Any]], *, language: str | None, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Each result with the line that its input begins in."""
    progress.begin("predicting", len(found))
    for start in range(0, len(found), CHUNK):
        part = found[start : start + CHUNK]
        results = predictor.predict([item for _, item in part], language=language)
        progress.advance(len(part))
        for (line, _), result in zip(part, results, strict=True):
            yield {"line": line, **result}
    progress.end()


def read_text(file: Path | None, *, name: str) -> str:
    """The text of a file or of the standard input, in which only a byte order mark is left out.

    Bytes are decoded here and not by the system, whose encoding and line ends would move the offsets.
    """
    try:
        raw = read_regular(file, most=LARGEST_DOCUMENT) if file else read_limited(sys.stdin.buffer, Path(name))
    except FileNotFoundError:
        raise DataError(f"{name}: no such file") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{name}: is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8")
    if b"\r" in raw.rstrip(b"\r\n") and b"\n" not in raw:
        raise DataError(f"{name}: its lines end in CR alone; convert it, as with tr '\\r' '\\n'")
    line = raw.count(b"\n", 0, raw.find(b"\0")) + 1 if b"\0" in raw else 0
    if line:
        raise DataError(f"{name}:{line}: not text, for it holds a zero byte; text is read as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = bytes(error.object).count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name}:{line}: not UTF-8 text ({error.reason}); convert it, such as with iconv -f LATIN1 -t UTF-8"
        ) from None
