"""The report in a real browser: it loads without an error, filters, sorts, shows figures, and runs no injected code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile_report import EVIL_SYSTEM, LANGUAGES, make_document
from playwright.sync_api import Browser, Page

from browsers import launch_chromium
from crossling.report.charts import Chart, Series
from crossling.report.study_page import render_document

pytestmark = pytest.mark.slow
LINES = "[...document.querySelectorAll('#compare-panx table[data-view=scores] tbody.group tr.line')]"
SEEN = f"{LINES}.filter((line) => !line.hidden).map((line) => line.dataset.key)"


@dataclass
class Opened:
    """A page in the browser, and every error, warning and request that it caused."""

    page: Page
    messages: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launch_chromium()


def open_page(browser: Browser, path: Path, *, width: int = 1100) -> Opened:
    """Load a page from its file."""
    page = browser.new_page(viewport={"width": width, "height": 900}, is_mobile=width < 600)
    opened = Opened(page, [])
    page.on("console", lambda message: opened.messages.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.messages.append(f"exception: {error}"))
    page.on(
        "request", lambda request: opened.messages.append(f"request: {request.url}") if is_remote(request.url) else None
    )
    page.goto(path.resolve().as_uri())
    return opened


def is_remote(url: str) -> bool:
    return not url.startswith(("file:", "data:"))


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """The hostile report, loaded from its file."""
    path = tmp_path / "report.html"
    path.write_text(render_document(make_document()), encoding="utf-8")
    loaded = open_page(browser, path)
    yield loaded
    loaded.page.close()


def set_value(page: Page, selector: str, value: str, event: str) -> None:
    page.evaluate(
        f"(() => {{ const e = document.querySelector({selector!r}); e.value = {value!r}; "
        f"e.dispatchEvent(new Event({event!r})); }})()"
    )


def move_to_corner(page: Page, selector: str) -> None:
    """The pointer into the lower right corner of an element."""
    page.evaluate(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView(); "
        "const box = e.getBoundingClientRect(); e.dispatchEvent(new PointerEvent('pointermove', "
        "{ bubbles: true, clientX: box.right - 2, clientY: box.bottom - 2 })); })()"
    )


def test_page_loads_without_errors_and_runs_no_injected_code(opened: Opened) -> None:
    page = opened.page
    assert page.evaluate("document.querySelectorAll('.controls:not([hidden])').length") >= 1, "its own script runs"
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("document.querySelectorAll('img:not(.drawn), iframe, a[href^=javascript]').length") == 0
    assert opened.messages == []


def test_content_security_policy_blocks_injected_code(opened: Opened) -> None:
    """Even where escaping failed, the page's policy would hold."""
    page = opened.page
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=1\">')")
    page.evaluate(
        "(() => { const s = document.createElement('script'); s.text = 'window.hacked=2'; document.body.append(s); })()"
    )
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in line for line in opened.messages)


def test_filter_hides_other_rows(opened: Opened) -> None:
    page = opened.page
    assert page.evaluate(SEEN) == ["en", "de", "fr", "hi", "zh", "ja", list(LANGUAGES)[-1]]
    set_value(page, "#compare-panx .find", "german", "input")
    assert page.evaluate(SEEN) == ["de"]
    set_value(page, "#compare-panx .find", "indo-euro", "input")
    assert page.evaluate(SEEN) == ["en", "de", "fr", "hi"]
    set_value(page, "#compare-panx .find", "devanagari", "input")
    assert page.evaluate(SEEN) == ["hi"]
    set_value(page, "#compare-panx .find", "", "input")
    set_value(page, "#t .find", " 19", "input")
    assert page.evaluate("[...document.querySelectorAll('#t tbody tr')].filter((row) => !row.hidden).length") == 1
    assert opened.messages == []


def test_rows_are_sorted_by_score_and_grouped_by_script(opened: Opened) -> None:
    page = opened.page
    set_value(page, "#compare-panx .pick-group", "", "change")
    click = "document.querySelectorAll('#compare-panx table[data-view=scores] thead button')[1].click()"
    page.evaluate(click)
    assert page.evaluate(SEEN) == sorted(LANGUAGES, key=lambda code: -LANGUAGES[code])
    page.evaluate(click)
    assert page.evaluate(SEEN) == sorted(LANGUAGES, key=lambda code: LANGUAGES[code])
    page.evaluate(click)
    set_value(page, "#compare-panx .pick-group", "script", "change")
    heads = (
        "[...document.querySelectorAll('#compare-panx table[data-view=scores] tr.head')].map((row) => row.textContent)"
    )
    latin = 100 * sum(LANGUAGES[code] for code in ("en", "de", "fr")) / 3
    assert page.evaluate(heads) == [f"Latin{latin:.1f}{latin + 4 / 3:.1f}"]
    set_value(page, "#compare-panx .pick-view", "differences", "change")
    assert page.evaluate("document.querySelector('table[data-view=scores]').parentNode.hidden") is True
    assert opened.messages == []


def test_pointing_shows_figures(opened: Opened) -> None:
    page = opened.page
    over = "new PointerEvent('pointerover', { bubbles: true })"
    page.evaluate(f"document.querySelector('tr[data-key=hi] td:last-child').dispatchEvent({over})")
    tip = page.evaluate("document.querySelector('#compare-panx output.tip').textContent")
    assert tip.startswith(
        f"{EVIL_SYSTEM}, Hindi: 53.00 ± 1.00 (100 examples, seeds: 3); +3.00 [+2.00, +4.00] from plain"
    )
    for selector, output, words in (
        ("svg.chart", "figure.chart output", "at <script>"),
        ("svg.heat .right.s10", "output.cell", "layer 1"),
    ):
        move_to_corner(page, selector)
        assert words in page.evaluate(f"document.querySelector('{output}').textContent")
    assert page.evaluate("document.querySelectorAll('.chart .lit').length") == 1
    assert opened.messages == []


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_page_fits_window_width(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_document(make_document()), encoding="utf-8")
    page = open_page(browser, path, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.screenshot().startswith(b"\x89PNG")
    page.close()


def test_printing_opens_folded_parts(opened: Opened) -> None:
    page = opened.page
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    assert len(page.pdf()) > 1000
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    assert opened.messages == []


def test_pointing_works_on_logarithmic_axis(browser: Browser, tmp_path: Path) -> None:
    chart = Chart("t", "pairs", "y", (Series("a", ((1, 1.0, None), (10, 1.0, None), (100, 1.0, None))),), chosen=True)
    path = tmp_path / "report.html"
    path.write_text(render_document(make_document(sweeps=(), learning=(chart,))), encoding="utf-8")
    opened = open_page(browser, path)
    page = opened.page
    page.evaluate(
        "(() => { const e = document.querySelector('svg.chart'); e.scrollIntoView(); "
        "const box = e.getBoundingClientRect(); e.dispatchEvent(new PointerEvent('pointermove', "
        "{ bubbles: true, clientX: (box.left + box.right) / 2, clientY: (box.top + box.bottom) / 2 })); })()"
    )
    assert page.evaluate("document.querySelector('figure.chart output').textContent") == "a: 1 at pairs 10"
    drawn = "document.querySelectorAll('svg.chart .dot')[1].getAttribute('cx')"
    place = page.evaluate(f"[{drawn}, document.querySelector('svg.chart .at').getAttribute('cx')].map(Number)")
    assert place[0] == pytest.approx(place[1], abs=0.1)
    assert opened.messages == []
