"""Text to teach on: which side of it is read, what its language is called, which rows say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.data.records import Question
from crossling.errors import DataError
from crossling.stages.taught_text import match_rows, name_language, name_target, open_text
from crossling.tasks import build_task, parse_task
from examples import make_rows, rows_of


@pytest.mark.parametrize(("kind", "expected"), [("tag", [["我们", "мир"]]), ("classify", ["我们мир"])])
def test_the_target_side_of_linked_text_is_taught_on(kind: str, expected: list[Any], tmp_path: Path) -> None:
    """A tagger reads the words as they are cut, a classifier running text."""
    path = tmp_path / "linked.jsonl"
    path.write_text(json.dumps({"source": ["a", "b"], "target": ["我们", "мир"], "links": []}), encoding="utf-8")
    spec = {"format": "jsonl", "path": str(path), "language": "en-zh"}
    rows = open_text(spec, build_task(parse_task({"kind": kind}), ()), {}, tmp_path)
    assert rows.language == "zh" and rows.column(rows.column_names[0]).to_pylist() == expected


def test_text_with_swapped_sides_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("Мир велик и прекрасен\n", encoding="utf-8")
    target.write_text("The world is wide and fine\n", encoding="utf-8")
    spec = {"format": "parallel", "source": str(source), "target": str(target), "language": "en-ru"}
    with pytest.raises(DataError, match="the first side is Russian and the second English"):
        open_text(spec, build_task(parse_task({"kind": "tag"}), ()), {}, tmp_path)


def test_a_language_names_the_sources_set_in_that_language() -> None:
    found = name_target("xnli:en:dev[:10]", "de")
    assert found == "xnli:de:dev[:10]"
    with pytest.raises(DataError, match="name the set, such as mlqa:context=en,question=es:dev"):
        name_target("mlqa:context=en,question=en:dev", "es")


def test_questions_in_another_language_are_counted_apart() -> None:
    rows = make_rows(Question, 2, language="en")
    assert name_language(rows.rename("mlqa:context=en,question=es:dev")) == "context=en,question=es"
    assert name_language(rows.rename("mlqa:context=en,question=en:dev")) == "en"
    assert name_language(rows.rename("tydiqa:en:train")) == "en"


def ask(*ids: str) -> Any:
    return rows_of([Question(name, "who?", "It was Marie Curie.", (), ()) for name in ids])


def test_questions_are_matched_by_id_or_by_order() -> None:
    first, second = match_rows(ask("a", "b", "c"), ask("c", "x", "a"))
    assert (first.tolist(), second.tolist()) == ([0, 2], [2, 0])
    first, second = match_rows(ask("a", "b"), ask("x", "y"))
    assert first.tolist() == second.tolist() == [0, 1], "no id in common"
    assert match_rows(ask("a", "a"), ask("a", "a"))[1].tolist() == [0, 1], "ids that name nothing"
    with pytest.raises(DataError, match="no id in common"):
        match_rows(ask("a"), ask("x", "y"))
