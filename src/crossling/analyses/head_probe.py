"""Attention-head probing: a linear probe on each head's output (table 4, figures A1 to A4 of multilingual knowledge).

One forward run collects every head's output at every word (at the first token of texts and pairs), and one training
fits the probes of all heads. The table holds each probe's scores; the summary compares the best heads of models: how
many of the top K two models share (``head_overlap.py``), and how alike they rank those. G heads, R samples, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from crossling.analyses._probes.probing import (
    ALL,
    Data,
    ProbePredictions,
    ProbeTask,
    ProbingSettings,
    count_confusions,
    is_own,
    open_probing_data,
    score_confusions,
)
from crossling.analyses.head_maps import SIGNIFICANT, Array, page_map, plot_map
from crossling.analyses.head_overlap import NULLS, Null, Overlap, OverlapTest, compare_models, measure_top_k_overlap
from crossling.analyses.head_scores import HeadScores, collect_heads
from crossling.analyses.models import AnalysedModels, name_model
from crossling.analyses.settings import ModelsByTask
from crossling.errors import DataError, EncoderError, nearest
from crossling.limits import LARGEST_SEED
from crossling.report.figures import HeatMap, draw_heat_maps
from crossling.report.table import Table
from crossling.scores.significance.holm import correct_holm

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext
    from crossling.analyses.result import AnalysisTable
    from crossling.models.model import Model, ModelCard

VERSION = 3
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
BEST = 5
"""Heads that are named."""
PUBLISHED = (40, 60, 80)
"""Numbers of best heads that the paper compares, of 144."""
MOST_MAPS = 24
"""Maps that the report shows."""


class Settings(ProbingSettings):
    """Which tasks the heads are probed for."""

    kind: Literal["head_probe"] = "head_probe"
    keep_features: bool = Field(default=False, exclude=True)
    """Leave the features on disk: as many numbers for each word as all layers have, in half precision."""
    score: Literal["macro_f1", "macro_f1_supported", "accuracy"] = Field(default="macro_f1", exclude=True)
    """The score of probes that is shown: macro_f1, macro_f1_supported (over labels with ten gold items) or accuracy."""
    measure: Literal["difference", "score"] = Field(default="difference", exclude=True)
    """What heads rank by: difference, what training added to the score of their probes; or score, the score itself."""
    top: tuple[str, ...] = Field(default=(), exclude=True)
    """How many heads are the best: 40,60,80 or 25%; default: in proportion to 40, 60 and 80 of 144."""
    baseline: ModelsByTask = Field(default={}, exclude=True)
    """TASK=MODEL: what others are compared with; default: the first model that was trained for the task."""
    null: Null = Field(default="residuals", exclude=True)
    """What is permuted for the overlap that is expected by chance: residuals, of a model's scores given those of the
    encoder before training; residuals_in_layers, the same within layers; or scores, the model's own."""
    permutations: int = Field(default=1_999, ge=99, le=100_000, exclude=True)
    """How many permutations chance is estimated from."""
    permutation_seed: int = Field(default=1, ge=0, le=LARGEST_SEED, exclude=True)
    """Draws permutations."""

    @field_validator("top")
    @classmethod
    def _valid_top(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_top(text)
        return value


def prepare(settings: Settings, models: AnalysedModels) -> tuple[Settings, AnalysedModels]:
    """Models are compared with the encoders that they were before training."""
    models.check_names(settings.baseline.values(), setting="baseline")
    compared = models.with_bases()
    if not compared.bases:  # nothing was trained, so that nothing was added
        settings = settings.model_copy(update={"measure": "score"})
    return settings, compared


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the rows of all tasks."""
    return open_probing_data(settings, source=source, store=store)


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """Macro F1 and accuracy of every head's probe for every task, in each language and all together."""
    from crossling.analyses._probes.features import extract_heads
    from crossling.analyses._probes.probing import probe_task
    from crossling.analyses.attention_heads import find_attention

    find_attention(model.encoder)
    texts = [probed.name for probed in data.probed if not probed.of_words]
    if texts and not model.encoder.has_cls:
        raise EncoderError(
            f"{model.encoder.name}: {', '.join(texts)}: heads are read at the first token of a text, which stands for "
            "nothing in this encoder. Probe tasks of words, such as tagging."
        )
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


def score_heads(probed: ProbeTask, answers: Iterable[ProbePredictions], *, heads: int, own: bool) -> pa.Table:
    """The scores of all heads; answers are counted as they come, for those of all heads are many."""
    counted: dict[str, Array] = {}
    for one in answers:
        groups, samples = one.predicted.shape[1:]
        counts_PLL = count_confusions(
            one.positions.gold, one.predicted.reshape(-1, groups * samples), len(probed.labels)
        )
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
    """A row for each head and sample; layers and heads are counted from 1."""
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


def rank_heads(values: Array) -> Array:
    """Heads from the best to the worst, to be listed; of equal ones the one in the lower layer first."""
    return np.argsort(-values.ravel(), kind="stable")


def parse_top(text: str) -> tuple[float, bool]:
    """A number of heads, or a share of them in percent."""
    share = text.strip().endswith("%")
    try:
        number = float(text.strip().removesuffix("%")) if share else float(int(text))
    except ValueError:
        raise ValueError(f"{text!r}: neither a number of heads nor a share of them, such as 25%") from None
    return number, share


def count_top(asked: Sequence[str], heads: int) -> list[int]:
    """How many heads are the best: ``40``, or a share of all, ``25%``; by default the paper's numbers in proportion."""
    found = [] if asked else [max(1, round(heads * number / 144)) for number in PUBLISHED]
    for text in asked:
        number, is_share = parse_top(text)
        top = max(1, round(heads * number / 100)) if is_share else round(number)
        if not 1 <= top <= heads:
            raise DataError(f"top {text}: the encoder has {heads} heads; name a number from 1 to {heads}, or a share")
        found.append(top)
    return list(dict.fromkeys(found))


def find_baselines(heads: HeadScores, named: Mapping[str, str]) -> dict[str, str]:
    """For each task the model that others are compared with: the one named, else the first that was trained for it."""
    for probe, model in named.items():
        if probe not in heads.probes:
            raise DataError(f"baseline {probe}={model}: no such task.{nearest(probe, heads.probes)}")
        if model not in heads.models:
            raise DataError(f"baseline {probe}={model}: no such model.{nearest(model, heads.models)}")
    found = {}
    for probe in heads.probes:
        trained = [model for model in heads.models if (model, probe) in heads.own]
        if probe in named or trained:
            found[probe] = named.get(probe) or trained[0]
    return found


@dataclass(frozen=True)
class Shared:
    """A model beside the baseline of a task."""

    probe: str
    model: str
    baseline: str
    overlap: Overlap
    """Of the maps that are means over seeds."""
    test: OverlapTest
    """Of seeds with seeds."""
    heads: int
    """Of the encoder."""
    corrected_p: float
    """After Holm's correction over all models, tasks and numbers of best heads."""


def compare_heads(heads: HeadScores, baselines: Mapping[str, str], settings: Settings) -> list[Shared]:
    """Every model beside every task's baseline."""
    shared = []
    for probe, baseline in baselines.items():
        best = heads.maps[baseline, probe]
        tops = count_top(settings.top, best.size)
        for model in heads.models:
            if model == baseline or (model, probe) not in heads.maps:
                continue
            own = heads.maps[model, probe]
            if own.shape != best.shape:
                raise DataError(f"{model} and {baseline}: encoders of different sizes; their heads cannot be compared")
            tests = compare_models(
                heads.scores[model, probe],
                heads.scores[baseline, probe],
                base=heads.bases.get((model, probe)),
                baseline_base=heads.bases.get((baseline, probe)),
                subtract=settings.measure == "difference",
                tops=tops,
                null=settings.null,
                permutations=settings.permutations,
                seed=settings.permutation_seed,
            )
            shared += [
                (probe, model, baseline, measure_top_k_overlap(own, best, test.top), test, own.size) for test in tests
            ]
    corrected = correct_holm([one[4].p for one in shared])
    return [Shared(*one, p) for one, p in zip(shared, corrected, strict=True)]


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """Table 4, and the best heads of each model."""
    settings = found.settings
    heads = collect_heads(found, score=settings.score, measure=settings.measure)
    baselines = find_baselines(heads, settings.baseline)
    shared = compare_heads(heads, baselines, settings)
    missing = ", ".join(probe for probe in heads.probes if probe not in baselines)
    notes = (f"No model here was trained for {missing}; --baseline TASK=MODEL names what others are compared with.",)
    best = tabulate_best(heads, notes if missing else ())
    return [*([tabulate_shared(shared, settings)] if shared else []), best]


def tabulate_shared(shared: Sequence[Shared], settings: Settings) -> Table:
    """Table 4: for each model and number of best heads, how many are shared, how many by chance, how alike they rank.

    The line of a task's baseline has what two of its own seeds share.
    """
    probes = list(dict.fromkeys(one.probe for one in shared))
    cells = {(one.model, one.test.top, one.probe): one for one in shared}
    ceilings = {(one.baseline, one.test.top, one.probe): one.test.ceiling for one in shared}
    head = ["model", "top", *(name for probe in probes for name in (f"{probe}: shared", "by chance", "rho"))]
    lines = []
    for model, top in dict.fromkeys(key[:2] for key in (*cells, *ceilings)):
        line = [model, str(top)]
        for probe in probes:
            one, ceiling = cells.get((model, top, probe)), ceilings.get((model, top, probe), math.nan)
            if one is not None:
                star = "*" if one.corrected_p < SIGNIFICANT else ""
                line += [f"{one.test.shared:.1f}{star}", f"{one.test.expected:.1f}", str(one.overlap.ranks)]
            else:
                line += ["–" if math.isnan(ceiling) else f"seeds {ceiling:.1f}", "–", "–"]
        lines.append(tuple(line))
    return Table("Best attention heads that models share", tuple(head), tuple(lines), notes=_explain(shared, settings))


def _explain(shared: Sequence[Shared], settings: Settings) -> tuple[str, ...]:
    baselines = ", ".join(f"{p} with {b}" for p, b in dict.fromkeys((one.probe, one.baseline) for one in shared))
    tops = dict.fromkeys(one.test.top for one in shared)
    heads = shared[0].heads
    added = settings.measure == "difference"
    what = "what training added to a head's probe" if added else "the score of a head's probe"
    random = ", ".join(f"{top * top / heads:.1f} of {top}" for top in tops)
    return (
        f"Compared for {baselines}: how many of the best heads (by {what}, {settings.score}) both have, the mean over "
        "pairs of different seeds. In the line of the compared model itself: what two of its seeds share, the ceiling.",
        f"By chance: the mean of {settings.permutations:,} permutations in which models have nothing in common but the "
        f"encoder that both began as, the base (null = {settings.null}: {NULLS[settings.null]}). * p < {SIGNIFICANT:g} "
        f"by them, after Holm's correction over {len(shared)} comparisons.",
        "rho: Spearman's, over the heads that the mean maps of both share alone; not tested, for it is above 0 by the "
        "common encoder and by the choice of heads.",
        f"Two random rankings, which subtract nothing in common, would share {random} (the hypergeometric mean).",
    )


def tabulate_best(heads: HeadScores, notes: tuple[str, ...] = ()) -> Table:
    """The best heads of each model for each task."""
    lines = []
    for (model, probe), values in heads.maps.items():
        places = [divmod(int(place), values.shape[1]) for place in rank_heads(values)[:BEST]]
        listed = ", ".join(f"{layer + 1}.{head + 1} ({values[layer, head]:.1f})" for layer, head in places)
        lines.append((probe, model, listed))
    return Table(f"The {BEST} best heads, as layer.head", ("probe", "model", "heads"), tuple(lines), 3, notes)


def draw(found: AnalysisTable[Settings]) -> dict[str, str | HeatMap]:
    """Figures A1 to A4: a task's map for each model, green for the best heads; and maps for the report."""
    settings = found.settings
    heads = collect_heads(found, score=settings.score, measure=settings.measure)
    unit = "points above what they were before training" if settings.measure == "difference" else "percent"
    figures: dict[str, str | HeatMap] = {}
    for probe in heads.probes:
        panels = [plot_map(m, values, colours="ranked") for (m, name), values in heads.maps.items() if name == probe]
        title = f"Attention heads probed for {probe}: {settings.score}, {unit}"
        figures[probe] = draw_heat_maps(panels, title=title, columns=min(4, len(panels)))
    for (model, probe), values in list(heads.maps.items())[:MOST_MAPS]:
        figures[f"map {model} {probe}"] = page_map(f"{settings.score} of heads, {unit}: {model}: {probe}", values)
    return figures


def to_csv(found: AnalysisTable[Settings]) -> dict[str, str]:
    """Every head's scores in percent for every model and seed; and every comparison of best heads."""
    columns = ("probe", "own", "language", "score", "sample", "layer", "head")
    lines = []
    for row in found.rows():
        seed = "" if row["seed"] is None else str(row["seed"])
        facts = [str(row[name]).lower() if name == "own" else str(row[name]) for name in columns]
        lines.append((name_model(row), seed, *facts, f"{100 * row['value']:.4f}"))
    scores = Table("", ("model", "seed", *columns, "percent"), tuple(lines))
    heads = collect_heads(found, score=found.settings.score, measure=found.settings.measure)
    shared = compare_heads(heads, find_baselines(heads, found.settings.baseline), found.settings)
    return {"": scores.to_csv(), "shared": shared_to_csv(shared, found.settings)}


def shared_to_csv(shared: Sequence[Shared], settings: Settings) -> str:
    """Every comparison on a line: of seeds with its test, and of mean maps as the paper has it."""
    head = ("probe", "model", "baseline", "top", "shared", "expected", "p", "p_corrected", "ceiling", "pairs_of_seeds")
    lines = []
    for one in shared:
        test, ranks = one.test, one.overlap.ranks
        figures = (test.shared, test.expected, test.p, one.corrected_p, test.ceiling)
        shown = ["" if math.isnan(value) else f"{value:.6g}" for value in figures]
        raw = (one.overlap.shared, ranks.rho, test.top * test.top / one.heads)
        means = ["" if math.isnan(value) else f"{value:.6g}" for value in raw]
        facts = (one.probe, one.model, one.baseline, str(test.top), *shown, str(test.pairs), settings.null, *means)
        lines.append(facts)
    return Table("", (*head, "null", "shared_of_means", "rho_of_means", "hypergeometric"), tuple(lines)).to_csv()
