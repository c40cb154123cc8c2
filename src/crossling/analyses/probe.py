"""Model probing: what a linear probe can read from a frozen encoder (table 3 of multilingual knowledge).

The table holds each probe's scores. The paper's probing result is a difference of two of them: the score on a
fine-tuned encoder (its "ceiling") less that on the pretrained encoder (its "probe").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from crossling.analyses._probes.probing import (
    ALL,
    EVERYTHING,
    Array,
    Data,
    ProbePredictions,
    ProbeTask,
    ProbingSettings,
    is_own,
    open_probing_data,
)
from crossling.analyses._probes.results import (
    MIN_GAIN,
    Estimates,
    ProbingResult,
    choose_from_results,
    estimate_results,
    find_languages,
    list_axes,
    list_results,
    results_to_csv,
    subtract_bases,
)
from crossling.analyses.intervals import describe_intervals, drop_errors, format_interval
from crossling.analyses.models import AnalysedModels, has_pooler, name_model
from crossling.analyses.settings import ModelPairs
from crossling.errors import DataError, UserError, nearest
from crossling.limits import MOST_LAYERS
from crossling.report.figures import HeatMap, draw_dots, draw_heat_maps
from crossling.report.table import Table, format_mean
from crossling.scores.metrics import explain, score
from crossling.scores.predictions import SCHEMAS, Kind, Predictions, Scheme
from crossling.scores.significance.counts import find_errors, find_measure, score_supported

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext
    from crossling.analyses.result import AnalysisTable
    from crossling.analyses.settings import AnalysisSettings
    from crossling.models.model import Model, ModelCard

VERSION = 3
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
        "errors": pa.list_(pa.float32()),
    }
)
POOLINGS = {
    "auto": "by the pooler where there is one, else by the mean of their tokens",
    "cls": "by the first token through the pooler, which all of them have",
    "mean": "by the mean of their tokens",
    "last": "by the vector of the last token",
    "first": "by the vector of the first token",
}
"""What stands for a text, in words."""


class Settings(ProbingSettings):
    """Which tasks an encoder is probed for, and what of it is read."""

    kind: Literal["probe"] = "probe"
    layer: int | None = Field(default=None, ge=0, le=MOST_LAYERS)
    """The layer that is read, 0 the embeddings; default: the last."""
    pooling: Literal["auto", "cls", "mean", "last", "first"] = "auto"
    """What stands for a text, in all models and what they are compared with alike: cls, [CLS] through the pooler (first
    where one of the encoders has none); mean, of all tokens; last, the last token's vector; first, the first token's
    vector as it is; auto: cls where all encoders have a pooler, else mean."""
    keep_features: bool = Field(default=True, exclude=True)
    """Leave the features on disk, for probes to be trained on them again in seconds."""
    score: str = Field(default="macro_f1", exclude=True)
    """The score that is shown; files hold all."""
    choose: ModelPairs = Field(default=(), exclude=True)
    """CROSS:MULTI: which auxiliary tasks the results of a cross-lingual and a multi-lingual model suggest."""
    min_gain: float = Field(default=MIN_GAIN, ge=-100, le=100, exclude=True)
    """Percentage points that a chosen task's result must rise by."""

    @field_validator("score")
    @classmethod
    def _known_score(cls, value: str) -> str:
        try:
            explain(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value


def prepare(settings: Settings, models: AnalysedModels) -> tuple[Settings, AnalysedModels]:
    """Models are compared with the encoders that they were before training."""
    models.check_names([name for pair in settings.choose for name in pair], setting="choose")
    compared = models.with_bases()
    return settings.model_copy(update={"pooling": choose_pooling(settings.pooling, compared)}), compared


def choose_pooling(how: str, models: AnalysedModels) -> str:
    """One way to read texts for all models: differences between models are not to be differences of pooling."""
    if how not in ("auto", "cls"):
        return how
    if all(has_pooler(model.location) for model in models.models):
        return "cls"
    return "mean" if how == "auto" else "first"


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


def score_answers(probed: ProbeTask, answers: Sequence[ProbePredictions], *, own: bool) -> list[dict[str, Any]]:
    """All scores of one task's probe by language and sample; ``all`` is the tests taken together, as one set.

    ``errors`` are what each test row contributes to the error of a score, for intervals of differences.
    """
    rows = []
    for sample in range(answers[0].predicted.shape[2]):
        sets = [_predict(probed, [one], sample) for one in answers]
        if len(sets) > 1:
            sets.append(_predict(probed, answers, sample))
        for predictions in sets:
            for name, value in {**score(predictions), **score_supported(predictions)}.items():
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
                        "errors": find_row_errors(predictions, name, answers) if sample == EVERYTHING else None,
                    }
                )
    return rows


