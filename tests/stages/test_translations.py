"""What parallel text becomes: sentences, pairs of lines, tagged words; which side teachers read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.aligners.linked_text import describe_text
from crossling.data.records import TEXT_COLUMNS, LabelledText, LinkedPair, ParallelPair, TaggedSentence
from crossling.errors import DataError
from crossling.models.heads import pool_sentence
from crossling.objectives.aligned_words import AdjustmentSettings
from crossling.recipe.recipe import EncoderSettings
from crossling.stages.context import StageContext
from crossling.stages.labelling import Unit, label_sentences, label_texts
from crossling.stages.pseudo_labels import Votes
from crossling.stages.teach import Settings
from crossling.stages.translations import (
    draw_lines,
    drop_duplicates,
    list_linked,
    list_pairs,
    list_sentences,
    pair_neighbours,
)
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed
from examples import rows_of
from tiny import tiny_encoder

SOURCE = ["the cat sleeps", "the dog sleeps", "a red house", "the red house", "fish in London", "fish in  London"]
TARGET = ["мир", "нам", "мир нам", "нам мир", "мир мир", "нам нам"]
LINES = [ParallelPair(source, target) for source, target in zip(SOURCE, TARGET, strict=True)]


def make_context(tmp_path: Path, seed: int = 1) -> StageContext:
    distributed = Distributed(0, 1, torch.device("cpu"), torch.float32)
    encoder = tiny_encoder(layers=1)
    encoder.model.get_input_embeddings().weight.data.mul_(10)  # or all sentences would have nearly the same vector
    return StageContext(seed, "en", encoder, EncoderSettings(name="tiny"), distributed, tmp_path / "work", tmp_path)


def make_text(records: list[Any] = LINES) -> Any:
    return describe_text(rows_of(records, "en-ru"), "ru")


def texts_of(unit: Unit, side: str) -> list[Any]:
    rows = unit.read if side == "read" else unit.learnt
    columns = [rows.column(name).to_pylist() for name in TEXT_COLUMNS[rows.kind]]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("read", ["source", "target", "both"])
def test_teachers_read_the_side_that_is_asked_for(read: Any, tmp_path: Path) -> None:
    unit = list_sentences(make_text(), count=None, read=read, context=make_context(tmp_path))
    assert [text for (text,) in texts_of(unit, "read")] == (TARGET if read == "target" else SOURCE)
    assert [text for (text,) in texts_of(unit, "learnt")] == TARGET, "the student learns translations"
    assert unit.language == unit.learnt.language == "ru" and unit.both == (read == "both")


def test_words_that_are_split_become_running_text(tmp_path: Path) -> None:
    text = describe_text(rows_of([LinkedPair(("a", "cat"), ("我", "们"), ())], "en-zh"), "zh")
    unit = list_sentences(text, count=None, read="source", context=make_context(tmp_path))
    assert (texts_of(unit, "read"), texts_of(unit, "learnt")) == ([("a cat",)], [("我们",)])


def test_the_seed_draws_lines() -> None:
    rows = rows_of([ParallelPair(f"a {n}", f"b {n}") for n in range(50)], "en-ru")
    drawn = [draw_lines(rows, 10, seed).column("source").to_pylist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) == 10
    assert drawn[0] == sorted(drawn[0], key=lambda text: int(text[2:])), "in their order"
    assert draw_lines(rows, 60, 1) is rows


def test_equal_sentences_of_either_side_are_dropped() -> None:
    pairs = [("a b", "x"), ("ab", "y"), ("c", "x"), ("x", "c"), ("d", "z")]
    rows = drop_duplicates(rows_of([ParallelPair(*pair) for pair in pairs], "en-ru"))
    assert rows.column("source").to_pylist() == ["a b", "x", "d"]


def test_lines_are_paired_once_in_both_orders() -> None:
    nearest = np.array([[1], [0], [1], [0]])
    assert pair_neighbours(nearest, both_orders=False).tolist() == [[0, 1], [0, 3], [1, 2]]
    both = pair_neighbours(nearest, both_orders=True).tolist()
    assert both == [[0, 1], [1, 0], [0, 3], [3, 0], [1, 2], [2, 1]]


@pytest.mark.parametrize("neighbours", [1, 2])
def test_pairs_are_of_the_nearest_source_sentences(neighbours: int, tmp_path: Path) -> None:
    """Against vectors that are read one sentence at a time, without batches or padding."""
    context = make_context(tmp_path)
    vectors = []
    for text in SOURCE[:5]:  # the sixth is the fifth again
        ids = torch.tensor([context.encoder.tokenizer(text)["input_ids"]])
        mask = torch.ones_like(ids)
        with torch.no_grad():
            hidden = context.encoder(ids, mask, torch.zeros_like(ids), layers=[context.encoder.layers])
        pooled = pool_sentence(context.encoder, hidden[context.encoder.layers], mask, how="mean")[0]
        vectors.append(pooled / pooled.norm())
    expected = set()
    for one, vector in enumerate(vectors):
        order = sorted((other for other in range(5) if other != one), key=lambda other: -float(vector @ vectors[other]))
        expected |= {tuple(sorted((one, other))) for other in order[:neighbours]}
    wanted = [pair for low, high in sorted(expected) for pair in ((low, high), (high, low))]
    settings: dict[str, Any] = {"count": None, "neighbours": neighbours, "both_orders": True, "context": context}
    unit = list_pairs(make_text(), read="source", **settings)
    assert texts_of(unit, "read") == [(SOURCE[a], SOURCE[b]) for a, b in wanted]
    assert texts_of(unit, "learnt") == [(TARGET[a], TARGET[b]) for a, b in wanted]
    assert texts_of(list_pairs(make_text(), read="target", **settings), "read") == texts_of(unit, "learnt")


def test_a_single_line_makes_no_pair(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two different sentences"):
        list_pairs(
            make_text(LINES[4:]),
            count=None,
            neighbours=1,
            both_orders=True,
            read="source",
            context=make_context(tmp_path),
        )


def test_links_are_not_needed_where_teachers_read_the_target(tmp_path: Path) -> None:
    text = make_text([LinkedPair(("the", "cat"), ("мир", "нам", "мир"), ((1, 0),))])
    linking = AdjustmentSettings(parallel=("x",), drop_identical=False)
    unit = list_linked(text, linking, read="target", context=make_context(tmp_path))
    assert unit.links is None and texts_of(unit, "read")[0][0] == ["мир", "нам", "мир"]
    unit = list_linked(text, linking, read="both", context=make_context(tmp_path))
    assert unit.links == [[(1, 0)]] and unit.both


def vote(*probabilities: list[list[float]]) -> Votes:
    """Votes of teachers, each with a distribution for every word."""
    each_TNC = np.array(probabilities)
    return Votes(each_TNC.argmax(2), each_TNC.mean(0))


def make_unit(source: int, target: int, links: list[tuple[int, int]]) -> Unit:
    sides = [rows_of([TaggedSentence(("w",) * words, ("",) * words)]) for words in (source, target)]
    return Unit("ru", *sides, [links], both=True)


def test_both_sides_decide_the_class_of_a_translation() -> None:
    task = build_task(parse_task({"kind": "classify"}), ("bad", "good"))
    source, target = (rows_of([LabelledText(text, "")] * 2) for text in ("a cat", "мир"))
    given, own = vote([[0.9, 0.1], [0.2, 0.8]]), vote([[0.3, 0.7], [0.4, 0.6]])
    both = label_texts(Unit("ru", source, target, both=True), given, own, task, Settings(decide="mean", labels="soft"))
    assert both.columns == {"text": ["мир", "мир"], "label": ["bad", "good"]}
    assert both.agree == [False, True] and both.confidence == pytest.approx([0.6, 0.7])
    np.testing.assert_allclose(np.stack(both.soft)[:, 0], [[0.6, 0.4], [0.3, 0.7]])
    alone = label_texts(Unit("ru", source, target), given, None, task, Settings())
    assert alone.agree == [True, True] and alone.confidence == pytest.approx([0.9, 0.8])


def test_both_sides_tag_a_linked_word_and_the_own_side_an_unlinked_one() -> None:
    """One source word, three target words; the first is linked. Classes: ADJ, NOUN."""
    task = build_task(parse_task({"kind": "tag"}), ("ADJ", "NOUN"))
    given = vote([[0.9, 0.1]], [[0.7, 0.3]])
    own = vote([[0.4, 0.6], [0.2, 0.8], [0.6, 0.4]], [[0.4, 0.6], [0.2, 0.8], [0.1, 0.9]])
    unit = make_unit(1, 3, [(0, 0)])
    found = label_sentences(unit, given, own, task, Settings(decide="mean", labels="soft"))
    assert found.columns["tags"] == [["ADJ", "NOUN", "NOUN"]]
    np.testing.assert_allclose(found.soft[0], [[0.6, 0.4], [0.2, 0.8], [0.35, 0.65]])
    assert found.confidence == [pytest.approx(0.6)] and found.agree == [False]
    agreed = label_sentences(unit, given, own, task, Settings(decide="agreement"))
    assert agreed.columns["tags"] == [["", "NOUN", ""]], "sides differ on the first word, teachers on the last"


def test_both_sides_tag_spans_that_are_well_formed() -> None:
    """Source: B-PER I-PER O. Target: the first two words linked in reverse, then two unlinked ones."""
    labels = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    task = build_task(parse_task({"kind": "tag", "scheme": "bio"}), labels)

    def sure(*tags: str, of: float = 0.9) -> list[list[float]]:
        return [[of if label == tag else (1 - of) / 4 for label in labels] for tag in tags]

    given = vote(sure("B-PER", "I-PER", "O"))
    own = vote(sure("I-LOC", "B-PER", "I-PER", "B-LOC", of=0.8))
    unit = make_unit(3, 4, [(1, 0), (0, 1)])
    found = label_sentences(unit, given, own, task, Settings(decide="mean"))
    assert found.columns["tags"] == [["B-PER", "I-PER", "I-PER", "B-LOC"]]
    # the first word: PER has 0.925 from the source and 0.1 from its own side
    assert found.confidence[0] == pytest.approx((0.925 + 0.1) / 2)
