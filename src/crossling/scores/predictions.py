"""The record of a run: what a model predicted beside what was right, one small Parquet file per language.

Scores, tests and figures are pure functions of these files, so a run is never repeated to look at it another
way. No text of the data set is stored but short answers, whose strings the question-answering scores compare.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crossling.errors import ArtefactError
from crossling.files import is_filled, replacing

Kind = Literal["tags", "classes", "answers"]
Scheme = Literal["none", "bio"]

UNSEEN = -1
"""Code of a gold label that is missing or that training never saw (counts as wrong, is never dropped), and of
a prediction that was not made."""

FORMAT = 1
_METADATA_KEY = b"crossling"
_TAGS = pa.schema([("row", pa.int32()), ("gold", pa.int16()), ("predicted", pa.int16()), ("confidence", pa.float32())])
SCHEMAS: Mapping[str, pa.Schema] = {
    "tags": _TAGS,
    "classes": _TAGS,
    "answers": pa.schema(
        [
            ("row", pa.int32()),
            ("id", pa.string()),
            ("predicted", pa.string()),
            ("start", pa.int32()),
            ("gold", pa.list_(pa.string())),
            ("confidence", pa.float32()),
        ]
    ),
}


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of one model on one data set in one language."""

    kind: Kind
    """What a row of the table is: a word (`tags`), a text or pair (`classes`), a question (`answers`)."""
    language: str
    """Language code; for questions across languages the context's, in which the answers are written."""
    data: str
    """The data set as a recipe names it, such as `panx:de`."""
    table: pa.Table
    """Columns as in `SCHEMAS[kind]`, ordered by `row`."""
    labels: tuple[str, ...] = ()
    """Names of the label codes: those of the model first, then any that only the gold labels use."""
    scheme: Scheme = "none"
    """`bio` where tags mark spans, else `none`."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What else is known (JSON values): `task`, `fingerprint` of the data, `n_rows`, `seed` ..."""

    def __post_init__(self) -> None:
        _check_table(self)

    @property
    def n_rows(self) -> int:
        """Number of examples; sentences without a word have no row in the table but count here."""
        known = int(self.meta.get("n_rows", 0))
        return max(known, int(self.column("row").max()) + 1) if len(self.table) else known

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """A column of numbers as an array."""
        array: np.ndarray[Any, Any] = self.table.column(name).to_numpy()
        return array

    @classmethod
    def from_tags(
        cls,
        language: str,
        data: str,
        *,
        labels: Sequence[str],
        gold: Iterable[Sequence[int]],
        predicted: Iterable[Sequence[int]],
        confidence: Iterable[Sequence[float]],
        scheme: Scheme = "none",
        meta: Mapping[str, Any] | None = None,
    ) -> Predictions:
        """Predictions of tags from one sequence of codes per sentence."""
        golds, codes, certainties = list(gold), list(predicted), list(confidence)
        lengths = [len(sentence) for sentence in golds]
        assert lengths == [len(s) for s in codes] == [len(s) for s in certainties], "sentences differ in length"
        columns = {
            "row": np.repeat(np.arange(len(lengths)), lengths),
            "gold": _flatten(golds, dtype="int16"),
            "predicted": _flatten(codes, dtype="int16"),
            "confidence": _flatten(certainties, dtype="float32"),
        }
        table = pa.table(columns).cast(SCHEMAS["tags"])
        extra = {"n_rows": len(lengths), **(meta or {})}
        return cls("tags", language, data, table, tuple(labels), scheme, extra)

    @classmethod
    def from_classes(
        cls,
        language: str,
        data: str,
        *,
        labels: Sequence[str],
        gold: Sequence[int] | np.ndarray[Any, Any],
        predicted: Sequence[int] | np.ndarray[Any, Any],
        confidence: Sequence[float] | np.ndarray[Any, Any],
        meta: Mapping[str, Any] | None = None,
    ) -> Predictions:
        """Predictions of one class per text or pair."""
        columns = {
            "row": np.arange(len(gold), dtype="int32"),
            "gold": np.asarray(gold, dtype="int16"),
            "predicted": np.asarray(predicted, dtype="int16"),
            "confidence": np.asarray(confidence, dtype="float32"),
        }
        table = pa.table(columns).cast(SCHEMAS["classes"])
        return cls("classes", language, data, table, tuple(labels), "none", {"n_rows": len(gold), **(meta or {})})

    @classmethod
    def from_answers(
        cls,
        language: str,
        data: str,
        *,
        ids: Sequence[str],
        gold: Sequence[Sequence[str]],
        predicted: Sequence[str],
        starts: Sequence[int],
        confidence: Sequence[float] | np.ndarray[Any, Any],
        meta: Mapping[str, Any] | None = None,
    ) -> Predictions:
        """Predicted answers, each beside all answers that count as right; start -1 where there is none."""
        columns = {
            "row": pa.array(np.arange(len(ids)), pa.int32()),
            "id": pa.array(ids, pa.string()),
            "predicted": pa.array(predicted, pa.string()),
            "start": pa.array(starts, pa.int32()),
            "gold": pa.array([list(answers) for answers in gold], pa.list_(pa.string())),
            "confidence": pa.array(np.asarray(confidence, dtype="float32")),
        }
        table = pa.table(columns, schema=SCHEMAS["answers"])
        return cls("answers", language, data, table, (), "none", {"n_rows": len(ids), **(meta or {})})