def find_row_errors(predictions: Predictions, name: str, answers: Sequence[ProbePredictions]) -> Array:
    """What each test row contributes to the error of a score; rows of one number in all languages are one.

    They may be translations of each other; where they are not, adding their errors does not change the variance.
    """
    errors = find_errors(find_measure(predictions, name).count(predictions).values)
    sizes = {one.rows for one in answers}
    if predictions.language == ALL and len(sizes) == 1:
        errors = errors.reshape(len(answers), -1).sum(axis=0)
    return errors.astype(np.float32)


def _predict(probed: ProbeTask, answers: Sequence[ProbePredictions], sample: int) -> Predictions:
    """ProbePredictions as predictions, whose rows are counted through all sets."""
    starts = np.cumsum([0, *(one.rows for one in answers)])
    columns = {
        "row": np.concatenate([one.positions.row + start for one, start in zip(answers, starts[:-1], strict=True)]),
        "gold": np.concatenate([one.positions.gold for one in answers]),
        "predicted": np.concatenate([one.predicted[:, 0, sample] for one in answers]),
        "confidence": np.ones(sum(len(one.positions) for one in answers)),
    }
    kind: Kind = "tags" if probed.of_words else "classes"
    scheme: Scheme = getattr(probed.task.settings, "scheme", "none")
    language, data = (answers[0].language, answers[0].data) if len(answers) == 1 else (ALL, probed.name)
    meta = {"n_rows": int(starts[-1])}
    return Predictions(kind, language, data, pa.table(columns).cast(SCHEMAS[kind]), probed.labels, scheme, meta)


def find_results(found: AnalysisTable[AnalysisSettings]) -> list[ProbingResult]:
    """The probing results of all models that are compared with another."""
    return subtract_bases(drop_errors(found.table), found.bases)


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """Table 3, the same by language, and the tasks that are chosen; of pretrained encoders alone their scores."""
    settings, results = found.settings, find_results(found)
    if not results:
        return [tabulate_scores(drop_errors(found.table), score=settings.score)]
    choices = tuple(
        choose_from_results(
            results, cross=cross, multi=multi, score=settings.score, min_gain=settings.min_gain
        ).describe()
        for cross, multi in settings.choose
    )
    estimates = estimate_results(found.table, found.bases, found.pretrained, score=settings.score)
    notes = (f"Texts are read alike in all models and what they are compared with: {POOLINGS[settings.pooling]}.",)
    return [
        tabulate_results(results, score=settings.score, estimates=estimates, notes=(*notes, *choices)),
        tabulate_languages(results, score=settings.score, estimates=estimates),
    ]


