"""The report of a study: safe with any text, small, and every table in every form."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from html.parser import HTMLParser

from hostile_report import EVIL, EVIL_SYSTEM, large_drawing, make_document

from crossling.report.parts import AnalysisPart, Figure
from crossling.report.study_page import LARGEST, render_document, to_markdown, write_tables
from crossling.report.table import Table


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the texts of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_hostile_text_is_escaped() -> None:
    page = Elements(render_document(make_document()))
    tags = {tag for tag, _ in page.found}
    assert not tags & {"iframe", "a script", "object", "embed", "link", "foreignobject", "form"}
    assert sum(tag == "script" for tag, _ in page.found) == 1, "the page's own"
    images = [str(attributes["src"]) for tag, attributes in page.found if tag == "img"]
    assert len(images) == 1 and images[0].startswith("data:image/svg+xml,"), "a figure cannot run its scripts"
    for tag, attributes in page.found:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert not [v for n, v in attributes.items() if n in ("href", "style") and "evil" in str(v)], tag
        assert "javascript:" not in str(attributes.get("href"))
    assert sum(EVIL in text for text in page.texts) > 20, "as text it is all there"
    assert any(EVIL_SYSTEM in text for text in page.texts)


def test_policy_allows_only_the_pages_own_script() -> None:
    page = render_document(make_document())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1] and re.search(r"script-src 'sha256-[\w+/=]+'(;|$)", policy[1])
    assert not re.search(r'(?:src|href)="(?!data:|#)', page) and "https://" not in page


def test_every_table_is_written_in_every_format() -> None:
    document = make_document()
    files = write_tables(document)
    for stem in ("compare-panx", "compare-panx-groups", "t", "cells", "timing", "machines"):
        assert f"{stem}.tex" in files
        rows = list(csv.reader(io.StringIO(files[f"{stem}.csv"])))
        assert len(rows) > 1 and len({len(row) for row in rows}) == 1, stem
    assert r"$<$script$>$window.hacked=1$<$/script$>$ 3 & 3.5 \\" in files["t.tex"]
    text = to_markdown(document)
    assert "<script" not in text.replace("\\<script", "")
    for title in ("## Summary", "### Differences", "## Cells", "## Time", "## Machines"):
        assert title in text
    assert "b\\|c" in text


def test_page_stays_small_and_names_what_is_left_out() -> None:
    figures = (Figure("large", large_drawing(LARGEST), "large.svg"), Figure("small", large_drawing(100), "small.svg"))
    rows = tuple((str(n), "x" * 400) for n in range(6000))
    table = Table("Long", ("a", "b"), rows, stem="long")
    document = make_document(analyses=(AnalysisPart("one", "", (), figures), AnalysisPart("two", "", (table,))))
    page = render_document(document)
    assert len(page.encode()) < LARGEST
    assert "The figure large.svg is too large for this page" in page
    assert "The table of 6000 lines is too large for this page; it is in long.csv" in page
    assert "long.csv" in write_tables(document), "files have it all"


def test_languages_are_grouped_by_family_with_means_below() -> None:
    page = render_document(make_document())
    first = page.index('data-view="scores"')
    sheet = page[first : page.index("</table>", first)]
    places = [sheet.index(f'data-key="{code}"') for code in ("en", "de", "fr", "hi", "zh", "ja")]
    assert places == sorted(places)
    assert re.search(r'rowgroup">Indo-European</th><td class="value">68.0</td><td class="value">69.8</td>', sheet)
    assert "Sino-Tibetan" in sheet and "mean of 6 zero-shot" in sheet
    assert "Indo-European family: mean of 4" not in sheet, "groups have a table of their own"
    assert "Indo-European family: mean of 4" in page
    assert page.count('<svg class="gap up"') == 9 and page.count('<svg class="gap down"') == 1


def test_every_table_of_systems_says_what_its_intervals_are_about() -> None:
    document = make_document()
    about = "the mean to expect of new seeds, on new examples of the same kind in these languages"
    assert render_document(document).count(about) == 2, "below languages and below groups"
    assert to_markdown(document).count(about) == 4, "scores and differences of either"
    assert "significant for new seeds and new examples" in "\n".join(document.summary)


def test_empty_report_renders() -> None:
    page = render_document(make_document(panels=(), sweeps=(), learning=(), analyses=(), learning_note="gone"))
    assert "gone" in page and "Systems by languages" not in page


def test_reports_need_no_torch() -> None:
    code = "import sys, crossling.report.study_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
