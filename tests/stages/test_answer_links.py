"""Answers over links, against hand-made cases: reordered, with gaps, not covered, with words from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.data.records import Question
from crossling.objectives.aligned_words import AdjustmentSettings
from crossling.recipe.recipe import EncoderSettings
from crossling.stages.answer_links import LinkedContexts, link_contexts, locate_words, project_span
from crossling.stages.context import StageContext
from crossling.stages.labelling import Unit, decide_answer
from crossling.training.distributed import Distributed
from examples import rows_of
from tiny import save_tiny, tiny_encoder

SOURCE = "Marie Curie was born in Warsaw ."
TARGET = "In Warschau wurde Marie Curie geboren ."


@pytest.mark.parametrize(
    ("first", "last", "links", "expected"),
    [
        (0, 1, [(0, 3), (1, 4), (5, 1)], (3, 4)),
        (0, 1, [(0, 4), (1, 3)], (3, 4)),  # the other order
        (0, 2, [(0, 1), (2, 4)], (1, 4)),  # a gap, whose words have no links
        (0, 3, [(0, 1), (1, 2)], (1, 2)),  # half of the words are linked
        (0, 3, [(0, 1)], None),  # fewer than half
        (0, 3, [(0, 1), (0, 2)], None),  # two links of one word are one word
        (0, 1, [(0, 1), (1, 3), (4, 2)], None),  # a word from elsewhere in between
        (0, 1, [(0, 1), (1, 2), (4, 2)], None),  # a word that is also linked to one outside
        (0, 1, [(0, 1), (1, 2), (4, 3)], (1, 2)),
        (2, 2, [(0, 1)], None),
        (2, 2, [], None),
    ],
)
def test_spans_follow_links(
    first: int, last: int, links: list[tuple[int, int]], expected: tuple[int, int] | None
) -> None:
    assert project_span(first, last, links) == expected


def link(*links: tuple[int, int]) -> LinkedContexts:
    return LinkedContexts(locate_words(SOURCE, SOURCE.split()), locate_words(TARGET, TARGET.split()), links, TARGET)


def test_an_answer_is_cut_out_of_the_translation() -> None:
    linked = link((0, 3), (1, 4), (2, 2), (4, 0), (5, 1))
    assert linked.carry((0, "Marie Curie")) == (18, "Marie Curie")
    assert linked.carry((24, "Warsaw")) == (3, "Warschau")
    assert linked.carry((21, "in Warsaw")) == (0, "In Warschau")
    assert linked.carry((6, "Curie was")) is None, "Marie is linked to a word in between"
    assert linked.carry((25, "arsa")) == (3, "Warschau"), "a part of a word is the word"
    assert linked.carry((16, "born")) is None and linked.carry((400, "x")) is None


def test_words_are_found_again_in_order() -> None:
    assert locate_words("a  a.b", ["a", "a", ".", "b"]) == [(0, 1), (3, 4), (4, 5), (5, 6)]


def test_contexts_are_linked_once_and_equal_ones_not_at_all(tmp_path: Path) -> None:
    """The same words in the other language: the aligner links each to itself."""
    folder = save_tiny(tmp_path / "tiny", family="bert")
    distributed = Distributed(0, 1, torch.device("cpu"), torch.float32)
    context = StageContext(
        1, "en", tiny_encoder(), EncoderSettings(name=str(folder)), distributed, tmp_path / "work", tmp_path
    )
    words = "the cat eats red fish in London"
    sources = [words, words, "a dog"]
    targets = [f"{words} не", f"{words} не", "a dog"]
    first, second = (rows_of([Question("1", "who?", text, (), ()) for text in texts]) for texts in (sources, targets))
    linking = AdjustmentSettings(sentences=None, words=100, drop_identical=False)
    found = link_contexts(first, second, linking, context)
    assert found[0] is found[1] and found[2] is None and found[0] is not None
    assert found[0].translation == targets[0] and len(found[0].source) == 7 and len(found[0].target) == 8


def decide(how: Any, read: list[Any], own: list[Any] | None) -> Any:
    rows = rows_of([Question("a", "who?", SOURCE, (), ())])
    unit = Unit("de", rows, rows, both=own is not None, contexts=[link((0, 3), (1, 4))])
    return decide_answer(unit, 0, [[one] for one in read], None if own is None else [[one] for one in own], how)


def test_the_decided_answer_is_carried_over() -> None:
    read = [((0, "Marie Curie"), 0.8), ((0, "Marie Curie"), 0.6), ((24, "Warsaw"), 0.9)]
    assert decide("vote", read, None) == ((18, "Marie Curie"), pytest.approx(1.4 / 3), False)
    assert decide("vote", read[2:], None) == (None, 0.0, True), "no link covers it"
    assert decide("agreement", read, None)[0] is None


def test_both_sides_vote_on_an_answer() -> None:
    read = [((0, "Marie Curie"), 0.8), ((24, "Warsaw"), 0.9)]
    own = [((18, "Marie Curie"), 0.5), ((3, "Warschau"), 0.7)]
    assert decide("vote", read, own) == ((18, "Marie Curie"), pytest.approx(1.3 / 3), False)
    assert decide("agreement", read, own)[0] is None
    assert decide("agreement", read[:1], own[:1]) == ((18, "Marie Curie"), pytest.approx(0.65), True)
    assert decide("vote", read[1:], own[1:]) == ((3, "Warschau"), 0.7, True), "its own where nothing is carried over"
