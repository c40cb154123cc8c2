"""Every table planned at both scales: each printed figure has a source of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossling.cli import main as cli
from crossling.data.catalogue import list_sets
from crossling.data.declarations import check_spec, load_declaration
from crossling.data.spec import parse_spec, parse_split
from crossling.errors import DataError, RecipeError, UserError
from crossling.papers.measures import MEASURES, choose_languages
from crossling.papers.published import FOLDER, PAPERS, list_figures, list_tables
from crossling.papers.tables import CellSource, TablePlan, fill, plan_table, split_label
from crossling.recipe.recipe import Recipe, load_recipe
from crossling.report import terminal
from crossling.scores.metrics import list_scores
from crossling.study.grid import load_study
from crossling.study.layers import check_known_layers

NAMES = [table.name for table in (*list_tables(), *list_figures())]
SMALL_CELLS = {"layer-fusion/2": 16, "layer-fusion/4": 3, "knowledge/6": 14, "adjustment/2": 12}
FULL_CELLS = {
    "layer-fusion/2": 51,
    "adjustment/figure-2": 180,
    "layer-fusion/7": 36,
    "knowledge/2": 8,
    "adjustment/5": 90,
}


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
def test_every_cell_of_every_table_has_a_source(name: str, scale: str) -> None:
    plan = plan_table(name, scale)
    study = plan.study
    assert [cell.figure for cell in plan.cells] == list(plan.table.figures.values())
    known = {(variant.task, variant.system): variant.recipe for variant in study.variants}
    assert len(study.cells) == len(known) * len(study.settings.seeds)
    used = set()
    for cell in plan.cells:
        if cell.source is None:
            assert scale == "small"
            continue
        used |= set(cell.source.needs)
        assert cell.source.measure in MEASURES
        assert "{" not in cell.source.model_dump_json().replace("{", "", 1), "nothing is left to be filled in"
        assert _is_reachable(plan, cell.source), cell
    assert used == known.keys(), "no system is run that no cell needs"
    expected = SMALL_CELLS if scale == "small" else FULL_CELLS
    assert len(study.cells) == expected.get(name, len(study.cells))


def _is_reachable(plan: TablePlan, source: CellSource) -> bool:
    """Whether a cell's languages, probe or model are among what would be scored."""
    if not source.analysis:
        for key in source.needs:
            entry = plan.find_recipe(key).evaluate[source.evaluate]
            chosen = choose_languages(entry, source)
            if not chosen or (source.languages and len(chosen) != len(source.languages)):
                return False
        return plan.find_score(source) in list_scores()
    settings: Any = plan.analyses[source.analysis]
    if source.probe:
        return source.probe in settings.tasks
    return all(code in [full.partition("_")[0] for full in settings.languages] for code in source.languages)


@pytest.mark.parametrize("name", NAMES)
def test_small_scale_reads_the_embedded_corpus_and_full_scale_the_papers_data(name: str) -> None:
    small, full = plan_table(name, "small"), plan_table(name, "full")
    assert {_family(data) for data in _list_data(small)} == {"phrasebook"}
    assert small.encoder == "multilingual-e5-small"
    assert {_family(data) for data in _list_data(full)} <= {*list_sets(), "ud"} - {"phrasebook"}
    assert full.encoder == ("xlm-roberta-base" if name == "layer-fusion/7" else "bert-base-multilingual-cased")
    assert len(full.study.settings.seeds) == (5 if name.startswith("adjustment") else 1)
    assert any("no evidence" in note for note in small.notes)
    assert not any("no evidence" in note for note in full.notes)


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_has_every_set_language_and_split(name: str) -> None:
    for scale in ("small", "full"):
        for recipe in (variant.recipe for variant in plan_table(name, scale).study.variants):
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


def _list_data(plan: TablePlan) -> list[str]:
    """Names of all sets that recipes and analyses read."""
    found: list[object] = []
    for recipe in (variant.recipe for variant in plan.study.variants):
        found += [entry.on for entry in recipe.evaluate]
        for stage in recipe.stage:
            found += stage.parallel if stage.kind == "adjust" else stage.train
            found += [data for one in getattr(stage, "auxiliary", ()) for data in one.train]
    for settings in plan.analyses.values():
        found += [getattr(one, "on", None) for one in (settings, *getattr(settings, "tasks", {}).values())]
    return [name for name in found if name and isinstance(name, str)] + ([plan.extend.text] if plan.extend else [])


