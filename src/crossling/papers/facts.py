"""Table 1 of each paper beside what is here: rows of its data sets, or facts about its languages."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from crossling.data.catalogue import has_files, open_data
from crossling.data.languages import get_language
from crossling.errors import DataError
from crossling.papers.published import load_paper, read_data
from crossling.papers.tables import load_mapping
from crossling.report.table import Table

NOT_HERE = "not here"


def compare_facts(paper: str) -> Table:
    """A row for each cell: what the paper has, and what the files in CROSSLING_DATA or our table of languages have."""
    published, mapping = load_paper(paper).facts, load_mapping(paper)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in published.rows:
            for column in published.columns:
                if not mapping.facts:
                    ours = describe_language(row, column)
                elif column in mapping.facts[row]:
                    ours = count_rows(mapping.facts[row][column], _list_languages(paper, row), store=Path(folder))
                else:
                    ours = str(len(_list_languages(paper, row)))
                rows.append((row, column, published.texts[row, column], ours))
    notes = (f"{NOT_HERE}: the files are not in {os.environ.get('CROSSLING_DATA') or 'CROSSLING_DATA'}.",)
    shown = notes if any(ours == NOT_HERE for *_, ours in rows) else ()
    return Table(f"{published.name}: {published.holds}", ("", "", "paper", "ours"), tuple(rows), names=2, notes=shown)


def _list_languages(paper: str, task: str) -> list[str]:
    """The languages that a task of the paper's study is scored in."""
    found: list[str] = read_data(f"{paper}.toml")["tasks"].get(task, {}).get("set", {}).get("evaluate.0.languages", [])
    if found:
        return found
    recipe = read_data(f"recipe-{paper}.toml")["evaluate"][0]["languages"]
    return list(recipe)


def count_rows(spec: str, languages: list[str], *, store: Path) -> str:
    """The rows of a data set; of all languages, where the spec has *, the fewest and the most."""
    specs = [spec.replace("*", code) for code in languages] if "*" in spec else [spec]
    counts = []
    for one in specs:
        if not has_files(one):
            continue
        try:
            counts.append(len(open_data(one, store=store)))
        except DataError as error:
            return f"not readable: {error}"
    if not counts:
        return NOT_HERE
    few, many = min(counts), max(counts)
    text = f"{few:,}" if few == many else f"{few:,}-{many:,}"
    return text if len(counts) == len(specs) else f"{text} ({len(counts)} of {len(specs)} languages)"


def describe_language(code: str, column: str) -> str:
    """What our table of languages has in a column of the adjustment paper's table."""
    language = get_language(code)
    family = {"Indo-European": "IE"}.get(language.family, language.family)
    branch = f"{family}/{language.branch}" if language.family == "Indo-European" else family
    return {"Family": branch, "Script": language.script, "Word order": language.word_order}[column]
