"""Whole runs through the command line: results, kills, several processes, equal work done once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.records import TaggedSentence
from crossling.encoders.loading import load_encoder
from crossling.errors import ArtefactError, DataError, RecipeError
from crossling.files import is_intact
from crossling.inference.predictor import Predictor
from crossling.models.model import load_model
from crossling.progress import NoProgress
from crossling.recipe.recipe import Recipe, RunSettings, load_recipe, parse_recipe
from crossling.report.run_summary import score_table
from crossling.scores.metrics import score
from crossling.scores.predictions import read_predictions
from crossling.store.artefacts import Store
from crossling.study import recipe_run
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.study.run_record import find_model
from crossling.study.run_report import report_run
from crossling.training.distributed import setup_distributed
from examples import make_rows
from faults import Command
from prepared import RUN_MODULE, run_code
from small_study import list_paths, predictions_of, weights_of
from two_processes import run_command_in_two_processes


def write_bio(path: Path, count: int, *, shift: int = 0) -> Path:
    """A file of made-up tagged sentences."""
    blocks = []
    for record in make_rows(TaggedSentence, count, shift=shift):
        assert isinstance(record, TaggedSentence)
        blocks.append("".join(f"{w}\t{t}\n" for w, t in zip(record.words, record.tags, strict=True)))
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def make_tables(folder: Path, encoder: Path, **stage: Any) -> dict[str, Any]:
    """A recipe for a tiny encoder on made-up files."""
    folder.mkdir(exist_ok=True)
    files = {name: write_bio(folder / f"{name}.tsv", count, shift=i) for i, (name, count) in enumerate(SIZES.items())}
    table = {name: {"format": "bio", "path": str(path), "language": "en"} for name, path in files.items()}
    return {
        "encoder": {"name": str(encoder)},
        "stage": [
            {
                "kind": "finetune",
                "task": "ner",
                "train": table["train"],
                "dev": table["dev"],
                "epochs": 3,
                "batch": 8,
                "lr": 1e-3,
                **stage,
            }
        ],
        "evaluate": [{"on": {**table["test"], "language": "hi"}}],
        "run": {"threads": 1, "checkpoint_seconds": 0.0},
    }


SIZES = {"train": 80, "dev": 16, "test": 30}


def write_recipe(path: Path, tables: dict[str, Any]) -> Path:
    from crossling.recipe.overrides import to_toml

    path.write_text(to_toml(tables), encoding="utf-8")
    return path


def test_run_writes_predictions_scores_and_a_page(tmp_path: Path, flat_folder: Path) -> None:
    recipe = write_recipe(tmp_path / "r.toml", {"seeds": [1, 2], **make_tables(tmp_path, flat_folder, epochs=3)})
    done = run_code(RUN_MODULE, "run", recipe, "--out", tmp_path / "out", "--store", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert "hi" in done.stdout
    assert "span_f1" in done.stdout
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} >= {"recipe.toml", "run.json", "seed-1", "seed-2", "scores.md", "page.html"}
    facts = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert set(facts["stages"]) == {"1", "2"}
    assert facts["machine"]["torch"]
    predictions = read_predictions(out / "seed-1" / "predictions" / "test" / "hi.parquet")
    assert predictions.n_rows == 30
    assert score(predictions)["accuracy"] > 0.7
    assert len(weights_of(tmp_path / "s")) == 2
    assert not list((tmp_path / "s" / "work").glob("*/*"))


def test_tagger_of_span_labels_is_scored_by_spans(tmp_path: Path, flat_folder: Path) -> None:
    """As the README's recipe for custom labels, which names neither scheme nor score."""
    tables = make_tables(tmp_path, flat_folder, task={"kind": "tag"}, epochs=1)
    run = run_recipe(parse_recipe(tables), store=Store(tmp_path / "s"), out=tmp_path / "out")
    summary = report_run(run)
    assert summary.main_score == "span_f1" and "span_f1" in summary.results[0].scores
    assert Predictor.load(find_model(tmp_path / "out")).predict([["Anna"]])[0].keys() >= {"spans", "words"}
    stored = load_recipe(tmp_path / "out" / "recipe.toml")
    again = RecipeRun(stored, run.store, run.out, run.distributed)
    assert again.identify_stages(1) == run.identify_stages(1), "the stored recipe is the same work"
    preset = RecipeRun(parse_recipe(make_tables(tmp_path, flat_folder, epochs=1)), run.store, run.out, run.distributed)
    assert preset.identify_stages(1) == run.identify_stages(1), "and so is the preset that has these settings"