def _family(data: str) -> str:
    name = parse_spec(data if ":" in data else f"{data}:en").name
    return "phrasebook" if name.startswith("phrasebook-") else name


def test_perplexity_is_of_the_test_text_of_each_task() -> None:
    for scale in ("small", "full"):
        plan = plan_table("knowledge/5", scale)
        for task in {variant.task for variant in plan.study.variants}:
            settings: Any = plan.analyses[task]
            entry = plan.find_recipe((task, "cross-ling")).evaluate[0]
            assert (settings.on, list(settings.languages)) == (entry.on, list(entry.languages))
            assert settings.split in ("", "test")


def _recipe(name: str, task: str, system: str, overrides: Sequence[str] = ()) -> Recipe:
    return plan_table(name, "full", overrides).find_recipe((task, system))


def test_full_scale_has_the_papers_settings() -> None:
    (stage,) = _recipe("layer-fusion/2", "NER", "D_8").stage
    assert (stage.lr, stage.epochs, stage.batch, stage.warmup) == (2e-5, 5, 32, 0.0)
    assert (stage.fusion["kind"], stage.fusion["layer"]) == ("dlfa", 8)
    assert [
        len(_recipe("layer-fusion/2", task, "baseline").evaluate[0].languages)
        for task in ("XNLI", "PAWS-X", "NER", "POS")
    ] == [15, 7, 40, 33]
    both = _recipe("knowledge/6", "SA", "+combined").stage
    assert [stage.kind for stage in both] == ["adapt", "finetune"]
    assert (both[1].lr, both[1].epochs, [one.task.kind for one in both[1].auxiliary]) == (
        1e-5,
        5,
        ["tag", "classify_pair"],
    )
    multi = _recipe("knowledge/2", "PI", "multi-ling").stage
    assert multi[0].train == ("pawsx:en", "pawsx:de", "pawsx:es", "pawsx:fr") and not multi[0].auxiliary
    russian = _recipe("adjustment/4", "QA-ru", "Original")
    assert [(entry.on, entry.split) for entry in russian.evaluate] == [("tydiqa", "dev"), ("xquad", "test")]
    sizes = [_recipe("adjustment/5", "NER-ru", row).stage[0].sentences for row in ("5K", "250K")]
    assert sizes == [5_000, 250_000]


@pytest.mark.parametrize(
    ("name", "task", "lr", "epochs"),
    [
        ("adjustment/2", "NLI-es", 5e-5, 2),
        ("adjustment/3", "NER-hi", 2e-5, 3),
        ("adjustment/4", "QA-vi", 3e-5, 2),
    ],
)
def test_full_scale_has_the_settings_of_the_adjustment_paper_for_each_task(
    name: str, task: str, lr: float, epochs: int
) -> None:
    adjust, finetune = _recipe(name, task, "Adjust.+continual").stage
    aligned = {
        "parallel": (f"wikimatrix:en-{task[-2:]}:train[:250000]",),
        "sentences": 30_000,
        "aligner": {"kind": "statistical", "symmetrize": "intersection", "fast_align": True},
        "align_on": "all",
        "stay": 1.0,
    }
    adam = {"lr": 5e-5, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.0, "warmup": 0.1, "schedule": "constant"}
    _check(adjust, {**aligned, **adam, "pull": 1.0, "epochs": 1, "batch": 32, "clip": 0.0})
    _check(finetune, {"lr": lr, "epochs": epochs, "batch": 32, "clip": 0.0, "warmup": 0.0, "select": "last"})
    _check(finetune.replay, {**aligned, "pull": 0.01, "batch": 16, "reference": "base"})
    if task.startswith("QA"):
        _check(finetune.task, {"length": 384, "overlap": 128})


def _check(settings: Any, expected: dict[str, Any]) -> None:
    assert {key: getattr(settings, key) for key in expected} == expected


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_is_an_ordinary_study_at_both_scales(paper: str) -> None:
    whole, small = (load_study(FOLDER / f"{paper}.toml", small=small) for small in (False, True))
    assert [variant.folder for variant in whole.variants] == [variant.folder for variant in small.variants]
    assert {variant.recipe.encoder.name for variant in small.variants} == {"multilingual-e5-small"}
    planned = {
        (variant.task, variant.system)
        for name in NAMES
        if name.startswith(paper)
        for variant in plan_table(name, "full").study.variants
    }
    assert {system for _, system in planned} == set(whole.settings.systems), "no system without a cell"
    assert {task for task, _ in planned} == set(whole.settings.tasks), "no task without a cell"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("recipe-*.toml")), ids=lambda path: path.name)