def tabulate_scores(rows: Sequence[Mapping[str, Any]], *, score: str) -> Table:
    """One score of each probe in each language. There is no mean of them: they are scores of different tasks."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row["score"] == score and row["sample"] == EVERYTHING:
            key = (row["probe"], row["language"], name_model(row))
            values.setdefault(key, []).append(100 * float(row["value"]))
    if not values:
        known = list(dict.fromkeys(row["score"] for row in rows))
        raise DataError(f"score {score!r}: the probes have no such score.{nearest(score, known)}")
    lines = tuple((*key, format_mean(some)) for key, some in values.items())
    return Table(f"Scores of probes, {score}", ("task", "language", "model", "percent"), lines, names=3)


def tabulate_results(
    results: Sequence[ProbingResult], *, score: str, estimates: Estimates | None = None, notes: tuple[str, ...] = ()
) -> Table:
    """Table 3: a line for each model, a column for each task; in brackets what a model was trained for itself."""
    values, samples = (list_results(results, score=score, samples=choice) for choice in (False, True))
    own = {(one.model, one.probe) for one in results if one.own}
    models, probes = list_axes(values)
    together = find_languages(results)[0]
    lines = []
    for model in models:
        cells = []
        for key in ((model, probe) for probe in probes):
            cell = format_mean(values.get(key, []), sign=True)
            if len(values.get(key, [])) == 1 and len(samples.get(key, [])) > 1:
                cell += f" ± {stdev(samples[key]):.2f}"
            cell += format_interval((estimates or {}).get((*key, together)))
            cells.append(f"({cell})" if key in own else cell)
        lines.append((model, *cells))
    return Table(
        f"Probing results, {score} of {_describe(results)}",
        ("model", *probes),
        tuple(lines),
        notes=(*_explain(results, own=bool(own), estimates=estimates or {}), *notes),
    )


def tabulate_languages(results: Sequence[ProbingResult], *, score: str, estimates: Estimates | None = None) -> Table:
    """The same in each language, with the scores that they are differences of."""
    lines = []
    chosen = [one for one in results if one.score == score and one.sample == 0]
    for probe in dict.fromkeys(one.probe for one in chosen):
        for language in find_languages(chosen):
            some = [one for one in chosen if (one.probe, one.language) == (probe, language)]
            for model in dict.fromkeys(one.model for one in some):
                ours = [one for one in some if one.model == model]
                interval = format_interval((estimates or {}).get((model, probe, language)))
                lines.append(
                    (
                        probe,
                        language,
                        model,
                        format_mean([one.ceiling for one in ours]),
                        format_mean([ours[0].base]),
                        format_mean([one.result for one in ours], sign=True) + interval,
                        f"{ours[0].examples:,}",
                    )
                )
    head = ("task", "language", "model", "ceiling", "base", "result", "examples")
    return Table("By language", head, tuple(lines), names=3)


def _describe(results: Sequence[ProbingResult]) -> str:
    languages = find_languages(results)
    return f"{', '.join(languages[1:])} together" if languages[0] == ALL else languages[0]


def _explain(results: Sequence[ProbingResult], *, own: bool, estimates: Estimates) -> tuple[str, ...]:
    bases = ", ".join(dict.fromkeys(one.against for one in results))
    notes = [
        "Percentage points by which a linear probe on a model's frozen encoder (the ceiling) is better than one on "
        f"{bases} (the base)."
    ]
    if own:
        notes.append("In brackets: the task that the model itself was trained for.")
    if len({one.seed for one in results}) > 1:
        notes.append("± standard deviation over the models' seeds.")
    elif any(one.sample for one in results):
        notes.append("± standard deviation over bootstrap samples of the training rows.")
    if estimates:
        notes.append(describe_intervals(estimates, what="result"))
    return tuple(notes)


def draw_results(results: Sequence[ProbingResult], *, score: str) -> str:
    """Table 3 as a figure: all languages together, then each, blue where training helped the probe."""
    panels = []
    for language in find_languages(results):
        values = list_results(results, score=score, language=language)
        models, probes = list_axes(values)
        grid = [[fmean(values[m, p]) if (m, p) in values else None for p in probes] for m in models]
        panels.append(HeatMap(language, grid, rows=models, columns=probes, colours="diverging", write=True))
    return draw_heat_maps(
        panels, title=f"Probing results, {score}, percentage points", columns=min(3, len(panels)), shared=True
    )


def draw(found: AnalysisTable[Settings]) -> dict[str, str]:
    """Where there are results, a map of them, and the results with their intervals."""
    results, score = find_results(found), found.settings.score
    if not results:
        return {}
    estimates = estimate_results(found.table, found.bases, found.pretrained, score=score)
    together = find_languages(results)[0]
    shown = {(model, probe): one for (model, probe, language), one in estimates.items() if language == together}
    figures = {"": draw_results(results, score=score)}
    if shown:
        figures["intervals"] = draw_dots(
            {key: [one.value] for key, one in shown.items()},
            axis="points above the base",
            title=f"Probing results, {score} of {_describe(results)}, 95 % intervals",
            intervals={key: (one.low, one.high) for key, one in shown.items()},
        )
    return figures


def to_csv(found: AnalysisTable[Settings]) -> dict[str, str]:
    """Every probing result on a line, and every interval; of pretrained encoders alone the table itself."""
    from crossling.analyses.result import table_to_csv

    results = find_results(found)
    if not results:
        return {"": table_to_csv(found.table)}
    lines = [
        (
            *key[:2],
            key[2],
            name,
            *(f"{value:.4f}" for value in (one.value, one.low, one.high)),
            f"{one.p:.6g}",
            one.test,
        )
        for name in dict.fromkeys(one.score for one in results)
        for key, one in estimate_results(found.table, found.bases, found.pretrained, score=name).items()
    ]
    head = ("model", "probe", "language", "score", "result", "low", "high", "p", "test")
    return {"": results_to_csv(results), "intervals": Table("", head, tuple(lines)).to_csv()}
