"""The page in a real browser: every task, right-to-left text, two models, files, calls to copy, no injected code."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browsers import launch_chromium
from crossling.inference.label_studio import build_task
from crossling.inference.predictor import Predictor
from crossling.inference.server.limits import Limits
from served import Running, build_untrained, run_server

pytestmark = pytest.mark.slow
Trained = Callable[[str], Path]
EVIL = "<img src=x onerror='window.hacked=1'>\"'"
TOKEN = "correct-horse-battery"


@dataclass
class Opened:
    """The page in a browser, and every error and warning that it caused."""

    page: Page
    messages: list[str]

    def ask(self, model: str, text: str) -> None:
        """Predict a text with a tagger or classifier."""
        self.choose(model)
        self.page.fill("#texts", text)
        self.predict()

    def choose(self, model: str) -> None:
        self.page.select_option("#model", model)
        expect(self.page.locator("#example option")).to_have_count(9)

    def predict(self) -> None:
        self.page.click("#predict")
        expect(self.page.locator("#status")).to_contain_text("input")

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_text_contents()

    def download(self, name: str) -> str:
        with self.page.expect_download() as started:
            self.page.get_by_role("button", name=name).click()
        return Path(started.value.path()).read_bytes().decode("utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launch_chromium()


@pytest.fixture(scope="module")
def server(trained: Trained) -> Iterator[Running]:
    models = {task: Predictor.load(trained(task)) for task in ("ner", "pos", "sentiment", "nli", "qa")}
    models["random"] = build_untrained(["B-X", "O"], scheme="bio")
    models["evil"] = build_untrained([f"B-{EVIL}", EVIL, f"I-{EVIL}2"], scheme="bio")
    models["many"] = build_untrained([f"label {number}" for number in range(10_000)])
    with run_server(models, limits=Limits(items=3)) as running:
        yield running


def open_page(browser: Browser, running: Running, *, width: int = 1100) -> Opened:
    page = browser.new_page(viewport={"width": width, "height": 900}, is_mobile=width < 600)
    opened = Opened(page, [])
    page.on("console", lambda message: opened.messages.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.messages.append(f"exception: {error}"))
    page.goto(f"{running.address}/")
    expect(page.locator("#example option")).to_have_count(9)
    return opened


@pytest.fixture
def opened(browser: Browser, server: Running) -> Iterator[Opened]:
    loaded = open_page(browser, server)
    yield loaded
    assert loaded.messages == []
    loaded.page.close()


def test_spans_and_tags_are_shown_over_their_words(opened: Opened) -> None:
    opened.ask("ner", "😀 the  cat sees\n\na dog")
    assert opened.texts("#list mark .part") == ["cat", "dog"], "characters outside the BMP count as one"
    assert opened.texts("#list mark .label")[0].startswith("X")
    assert opened.texts("#list .text")[0].startswith("😀 the  cat")
    opened.page.select_option("#view", "words")
    assert opened.texts("#list ruby rt bdi") == ["O", "O", "B-X", "O", "O", "B-X"]
    assert opened.page.locator("rt .sure").first.is_hidden()
    opened.page.check("#sure")
    assert opened.page.locator("rt .sure").first.is_visible()
    opened.page.check("#split")
    opened.page.fill("#texts", "the\ncat\n\ndog")
    opened.predict()
    assert opened.texts("#list ruby rt bdi") == ["O", "B-X", "B-X"]


def test_classes_pairs_and_answers_are_shown(opened: Opened) -> None:
    opened.ask("sentiment", "the cat\nin")
    assert opened.texts("#list .class .label") == ["cat", "none"]
    assert float(opened.page.locator("#list meter").first.get_attribute("value") or 0) > 0.5
    opened.choose("nli")
    opened.page.fill("#first", "the cat")
    opened.page.fill("#second", "a cat")
    opened.predict()
    assert opened.texts("#list .text") == ["the cat", "a cat"]
    opened.choose("qa")
    opened.page.fill("#question", "the cat")
    opened.page.fill("#context", "😀😀 a dog sees the cat in it")
    opened.predict()
    assert opened.texts("#list mark") == ["cat"]


@pytest.mark.parametrize("model", ["pos", "sentiment", "nli", "qa"])
def test_examples_fill_the_fields_in_eight_languages(opened: Opened, model: str) -> None:
    opened.choose(model)
    for language in ("hi", "zh"):
        opened.page.select_option("#example", language)
        expect(opened.page.locator("#status")).to_contain_text("input")
        assert opened.page.input_value("#language") == language
        assert opened.page.locator("#list > li").count() >= 1


def test_right_to_left_text_runs_from_the_right(opened: Opened) -> None:
    opened.ask("pos", "القطة تأكل السمك\nthe cat sees\nשלום cat עולם")
    boxes = [word.bounding_box() for word in opened.page.locator("#list ruby").all()]
    places = [round(box["x"]) for box in boxes if box]
    assert len(places) == 9
    for line, reverse in ((places[:3], True), (places[3:6], False), (places[6:], True)):
        assert line == sorted(line, reverse=reverse)
    direction = "element => getComputedStyle(element).direction"
    directions = [text.evaluate(direction) for text in opened.page.locator("#list .text").all()]
    assert directions == ["rtl", "ltr", "rtl"]
    assert opened.page.locator("#texts").evaluate(direction) == "rtl"
    opened.ask("evil", "القطة تأكل السمك")
    assert opened.page.locator("#list mark").count() > 0
    assert opened.page.locator("#list .text").first.evaluate(direction) == "rtl", "whatever is marked"


def test_two_models_are_compared(opened: Opened) -> None:
    opened.page.select_option("#other", "random")
    opened.ask("ner", "the cat sees a dog\n...")
    assert opened.texts("#list > li:first-child .by") == ["ner", "random"]
    results = opened.page.evaluate(
        "(async () => { const { findDifferences, listParts } = await import('./results.js');"
        "const ask = async (model) => (await (await fetch('v1/predict', { method: 'POST', headers: "
        "{'Content-Type': 'application/json'}, body: JSON.stringify({ model, texts: ['the cat sees a dog'] }) }))"
        ".json()).results[0];"
        "const [a, b] = [await ask('ner'), await ask('random')];"
        "return [a, b, [...findDifferences(a, b, 'words')]]; })()"
    )
    words = zip(results[0]["words"], results[1]["words"], strict=True)
    expected = [f"{a['start']}:{a['end']}:{a['tag']}" for a, b in words if a["tag"] != b["tag"]]
    assert results[2] == expected
    opened.page.select_option("#view", "words")
    assert opened.page.locator("#list > li:first-child .both > div:first-child ruby.differs").count() == len(expected)
    assert "differ on" in opened.texts("#status")[0]
    opened.page.check("#only")
    shown = [item.is_visible() for item in opened.page.locator("#list > li").all()]
    assert shown == ["different" in (item or "") for item in class_names(opened.page)]


def class_names(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...document.querySelectorAll('#list > li')].map((item) => item.className)")
    return found


def test_files_are_read_in_several_requests_and_downloaded(opened: Opened, server: Running, tmp_path: Path) -> None:
    lines = [f'the "cat", number {number}' for number in range(8)]
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeff".encode() + "\r\n".join(["", *lines]).encode())
    opened.choose("ner")
    opened.page.set_input_files("#file", path)
    expect(opened.page.locator("#status")).to_contain_text("8 inputs")
    assert opened.texts("#file-hint") == ["inputs are those of texts.txt"]
    expected = [
        result for line in lines for result in server.predict({"model": "ner", "texts": [line]}).json["results"]
    ]
    rows = [json.loads(line) for line in opened.download("JSON lines").splitlines()]
    assert [(row["line"], row["model"], row["text"]) for row in rows] == [
        (n + 2, "ner", t) for n, t in enumerate(lines)
    ]
    assert [[word["tag"] for word in row["words"]] for row in rows] == [tags(one) for one in expected]
    conll = opened.download("CoNLL")
    assert conll.split("\n\n")[0].splitlines() == [f"{word['word']}\t{word['tag']}" for word in expected[0]["words"]]
    tasks = json.loads(opened.download("Label Studio"))
    for number, (task, one) in enumerate(zip(tasks, expected, strict=True)):
        made = build_task(one, model="ner")
        made["data"]["line"] = number + 2
        assert task == made
    opened.page.select_option("#view", "words")
    cells = list(csv.DictReader(io.StringIO(opened.download("CSV").removeprefix("\ufeff"), newline="")))
    found = [(cell["line"], cell["word"], cell["tag"]) for cell in cells if cell["line"] == "2"]
    assert found == [("2", word["word"], word["tag"]) for word in expected[0]["words"]]
    opened.page.click("#forget")
    assert opened.page.locator("#texts").is_enabled()


def tags(result: dict[str, Any]) -> list[str]:
    return [word["tag"] for word in result["words"]]


@pytest.mark.parametrize(
    ("model", "content", "message"),
    [
        ("ner", b"caf\xe9\n", "not UTF-8 text"),
        ("nli", b"a\tb\nno tab\n", "line 2: write both texts"),
        ("ner", b"a\n" + b"b" * 10_001, "line 2: 10001 characters; a text may have 10000"),
        ("ner", b"\n \n", "there is no text yet"),
    ],
)
def test_files_that_cannot_be_read_are_explained(
    opened: Opened, tmp_path: Path, model: str, content: bytes, message: str
) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    opened.choose(model)
    opened.page.set_input_files("#file", path)
    expect(opened.page.locator("#status.problem")).to_contain_text(message)


def test_refusals_of_the_server_are_shown(browser: Browser, server: Running) -> None:
    opened = open_page(browser, server)
    opened.page.fill("#language", "klingonese")
    opened.page.fill("#texts", "a")
    opened.page.click("#predict")
    expect(opened.page.locator("#status.problem")).to_contain_text("unknown language 'klingonese'")
    assert all("422" in message for message in opened.messages)
    opened.page.close()


def test_copied_calls_work(opened: Opened) -> None:
    text = 'it\'s the "cat" $HOME `x` \\n 😀 \u2028 мир'
    opened.ask("ner", text)
    opened.page.click("summary")
    for name, command in (("curl", ["bash", "-c"]), ("python", [sys.executable, "-c"])):
        code = opened.page.locator(f"#{name}").text_content() or ""
        done = subprocess.run([*command, code], capture_output=True, text=True, check=True, timeout=60)
        result = json.loads(done.stdout)["results"][0] if name == "curl" else done.stdout
        assert result["text"] == text if isinstance(result, dict) else repr(text)[1:-1] in result
        opened.page.locator(f"[data-copy={name}]").click()
        expect(opened.page.locator(f"[data-copy={name}]")).to_have_text("Copied")


def test_labels_and_texts_are_never_markup(opened: Opened) -> None:
    opened.ask("evil", f"{EVIL} cat </p><script>window.hacked=2</script>")
    for view in ("spans", "words"):
        opened.page.select_option("#view", view)
        assert EVIL in "".join(opened.texts("#list")), "the label is shown as it is"
    opened.page.select_option("#other", "random")
    opened.predict()
    assert opened.page.locator("#list img, #list script").count() == 0
    assert opened.page.evaluate("typeof window.hacked") == "undefined"


def test_policy_blocks_injected_code(browser: Browser, server: Running) -> None:
    """Even where a text became markup, the page's policy would hold."""
    opened = open_page(browser, server)
    opened.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=1\">')")
    opened.page.evaluate(
        "(() => { const s = document.createElement('script'); s.text = 'window.hacked=2'; document.body.append(s); })()"
    )
    assert opened.page.evaluate("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in message for message in opened.messages)
    opened.page.close()


def test_ten_thousand_labels_do_not_stop_the_page(opened: Opened) -> None:
    opened.ask("many", "the cat sees a dog " * 50)
    assert opened.page.locator("#list ruby").count() == 250


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_page_fits_window_width(browser: Browser, server: Running, width: int) -> None:
    opened = open_page(browser, server, width=width)
    opened.page.select_option("#other", "random")
    opened.ask("ner", "the cat sees a dog " * 20 + "x" * 200)
    opened.page.click("summary")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.close()


def test_page_is_used_by_keyboard_alone(opened: Opened) -> None:
    page = opened.page
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "texts":
            break
    page.keyboard.type("the cat")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("1 input")
    assert opened.texts("#list mark .part") == ["cat"]
    names = "[...document.querySelectorAll('input, select, textarea')].filter((e) => !e.labels.length).map((e) => e.id)"
    assert page.evaluate(names) == [], "every field has a label"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.format ?? document.activeElement.tagName"))
    assert {"jsonl", "conll", "csv", "tasks", "SUMMARY"} <= reached


def test_token_is_asked_for(browser: Browser, trained: Trained) -> None:
    with run_server({"ner": Predictor.load(trained("ner"))}, token=TOKEN) as running:
        page = browser.new_page()
        page.goto(f"{running.address}/")
        expect(page.locator("#status.problem")).to_contain_text("token")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#example option")).to_have_count(9)
        page.fill("#texts", "the cat")
        page.click("#predict")
        expect(page.locator("#status")).to_contain_text("1 input")
        shown = page.locator("#curl").text_content() or ""
        assert "$CROSSLING_TOKEN" in shown and TOKEN not in (page.locator("details").text_content() or "")
        page.close()
