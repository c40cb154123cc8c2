"""A finished run, shown: its scores gathered from stored predictions, with a few examples of each language."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.catalogue import open_data
from crossling.data.records import LabelledPair, LabelledText, Question, Record, TaggedSentence, count_broken
from crossling.data.rows import Rows
from crossling.errors import ArtefactError
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import EvaluateSettings, Recipe, load_recipe
from crossling.report.run_page import write_run
from crossling.report.run_summary import (
    AnswerSample,
    LanguageResult,
    RunSummary,
    Sample,
    TagSample,
    TextSample,
    gather_result,
)
from crossling.report.teaching import show_rounds
from crossling.scores.predictions import Predictions, read_predictions
from crossling.stages.labelling import report_kept
from crossling.stages.source_vectors import describe_change
from crossling.store.artefacts import Store
from crossling.study.folder import prediction_path, set_name
from crossling.study.recipe_run import RecipeRun
from crossling.study.run_record import RunRecord, read_run_record

SAMPLES = 4
"""Examples shown of each language."""


def report_run(run: RecipeRun) -> RunSummary:
    """The summary of a finished run; its page and tables are written into its folder, by the leading process."""
    summary = summarise_run(run.out, store=run.store.root)
    if run.distributed.is_main and summary.results:
        write_run(summary, run.out)
    return summary


def summarise_run(out: Path, *, store: Path) -> RunSummary:
    """Everything that tables and the page show of a run."""
    recipe, record = load_recipe(out / "recipe.toml"), read_run_record(out)
    results = [
        _gather(recipe, entry, language, spec, out=out, store=store)
        for entry in recipe.evaluate
        for language, spec in entry.specs()
    ]
    labelled = getattr(recipe.stage[-1], "train", ()) if recipe.task else ()
    trained = [open_data(spec, split="train", store=store) for spec in labelled]
    tested = [open_data(spec, split=entry.split, store=store) for entry in recipe.evaluate for _, spec in entry.specs()]
    skipped = [f"{rows.name}: {count_broken(rows.skipped)} skipped" for rows in (*trained, *tested) if rows.skipped]
    return RunSummary(
        title=out.name,
        encoder=record.encoder or recipe.encoder.name,
        task=task_name(recipe.task) if recipe.task else "",
        source=recipe.source,
        main_score=recipe.main_score,
        results=tuple(results),
        recipe=to_toml(recipe.model_dump(mode="json")),
        seeds=recipe.seeds,
        command=record.command,
        next_command=f"crossling predict {out} --language {results[-1].language} FILE" if results else "",
        facts=record.machine,
        notes=(*skipped, *describe_stages(recipe, record, store)),
        sources=tuple(dict.fromkeys(rows.language for rows in trained)),
        teaching=show_rounds({"": _read_rounds(recipe, record, store)}),
    )


def describe_stages(recipe: Recipe, record: RunRecord, store: Path) -> list[str]:
    """Of the first seed: what adjusting and replay did to the source language, what the teachers of the last round
    labelled, a line for each language, and what was averaged."""
    if not any(
        stage.kind in ("adjust", "teach", "average") or getattr(stage, "replay", None) for stage in recipe.stage
    ):
        return []
    notes = []
    if any(getattr(stage, "transductive", False) for stage in recipe.stage):
        notes.append("transductive: text that is scored may have been learnt from, without its labels")
    if record.teachers:
        notes.append(f"taught by models of {', '.join(record.teachers)}")
    trained = []
    for identity in record.stages[str(recipe.seeds[0])]:
        with suppress(ArtefactError):  # an earlier stage that was deleted since
            trained.append(Store(store).record(identity))
    taught = [one["teaching"]["languages"] for one in trained if "teaching" in one]
    for languages in taught[-1:]:
        report_kept(languages, lambda line: notes.append(f"taught {line}"))
    for one in trained:
        if facts := one.get("source_vectors"):
            notes.append(describe_change(facts, recipe.source))
        if facts := one.get("averaging"):
            notes.append(f"mean of the models of seeds {', '.join(map(str, facts['seeds']))}{_compare_dev(one)}")
    return notes


def _compare_dev(record: dict[str, Any]) -> str:
    """The dev score of an average beside its parts', where there is a dev set."""
    parts = record["averaging"].get("mean_dev_score")
    return "" if parts is None else f": dev {100 * record['dev_score']:.2f}, its parts {100 * parts:.2f} on average"


