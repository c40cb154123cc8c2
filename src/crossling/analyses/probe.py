"""Model probing: what a linear probe can read from a frozen encoder (table 3 of multilingual knowledge).

The table holds each probe's scores as they are. The paper's probing result is a difference of two of them: the score
on a fine-tuned encoder (its "ceiling") less that on the encoder as it was pretrained (its "probe").
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from crossling.analyses._probes.probing import ALL, Answers, Data, Probed, ProbingSettings, is_own, open_probing_data
from crossling.scores.metrics import score
from crossling.scores.predictions import SCHEMAS, Kind, Predictions, Scheme

if TYPE_CHECKING:
    from crossling.analyses.context import AnalysisContext
    from crossling.models.model import Model, ModelCard

VERSION = 1
SCHEMA = pa.schema(
    {
        "probe": pa.string(),
        "own": pa.bool_(),
        "data": pa.string(),
        "language": pa.string(),
        "score": pa.string(),
        "sample": pa.int64(),
        "value": pa.float64(),
        "examples": pa.int64(),
    }
)
SHOWN = ("value",)
APART = ("probe", "language", "score")


class Settings(ProbingSettings):
    """Which tasks an encoder is probed for, and what of it is read."""

    kind: Literal["probe"] = "probe"
    layer: int | None = Field(default=None, ge=0)
    """The layer that is read, 0 the embeddings; default: the last."""
    pooling: Literal["auto", "cls", "mean", "first"] = "auto"
    """What stands for a text: auto as a classifier reads it ([CLS] through the pooler where the encoder has one, else
    the mean), or the first token's vector as it is."""
    keep_features: bool = Field(default=True, exclude=True)
    """Leave the features on disk, for probes to be trained on them again in seconds."""


def file_stem(settings: Settings) -> str:
    """What the files of this analysis are called."""
    return "probe"


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the rows of all tasks."""
    return open_probing_data(settings, source=source, store=store)


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """Every score of every task's probe, in each language and all together."""
    from crossling.analyses._probes.features import extract_texts, extract_words
    from crossling.analyses._probes.probing import probe_task

    rows: list[dict[str, Any]] = []
    for probed in data.probed:
        extract = extract_words(settings.layer) if probed.of_words else extract_texts(settings.layer, settings.pooling)
        answers = probe_task(
            model,
            probed,
            extract=extract,
            key=["whole", settings.layer, settings.pooling],
            groups=1,
            settings=settings,
            context=context,
            keep=settings.keep_features,
        )
        rows += score_answers(probed, list(answers), own=is_own(card, probed))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def score_answers(probed: Probed, answers: Sequence[Answers], *, own: bool) -> list[dict[str, Any]]:
    """All scores of one task's probe by language and sample; ``all`` is the tests taken together, as one set."""
    rows = []
    for sample in range(answers[0].predicted.shape[2]):
        sets = [_predict(probed, [one], sample) for one in answers]
        if len(sets) > 1:
            sets.append(_predict(probed, answers, sample))
        for predictions in sets:
            for name, value in score(predictions).items():
                rows.append(
                    {
                        "probe": probed.name,
                        "own": own,
                        "data": predictions.data,
                        "language": predictions.language,
                        "score": name,
                        "sample": sample,
                        "value": value,
                        "examples": len(predictions.table),
                    }
                )
    return rows


def _predict(probed: Probed, answers: Sequence[Answers], sample: int) -> Predictions:
    """Answers as predictions, whose rows are counted through all sets."""
    starts = np.cumsum([0, *(one.rows for one in answers)])
    columns = {
        "row": np.concatenate([one.sites.row + start for one, start in zip(answers, starts[:-1], strict=True)]),
        "gold": np.concatenate([one.sites.gold for one in answers]),
        "predicted": np.concatenate([one.predicted[:, 0, sample] for one in answers]),
        "confidence": np.ones(sum(len(one.sites) for one in answers)),
    }
    kind: Kind = "tags" if probed.of_words else "classes"
    scheme: Scheme = getattr(probed.task.settings, "scheme", "none")
    language, data = (answers[0].language, answers[0].data) if len(answers) == 1 else (ALL, probed.name)
    meta = {"n_rows": int(starts[-1])}
    return Predictions(kind, language, data, pa.table(columns).cast(SCHEMAS[kind]), probed.labels, scheme, meta)
