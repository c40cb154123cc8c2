"""Rows with a language for each side: put together from files that are translations of each other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from crossling.data import hub
from crossling.data.catalogue import open_data
from crossling.data.records import LabelledPair, Question
from crossling.data.rows import Rows
from crossling.errors import DataError

REAL = os.environ.get("CROSSLING_DATA")
LABELS = ("neutral", "entailment", "contradiction")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """XNLI in three languages of 60 rows, XQuAD in two with its questions in another order, and no hub to ask."""
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    monkeypatch.setattr(hub, "_find_outage", lambda endpoint: "no hub here")
    for code in ("en", "hi", "ru"):
        lines = [f"{code} premise {i}\t{code} hypothesis {i}\t{LABELS[i % 3]}" for i in range(60)]
        put(tmp_path, f"xnli/dev-{code}.tsv", "\n".join(lines))
    put(tmp_path, "xquad/xquad.en.json", write_squad("Where is it in {}?", "It is in Rome {}.", "abc"))
    put(tmp_path, "xquad/xquad.es.json", write_squad("¿Dónde está {}?", "Ahí: Roma {}, ahí.", "cab"))
    return tmp_path


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_squad(question: str, context: str, ids: str) -> str:
    found = []
    for identity in ids:
        text = context.format(identity)
        answer = next(word for word in ("Rome", "Roma") if word in text)
        answers = [{"text": answer, "answer_start": text.index(answer)}]
        found.append(
            {"context": text, "qas": [{"id": identity, "question": question.format(identity), "answers": answers}]}
        )
    return json.dumps({"data": [{"paragraphs": found}]})


def open_rows(data: Any, folder: Path) -> Rows:
    return open_data(data, split="dev", store=folder / "store")


def test_each_side_may_have_its_own_language(folder: Path) -> None:
    rows = open_rows("xnli:premise=en,hypothesis=hi", folder)
    assert rows[7] == LabelledPair("en premise 7", "hi hypothesis 7", "entailment") and len(rows) == 60
    assert rows.language == "hi", "what is tested, whichever side it is on"
    turned = open_rows("xnli:hypothesis=en,premise=hi", folder)
    assert turned[7] == LabelledPair("hi premise 7", "en hypothesis 7", "entailment") and turned.language == "hi"
    assert turned.name == "xnli:hypothesis=en,premise=hi:dev" and turned.fingerprint != rows.fingerprint
    assert open_rows("xnli:premise=ru,hypothesis=hi", folder)[0].first == "ru premise 0"  # type: ignore[union-attr]
    assert list(open_rows("xnli:premise=hi,hypothesis=hi", folder)) == list(open_rows("xnli:hi", folder))


def test_mixed_rows_have_one_side_in_english(folder: Path) -> None:
    rows = open_rows("xnli@mixed:hi", folder)
    assert len(rows) == 60 and rows.language == "hi" and rows.name == "xnli@mixed:hi:dev"
    drawn = []
    for i, row in enumerate(rows):
        assert isinstance(row, LabelledPair)
        english = (f"en premise {i}" == row.first, f"en hypothesis {i}" == row.second)
        assert sum(english) == 1 and row.label == LABELS[i % 3]
        drawn.append(english[0])
        assert (row.second if english[0] else row.first) == f"hi {'hypothesis' if english[0] else 'premise'} {i}"
    assert 15 < sum(drawn) < 45, "both sides are drawn"
    russian = [row.first.startswith("en") for row in open_rows("xnli@mixed:ru", folder)]  # type: ignore[union-attr]
    assert russian == drawn, "the same draw in all languages"
    assert list(open_data("xnli@mixed:hi:dev[20:30]", store=folder / "store")) == list(rows)[20:30]


def test_table_settings_choose_mixed_side(folder: Path) -> None:
    random, other = (open_rows({"data": "xnli@mixed:hi", "seed": seed}, folder) for seed in (0, 1))
    assert list(random) == list(open_rows("xnli@mixed:hi", folder)) != list(other)
    premise = open_rows({"data": "xnli@mixed:hi", "which": "premise"}, folder)
    assert list(premise) == list(open_rows("xnli:premise=en,hypothesis=hi", folder))
    russian = open_rows({"data": "xnli@mixed:hi", "which": "hypothesis", "other": "ru", "limit": 2}, folder)
    assert russian[1] == LabelledPair("hi premise 1", "ru hypothesis 1", "entailment") and len(russian) == 2
    for more, message in (
        ({"which": "premis"}, "Did you mean 'premise'"),
        ({"sed": 1}, "Did you mean 'seed'"),
        ({"seed": -1}, "seed = -1"),
        ({"other": "hi"}, "both sides would be in 'hi'"),
    ):
        with pytest.raises(DataError, match=message):
            open_rows({"data": "xnli@mixed:hi", **more}, folder)


def test_questions_are_joined_by_id_with_answers_of_context(folder: Path) -> None:
    rows = open_data("xquad:context=es,question=en:test", store=folder / "store")
    assert [row.id for row in rows] == ["c", "a", "b"], "in the context's order"  # type: ignore[union-attr]
    assert rows[1] == Question("a", "Where is it in a?", "Ahí: Roma a, ahí.", ("Roma",), (5,)) and rows.language == "es"
    other = open_data("xquad:context=en,question=es:test", store=folder / "store")
    assert other[0] == Question("a", "¿Dónde está a?", "It is in Rome a.", ("Rome",), (9,)) and other.language == "en"


def test_missing_question_is_a_broken_row(folder: Path) -> None:
    put(folder, "xquad/xquad.en.json", write_squad("Where is it in {}?", "It is in Rome {}.", "ac"))
    with pytest.raises(DataError, match=r"xquad:en:test: it has no question 'b', which xquad:es:test has"):
        open_data("xquad:context=es,question=en:test", store=folder / "store")
    lenient = {"data": "xquad:context=es,question=en:test", "on_error": "skip"}
    rows = open_data(lenient, store=folder / "store")
    assert (len(rows), rows.skipped) == (2, 1)
    put(folder, "xquad/xquad.en.json", write_squad("Where is it in {}?", "It is in Rome {}.", "abca"))
    with pytest.raises(DataError, match="the id 'a' stands twice"):
        open_data("xquad:context=es,question=en:test", store=folder / "store")


def test_unmatched_rows_are_refused(folder: Path) -> None:
    path = folder / "xnli" / "dev-hi.tsv"
    lines = path.read_text(encoding="utf-8").split("\n")
    put(folder, "xnli/dev-hi.tsv", "\n".join([lines[0].replace("neutral", "entailment"), *lines[1:]]))
    rows = open_rows("xnli@mixed:hi", folder)
    assert len(rows) == 59 and rows.dropped == {"labelled differently in the two languages": 1}
    put(folder, "xnli/dev-hi.tsv", "\n".join(lines[1:] + lines[:1]))
    with pytest.raises(DataError, match="60 of 60 rows of xnli:hi:dev and xnli:en:dev have different labels"):
        open_rows("xnli@mixed:hi", folder)
    put(folder, "xnli/dev-hi.tsv", "\n".join(lines[1:]))
    with pytest.raises(DataError, match="xnli:hi:dev has 59 rows but xnli:en:dev has 60"):
        open_rows("xnli@mixed:hi", folder)
    put(folder, "xnli/dev-hi.tsv", "\n".join(["broken", *lines[1:]]))
    with pytest.raises(DataError, match="1 broken row skipped, so its rows cannot be matched"):
        open_rows({"data": "xnli:premise=en,hypothesis=hi", "on_error": "skip"}, folder)


def test_missing_language_error_names_plain_set(folder: Path) -> None:
    with pytest.raises(DataError, match=r"xnli:vi:dev: no hub here.*Not in the folder: .*xnli/dev-vi\.tsv"):
        open_rows("xnli@mixed:vi", folder)


@pytest.mark.parametrize("spec", ["phrasebook-nli@mixed:zh", "phrasebook-paraphrase:first=en,second=hi"])
def test_phrasebook_sides_may_differ_in_language(spec: str, tmp_path: Path) -> None:
    rows = open_data(spec, split="test[:50]", store=tmp_path)
    assert len(rows) == 50 and not rows.dropped
    assert all(row.first.isascii() != row.second.isascii() for row in rows)  # type: ignore[union-attr]


@pytest.mark.skipif(not REAL, reason="CROSSLING_DATA is not set")
def test_real_sets_are_parallel(tmp_path: Path) -> None:
    for language in ("hi", "vi"):
        assert not open_data(f"xnli@mixed:{language}:test", store=tmp_path).dropped
    assert len(open_data("xquad:context=hi,question=ru:test", store=tmp_path)) == 1190
    for language in ("de", "es", "fr", "ja", "ko", "zh"):
        rows = open_data(f"pawsx@mixed:{language}:dev", store=tmp_path)
        assert len(rows) + sum(rows.dropped.values()) == 2000 and sum(rows.dropped.values()) < 40