def _read_rounds(recipe: Recipe, record: RunRecord, store: Path) -> list[list[dict[str, Any]]]:
    """The records of each round's seeds that are in the store; rounds are the teach stages, one after another."""
    rounds: list[list[dict[str, Any]]] = []
    for number in (number for number, stage in enumerate(recipe.stage) if stage.kind == "teach"):
        rounds.append([])
        for stages in record.stages.values():
            with suppress(ArtefactError):
                rounds[-1].append(Store(store).record(stages[number]))
    return rounds


def task_name(settings: Any) -> str:
    """The preset that a task's settings come from, else its kind."""
    from crossling.tasks import PRESETS

    table = settings.model_dump(mode="json")
    fitting = [name for name, preset in PRESETS.items() if all(table.get(k) == v for k, v in preset.items())]
    return " / ".join(fitting) if fitting else str(settings.kind)


def _gather(
    recipe: Recipe, entry: EvaluateSettings, language: str, spec: str | dict[str, Any], *, out: Path, store: Path
) -> LanguageResult:
    runs = [read_predictions(prediction_path(out, seed, entry, language)) for seed in recipe.seeds]
    rows = open_data(spec, split=entry.split, store=store)
    variant = language if language != runs[0].language else ""
    # Rows that were changed since have other words than those that were tagged.
    same = runs[0].meta.get("fingerprint") == rows.fingerprint
    samples = [_name_question(sample, language) for sample in choose_samples(rows, runs[0])] if same else []
    return gather_result(set_name(entry), runs, samples=samples, variant=variant)


def _name_question(sample: Sample, language: str) -> Sample:
    """A sample with the language of its question, where a set names it apart: ``context=es,question=en``."""
    parts = dict(part.split("=", 1) for part in language.split(",") if "=" in part)
    if not isinstance(sample, AnswerSample) or parts.get("question") in (None, parts.get("context")):
        return sample
    return replace(sample, question_language=parts["question"])


def choose_samples(rows: Rows, predictions: Predictions) -> list[Sample]:
    """A few examples from all over the set, of readable size, the same ones every time."""
    wanted = _interesting(predictions, len(rows))
    places = np.unique(np.linspace(0, len(wanted) - 1, min(SAMPLES, len(wanted))).round().astype(int))
    return [_make_sample(rows[int(wanted[p])], predictions, int(wanted[p])) for p in places]


def _interesting(predictions: Predictions, count: int) -> np.ndarray[Any, Any]:
    """Rows worth showing: of tagged sentences those with spans and of 4 to 20 words, where there are any."""
    everything = np.arange(count)
    if predictions.kind != "tags" or not len(predictions.table):
        return everything
    row = predictions.column("row")
    lengths = np.bincount(row, minlength=count)
    named = np.ones(count, dtype=bool)
    if predictions.scheme == "bio" and "O" in predictions.labels:
        inside = predictions.column("gold") != predictions.labels.index("O")
        named = np.bincount(row[inside], minlength=count) > 0
    good = everything[named & (lengths >= 4) & (lengths <= 20)]
    return good if len(good) else everything


def _make_sample(record: Record, predictions: Predictions, row: int) -> Sample:
    """An example with its gold and its predicted labels or answers."""
    if isinstance(record, TaggedSentence):
        inside = predictions.column("row") == row
        codes = predictions.column("predicted")[inside]
        return TagSample(record.words, record.tags, tuple(predictions.labels[code] for code in codes))
    confidence = float(predictions.column("confidence")[row])
    if isinstance(record, Question):
        answer = predictions.table.column("predicted")[row].as_py()
        return AnswerSample(record.question, record.context, record.answers, answer, confidence)
    assert isinstance(record, LabelledText | LabelledPair), "predictions are of tags, classes or answers"
    texts = (record.text,) if isinstance(record, LabelledText) else (record.first, record.second)
    predicted = predictions.labels[int(predictions.column("predicted")[row])]
    return TextSample(texts, record.label, predicted, confidence)
