"""The report in a real browser: it loads without a word of complaint, filters, sorts, tells, and runs nobody's code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_report import EVIL_SYSTEM, LANGUAGES, make_document

from browser import Browser, find_browser, start_browser
from crossling.report.charts import Chart, Series
from crossling.report.document import render_document

pytestmark = pytest.mark.slow
LINES = "[...document.querySelectorAll('#compare-panx table[data-view=scores] tbody.group tr.line')]"
SEEN = f"{LINES}.filter((line) => !line.hidden).map((line) => line.dataset.key)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser, where this machine has one."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium found; install one, or name it in CROSSLING_BROWSER")
    with start_browser(program) as started:
        yield started


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """The hostile report, loaded from its file."""
    path = tmp_path / "report.html"
    path.write_text(render_document(make_document()), encoding="utf-8")
    browser.said.clear()
    browser.open(path)
    return browser


def set_value(page: Browser, selector: str, value: str, event: str) -> None:
    page.evaluate(
        f"(() => {{ const e = document.querySelector({selector!r}); e.value = {value!r}; "
        f"e.dispatchEvent(new Event({event!r})); }})()"
    )


def move_to_corner(page: Browser, selector: str) -> None:
    """The pointer into the lower right corner of an element."""
    page.evaluate(
        f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView(); "
        "const box = e.getBoundingClientRect(); e.dispatchEvent(new PointerEvent('pointermove', "
        "{ bubbles: true, clientX: box.right - 2, clientY: box.bottom - 2 })); })()"
    )


def test_it_loads_without_an_error_and_runs_nobodys_code(page: Browser) -> None:
    assert page.evaluate("document.querySelectorAll('.controls:not([hidden])').length") >= 1, "its own script runs"
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.evaluate("document.querySelectorAll('img, iframe, a[href^=javascript]').length") == 0
    assert page.said == []


def test_injected_code_would_not_run(page: Browser) -> None:
    """Even where escaping failed, the page's policy would hold."""
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=1\">')")
    page.evaluate(
        "(() => { const s = document.createElement('script'); s.text = 'window.hacked=2'; document.body.append(s); })()"
    )
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in line for line in page.said)


def test_a_filter_leaves_what_fits(page: Browser) -> None:
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
    assert page.said == []


def test_sorting_and_grouping(page: Browser) -> None:
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
    assert page.said == []


def test_pointing_at_things_tells_their_figures(page: Browser) -> None:
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
    assert page.said == []


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_sticks_out_sideways(page: Browser, tmp_path: Path, width: int) -> None:
    page.open(tmp_path / "report.html", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.picture(tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_printing_opens_what_is_folded(page: Browser) -> None:
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    assert len(page.call("Page.printToPDF")["data"]) > 1000
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    assert page.said == []


def test_pointing_finds_its_place_on_a_logarithmic_axis(browser: Browser, tmp_path: Path) -> None:
    chart = Chart("t", "pairs", "y", (Series("a", ((1, 1.0, None), (10, 1.0, None), (100, 1.0, None))),), chosen=True)
    path = tmp_path / "report.html"
    path.write_text(render_document(make_document(sweeps=(), learning=(chart,))), encoding="utf-8")
    browser.said.clear()
    browser.open(path)
    browser.evaluate(
        "(() => { const e = document.querySelector('svg.chart'); e.scrollIntoView(); "
        "const box = e.getBoundingClientRect(); e.dispatchEvent(new PointerEvent('pointermove', "
        "{ bubbles: true, clientX: (box.left + box.right) / 2, clientY: (box.top + box.bottom) / 2 })); })()"
    )
    assert browser.evaluate("document.querySelector('figure.chart output').textContent") == "a: 1 at pairs 10"
    drawn = "document.querySelectorAll('svg.chart .dot')[1].getAttribute('cx')"
    place = browser.evaluate(f"[{drawn}, document.querySelector('svg.chart .at').getAttribute('cx')].map(Number)")
    assert place[0] == pytest.approx(place[1], abs=0.1)
    assert browser.said == []