def test_every_recipe_of_a_paper_is_valid(path: Path) -> None:
    assert load_recipe(path).stage


def test_settings_are_sorted_by_their_names() -> None:
    plan = plan_table(
        "knowledge/5", "small", ["seeds=[3,4]", "finetune.epochs=2", "encoder.name=x", "analysis.sentences=5"]
    )
    recipes = [variant.recipe for variant in plan.study.variants]
    assert plan.study.settings.seeds == (3, 4)
    assert {recipe.encoder.name for recipe in recipes} == {"x"}
    assert {stage.epochs for recipe in recipes for stage in recipe.stage} == {2}
    assert [settings.sentences for settings in plan.analyses.values()] == [5, 5]  # type: ignore[attr-defined]
    assert plan_table("knowledge/5", "small").analyses["POS"].sentences == 8, "settings are of one call"  # type: ignore[attr-defined]
    assert plan_table("adjustment/9", "small", ["extend.pieces=7"]).extend.pieces == 7  # type: ignore[union-attr]
    with pytest.raises(RecipeError, match="extend.piece: unknown key"):
        plan_table("adjustment/9", "small", ["extend.piece=7"])


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("finetun.epochs=2", "Did you mean 'finetune'"),
        ("adjust.sentences=2", "adjust.sentences: unknown"),
        ("epochs", "write key=value"),
        ("analysis.sentence=5", "sentence: unknown key"),
    ],
)
def test_unknown_setting_is_refused(setting: str, shown: str) -> None:
    with pytest.raises(RecipeError, match=shown):
        plan_table("knowledge/5", "small", [setting])


def test_unknown_scale_is_refused() -> None:
    with pytest.raises(UserError, match="Valid: full, small"):
        plan_table("knowledge/5", "tiny")


def test_row_label_is_split_into_group_name_and_variant() -> None:
    assert split_label("POS: cross-ling / 40") == {"group": "POS", "name": "cross-ling", "variant": "40"}
    assert split_label("D_11") == {"group": "", "name": "D_11", "variant": ""}
    assert fill(("{x}-{y}", 3), {"x": "1"}) == ("1-{y}", 3)


def test_list_has_every_table(dry_run: Callable[..., str]) -> None:
    shown = dry_run()
    for table in list_tables():
        assert table.name in shown and table.holds in shown
    assert "adjustment/2" not in dry_run("knowledge")


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_dry_run_shows_every_cell_and_writes_no_file(
    name: str, scale: str, dry_run: Callable[..., str], tmp_path: Path
) -> None:
    shown = dry_run(name, "--scale", scale, "--dry-run")
    plan = plan_table(name, scale)
    shown = " ".join(shown.split())
    for cell in plan.cells:
        assert f"{cell.row} {cell.column} {cell.figure.text or '?'} " in shown
    for sentence in (*plan.table.contradictions, *plan.notes):
        assert sentence in shown
    for variant in plan.study.variants:
        assert f"{variant.task} {variant.system} " in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("layer-fusion/5", "XNLI D_11_G finetune: xnli:en fusion=kind=dlfa,layer=11,branches=global"),
        ("knowledge/6", "NER +FA finetune: panx:en with ud:en_ewt, pawsx:en"),
        ("adjustment/7", "finetune: panx:en anchors=cls,sep"),
        ("adjustment/3", "finetune: panx:en replay="),
    ],
)
def test_dry_run_shows_the_settings_that_systems_differ_by(name: str, line: str, dry_run: Callable[..., str]) -> None:
    assert line in " ".join(dry_run(name, "--scale", "full", "--dry-run").split())


def test_layers_that_an_encoder_in_a_folder_lacks_are_refused_without_data(tiny_folder: Path) -> None:
    plan = plan_table("layer-fusion/4", "full", [f"encoder.name={tiny_folder}"])
    with pytest.raises(
        DataError, match=r"2 of 3 variants cannot be run\n  .*D_10: stage\.0: fusion\.layer = 10: .* 3 lay"
    ):
        check_known_layers(plan.study)
    check_known_layers(plan_table("layer-fusion/4", "full").study)