def test_identity_of_plain_tags_counts_the_settings_that_are_filled_in(tmp_path: Path, flat_folder: Path) -> None:
    """Results of versions in which these were the defaults stay known."""
    for name, count in SIZES.items():
        (tmp_path / f"{name}.tsv").write_text("Anna\tPROPN\nruns\tVERB\n\n" * count, encoding="utf-8")
    identities = []
    for task in ({"kind": "tag"}, {"kind": "tag", "scheme": "none", "score": "accuracy"}):
        tables = make_tables(tmp_path / "x", flat_folder, task=task)
        for key in ("train", "dev"):
            tables["stage"][0][key]["path"] = str(tmp_path / f"{key}.tsv")
        tables["evaluate"] = []
        run = RecipeRun(parse_recipe(tables), Store(tmp_path / "s"), tmp_path, setup_distributed(RunSettings()))
        identities.append(run.identify_stages(1))
    assert identities[0] == identities[1]


def test_precision_counts_in_identities(tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    found = []
    for precision in ("auto", "float32", "bfloat16"):
        tables = {**make_tables(tmp_path, flat_folder, epochs=1), "run": {"device": "cpu", "precision": precision}}
        recipe = parse_recipe(tables)
        run = RecipeRun(recipe, Store(tmp_path / "s"), tmp_path / "out", setup_distributed(recipe.run))
        found.append(run.identify_stages(1))
    assert found[0] == found[1] != found[2]


def test_custom_files_of_several_languages_share_a_table(tmp_path: Path, flat_folder: Path) -> None:
    tables = make_tables(tmp_path, flat_folder, epochs=1)
    for number, language in enumerate(("de", "sw", "hi")):
        write_bio(tmp_path / f"news-{language}.tsv", 5, shift=number)
    tables["evaluate"] = [
        {"on": {"format": "bio", "path": str(tmp_path / "news-{language}.tsv")}, "languages": ["de", "sw"]},
        {"on": {"format": "bio", "path": str(tmp_path / "news-hi.tsv"), "language": "hi"}, "name": "news"},
        {"on": {"data": "phrasebook-ner", "limit": 5}, "languages": ["fr", "es"]},
    ]
    run = run_recipe(parse_recipe(tables), store=Store(tmp_path / "s"), out=tmp_path / "out")
    summary = report_run(run)
    assert [(one.data, one.language, one.examples) for one in summary.results] == [
        ("news", "de", 5),
        ("news", "sw", 5),
        ("news", "hi", 5),
        ("phrasebook-ner", "fr", 5),
        ("phrasebook-ner", "es", 5),
    ]
    assert "mean of 3" in score_table(summary, "news").to_markdown()


def test_everything_that_a_run_misses_is_reported_at_once(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a recipe on local WikiANN files, whose test split has no labels: one error for all languages."""
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    monkeypatch.setattr("crossling.data.hub._find_outage", lambda endpoint: "the hub cannot be reached")
    tables = make_tables(tmp_path, flat_folder, dev="phrasebook-ner:xx")
    tables["evaluate"] = [{"on": "panx", "languages": ["de", "hi", "sw"]}, {"on": "phrasebook-qa", "languages": ["de"]}]
    with pytest.raises(DataError) as caught:
        run_recipe(parse_recipe(tables), store=Store(tmp_path / "s"), out=tmp_path / "out")
    title, *lines = str(caught.value).splitlines()
    assert title == "3 problems"
    assert [line.split(":")[0].strip() for line in lines] == ["stage.0", "evaluate.0", "evaluate.1"]
    assert lines[1].count("the hub cannot be reached") == 1
    assert lines[1].endswith("Missing likewise: panx:hi:test, panx:sw:test.")


def _kill_at_random_moments(tmp_path: Path, encoder: Path, *, moments: int, seed: int) -> None:
    """Kill a run by SIGKILL again and again at random moments; at the end it must equal one left in peace."""
    recipe = write_recipe(tmp_path / "r.toml", make_tables(tmp_path, encoder, epochs=12))

    def start(name: str) -> Command:
        out, store = tmp_path / name, tmp_path / f"{name}-store"
        arguments = ("run", recipe, "--out", out, "--store", store)
        return Command.start(*arguments, output=tmp_path / f"{name}.txt", inside=(out, store), home=tmp_path / "home")

    start("calm").finish()

    def check() -> None:
        assert weights_of(tmp_path / "hurt-store") == weights_of(tmp_path / "calm-store") != {}
        assert predictions_of(tmp_path / "hurt") == predictions_of(tmp_path / "calm") != {}

    generator = random.Random(seed)
    killed = 0
    while killed < moments:
        process = start("hurt")
        # Half the kills strike as soon as something new is on disk: in the middle of checkpoints and results.
        if generator.random() < 0.5:
            _wait_for_change(tmp_path / "hurt-store", process)
            time.sleep(generator.random() * 0.02)
        else:
            _wait_for_work(tmp_path / "hurt-store", process)
            time.sleep(generator.random() * 0.5)
        process.kill()
        if process.poll() == -signal.SIGKILL:
            killed += 1
            continue
        assert process.poll() == 0, process.read()
        check()  # this process was stopped for so long that the run was over before it could be killed: another one
        for folder in (tmp_path / "hurt", tmp_path / "hurt-store"):
            shutil.rmtree(folder)
    start("hurt").finish()
    check()


def _wait_for_change(store: Path, process: Command) -> None:
    _wait_for_work(store, process)
    before = list_paths(store)
    while process.poll() is None and list_paths(store) == before:
        time.sleep(0.002)


def _wait_for_work(store: Path, process: Command) -> None:
    """Until the process has come past its imports."""
    begun = time.time()
    while process.poll() is None:
        for path in (store / "leases").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # given back meanwhile
                if path.stat().st_mtime >= begun:
                    return
        time.sleep(0.005)


def test_run_killed_at_three_moments_gives_the_same_bits(tmp_path: Path, flat_folder: Path) -> None:
    _kill_at_random_moments(tmp_path, flat_folder, moments=3, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_run_killed_at_ten_moments_gives_the_same_bits(tmp_path: Path, flat_folder: Path, seed: int) -> None:
    _kill_at_random_moments(tmp_path, flat_folder, moments=10, seed=seed)


def run_with_torchrun(*arguments: object, folder: Path) -> list[str]:
    """What both processes print together."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    words = [*launcher, "-m", "crossling", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CROSSLING_STORE": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return [done.stdout + done.stderr]


# Processes that are forked, and find each other in the same way, check the same without importing everything thrice.
@pytest.mark.parametrize(
    "launch", [run_command_in_two_processes, pytest.param(run_with_torchrun, marks=pytest.mark.slow)]
)
def test_two_processes_train_together(tmp_path: Path, flat_folder: Path, launch: Callable[..., list[str]]) -> None:
    """Two processes share each batch and add up their gradients: the loss without dropout is that of one process."""
    calm = shutil.copytree(flat_folder, tmp_path / "calm")
    config = json.loads((calm / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (calm / "config.json").write_text(json.dumps(config), encoding="utf-8")
    losses = {}
    for processes in (1, 2):  # the one is this process
        tables = make_tables(tmp_path, calm, epochs=1, task={"preset": "ner", "dropout": 0.0})
        tables["run"]["device"] = "cpu"
        recipe = write_recipe(tmp_path / "r.toml", tables)
        store = tmp_path / f"store-{processes}"
        if processes == 1:
            run_recipe(load_recipe(recipe), store=Store(store), out=tmp_path / "out-1")
        else:
            printed = launch("run", recipe, "--out", tmp_path / "out-2", "--store", store, folder=tmp_path)
            assert "".join(printed).count("epoch 1: dev") == 1, "one process shows progress"
        record = json.loads(next(store.glob("artefacts/*/complete.json")).read_text(encoding="utf-8"))
        assert record["machine"]["processes"] == str(processes)
        losses[processes] = [row["loss"] for row in record["history"] if "loss" in row]
    assert len(losses[1]) == len(losses[2])
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)


def test_equal_work_is_done_once_and_other_work_has_another_identity(tmp_path: Path, flat_folder: Path) -> None:
    store = Store(tmp_path / "s")
    tables = make_tables(tmp_path, flat_folder, epochs=1)
    run_recipe(parse_recipe(tables), store=store, out=tmp_path / "a")
    before = {p: p.stat().st_mtime_ns for p in store.root.rglob("model.safetensors")}
    run_recipe(parse_recipe(tables), store=store, out=tmp_path / "b")
    assert {p: p.stat().st_mtime_ns for p in store.root.rglob("model.safetensors")} == before
    assert predictions_of(tmp_path / "a") == predictions_of(tmp_path / "b")
    for change in ({"lr": 2e-3}, {"batch": 4}, {"fusion": {"kind": "last"}}):
        run_recipe(
            parse_recipe(make_tables(tmp_path, flat_folder, epochs=1, **change)), store=store, out=tmp_path / "c"
        )
    assert len(weights_of(store.root)) == 3
    write_bio(tmp_path / "train.tsv", 81)
    changed = parse_recipe({**tables, "stage": [{**tables["stage"][0]}]})
    run_recipe(changed, store=store, out=tmp_path / "d")
    assert len(weights_of(store.root)) == 4


def test_mistakes_are_reported_before_training(tmp_path: Path, flat_folder: Path) -> None:
    store = Store(tmp_path / "s")
    tables = make_tables(tmp_path, flat_folder)
    tables["evaluate"][0]["on"]["path"] = str(tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match="nowhere.tsv"):
        run_recipe(parse_recipe(tables), store=store, out=tmp_path / "out")
    tables = make_tables(tmp_path, flat_folder)
    tables["stage"][0]["dev"]["language"] = "sw"
    with pytest.raises(RecipeError, match="source language"):
        run_recipe(parse_recipe(tables), store=store, out=tmp_path / "out")
    tables = make_tables(tmp_path, flat_folder)
    tables["stage"][0]["task"] = "nli"
    with pytest.raises(DataError, match="TaggedSentence"):
        run_recipe(parse_recipe(tables), store=store, out=tmp_path / "out")
    assert not (tmp_path / "s" / "artefacts").exists()


def test_model_of_a_run_is_found_by_seed(tmp_path: Path, flat_folder: Path) -> None:
    from crossling.errors import ArtefactError

    with pytest.raises(ArtefactError, match="not the folder of a run"):
        find_model(tmp_path)
    recipe = parse_recipe({"seeds": [3, 4], **make_tables(tmp_path, flat_folder, epochs=1)})
    run_recipe(recipe, store=Store(tmp_path / "s"), out=tmp_path / "out")
    assert find_model(tmp_path / "out") == find_model(tmp_path / "out", seed=3) != find_model(tmp_path / "out", seed=4)
    with pytest.raises(ArtefactError, match="it has 3, 4"):
        find_model(tmp_path / "out", seed=9)


def test_second_stage_starts_from_the_first_ones_weights(tmp_path: Path, flat_folder: Path) -> None:
    """Trimmed or not, rows that only the first stage's text uses are those that it trained."""
    texts = {"first": ["cat", "sees", "dog"], "second": ["мир", "нам", "我"]}
    paths = {}
    for name, words in texts.items():
        lines = [f"{words[(i + j) % 3]}\t{'B-X' if (i + j) % 3 else 'O'}" for i in range(24) for j in range(3)]
        text = "\n".join(line + ("\n" if n % 3 == 2 else "") for n, line in enumerate(lines))
        paths[name] = tmp_path / f"{name}.tsv"
        paths[name].write_text(text + "\n", encoding="utf-8")
    table = {name: {"format": "bio", "path": str(path), "language": "en"} for name, path in paths.items()}
    stage = {"kind": "finetune", "task": "ner", "select": "last", "epochs": 2, "lr": 1e-2, "batch": 8}
    found = []
    for trim in (True, False):
        tables = {
            "encoder": {"name": str(flat_folder), "trim": trim},
            "stage": [{**stage, "train": [table[name]]} for name in texts],
            "run": {"threads": 1},
        }
        out = tmp_path / f"out-{trim}"
        run_recipe(parse_recipe(tables), store=Store(tmp_path / f"store-{trim}"), out=out)
        found.append(load_model(find_model(out))[0].encoder.model.get_input_embeddings().weight.detach().numpy())
    assert np.allclose(found[0], found[1], atol=1e-5)
    base = load_encoder(str(flat_folder)).model.get_input_embeddings().weight.detach().numpy()
    assert np.abs(found[0] - base).max() > 1e-3


def test_systems_that_share_a_seed_share_initial_weights_and_order(tmp_path: Path, flat_folder: Path) -> None:
    """A fusion that starts as the last layer and hardly learns ends where no fusion does: one head, one dropout."""
    weights = []
    for fusion in ({"kind": "last"}, {"kind": "dlfa", "layer": 1, "start": "identity", "lr": 1e-12}):
        recipe = parse_recipe(make_tables(tmp_path, flat_folder, fusion=fusion, epochs=1))
        run_recipe(recipe, store=Store(tmp_path / "store"), out=tmp_path / fusion["kind"])
        weights.append(load_model(find_model(tmp_path / fusion["kind"]))[0].heads["tag"].linear.weight.detach().numpy())
    assert np.allclose(weights[0], weights[1], atol=1e-4)


def test_mistake_in_data_is_reported_with_its_key(tmp_path: Path, flat_folder: Path) -> None:
    tables = make_tables(tmp_path, flat_folder)
    wrong = {"format": "bio", "path": str(tmp_path / "none.tsv"), "language": "hi"}
    for key, part in (("stage.0", tables["stage"][0]), ("evaluate.0", tables["evaluate"][0])):
        name = "train" if key == "stage.0" else "on"
        changed = {**tables, key.split(".")[0]: [{**part, name: wrong}]}
        with pytest.raises(DataError, match=rf"^{key}: .*none\.tsv"):
            run_recipe(parse_recipe(changed), store=Store(tmp_path / "s"), out=tmp_path / "out")


def test_evaluation_data_is_encoded_while_a_gpu_trains(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the last stage begins, with its task; a processor has no time to spare."""
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(recipe_run, "encode_ahead", lambda *given, cache: asked.append((*given, cache)))
    begun: list[tuple[Any, Any]] = []
    ahead = RecipeRun._encode_targets
    monkeypatch.setattr(RecipeRun, "_encode_targets", lambda self, *given: (begun.append(given), ahead(self, *given)))
    tables = make_tables(tmp_path, flat_folder, epochs=1)
    tables["stage"] *= 2
    store = Store(tmp_path / "store")
    run = run_recipe(parse_recipe(tables), store=store, out=tmp_path / "out")
    assert len(begun) == 1 and not asked
    run.distributed = replace(run.distributed, device=torch.device("cuda"))
    run._encode_targets(*begun[0])
    ((task, sets, encoder, cache),) = asked
    assert (task, encoder) == begun[0] and cache == store.root / "encoded"
    assert [rows.language for rows in sets] == ["hi"] and "B-X" in task.labels


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 0x40
    path.write_bytes(content)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, flat_folder: Path) -> tuple[dict[str, Any], Path]:
    """A recipe of two stages, and the folder of its store and its results."""
    folder = tmp_path_factory.mktemp("finished")
    tables = make_tables(folder, flat_folder, epochs=1)
    tables["stage"].append({**tables["stage"][0], "lr": 2e-3})
    run_recipe(parse_recipe(tables), store=Store(folder / "s"), out=folder / "out")
    return tables, folder


class Lines(NoProgress):
    """Progress that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


def copy_finished(finished: tuple[dict[str, Any], Path], tmp_path: Path) -> tuple[Recipe, Path, Path]:
    tables, folder = finished
    shutil.copytree(folder / "s", tmp_path / "s")
    return parse_recipe(tables), tmp_path / "s", folder


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_damaged_artefact_is_set_aside_and_made_again(
    finished: tuple[dict[str, Any], Path], tmp_path: Path, stage: int, name: str
) -> None:
    recipe, store, folder = copy_finished(finished, tmp_path)
    run = RecipeRun(recipe, Store(store), tmp_path / "out", setup_distributed(recipe.run))
    identity = run.identify_stages(1)[stage]
    expected = weights_of(store)
    flip_a_bit(store / "artefacts" / identity / name)
    shutil.rmtree(store / "predictions")  # so that both models are read
    progress = Lines()
    run_recipe(recipe, store=Store(store), out=tmp_path / "out", progress=progress)
    assert weights_of(store) == expected
    assert predictions_of(tmp_path / "out") == predictions_of(folder / "out")
    assert len([line for line in progress.said if "is damaged" in line and "made again" in line]) == 1
    assert [path.name.rpartition("-")[0] for path in (store / "damaged").iterdir()] == [identity]


def test_damaged_model_is_not_used_in_silence(finished: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    recipe, store, _ = copy_finished(finished, tmp_path)
    run_recipe(recipe, store=Store(store), out=tmp_path / "out")
    for path in (store / "artefacts").glob("*/model.safetensors"):
        flip_a_bit(path)
    with pytest.raises(ArtefactError, match="is damaged.*Run its recipe again"):
        find_model(tmp_path / "out")


def test_damaged_caches_and_predictions_are_made_again(finished: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    recipe, store, folder = copy_finished(finished, tmp_path)
    damaged = [*store.glob("predictions/*/*.parquet"), *store.glob("encoded/*.arrow"), *store.glob("data/**/*.arrow")]
    assert len({path.parent.relative_to(store).parts[0] for path in damaged}) == 3
    for path in damaged:
        flip_a_bit(path)
    for path in store.glob("predictions/*/*.parquet"):  # of whose footer not every bit says something
        path.write_bytes(path.read_bytes()[:-100])
    shutil.rmtree(store / "artefacts")  # so that all caches are read
    progress = Lines()
    run_recipe(recipe, store=Store(store), out=tmp_path / "out", progress=progress)
    assert predictions_of(tmp_path / "out") == predictions_of(folder / "out")
    assert any("predictions" in line and "made again" in line for line in progress.said)
    for path in damaged:
        assert path.suffix == ".parquet" or is_intact(path)


def test_corrected_language_gives_predictions_of_that_language(
    finished: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    tables, folder = finished
    entry = dict(tables["evaluate"][0]["on"])
    other = {**tables, "evaluate": [{"on": {**entry, "language": "mr"}}]}
    run_recipe(parse_recipe(other), store=Store(folder / "s"), out=tmp_path / "out")
    [path] = (tmp_path / "out").rglob("predictions/*/*.parquet")
    assert (path.stem, read_predictions(path).language) == ("mr", "mr")
