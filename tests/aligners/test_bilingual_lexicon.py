"""Lexicons: counted from links, written and read, compared with gold links."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from crossling.aligners.lexicon import (
    Lexicon,
    LexiconSettings,
    LinkedWords,
    build_lexicon,
    choose_pair,
    link_sets,
    open_sets,
    read_lexicon,
    score_lexicon,
    write_lexicon,
)
from crossling.aligners.score import Gold
from crossling.errors import DataError
from crossling.progress import NoProgress
from crossling.registry import list_kinds

PAIR = ("en", "de")
ANY = LexiconSettings(least=1)
"""One link is enough."""


def link(*rows: tuple[str, str, list[tuple[int, int]]]) -> LinkedWords:
    """Sentence pairs as text, with their links."""
    return LinkedWords(PAIR, [(s.split(), t.split()) for s, t, _ in rows], [links for _, _, links in rows])


def test_probability_is_the_share_of_a_words_links() -> None:
    linked = link(
        *[("the House", "das Haus", [(0, 0), (1, 1)])] * 3,
        ("a house", "ein heim", [(0, 0), (1, 1)]),
        ("the dog", "der Hund", [(0, 0), (1, 1)]),
    )
    lexicon = build_lexicon(linked, ANY)
    assert lexicon.translations["house"] == [("haus", 0.75), ("heim", 0.25)]
    assert lexicon.counts["house", "haus"] == 3
    assert build_lexicon(linked, LexiconSettings()).translations == {"house": [("haus", 0.75)], "the": [("das", 0.75)]}


def test_limits_choose_entries() -> None:
    linked = link(*[("go", target, [(0, 0)]) for target in ("gehe", "gehe", "gehe", "gehst", "gehst", "geht", "lauf")])
    two = build_lexicon(linked, LexiconSettings(least=1, most=2))
    assert [target for target, _ in two.translations["go"]] == ["gehe", "gehst"]
    assert len(build_lexicon(linked, LexiconSettings(least=1, most=9))) == 4
    assert len(build_lexicon(linked, LexiconSettings(least=1, most=9, probability=0.2))) == 2


def test_only_links_that_stand_alone_count() -> None:
    """A phrase is no translation of one of its words."""
    linked = link(("in front of it", "davor steht es", [(0, 0), (1, 0), (2, 0), (3, 2)]))
    assert build_lexicon(linked, ANY).translations == {"it": [("es", 1.0)]}
    linked = link(("tomorrow", "am Morgen", [(0, 0), (0, 1)]))
    assert len(build_lexicon(linked, ANY)) == 0


@pytest.mark.parametrize(
    ("source", "target"), [(".", "haus"), ("house", "!"), ("1990", "neunzig"), ("b2b", "handel"), ("'s", "sein")]
)
def test_punctuation_and_numbers_are_no_words(source: str, target: str) -> None:
    assert len(build_lexicon(link((source, target, [(0, 0)])), ANY)) == 0


@pytest.mark.parametrize("word", ["घर", "بيت", "дом", "家", "l'", "vice-roi", "don't"])
def test_words_of_any_script_are_entries(word: str) -> None:
    assert build_lexicon(link(("home", word, [(0, 0)])), ANY).translations == {"home": [(word, 1.0)]}


def test_identical_words_count_but_are_entries_only_on_request() -> None:
    linked = link(*[("Berlin", "Berlin", [(0, 0)])] * 3, ("Berlin", "Spree", [(0, 0)]))
    assert build_lexicon(linked, ANY).translations == {"berlin": [("spree", 0.25)]}
    assert build_lexicon(linked, LexiconSettings(least=1, identical=True)).translations["berlin"][0] == ("berlin", 0.75)


def test_lexicon_agrees_with_a_plain_count() -> None:
    """Random text with random links, counted the slow way."""
    random = np.random.default_rng(3)
    rows = []
    for _ in range(200):
        source, target = (" ".join(random.choice(list("abcdef"), size=5)) for _ in range(2))
        chosen = {(int(i), int(j)) for i, j in random.integers(0, 5, size=(4, 2))}
        rows.append((source, target, sorted(chosen)))
    counts: Counter[tuple[str, str]] = Counter()
    for source, target, links in rows:
        for i, j in links:
            if sum(i == k for k, _ in links) == 1 and sum(j == k for _, k in links) == 1:
                counts[source.split()[i], target.split()[j]] += 1
    totals: Counter[str] = Counter()
    for (word, _), count in counts.items():
        totals[word] += count
    wanted = {
        (word, other): count
        for (word, other), count in counts.items()
        if count >= 5 and count / totals[word] >= 0.15 and word != other
    }
    lexicon = build_lexicon(link(*rows), LexiconSettings(least=5, most=9, probability=0.15))
    assert lexicon.counts == wanted
    assert {(s, t): p for s, t, p, _ in lexicon.entries()} == {key: n / totals[key[0]] for key, n in wanted.items()}


def test_written_lexicon_reads_back(tmp_path: Path) -> None:
    lexicon = Lexicon(PAIR, {"a": [("ein", 2 / 3), ("eine", 1 / 3)], "go": [("gehe", 1.0)]}, {("a", "ein"): 2})
    write_lexicon(lexicon, tmp_path / "new" / "lexicon.tsv")
    lines = (tmp_path / "new" / "lexicon.tsv").read_text(encoding="utf-8").splitlines()
    assert lines == [
        "# crossling lexicon en-de",
        "go\tgehe\t1\t0",
        "a\tein\t0.666667\t2",
        "a\teine\t0.333333\t0",
    ]
    found = read_lexicon(tmp_path / "new" / "lexicon.tsv")
    assert found.language_pair == PAIR
    assert found.translations == {"go": [("gehe", 1.0)], "a": [("ein", 0.666667), ("eine", 0.333333)]}
    assert found.counts["a", "ein"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a\tein\t1\t2\n", ":1: no header such as '# crossling lexicon en-de'"),
        ("# crossling lexicon en\n", ":1: no header"),
        ("# crossling lexicon en-de\na\tein\n", ":2: 'a\\tein' is no entry; write source, target, probability, count"),
        ("# crossling lexicon en-de\na\tein\t1.5\t2\n", "a probability is above 0 and at most 1"),
        ("# crossling lexicon en-de\na\tein\tnan\t2\n", "a probability is above 0 and at most 1"),
        ("# crossling lexicon en-de\na\tein\t1\t2\na\tein\t1\t2\n", ":3: a second entry for 'a' and 'ein'"),
    ],
)
def test_broken_lexicon_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "lexicon.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        read_lexicon(tmp_path / "lexicon.tsv")
    assert message in str(error.value)


def test_score_counts_distinct_pairs_of_words() -> None:
    """Sure: the-das, house-haus. Possible, too: a-ein. The lexicon has the-das, a-ein and dog-katze."""
    pairs = [(["The", "house", "."], ["Das", "Haus", "."]), (["the", "dog"], ["das", "Tier"]), (["a"], ["ein"])]
    sure = (frozenset({(0, 0), (1, 1), (2, 2)}), frozenset({(0, 0)}), frozenset[tuple[int, int]]())
    gold = Gold(sure, (sure[0], sure[1], frozenset({(0, 0)})), base=1)
    lexicon = Lexicon(PAIR, {"the": [("das", 1.0)], "a": [("ein", 1.0)], "dog": [("katze", 1.0)]})
    score = score_lexicon(lexicon, pairs, gold)
    assert (score.precision, score.recall) == (2 / 3, 1 / 2)
    with pytest.raises(DataError, match="3 lines of gold links, but 2 sentence pairs"):
        score_lexicon(lexicon, pairs[:2], gold)
    with pytest.raises(DataError, match="line 3 of the gold links: 1-1 leads outside 0 and 1 words"):
        score_lexicon(lexicon, [*pairs[:2], ([], ["ein"])], gold)


@pytest.mark.parametrize(
    ("named", "source", "target", "out", "wanted"),
    [
        ("sw-en", "train.en", "train.de", "x", ("sw", "en")),
        ("", "train.en", "train.de", "x", ("en", "de")),
        ("", "train.en-fr", None, "x", ("en", "fr")),
        ("", "enfr.src-tgt", None, "lexicon.en-fr.tsv", ("en", "fr")),
    ],
)
def test_languages_by_names_of_files(
    named: str, source: str, target: str | None, out: str, wanted: tuple[str, str]
) -> None:
    assert choose_pair(named, Path(source), Path(target) if target else None, Path(out)) == wanted


def test_languages_that_no_name_says_are_asked_for() -> None:
    with pytest.raises(DataError, match="the names of the files do not say which languages these are; write two codes"):
        choose_pair("", Path("left.txt"), Path("right.txt"), Path("lexicon.tsv"))
    with pytest.raises(DataError, match="--languages en; write two codes"):
        choose_pair("en", Path("left.txt"), Path("right.txt"), Path("lexicon.tsv"))


def test_sets_are_linked_together(tmp_path: Path) -> None:
    """The statistical aligner learns from both; each set alone has too little text."""
    specs = ["phrasebook-parallel:en-de:train[:150]", "phrasebook-parallel:en-de:dev[:150]"]
    linked = link_sets(open_sets(specs, store=tmp_path), aligner={"kind": "statistical"}, progress=NoProgress())
    assert (linked.language_pair, len(linked.pairs), len(linked.links)) == (PAIR, 300, 300)
    lexicon = build_lexicon(linked, LexiconSettings())
    assert lexicon.translations["and"][0][0] == "und"
    with pytest.raises(DataError, match=r"is en-de, but .* is en-fr; a lexicon has one pair of languages"):
        open_sets([specs[0], "phrasebook-parallel:en-fr"], store=tmp_path)


def test_lexicon_is_no_aligner() -> None:
    assert "lexicon" not in list_kinds("aligners")
