"""A finished run, gathered for tables and pages: right names, right samples, everything that must not be missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.errors import ArtefactError, RecipeError
from crossling.recipe.recipe import parse_recipe
from crossling.report.run_summary import AnswerSample, TagSample, TextSample
from crossling.scores.predictions import Predictions
from crossling.store.artefacts import Store
from crossling.study.recipe_run import run_recipe
from crossling.study.run_report import SAMPLES, choose_samples, summarise_run, task_name
from crossling.tasks import PRESETS, parse_task
from examples import make_rows


def write_bio(path: Path, count: int, *, broken: bool = False) -> Path:
    rows = make_rows(TaggedSentence, count)
    blocks = ["".join(f"{w}\t{t}\n" for w, t in zip(r.words, r.tags, strict=True)) for r in rows]  # type: ignore[union-attr]
    path.write_text("\n".join(blocks) + ("\nlonely\n" if broken else ""), encoding="utf-8")
    return path


def make_tables(folder: Path, encoder: Path, *targets: dict[str, Any]) -> dict[str, Any]:
    train = {"format": "bio", "path": str(write_bio(folder / "train.tsv", 12)), "language": "en"}
    return {
        "seeds": [1, 2],
        "encoder": {"name": str(encoder)},
        "stage": [{"kind": "finetune", "task": "ner", "train": train, "select": "last", "epochs": 1}],
        "evaluate": [{"on": target} for target in targets],
        "run": {"threads": 1},
    }


def summarise(folder: Path, encoder: Path, *targets: dict[str, Any]) -> Any:
    recipe = parse_recipe(make_tables(folder, encoder, *targets))
    run_recipe(recipe, store=Store(folder / "store"), out=folder / "out", command="crossling run it")
    return summarise_run(folder / "out", store=folder / "store")


def test_summary_is_gathered_from_the_run_folder(tmp_path: Path, tiny_folder: Path) -> None:
    target = {"format": "bio", "path": str(write_bio(tmp_path / "own.tsv", 9)), "language": "sw"}
    summary = summarise(tmp_path, tiny_folder, target)
    assert (summary.title, summary.task, summary.main_score) == ("out", "ner", "span_f1")
    assert (summary.command, summary.sources) == ("crossling run it", ("en",))
    assert summary.encoder == tiny_folder.name
    [result] = summary.results
    assert (result.data, result.language, result.examples, result.variant) == ("own", "sw", 9, "")
    assert len(result.scores["span_f1"]) == 2
    assert len(result.samples) == SAMPLES and all(isinstance(sample, TagSample) for sample in result.samples)
    assert summary.facts["torch"] and "epochs = 1" in summary.recipe and summary.notes == ()


def test_skipped_rows_are_noted(tmp_path: Path, tiny_folder: Path) -> None:
    broken = {"format": "bio", "path": str(write_bio(tmp_path / "own.tsv", 9, broken=True)), "language": "sw"}
    named = {"data": "phrasebook-ner:hi", "limit": 5}
    summary = summarise(tmp_path, tiny_folder, {**broken, "on_error": "skip"}, named)
    assert len(summary.notes) == 1 and "own.tsv: 1 broken row skipped" in summary.notes[0]
    assert [(r.data, r.language, r.variant, r.examples) for r in summary.results][1] == ("phrasebook-ner", "hi", "", 5)


def test_samples_are_left_out_where_rows_changed(tmp_path: Path, tiny_folder: Path) -> None:
    path = write_bio(tmp_path / "own.tsv", 9)
    summarise(tmp_path, tiny_folder, {"format": "bio", "path": str(path), "language": "sw"})
    write_bio(path, 7)
    again = summarise_run(tmp_path / "out", store=tmp_path / "store")
    assert again.results[0].samples == () and again.results[0].examples == 9


def test_two_sets_under_one_name_are_refused(tmp_path: Path, tiny_folder: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    targets = [
        {"format": "bio", "path": str(write_bio(tmp_path / name / "own.tsv", 3)), "language": "sw"} for name in "ab"
    ]
    with pytest.raises(RecipeError, match="two sets would be stored as own/sw"):
        summarise(tmp_path, tiny_folder, *targets)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises((ArtefactError, RecipeError), match="recipe.toml|run.json"):
        summarise_run(tmp_path, store=tmp_path)


@pytest.mark.parametrize("name", PRESETS)
def test_tasks_go_by_their_presets_names(name: str) -> None:
    assert name in task_name(parse_task(name)).split(" / ")


def test_task_without_preset_goes_by_its_kind() -> None:
    assert task_name(parse_task({"kind": "tag", "score": "macro_f1"})) == "tag"


def test_samples_of_tags_are_sentences_with_spans_of_readable_length() -> None:
    rows = make_rows(TaggedSentence, 30)
    labels = ("O", "B-X")
    gold = [[labels.index(tag) for tag in record.tags] for record in rows]  # type: ignore[union-attr]
    predictions = Predictions.from_tags(
        "en",
        "made",
        labels=labels,
        gold=gold,
        predicted=[[1] * len(tags) for tags in gold],
        confidence=[[0.5] * len(tags) for tags in gold],
        scheme="bio",
    )
    samples = choose_samples(rows, predictions)
    assert len(samples) == SAMPLES
    for sample in samples:
        assert isinstance(sample, TagSample)
        assert "B-X" in sample.gold and 4 <= len(sample.words) <= 20 and set(sample.predicted) == {"B-X"}


@pytest.mark.parametrize(("kind", "texts"), [(LabelledText, 1), (LabelledPair, 2)])
def test_samples_of_classes_hold_text_and_both_labels(kind: Any, texts: int) -> None:
    rows = make_rows(kind, 3)
    predictions = Predictions.from_classes(
        "en", "made", labels=["x", "y"], gold=[0, 1, 0], predicted=[1, 1, 1], confidence=[0.1, 0.2, 0.3]
    )
    samples = choose_samples(rows, predictions)
    assert len(samples) == 3
    for number, sample in enumerate(samples):
        assert isinstance(sample, TextSample) and len(sample.texts) == texts
        assert (sample.gold, sample.predicted) == (rows[number].label, "y")  # type: ignore[union-attr]
    assert samples[2].confidence == pytest.approx(0.3)  # type: ignore[union-attr]


def test_samples_of_answers_name_the_questions_language() -> None:
    from crossling.study.run_report import _name_question

    rows = make_rows(Question, 2)
    predictions = Predictions.from_answers(
        "es", "made", ids=["0", "1"], gold=[["cat"], ["cat"]], predicted=["cat", ""], starts=[3, -1], confidence=[1, 0]
    )
    [first, _] = choose_samples(rows, predictions)
    assert isinstance(first, AnswerSample) and first.predicted == "cat" and first.gold == ("cat",)
    across, same = (_name_question(first, language) for language in ("context=es,question=en", "es"))
    assert isinstance(across, AnswerSample) and across.question_language == "en"
    assert same == first


def test_an_empty_set_has_no_samples() -> None:
    rows = make_rows(LabelledText, 1).head(0)
    predictions = Predictions.from_classes("en", "made", labels=["x"], gold=[], predicted=[], confidence=[])
    assert choose_samples(rows, predictions) == []
