"""Active learning: which texts to label next, those that a model is unsure of and that differ from each other.

N texts, D width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast, get_args

import numpy as np

from crossling.data.batching import Array
from crossling.data.label_free import build_rows
from crossling.data.records import LabelledText
from crossling.errors import UserError, nearest
from crossling.files import write_atomic
from crossling.inference.evaluate import TorchEngine
from crossling.inference.label_studio import build_task
from crossling.inference.predictor import Predictor, read_inputs
from crossling.inference.sentence_vectors import embed_texts
from crossling.progress import NoProgress, Progress

By = Literal["least", "mean"]
POOL = 10
"""Candidates for each text that is wanted: diversity chooses among the least sure ones."""
LENGTH = 128
"""Subwords of a text that are compared with those of others."""
CHUNK = 1_000


@dataclass(frozen=True)
class Suggestion:
    """A text to label."""

    place: int
    """Its number among the inputs."""
    uncertainty: float
    found: Mapping[str, Any]
    """What the model predicts for it."""


def suggest(
    predictor: Predictor,
    inputs: Sequence[Any],
    *,
    count: int,
    language: str | None = None,
    by: By = "mean",
    progress: Progress | None = None,
) -> list[Suggestion]:
    """The texts to label next, the most useful first; an input that stands several times counts once."""
    engine = predictor.engine
    if not isinstance(engine, TorchEngine):
        raise UserError("texts are compared by an encoder in torch, which a model for ONNX Runtime does not have")
    progress = progress or NoProgress()
    distinct = list(dict.fromkeys(_freeze(item) for item in inputs))
    places = {item: place for place, item in reversed(list(enumerate(map(_freeze, inputs))))}
    found: list[dict[str, Any]] = []
    progress.begin("predicting", len(distinct))
    for start in range(0, len(distinct), CHUNK):
        part = distinct[start : start + CHUNK]
        found += predictor.predict([_thaw(item) for item in part], language=language)
        progress.advance(len(part))
    progress.end()
    doubt_N = np.array([measure_uncertainty(one, by) for one in found])
    pool = np.argsort(-doubt_N, kind="stable")[: POOL * count]
    vectors_ND = _embed(engine, [_join(found[place]) for place in pool], progress)
    chosen = pool[choose_diverse(doubt_N[pool], vectors_ND, count)]
    return [Suggestion(places[distinct[n]], float(doubt_N[n]), found[n]) for n in chosen]


def _embed(engine: TorchEngine, texts: list[str], progress: Progress) -> Array:
    """A vector of each text, N x D."""
    columns = {"text": texts, "label": [""] * len(texts)}
    rows = build_rows(LabelledText, columns, language="und", name="texts to compare")
    with TemporaryDirectory() as cache:
        return embed_texts(
            engine.model,
            rows,
            how="mean",
            length=LENGTH,
            distributed=engine.distributed,
            cache=Path(cache),
            batch=32,
            progress=progress,
        )


def suggest_file(
    model: Path,
    file: Path,
    out: Path,
    *,
    count: int,
    language: str | None = None,
    words: bool = False,
    by: str = "mean",
    progress: Progress | None = None,
) -> list[Suggestion]:
    """Write the texts of a file to label next, with the model's predictions, in the format that ``out`` ends in."""
    if by not in get_args(By):
        raise UserError(f"--by {by}: unknown.{nearest(by, get_args(By))}")
    if out.suffix not in _WRITERS:
        raise UserError(f"--out {out}: ends in none of {', '.join(_WRITERS)}")
    if out.exists():
        raise UserError(f"--out {out}: exists; somebody may be labelling it. Name another file.")
    predictor, lines = read_inputs(model, file, language=language, words=words)
    inputs = [item for _, item in lines]
    chosen = suggest(predictor, inputs, count=count, language=language, by=cast(By, by), progress=progress)
    facts = [{"line": lines[one.place][0], "uncertainty": round(one.uncertainty, 4), **one.found} for one in chosen]
    write_atomic(out, _WRITERS[out.suffix](facts, model.resolve().name))
    return chosen


def _write_tasks(facts: Sequence[dict[str, Any]], model: str) -> str:
    tasks = [build_task(one, model=model) for one in facts]
    for task, one in zip(tasks, facts, strict=True):
        task["data"] |= {"line": one["line"], "uncertainty": one["uncertainty"]}
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


def _write_lines(facts: Sequence[dict[str, Any]], model: str) -> str:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in facts)


def _write_columns(facts: Sequence[dict[str, Any]], model: str) -> str:
    if facts and "words" not in facts[0]:
        raise UserError("--out: only tags come in columns; let the file end in .json or .jsonl")
    sentences = [[f"{word['word']}\t{word['tag']}\n" for word in one["words"]] for one in facts]
    return "".join("".join(sentence) + "\n" for sentence in sentences)


_WRITERS = {".json": _write_tasks, ".jsonl": _write_lines, ".conll": _write_columns}
"""By suffix: Label Studio's tasks, JSON lines, a word a line with its tag."""


def _freeze(item: Any) -> Any:
    return item if isinstance(item, str) else tuple(item)


def _thaw(item: Any) -> Any:
    return item if isinstance(item, str) else list(item)


def _join(found: Mapping[str, Any]) -> str:
    """The text of an input."""
    return " ".join(str(found[name]) for name in ("text", "first", "second", "question", "context") if name in found)


def measure_uncertainty(found: Mapping[str, Any], by: By) -> float:
    """1 - confidence: of the class or answer; of tags the mean over words, or that of the least sure word.

    The mean does not grow with a text's length; the least sure word finds single difficult words in long texts.
    """
    if "words" not in found:
        return 1.0 - float(found["confidence"])
    uncertainties = [1.0 - float(word["confidence"]) for word in found["words"]]
    if not uncertainties:
        return 0.0
    return max(uncertainties) if by == "least" else sum(uncertainties) / len(uncertainties)


def choose_diverse(doubt_N: Array, vectors_ND: Array, count: int) -> Array:
    """Greedily the text with the highest product of uncertainty and distance to the nearest one that was chosen.

    The distance is 1 - cosine of centred vectors, between 0 and 2: not centred, all texts of an encoder look alike.
    """
    centred_ND = vectors_ND - vectors_ND.mean(0, keepdims=True) if len(vectors_ND) else vectors_ND
    unit_ND = centred_ND / np.maximum(np.linalg.norm(centred_ND, axis=1, keepdims=True), 1e-12)
    distance_N = np.full(len(doubt_N), 2.0)
    left_N = np.ones(len(doubt_N), bool)
    chosen: list[int] = []
    while len(chosen) < min(count, len(doubt_N)):
        best = int(np.argmax(np.where(left_N, doubt_N * distance_N, -1.0)))
        chosen.append(best)
        left_N[best] = False
        distance_N = np.minimum(distance_N, 1.0 - unit_ND @ unit_ND[best])
    return np.array(chosen, np.int64)
