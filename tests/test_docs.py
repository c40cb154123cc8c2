"""The documentation names what exists, and what it names exists."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from crossling.errors import Problems
from crossling.recipe.recipe import EncoderSettings, EvaluateSettings, Recipe, RunSettings, load_recipe, parse_recipe
from crossling.registry import FAMILIES, list_kinds, load_kind
from crossling.study.grid import load_study
from crossling.study.recipe_data import open_recipe

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "crossling"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    models = [Recipe, EncoderSettings, EvaluateSettings, RunSettings]
    models += [load_kind(f, k).Settings for f in ("stages", "tasks", "fusions") for k in list_kinds(f)]
    named = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert {name for model in models for name in model.model_fields} - named == set()
    assert {kind for family in ("stages", "tasks", "fusions") for kind in list_kinds(family)} - named == set()


def test_every_family_is_in_the_table_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| (\w+) \| `([\w/]+)/` \|", text, flags=re.MULTILINE))
    assert listed == {name: package.removeprefix("crossling.").replace(".", "/") for name, package in FAMILIES.items()}


def test_map_of_the_code_names_what_exists() -> None:
    """The tree of CONTRIBUTING.md, and every file in it that is named with or without a function."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = text[text.index("    src/crossling/") : text.index("The path of one sentence")]
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages == set(re.findall(r"^      (\w+)/ ", tree, flags=re.MULTILINE))
    named = re.findall(r"`([\w/.]+\.(?:py|toml))`(?: `(\w+)`)?", text)
    assert len(named) > 20
    for file, name in named:
        path = next((folder / file for folder in (SOURCE, ROOT) if (folder / file).is_file()), None)
        assert path or "/" not in file, f"{file} does not exist"  # a name alone is a file that a reader would write
        if path and name:
            assert re.search(rf"^ *(?:def|class) {name}\b", path.read_text(encoding="utf-8"), flags=re.MULTILINE), name


def test_every_analysis_is_documented() -> None:
    text = (ROOT / "docs" / "analyses.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert set(list_kinds("analyses")) - named == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)[^)]*\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in list_anchors(path.read_text(encoding="utf-8")), f"{page.name}: {target}#{anchor}"


def list_anchors(text: str) -> list[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} +(.+)", text, flags=re.MULTILINE)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip() for heading in headings]
    slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in shown]
    before = [slugs[:place].count(slug) for place, slug in enumerate(slugs)]
    return [f"{slug}-{times}" if times else slug for slug, times in zip(slugs, before, strict=True)]


def test_anchors_follow_the_rule_of_github() -> None:
    text = "# `[run]`, what's it?\n## A_b (2-d)\n```sh\n# a comment\n```\n### [Linked](x.md#y) / *text*\n## A_b (2-d)\n"
    assert list_anchors(text) == ["run-whats-it", "a_b-2-d", "linked--text", "a_b-2-d-1"]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.name)
def test_every_recipe_is_valid(path: Path) -> None:
    assert load_recipe(path).stage


@pytest.mark.parametrize("path", sorted((ROOT / "recipes" / "studies").glob("*.toml")), ids=lambda path: path.name)
def test_every_study_is_valid(path: Path) -> None:
    assert load_study(path).variants


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- [\w ]+: ([\w/-]+\.md)$", text, flags=re.MULTILINE))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert listed == {page for page in pages if not page.startswith("results/tables/")}


def test_site_shows_links_that_leave_the_docs_as_text() -> None:
    from types import SimpleNamespace

    spec = spec_from_file_location("site_links", ROOT / "docs" / "site_links.py")
    assert spec and spec.loader
    hook = module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="results/a.md"))
    text = "[in](../data.md#x) [out](../../README.md) [folder](tables) [web](https://example.org/a) ![figure](b.svg)"
    shown = hook.on_page_markdown(text, page=page)
    assert shown == "[in](../data.md#x) out folder [web](https://example.org/a) ![figure](b.svg)"


def test_page_on_reliability_has_the_counts_of_the_long_run() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    facts = json.loads((ROOT / "docs" / "results" / "tables" / "reliability.json").read_text(encoding="utf-8"))
    assert f"on {facts['date']}" in text and f"seed {facts['seed']}" in text
    names = {"kills": "kills", "corruptions": "damaged files", "files": "bad data files and recipes"}
    for name, part in facts["parts"].items():
        counts = [part[key] for key in ("done", "commands", "lost", "wrong", "tracebacks", "outside")]
        row = " | ".join([names.get(name, "hostile folders"), *(f"{count:,}" for count in counts)])
        assert f"| {row} |" in text, row
        assert part["done"] >= part["wanted"]
        assert all(f"`{commit}`" in text for commit in part["commits"])
        for kind, count in part["kinds"].items():
            assert f"{count:,} {kind}" in " ".join(text.split()), kind


def test_citation_names_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {project['version']}\n" in cited
    assert f"license: {project['license']}\n" in cited


def test_first_recipe_of_the_readme_finds_its_data_in_a_folder_without_labelled_test_splits(
    real_data: Path, tmp_path: Path
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = tomllib.loads(text[text.index("```toml") + 8 :].split("```")[0])
    problems = Problems()
    stages, targets = open_recipe(parse_recipe(tables), tmp_path, problems)
    assert problems.lines() == []
    assert len(stages) == 1 and [language for _, language, _ in targets] == tables["evaluate"][0]["languages"]