@pytest.mark.parametrize(("encoder", "layers"), [("multilingual-e5-small", 12), ("gemma-3-270m", 18)])
def test_layers_that_a_packaged_encoder_lacks_are_refused_without_its_weights(
    encoder: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossling.encoders.cache.load_encoder", None)
    fusions = {layer: f'finetune.fusion={{kind="dlfa",layer={layer}}}' for layer in (layers, layers + 1)}
    study = plan_table("layer-fusion/4", "small", [f"encoder.name={encoder}", fusions[layers + 1]]).study
    with pytest.raises(DataError, match=rf"3 of 3 variants cannot be run\n  .*layer = {layers + 1}: .* {layers} lay"):
        check_known_layers(study)
    known = plan_table("layer-fusion/4", "small", [f"encoder.name={encoder}", fusions[layers]]).study
    assert check_known_layers(known) == []


def test_layers_that_analyses_name_are_refused_before_training_and_unknown_encoders_named() -> None:
    plan = plan_table("knowledge/3", "small", ["analysis.layer=13"])
    with pytest.raises(DataError, match=r"analysis probe: layer = 13: the encoder has 12 layers"):
        check_known_layers(plan.study, plan.analyses)
    plan = plan_table("knowledge/3", "small", ["analysis.layer=12"])
    assert check_known_layers(plan.study, plan.analyses) == []
    plan = plan_table("knowledge/3", "full", ["analysis.layer=40"])
    assert check_known_layers(plan.study, plan.analyses) == ["bert-base-multilingual-cased"]


@pytest.mark.parametrize(
    ("scale", "more", "shown"),
    [
        ("full", [], "60 cells of the study"),
        ("full", [], "not checked: whether bert-base-multilingual-cased has the layers that are named"),
        ("small", [], "9 cells of the study"),
        ("small", ['--set=finetune.fusion={kind="dlfa",layer=40}'], "fusion.layer = 40: the encoder has 12 layers"),
    ],
)
def test_dry_run_needs_neither_torch_nor_data(scale: str, more: list[str], shown: str) -> None:
    import subprocess

    code = (
        "import sys\n"
        f"sys.argv = ['crossling', 'reproduce', 'adjustment/4', '--scale', '{scale}', '--dry-run', *{more}]\n"
        "from crossling.cli.main import main\n"
        f"try:\n    main()\nexcept SystemExit as stop:\n    assert (stop.code or 0) == {2 * bool(more)}, stop.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shown in " ".join((done.stdout + done.stderr).split())


def test_some_rows_alone_need_fewer_systems() -> None:
    plan = plan_table("knowledge/2", "full", rows=["NER", "PI: cross-ling"])
    assert {(variant.task, variant.system) for variant in plan.study.variants} == {
        ("NER", "cross-ling"),
        ("NER", "multi-ling"),
        ("PI", "cross-ling"),
    }
    assert len(plan.cells) == 32, "the paper's figures are all shown"
    with pytest.raises(UserError, match="has no such row.*Valid: .*NER: multi-ling"):
        plan_table("knowledge/2", "full", rows=["QA"])
    with pytest.raises(UserError, match="nothing of knowledge/5 would be trained at small scale"):
        plan_table("knowledge/5", "small", rows=["mBERT", "PI"])


def test_a_setting_of_one_task_leaves_the_others_unchanged() -> None:
    swap = ["SA.stage.1.train=umsab:en", 'SA.stage.2.train=["umsab:en","umsab:de"]', "SA.evaluate.0.on=umsab"]
    assert _recipe("knowledge/2", "SA", "cross-ling", swap).stage[0].train == ("umsab:en",)
    multi = _recipe("knowledge/2", "SA", "multi-ling", swap)
    assert (multi.stage[0].train, multi.evaluate[0].on) == (("umsab:en", "umsab:de"), "umsab")
    assert _recipe("knowledge/2", "PI", "cross-ling", swap) == _recipe("knowledge/2", "PI", "cross-ling")
    swap = ["NLI.finetune.train=taxinli:en"]
    assert _recipe("adjustment/5", "NLI-ru", "5K", swap).stage[1].train == ("taxinli:en",)
    assert _recipe("adjustment/5", "NER-ru", "5K", swap).stage[1].train == ("panx:en",)
