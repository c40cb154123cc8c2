"""The page needs no network, escapes all text, and shows every language, score and example."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from crossling.data.languages import name_of
from crossling.report.charts import draw_bar, draw_confusion
from crossling.report.run_page import mark_answers, render_run
from crossling.report.run_summary import (
    AnswerSample,
    LanguageResult,
    RunSummary,
    TagSample,
    TextSample,
    gather_result,
)
from crossling.scores.metrics import Confusion, explain
from crossling.scores.predictions import Predictions

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'></svg>{{ 7*7 }}"
LABELS = ("O", "B-PER", "I-PER", "B-<b>&\"'", "I-<b>&\"'")
LANGUAGES = ("en", "ar", "de", "he", "hi", "xx-made-up", "zh")


class Reader(HTMLParser):
    """Collects what matters of a page: elements, their attributes, and the text within."""

    VOID = frozenset(["meta", "input", "br", "link", "img"])

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.problems: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes something else")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    def find(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        return [a for t, a in self.elements if t == tag and (not kind or kind in a.get("class", "").split())]


def make_result(language: str, accuracy: float) -> LanguageResult:
    random = np.random.default_rng(len(language))
    gold = random.integers(-1, len(LABELS), size=(20, 6))
    runs = []
    for _ in range(2):
        predicted = np.where(random.random(gold.shape) < accuracy, np.maximum(gold, 0), 0)
        runs.append(
            Predictions.from_tags(
                language,
                f"set:{language}",
                labels=LABELS,
                gold=list(gold),
                predicted=list(predicted),
                confidence=[np.ones(6)] * 20,
                scheme="bio",
            )
        )
    samples = (
        TagSample(("Ada", EVIL), ("B-PER", "O"), ("B-PER", LABELS[3])),
        TagSample(("ok",), ("O",), ("O",)),
    )
    return gather_result(f"set {EVIL}", runs, samples=samples)


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return RunSummary(
        title=f"Run {EVIL}",
        encoder=EVIL,
        task="ner",
        source="en",
        main_score="span_f1",
        results=tuple(make_result(code, 0.9 - 0.1 * i) for i, code in enumerate(LANGUAGES)),
        recipe=f"# {EVIL}",
        seeds=(1, 2),
        command=f"crossling run {EVIL}",
        next_command="crossling predict RUN",
        facts={EVIL: EVIL},
        notes=(EVIL,),
    )


@pytest.fixture(scope="module")
def page(summary: RunSummary) -> str:
    return render_run(summary)


@pytest.fixture(scope="module")
def reader(page: str) -> Reader:
    return Reader(page)


def test_tags_are_balanced(reader: Reader) -> None:
    assert reader.problems == []
    assert reader.open == []


def test_labels_with_few_gold_items_are_named_below_macro_f1_alone(summary: RunSummary) -> None:
    gold = [0] * 27 + [1] * 3
    run = Predictions.from_classes("de", "x:de", labels=("a", EVIL), gold=gold, predicted=gold, confidence=[1.0] * 30)
    rare = replace(summary, main_score="macro_f1", results=(gather_result("x", [run]),))
    shown = Reader(render_run(rare))
    (note,) = (text for text in shown.texts if "fewer than 10 gold items" in text)
    assert "x: macro_f1 gives labels" in note and f": de {EVIL} (3);" in note
    assert shown.problems == []
    assert "gold items" not in render_run(replace(rare, main_score="accuracy"))


def test_nothing_is_loaded_from_elsewhere(reader: Reader, page: str) -> None:
    for tag, attributes in reader.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset", "xlink:href"):
            assert not attributes.get(name) or attributes[name].startswith("#"), (tag, name)
    assert not re.search(r"url\(|@import|https?://", page)


def test_text_that_looks_like_code_is_inert(reader: Reader, page: str) -> None:
    assert len(reader.find("script")) == 1
    assert reader.find("img") == []
    assert not [name for _, a in reader.elements for name in a if name.startswith("on")]
    assert "alert(1)" not in re.search(r"<script>(.*?)</script>", page, re.S)[1]  # type: ignore[index]
    assert "49" not in "".join(text for text in reader.texts if "7*7" in text)
    shown = "".join(reader.texts)
    assert shown.count(EVIL) >= 8 + len(LANGUAGES)


def test_policy_lets_only_the_pages_own_script_run(reader: Reader, page: str) -> None:
    (policy,) = [a["content"] for a in reader.find("meta") if "http-equiv" in a]
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]  # type: ignore[index]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}';" in policy


def test_every_language_has_a_bar_examples_and_a_matrix(reader: Reader) -> None:
    lines = [line for line in reader.find("tr", "line") if "data-code" in line]
    assert sorted(line["data-code"] for line in lines) == sorted(LANGUAGES)
    assert [line["data-code"] for line in lines if "source" in line["class"].split()] == ["en"]
    assert len(reader.find("svg", "bar")) == len(reader.find("svg", "confusion")) == len(LANGUAGES)
    assert len(reader.find("article", "language")) == len(LANGUAGES)
    shown = "".join(reader.texts)
    assert all(name_of(code) in shown for code in LANGUAGES)


def test_values_behind_the_bars_are_the_scores(reader: Reader, summary: RunSummary) -> None:
    lines = [line for line in reader.find("tr", "line") if "data-code" in line]
    by_code = {line["data-code"]: json.loads(line["data-values"]) for line in lines}
    for result in summary.results:
        for name in result.scores:
            mean, spread = by_code[result.language][name]
            assert mean == pytest.approx(100 * result.mean(name), abs=1e-3)
            assert spread == pytest.approx(100 * (result.spread(name) or 0), abs=1e-3)


def test_direction_follows_the_language(reader: Reader) -> None:
    directions = {a["lang"]: a["dir"] for a in reader.find("div", "example")}
    assert directions == {
        "en": "ltr", "ar": "rtl", "de": "ltr", "he": "rtl", "hi": "ltr", "xx-made-up": "auto", "zh": "ltr"
    }  # fmt: skip


def test_right_and_wrong_words_differ(reader: Reader) -> None:
    assert len(reader.find("span", "miss")) == len(LANGUAGES)
    assert len(reader.find("div", "wrong")) == len(reader.find("div", "right")) == len(LANGUAGES)


def test_drawings_are_well_formed(page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page, re.S)
    assert len(drawings) == 2 * len(LANGUAGES)
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_every_score_is_explained(reader: Reader, summary: RunSummary) -> None:
    shown = "".join(reader.texts)
    assert all(explain(name) in shown for name in summary.results[0].scores)
    assert explain("qa_f1") not in shown


def test_bar_length_and_tick() -> None:
    bar = ElementTree.fromstring(draw_bar(0.6, 0.05, is_source=True))
    assert (bar.find("rect").get("width"), bar.get("class")) == ("60.00", "bar source")  # type: ignore[union-attr]
    assert [path.get("class") for path in bar.findall("path")] == ["grid", "tick"]
    assert "M55.00 5H65.00" in bar.findall("path")[1].get("d", "")
    plain = ElementTree.fromstring(draw_bar(float("nan"), None, is_source=False))
    assert plain.find("rect").get("width") == "0.00"  # type: ignore[union-attr]
    assert len(plain.findall("path")) == 1


def test_confusion_shows_shares_of_rows() -> None:
    counts = np.array([[90, 10], [0, 0], [3, 1]])
    drawing = ElementTree.fromstring(draw_confusion(Confusion(("a", "b", "(unseen)"), ("a", "b"), counts), title="t"))
    numbers = [text.text for text in drawing.findall("text") if "number" in text.get("class", "")]
    assert numbers == ["90", "10", "75", "25"]
    assert [path.get("class") for path in drawing.findall("path")] == [
        "board",
        "right s9",
        "wrong s1",
        "wrong s3",
        "wrong s8",
    ]
    sizes = [text.text for text in drawing.findall("text") if "count" in text.get("class", "")]
    assert sizes == ["100", "0", "4"]
    assert json.loads(drawing.get("data-matrix", ""))["counts"] == counts.tolist()


def make_other_page(sample: TextSample | AnswerSample) -> Reader:
    result = LanguageResult("other", "ur", {"accuracy": (0.5,)}, 3, samples=(sample,))
    summary = RunSummary("t", "e", "nli", "en", "qa_f1", (result,))
    return Reader(render_run(summary))


def test_samples_of_texts_and_answers_are_escaped_and_directed() -> None:
    page = make_other_page(TextSample((EVIL, "دوسرا"), "neutral", "entailment", 0.712))
    shown = "".join(page.texts)
    assert EVIL in shown and "دوسرا" in shown and "confidence 71 %" in shown
    assert [a["dir"] for a in page.find("div", "example")] == ["rtl"]
    page = make_other_page(AnswerSample("When?", f"It was {EVIL} in 1889.", ("1889",), "", question_language="en"))
    assert [a["dir"] for a in page.find("p", "text")] == ["ltr"]
    assert [a["class"] for a in page.find("mark")] == ["gold"]
    assert "(no answer)" in "".join(page.texts)
    assert page.find("img") == [] and page.problems == []


def test_a_set_without_the_main_score_shows_its_own_first() -> None:
    page = make_other_page(TextSample(("x",), "a", "a"))
    assert "accuracy in percent" in "".join(page.texts)
    assert "50.0" in "".join(page.texts)


def test_page_without_results_still_renders() -> None:
    assert Reader(render_run(RunSummary("t", "e", "nli", "en", "accuracy", ()))).problems == []


def test_gold_and_predicted_answers_are_marked_in_the_context() -> None:
    assert mark_answers("built in 1889 in Paris", gold=("1889",), predicted="in 1889") == (
        ("near", "built "),
        ("predicted", "in "),
        ("both", "1889"),
        ("near", " in Paris"),
    )
    far = "x" * 500 + "GOLD" + "y" * 500
    pieces = mark_answers(far, gold=("GOLD",), predicted="")
    assert [kind for kind, _ in pieces] == ["near", "near", "gold", "near", "near"]
    assert pieces[0][1] == " … " and len(pieces[1][1]) < 200
    assert mark_answers("no answer here", gold=(), predicted="") == (("near", "no answer here"),)
    assert mark_answers("", gold=("a",), predicted="b") == ()


def test_reports_need_no_torch() -> None:
    code = "import sys, crossling.report.run_page, crossling.report.run_summary; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