def _flatten(sentences: Sequence[Sequence[float]], *, dtype: str) -> np.ndarray[Any, Any]:
    """All values of all sentences, one after the other."""
    parts = [np.asarray(sentence, dtype=dtype) for sentence in sentences]
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _check_table(predictions: Predictions) -> None:
    """Refuse a table that its scores could silently misread."""
    wanted = SCHEMAS.get(predictions.kind)
    if wanted is None:
        raise ArtefactError(f"unknown kind of predictions {predictions.kind!r}; valid: {', '.join(SCHEMAS)}")
    if predictions.scheme not in ("none", "bio"):
        raise ArtefactError(f"unknown tagging scheme {predictions.scheme!r}; valid: none, bio")
    if predictions.scheme == "bio" and predictions.kind != "tags":
        raise ArtefactError(f"predictions of kind {predictions.kind!r} have no tagging scheme")
    if not predictions.table.schema.equals(wanted, check_metadata=False):
        raise ArtefactError(
            f"predictions of kind {predictions.kind!r} need the columns\n{wanted.to_string()}\n"
            f"but have\n{predictions.table.schema.remove_metadata().to_string()}"
        )
    for name in wanted.names:
        if predictions.table.column(name).null_count:
            raise ArtefactError(f"predictions for {predictions.data} have empty values in column {name!r}")
    row = predictions.column("row")
    if len(row) and (row[0] < 0 or np.any(np.diff(row) < 0)):
        raise ArtefactError(f"predictions for {predictions.data} are not ordered by row")
    if predictions.kind == "answers":
        return
    if len(row) and predictions.kind == "classes" and np.any(np.diff(row) == 0):
        raise ArtefactError(f"predictions for {predictions.data} have two classes for one row")
    for name in ("gold", "predicted"):
        codes = predictions.column(name)
        if len(codes) and (codes.min() < UNSEEN or codes.max() >= len(predictions.labels)):
            raise ArtefactError(
                f"column {name!r} of predictions for {predictions.data} has codes from {codes.min()} to "
                f"{codes.max()}, but there are {len(predictions.labels)} labels"
            )


def _digest(described: Mapping[str, Any], table: pa.Table) -> str:
    """Hash of all that a file says, for Parquet itself lets a damaged footer through."""
    whole = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        whole.update(name.encode())
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        whole.update(column.to_numpy().tobytes() if numeric else json.dumps(column.to_pylist()).encode())
    return whole.hexdigest()


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write predictions so that a reader sees the whole file or none, even if this process is killed."""
    described = {
        "format": FORMAT,
        "kind": predictions.kind,
        "language": predictions.language,
        "data": predictions.data,
        "labels": list(predictions.labels),
        "scheme": predictions.scheme,
        "meta": dict(predictions.meta),
    }
    digest = _digest(described, predictions.table)
    blob = json.dumps({**described, "digest": digest}, ensure_ascii=False).encode()
    table = predictions.table.replace_schema_metadata({_METADATA_KEY: blob})
    with replacing(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)


def read_predictions(path: Path) -> Predictions:
    """Read what `write_predictions` wrote; anything else is an `ArtefactError` that says what to do."""
    if not is_filled(path):
        raise ArtefactError(f"{path}: there are no predictions; run the recipe again, which makes only what is missing")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            table = file.read(use_threads=False)  # a study has thousands of small files: threads and buffers cost more
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArtefactError(f"{path}: cannot be read ({error}); {_MEND}") from error
    try:
        described = json.loads((table.schema.metadata or {})[_METADATA_KEY])
        digest, version = described.pop("digest"), described["format"]
        if version != FORMAT:
            raise ArtefactError(f"has format {version}, this version reads {FORMAT}")
        if digest != _digest(described, table):
            raise ArtefactError("was changed or damaged since it was written")
        return Predictions(
            described["kind"],
            described["language"],
            described["data"],
            table.replace_schema_metadata(None),
            tuple(described["labels"]),
            described["scheme"],
            described["meta"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path}: not predictions of crossling ({error!r}); {_MEND}") from error
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}; {_MEND}") from error


_MEND = "delete the file and run the recipe again, which repeats only what is missing"
