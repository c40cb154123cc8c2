"""Rows of every task: the same items everywhere, well-formed labels, links, offsets, and nothing memorable."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from crossling.data.records import LabelledPair, LabelledText, LinkedPair, Question, Record, TaggedSentence
from crossling.errors import DataError
from crossling.phrasebook import LANGUAGES, ROWS, SPLITS, TASKS, VERSION, generate, generate_parallel
from crossling.phrasebook.corpus import draw_sentence, link_words
from crossling.phrasebook.grammars import load_grammar
from crossling.phrasebook.nli import VERBS
from crossling.phrasebook.paraphrases import MAKERS
from crossling.phrasebook.quiz import FACTS
from crossling.phrasebook.reviews import PRODUCTS
from crossling.phrasebook.templates import load_templates

HASHES = Path(__file__).with_name("hashes.tsv")
UPOS = {
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "VERB",
}  # fmt: skip
EXTRA = {"году", "года", "năm", "tháng", "ngày", "年", "月", "日", "phải"}
CONTENT = {"NOUN", "PROPN", "VERB", "ADJ", "NUM"}
KINDS = {"pos": TaggedSentence, "ner": TaggedSentence, "nli": LabelledPair, "paraphrase": LabelledPair}
KINDS |= {"sentiment": LabelledText, "qa": Question, "parallel": LinkedPair}


@cache
def read_all(task: str, language: str, split: str) -> tuple[Record, ...]:
    """All rows, which several tests look at; to make them takes longer than to look."""
    return tuple(generate(task, language, split))


def digest(language: str) -> str:
    """A hash of all tasks and splits of a language, 60 rows each."""
    rows = (repr(row) for task in TASKS for split in SPLITS for row in generate(task, language, split, rows=60))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


@pytest.mark.parametrize("language", LANGUAGES)
def test_generated_rows_match_stored_hashes(language: str) -> None:
    """A change of output is fine: raise VERSION and store the new hashes."""
    stored = dict(line.split("\t") for line in HASHES.read_text().splitlines())
    assert stored["version"] == str(VERSION)
    assert digest(language) == stored[language], f"{language} changed: raise VERSION, store {digest(language)}"


def test_another_process_generates_same_rows() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_corpus as t; print(t.digest('ru'), t.digest('zh'))"
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    outputs = [
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0].split() == outputs[1].split() == [digest("ru"), digest("zh")]


def test_importing_is_cheap() -> None:
    code = "import sys, crossling.phrasebook as p; p.generate; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pydantic", "numpy", "crossling.phrasebook.grammar"} & set(loaded)


@pytest.mark.parametrize("task", TASKS)
def test_rows_are_counted_and_of_their_kind(task: str) -> None:
    for split in SPLITS:
        rows = read_all(task, "es", split)
        assert len(rows) == ROWS[split] and all(isinstance(row, KINDS[task]) for row in rows)
        assert len(set(map(repr, rows))) > 0.97 * len(rows)
    more = tuple(generate(task, "es", "test", rows=ROWS["test"] + 5))
    assert more[: ROWS["test"]] == rows


@pytest.mark.parametrize(
    ("task", "language", "split", "named"),
    [("parsing", "en", "train", "'parsing'"), ("ner", "xx", "train", "'xx'"), ("ner", "en", "tset", "'test'")],
)
def test_unknown_names_are_refused_with_the_valid_ones(task: str, language: str, split: str, named: str) -> None:
    with pytest.raises(DataError, match=named):
        generate(task, language, split)


@pytest.mark.parametrize("language", LANGUAGES)
def test_tags_are_well_formed(language: str) -> None:
    for split in SPLITS:
        pairs = zip(read_all("pos", language, split), read_all("ner", language, split), strict=True)
        for tagged, named in pairs:
            assert isinstance(tagged, TaggedSentence) and isinstance(named, TaggedSentence)
            assert tagged.words == named.words and len(tagged.tags) == len(named.tags) == len(tagged.words)
            assert set(tagged.tags) <= UPOS and tagged.tags[-1] == "PUNCT"
            assert all(word and word == word.strip() and "_" not in word for word in tagged.words)
            last = "O"
            for tag in named.tags:
                assert tag == "O" or tag[2:] in ("PER", "LOC", "ORG")
                assert not tag.startswith("I-") or last[2:] == tag[2:]
                last = tag


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_every_language_names_the_same_entities(language: str) -> None:
    for split in SPLITS:
        pairs = zip(generate("ner", "en", split, rows=400), generate("ner", language, split, rows=400), strict=True)
        for english, other in pairs:
            assert isinstance(english, TaggedSentence) and isinstance(other, TaggedSentence)
            counts = [Counter(tag for tag in row.tags if tag.startswith("B-")) for row in (english, other)]
            assert counts[0] == counts[1]


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_links_cover_the_content_words(language: str) -> None:
    """All English content words; in the other language all but classifiers and words that English lacks."""
    english, grammar = load_grammar("en"), load_grammar(language)
    for row in range(600):
        sentence = draw_sentence("train", row)
        left, right = english.realise(sentence), grammar.realise(sentence)
        links = link_words(left, right)
        assert all(i < len(left) and j < len(right) for i, j in links)
        unlinked = {word.form for i, word in enumerate(left) if word.upos in CONTENT and i not in {a for a, _ in links}}
        assert not unlinked
        for j, word in enumerate(right):
            if word.upos in CONTENT and j not in {b for _, b in links}:
                classifier = any(isinstance(key, tuple) and key[1] == "classifier" for key in word.keys)
                assert classifier or word.form in EXTRA


def test_links_of_a_known_pair() -> None:
    words = {}
    for row in generate_parallel("en", "de", "train", rows=300):
        if row.source[:2] == ("Martin", "did") and "travel" in row.source:
            words = {(row.source[i], row.target[j]) for i, j in row.links}
    expected = {("Martin", "Martin"), ("travel", "reiste"), ("not", "nicht"), ("to", "nach"), ("Lisbon", "Lissabon")}
    assert expected | {("because", "weil"), ("he", "er"), ("sad", "traurig"), ("very", "sehr")} <= words
    assert ("did", "reiste") not in words


def test_splits_share_no_template() -> None:
    for tables in ({split: load_templates(split) for split in SPLITS}, MAKERS, FACTS, VERBS, PRODUCTS):
        members = [set(tables[split]) for split in SPLITS]
        assert sum(map(len, members)) == len(set.union(*members))
    assert len(load_templates("train")) >= 30


def test_splits_share_no_sentence_and_no_entity() -> None:
    entities: dict[str, set[str]] = {}
    for split in SPLITS:
        found = entities[split] = set()
        for row in read_all("ner", "en", split):
            assert isinstance(row, TaggedSentence)
            found |= {word for word, tag in zip(row.words, row.tags, strict=True) if tag != "O"}
    common = {"of", "FC", "University", "Bank", "Foundation"}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert entities[one] & entities[other] <= common


@pytest.mark.parametrize(("task", "labels"), [("nli", 3), ("paraphrase", 2), ("sentiment", 5)])
def test_labels_are_balanced_and_equal_in_all_languages(task: str, labels: int) -> None:
    english = [row.label for row in generate(task, "en", "train", rows=600)]  # type: ignore[union-attr]
    assert set(Counter(english).values()) == {600 // labels}
    for language in LANGUAGES[1:]:
        assert [row.label for row in generate(task, language, "train", rows=600)] == english  # type: ignore[union-attr]


@pytest.mark.parametrize("language", ["en", "de"])
def test_scrambled_pairs_share_their_words(language: str) -> None:
    """Overlap must not give the label away."""
    overlap: dict[str, list[float]] = {"0": [], "1": []}
    for row in read_all("paraphrase", language, "train"):
        assert isinstance(row, LabelledPair) and row.first != row.second
        first, second = (set(text.lower().strip(".").split()) for text in (row.first, row.second))
        overlap[row.label].append(len(first & second) / len(first | second))
    means = {label: sum(values) / len(values) for label, values in overlap.items()}
    assert min(means.values()) > 0.75 and abs(means["0"] - means["1"]) < 0.1


@pytest.mark.parametrize("language", LANGUAGES)
def test_answers_match_their_starts(language: str) -> None:
    seen = set()
    for split in SPLITS:
        for row in read_all("qa", language, split):
            assert isinstance(row, Question)
            (answer,), (start,) = row.answers, row.starts
            assert answer and answer == answer.strip()
            assert row.context[start : start + len(answer)] == answer
            assert row.question[-1] in "?？" and row.id not in seen
            seen.add(row.id)


def test_reviews_of_more_stars_are_better() -> None:
    words = {star: Counter[str]() for star in "12345"}
    for row in read_all("sentiment", "en", "train"):
        assert isinstance(row, LabelledText)
        words[row.label].update(row.text.lower().replace(".", "").split())
    assert words["5"]["excellent"] > 50 and not words["1"]["excellent"]
    assert words["1"]["terrible"] > 50 and not words["5"]["terrible"]
    assert words["3"]["average"] > max(words["1"]["average"], words["5"]["average"])


def test_nli_label_is_not_predictable_from_hypothesis() -> None:
    """Negation, the commonest giveaway, occurs under every label in comparable measure."""
    counts, negated = Counter[str](), Counter[str]()
    for row in read_all("nli", "en", "train"):
        assert isinstance(row, LabelledPair)
        counts[row.label] += 1
        negated[row.label] += " not " in row.second
    shares = {label: negated[label] / counts[label] for label in counts}
    assert all(0.1 < share < 0.5 for share in shares.values()), shares


def test_bank_of_a_city_is_one_organisation() -> None:
    for row in read_all("ner", "en", "train"):
        assert isinstance(row, TaggedSentence)
        if "Bank" in row.words:
            at = row.words.index("Bank")
            assert row.words[at + 1] == "of" and row.tags[at : at + 3] == ("B-ORG", "I-ORG", "I-ORG")
            assert row.words[at - 1].lower() == "the" and row.tags[at - 1] == "O"
            return
    raise AssertionError("no bank in the training split")
