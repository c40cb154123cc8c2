"""Attention-head probing: a linear probe on what each head gives out (table 4 and figures A1 to A4 of multilingual
knowledge).

One forward run collects every head's output at every word (at the first token of texts and pairs), and one training
fits the probes of all heads. The table holds each probe's scores as they are; how heads rank, and which of them two
models share, is made of it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from crossling.analyses._probes.probing import (
    ALL,
    Answers,
    Data,
    Probed,
    ProbingSettings,
    count_confusions,
    is_own,
    open_probing_data,
    score_confusions,
)

if TYPE_CHECKING:
    from crossling.analyses.context import AnalysisContext
    from crossling.models.model import Model, ModelCard

Array = np.ndarray[Any, np.dtype[Any]]
VERSION = 1
SCHEMA = pa.schema(
    {
        "probe": pa.string(),
        "own": pa.bool_(),
        "language": pa.string(),
        "score": pa.string(),
        "sample": pa.int64(),
        "layer": pa.int64(),
        "head": pa.int64(),
        "value": pa.float64(),
    }
)
SHOWN = ("value",)
APART = ("probe", "language", "score")


class Settings(ProbingSettings):
    """Which tasks the heads are probed for."""

    kind: Literal["head_probe"] = "head_probe"
    keep_features: bool = Field(default=False, exclude=True)
    """Leave the features on disk: as many numbers for each word as all layers have, in half precision."""


def file_stem(settings: Settings) -> str:
    """What the files of this analysis are called."""
    return "heads-probe"


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the rows of all tasks."""
    return open_probing_data(settings, source=source, store=store)


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """Macro F1 and accuracy of every head's probe for every task, in each language and all together."""
    from crossling.analyses._heads import find_attention
    from crossling.analyses._probes.features import extract_heads
    from crossling.analyses._probes.probing import probe_task

    find_attention(model.encoder)
    tables = []
    for probed in data.probed:
        answers = probe_task(
            model,
            probed,
            extract=extract_heads,
            key=["heads"],
            groups=model.encoder.layers * model.encoder.heads,
            settings=settings,
            context=context,
            keep=settings.keep_features,
        )
        tables.append(score_heads(probed, answers, heads=model.encoder.heads, own=is_own(card, probed)))
    return pa.concat_tables(tables)


def score_heads(probed: Probed, answers: Iterable[Answers], *, heads: int, own: bool) -> pa.Table:
    """The scores of all heads; answers are counted as they come, for those of all heads are many."""
    counted: dict[str, Array] = {}
    for one in answers:
        groups, samples = one.predicted.shape[1:]
        counts_PLL = count_confusions(one.sites.gold, one.predicted.reshape(-1, groups * samples), len(probed.labels))
        counted[one.language] = counts_PLL.reshape(groups, samples, *counts_PLL.shape[1:])
    if len(counted) > 1:
        counted[ALL] = np.sum(list(counted.values()), axis=0)
    return pa.concat_tables(
        [
            _tabulate(values_GR, heads, probe=probed.name, own=own, language=language, score=name)
            for language, counts_GRLL in counted.items()
            for name, values_GR in score_confusions(counts_GRLL).items()
        ]
    )


def _tabulate(values_GR: Array, heads: int, **facts: Any) -> pa.Table:
    """A line for each head and sample; layers and heads are counted from 1."""
    groups, samples = values_GR.shape
    place_G = np.arange(groups)
    columns = {
        **{name: [value] * values_GR.size for name, value in facts.items()},
        "sample": np.tile(np.arange(samples), groups),
        "layer": np.repeat(place_G // heads + 1, samples),
        "head": np.repeat(place_G % heads + 1, samples),
        "value": values_GR.ravel(),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
