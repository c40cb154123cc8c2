"""Every table drawn up at both scales: each printed figure has a place where ours would come from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crossling.cli import main as cli
from crossling.data.catalogue import list_sets
from crossling.data.declarations import check_spec, load_declaration
from crossling.data.spec import parse_spec, parse_split
from crossling.errors import RecipeError, UserError
from crossling.papers.definitions import fill, split_label
from crossling.papers.drafting import Draft, draw_up, list_needed, write_study
from crossling.papers.measures import MEASURES, choose_languages
from crossling.papers.published import list_tables
from crossling.recipe.recipe import parse_recipe
from crossling.report import terminal
from crossling.scores.metrics import list_scores

NAMES = [table.name for table in list_tables()]
SMALL_CELLS = {"layer-fusion/2": 16, "layer-fusion/4": 3, "knowledge/6": 14, "adjustment/2": 12}
FULL_CELLS = {"layer-fusion/2": 48, "layer-fusion/7": 36, "knowledge/2": 8, "adjustment/5": 90}


@pytest.fixture
def dry_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """Types ``crossling reproduce`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal.out, "width", 200)  # the environment is looked at once, before any test

    def type_in(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["crossling", "reproduce", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
        return capsys.readouterr().out

    return type_in


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_every_table_has_its_place(name: str, scale: str, tmp_path: Path) -> None:
    draft = draw_up(name, scale)
    study = write_study(draft, tmp_path)
    assert [cell.figure for cell in draft.cells] == list(draft.table.figures.values())
    known = {(variant.task, variant.system): variant.recipe for variant in study.variants}
    assert known.keys() == draft.recipes.keys()
    assert len(study.cells) == len(known) * len(draft.seeds)
    used = set()
    for cell in draft.cells:
        if cell.address is None:
            assert scale == "small"
            continue
        used |= set(list_needed(cell.address))
        assert cell.address.measure in MEASURES
        assert "{" not in cell.address.model_dump_json().replace("{", "", 1), "nothing is left to be filled in"
        assert _is_reachable(draft, cell.address), cell
    assert used == known.keys(), "no system is run that no cell needs"
    expected = SMALL_CELLS if scale == "small" else FULL_CELLS
    assert len(study.cells) == expected.get(name, len(study.cells))


def _is_reachable(draft: Draft, address: object) -> bool:
    """Whether a cell's languages, probe or model are among what would be scored."""
    from crossling.papers.definitions import Address

    assert isinstance(address, Address)
    if not address.analysis:
        for variant in list_needed(address):
            recipe = parse_recipe(draft.recipes[variant])
            entry = recipe.evaluate[address.evaluate]
            chosen = choose_languages(entry, address)
            if not chosen or (address.languages and len(chosen) != len(address.languages)):
                return False
        return draft.scores[address.task] in list_scores()
    settings = draft.analyses[address.analysis]
    if address.probe:
        return address.probe in settings["tasks"]
    return all(code in [full.partition("_")[0] for full in settings["languages"]] for code in address.languages)


@pytest.mark.parametrize("name", NAMES)
def test_small_scale_takes_nothing_from_outside_and_full_scale_what_the_paper_had(name: str) -> None:
    small, full = draw_up(name, "small"), draw_up(name, "full")
    assert {_family(data) for data in _list_data(small)} == {"phrasebook"}
    assert small.encoder == "multilingual-e5-small"
    assert {_family(data) for data in _list_data(full)} <= {*list_sets(), "ud"} - {"phrasebook"}
    assert full.encoder == ("xlm-roberta-base" if name == "layer-fusion/7" else "bert-base-multilingual-cased")
    assert len(full.seeds) == (5 if name.startswith("adjustment") else 1)
    assert any("no evidence" in note for note in small.notes)
    assert not any("no evidence" in note for note in full.notes)


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_has_every_set_language_and_split(name: str) -> None:
    for scale in ("small", "full"):
        for tables in draw_up(name, scale).recipes.values():
            recipe = parse_recipe(tables)
            named = [(spec, entry.split) for entry in recipe.evaluate for _, spec in entry.specs()]
            for stage in recipe.stage:
                some = stage.parallel if stage.kind == "adjust" else stage.train
                named += [(spec, "train") for spec in some]
            for data, split in named:
                if isinstance(data, str):
                    _check_spec(data, split)


def _check_spec(data: str, split: str) -> None:
    spec = parse_spec(data)
    declared = load_declaration(spec.name, spec.version)
    parts = dict.fromkeys(declared.roles, spec.language) if declared.roles and not spec.parts else spec.parts
    check_spec(replace(spec, split=spec.split or parse_split(split)[0], parts=parts), declared)


def _list_data(draft: Draft) -> list[str]:
    """Names of all sets that recipes and analyses read."""
    found: list[str] = []
    for recipe in draft.recipes.values():
        found += [entry["on"] for entry in recipe["evaluate"]]
        for stage in recipe["stage"]:
            for key in ("train", "parallel"):
                values = stage.get(key, [])
                found += [
                    value for value in (values if isinstance(values, list) else [values]) if isinstance(value, str)
                ]
            found += [one["train"] for one in stage.get("auxiliary", [])]
    for settings in draft.analyses.values():
        found += [settings["on"]] if "on" in settings else []
        found += [task["on"] for task in settings.get("tasks", {}).values() if "on" in task]
    return found + ([draft.extend.text] if draft.extend else [])


def _family(data: str) -> str:
    name = parse_spec(data if ":" in data else f"{data}:en").name
    return "phrasebook" if name.startswith("phrasebook-") else name


def test_full_scale_has_the_papers_settings() -> None:
    fused = draw_up("layer-fusion/2", "full").recipes["NER", "D_8"]
    (stage,) = parse_recipe(fused).stage
    assert (stage.lr, stage.epochs, stage.batch, stage.warmup) == (2e-5, 5, 32, 0.0)
    assert (stage.fusion["kind"], stage.fusion["layer"]) == ("dlfa", 8)
    assert [
        len(draw_up("layer-fusion/2", "full").recipes[task, "baseline"]["evaluate"][0]["languages"])
        for task in ("XNLI", "PAWS-X", "NER", "POS")
    ] == [15, 7, 40, 33]
    both = parse_recipe(draw_up("knowledge/6", "full").recipes["SA", "+combined"]).stage
    assert [stage.kind for stage in both] == ["adapt", "finetune"]
    assert (both[1].lr, both[1].epochs, [one.task.kind for one in both[1].auxiliary]) == (
        1e-5,
        5,
        ["tag", "classify_pair"],
    )
    multi = parse_recipe(draw_up("knowledge/2", "full").recipes["PI", "multi-ling"]).stage
    assert multi[0].train == ("pawsx:en", "pawsx:de", "pawsx:es", "pawsx:fr") and not multi[0].auxiliary
    continual = parse_recipe(draw_up("adjustment/4", "full").recipes["QA-vi", "Adjust.+continual"])
    adjust, finetune = continual.stage
    assert adjust.parallel == ("wikimatrix:en-vi:train[:250000]",)
    assert (adjust.sentences, adjust.aligner["kind"], finetune.replay.pull, finetune.replay.batch) == (
        30_000,
        "statistical",
        0.01,
        16,
    )
    assert (finetune.lr, finetune.epochs, finetune.select) == (3e-5, 2, "last")
    russian = parse_recipe(draw_up("adjustment/4", "full").recipes["QA-ru", "Original"])
    assert [(entry.on, entry.split) for entry in russian.evaluate] == [("tydiqa", "dev"), ("xquad", "test")]
    sizes = draw_up("adjustment/5", "full").recipes
    assert [sizes["NER-ru", row]["stage"][0]["sentences"] for row in ("5K", "250K")] == [5_000, 250_000]


def test_settings_go_where_their_names_say(tmp_path: Path) -> None:
    draft = draw_up(
        "knowledge/5", "small", ["seeds=[3,4]", "finetune.epochs=2", "encoder.name=x", "analysis.sentences=5"]
    )
    assert draft.seeds == (3, 4)
    assert {recipe["encoder"]["name"] for recipe in draft.recipes.values()} == {"x"}
    assert {stage["epochs"] for recipe in draft.recipes.values() for stage in recipe["stage"]} == {2}
    assert {settings["sentences"] for settings in draft.analyses.values()} == {5}
    assert write_study(draft, tmp_path).settings.seeds == (3, 4)
    assert draw_up("adjustment/9", "small", ["extend.pieces=7"]).extend.pieces == 7  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("finetun.epochs=2", "Did you mean 'finetune'"),
        ("adjust.sentences=2", "adjust.sentences: unknown"),
        ("epochs", "write key=value"),
        ("analysis.sentence=5", "sentence: unknown key"),
    ],
)
def test_a_setting_that_nothing_has_is_refused(setting: str, told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        draw_up("knowledge/5", "small", [setting])


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(UserError, match="Valid: full, small"):
        draw_up("knowledge/5", "tiny")


def test_a_row_is_taken_apart() -> None:
    assert split_label("POS: cross-ling / 40") == {"group": "POS", "name": "cross-ling", "variant": "40"}
    assert split_label("D_11") == {"group": "", "name": "D_11", "variant": ""}
    assert fill({"a": ["{x}-{y}", 3]}, {"x": "1"}) == {"a": ["1-{y}", 3]}


def test_the_list_has_every_table(dry_run: Callable[..., str]) -> None:
    told = dry_run()
    for table in list_tables():
        assert table.name in told and table.holds in told
    assert "adjustment/2" not in dry_run("knowledge")


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_shows_every_cell_and_leaves_nothing_behind(
    name: str, scale: str, dry_run: Callable[..., str], tmp_path: Path
) -> None:
    told = dry_run(name, "--scale", scale, "--dry-run")
    draft = draw_up(name, scale)
    shown = " ".join(told.split())
    for cell in draft.cells:
        assert f"{cell.row} {cell.column} {cell.figure.text} " in shown
    for sentence in (*draft.table.contradictions, *draft.notes):
        assert sentence in told
    for task, system in draft.recipes:
        assert f"{task} {system} " in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("layer-fusion/5", "XNLI D_11_G finetune: xnli:en, dlfa layer=11 branches=global"),
        ("knowledge/6", "NER +FA finetune: panx:en, beside it pos, beside it paraphrase"),
        ("adjustment/7", "sentences=30000, anchors=['cls', 'sep']; finetune: panx:en"),
        ("adjustment/3", "finetune: panx:en, replay"),
    ],
)
def test_a_dry_run_tells_what_systems_differ_by(name: str, line: str, dry_run: Callable[..., str]) -> None:
    assert line in " ".join(dry_run(name, "--scale", "full", "--dry-run").split())


def test_a_dry_run_needs_neither_torch_nor_data() -> None:
    import subprocess

    code = (
        "import sys\n"
        "sys.argv = ['crossling', 'reproduce', 'adjustment/4', '--scale', 'full', '--dry-run']\n"
        "from crossling.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "60 cells of the study" in done.stdout


def test_some_rows_alone_need_fewer_systems() -> None:
    draft = draw_up("knowledge/2", "full", rows=["NER", "PI: cross-ling"])
    assert set(draft.recipes) == {("NER", "cross-ling"), ("NER", "multi-ling"), ("PI", "cross-ling")}
    assert len(draft.cells) == 32, "the paper's figures are all shown"
    with pytest.raises(UserError, match="has no such row.*Valid: .*NER: multi-ling"):
        draw_up("knowledge/2", "full", rows=["QA"])
    with pytest.raises(UserError, match="nothing of knowledge/5 would be trained at small scale"):
        draw_up("knowledge/5", "small", rows=["mBERT", "PI"])


def test_a_setting_of_one_task_leaves_the_others_alone() -> None:
    swap = ["SA.finetune.train=umsab:en", 'SA.adapt.train=["umsab:en","umsab:de"]', "SA.evaluate.0.on=umsab"]
    recipes = draw_up("knowledge/2", "full", swap).recipes
    assert recipes["SA", "cross-ling"]["stage"][0]["train"] == "umsab:en"
    assert recipes["SA", "multi-ling"]["stage"][0]["train"] == ["umsab:en", "umsab:de"]
    assert recipes["SA", "multi-ling"]["evaluate"][0]["on"] == "umsab"
    assert recipes["PI", "cross-ling"] == draw_up("knowledge/2", "full").recipes["PI", "cross-ling"]
    of_languages = draw_up("adjustment/5", "full", ["NLI.finetune.train=taxinli:en"]).recipes
    assert of_languages["NLI-ru", "5K"]["stage"][1]["train"] == "taxinli:en"
    assert of_languages["NER-ru", "5K"]["stage"][1]["train"] == "panx:en"
