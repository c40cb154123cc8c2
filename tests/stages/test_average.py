"""Averages over epochs and over seeds: whose weights they are the mean of, and what cannot be averaged."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.records import LabelledText, TaggedSentence
from crossling.encoders.loading import load_encoder
from crossling.errors import RecipeError
from crossling.models.model import ROWS, Model, ModelCard, load_model, read_weights, save_model
from crossling.progress import NoProgress
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import EncoderSettings, Recipe, freeze, parse_recipe
from crossling.stages import average, finetune
from crossling.stages.context import StageContext
from crossling.store.artefacts import Store
from crossling.study.folder import PlannedCell
from crossling.study.model_facts import describe_model
from crossling.study.plan import JobGraph
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.study.run_report import summarise_run
from crossling.training.distributed import Distributed, setup_distributed
from examples import make_rows, rows_of
from two_processes import run_command_in_two_processes

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
DLFA = {"kind": "dlfa", "layer": 1}


def make_context(folder: Path, encoder: Path, seed: int = 1, load_earlier: Any = None) -> StageContext:
    loaded, settings = load_encoder(str(encoder)), EncoderSettings(name=str(encoder))
    return StageContext(seed, "en", loaded, settings, ONE, folder / f"work-{seed}", folder, load_earlier=load_earlier)


def train(
    folder: Path, encoder: Path, data: finetune.Data, *, seed: int = 1, **changes: Any
) -> tuple[Model, ModelCard]:
    table = {"task": {"kind": "tag"}, "train": "made:en", "select": "last", "epochs": 1, "batch": 8, "lr": 1e-2}
    settings = finetune.Settings.model_validate(freeze({**table, **changes}))
    return finetune.train(settings, data, make_context(folder, encoder, seed))[:2]


def write_tagged(folder: Path, name: str, count: int, *, shift: int = 0, language: str = "en") -> dict[str, Any]:
    path = folder / f"{name}.jsonl"
    lines = [{"words": record.words, "tags": record.tags} for record in make_rows(TaggedSentence, count, shift=shift)]  # type: ignore[attr-defined]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return {"format": "jsonl", "path": str(path), "language": language}


def make_tables(
    folder: Path, encoder: Path, *stages: dict[str, Any], checkpoint_seconds: float = 600.0, **changes: Any
) -> dict[str, Any]:
    """Fine-tuning with a shared head, then the stages that are given."""
    folder.mkdir(parents=True, exist_ok=True)
    first = {
        "kind": "finetune",
        "task": {"kind": "tag"},
        "train": write_tagged(folder, "train", 24),
        "dev": write_tagged(folder, "dev", 8, shift=1),
        "initial_head": "shared",
        "fusion": DLFA,
        "epochs": 2,
        "batch": 8,
        "lr": 5e-3,
        **changes,
    }
    return {
        "encoder": {"name": str(encoder)},
        "stage": [first, *stages],
        "evaluate": [{"on": write_tagged(folder, "test", 6, shift=2, language="hi")}],
        "run": {"threads": 1, "device": "cpu", "checkpoint_seconds": checkpoint_seconds},
    }


def make_recipe(folder: Path, encoder: Path, *stages: dict[str, Any], **changes: Any) -> Recipe:
    return parse_recipe(make_tables(folder, encoder, *(stages or ({"kind": "average", "models": 2},)), **changes))


def run(recipe: Recipe, folder: Path, **settings: Any) -> RecipeRun:
    return run_recipe(recipe, store=Store(folder / "store"), out=folder / "out", **settings)


def load_whole(folder: Path) -> dict[str, torch.Tensor]:
    """All weights of a saved model, with its whole vocabulary."""
    return {name: weight.clone() for name, weight in load_model(folder)[0].state_dict().items()}


def check_mean(found: dict[str, torch.Tensor], parts: list[dict[str, torch.Tensor]]) -> None:
    for name, weight in found.items():
        if weight.is_floating_point():
            by_hand = torch.stack([part[name].double() for part in parts]).mean(0)
            torch.testing.assert_close(weight.double(), by_hand, atol=1e-7, rtol=1e-6, msg=name)


def test_average_over_seeds_is_the_mean_of_their_models(tmp_path: Path, flat_folder: Path) -> None:
    """Heads, fusion and batch statistics included; its parts are trained first, and it predicts as one model."""
    recipe = make_recipe(tmp_path, flat_folder, {"kind": "average"})
    done = run(recipe, tmp_path)
    parts = [done.store.artefact(done.identify_stages(seed)[0]) for seed in (1, 1001, 2001)]
    whole = [load_whole(part) for part in parts]
    final = done.store.artefact(done.identify_stages(1)[-1])
    check_mean(load_whole(final), whole)
    heads = [one["heads.tag.linear.weight"] for one in whole]
    assert not torch.equal(heads[0], heads[1]), "order and dropout are by the seed"
    assert any("running_var" in name for name in whole[0])
    assert (final / "model.safetensors").stat().st_size == (parts[0] / "model.safetensors").stat().st_size
    record = done.store.record(final.name)
    scores = [done.store.record(part.name)["dev_score"] for part in parts]
    assert record["averaging"] == {
        "seeds": [1, 1001, 2001],
        "dev_scores": pytest.approx(scores),
        "mean_dev_score": pytest.approx(np.mean(scores)),
    }
    assert 0 <= record["dev_score"] <= 1 and record["steps"] == 0
    assert len(list((tmp_path / "out").glob("seed-*/predictions/*/*.parquet"))) == 1
    summary = summarise_run(tmp_path / "out", store=done.store.root)
    assert any("mean of the models of seeds 1, 1001, 2001" in note for note in summary.notes)
    facts = describe_model(tmp_path / "out", load_model(final)[1], name="mean", seed=None)
    assert facts.sources == ("en",) and facts.stages[-1] == "average: models 3"


def test_rows_that_one_part_did_not_learn_count_with_the_base_row(tmp_path: Path, flat_folder: Path) -> None:
    """Models whose trimmed vocabularies differ, against the mean of the models as they are when they are loaded."""
    rows = list(make_rows(TaggedSentence, 8))
    latin, cyrillic = ("the", "cat"), ("мир", "нам")
    folders = {}
    for seed, words in ((1, latin), (1001, cyrillic)):
        only = [TaggedSentence(words, (*record.tags[:1], "B-X")) for record in rows]  # type: ignore[attr-defined]
        data = finetune.Data((rows_of([*only, TaggedSentence(("the",), ("O",))]),), None)
        model, card = train(tmp_path, flat_folder, data, seed=seed, initial_head="shared")
        folders[seed] = tmp_path / f"model-{seed}"
        save_model(model, card, folders[seed])
    learnt = {seed: set(read_weights(folder / "model.safetensors")[ROWS].tolist()) for seed, folder in folders.items()}
    assert learnt[1] - learnt[1001] and learnt[1001] - learnt[1], "each learnt subwords that the other did not"
    context = make_context(tmp_path, flat_folder, load_earlier=lambda seed: load_model(folders[seed]))
    model, card, _ = average.train(average.Settings(models=2), average.Data((), None), context)
    save_model(model, card, tmp_path / "mean")
    check_mean(load_whole(tmp_path / "mean"), [load_whole(folder) for folder in folders.values()])
    stored = read_weights(tmp_path / "mean" / "model.safetensors")
    assert set(stored[ROWS].tolist()) == learnt[1] | learnt[1001] < set(range(context.encoder.vocabulary))


def test_seeds_with_a_shared_head_start_alike(tmp_path: Path, flat_folder: Path) -> None:
    """Heads of auxiliary tasks and the fusion, too; by default each seed draws its own."""
    data = finetune.Data((make_rows(TaggedSentence),), None, ((make_rows(LabelledText, 8),),))
    changes = {"auxiliary": [{"task": {"kind": "classify"}, "train": "made:en"}], "fusion": DLFA, "lr": 1e-12}

    def draw(name: str, seed: int, head: str) -> dict[str, torch.Tensor]:
        model, _ = train(tmp_path / name, flat_folder, data, seed=seed, initial_head=head, **changes)
        return {n: p for n, p in model.named_parameters() if not n.startswith("encoder.") and p.ndim > 1}

    first, second, other = (draw("shared", seed, "shared") for seed in (1, 1001, 2))
    assert len(first) > 3
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, atol=1e-9, rtol=0)
    assert not any(torch.equal(other[name], weight) for name, weight in first.items())
    own, own_second = (draw("own", seed, "own") for seed in (1, 1001))
    assert all(torch.equal(own[name], weight) for name, weight in first.items()), "below 1000 the seed is its own"
    assert not any(torch.allclose(own[name], weight) for name, weight in own_second.items())


def test_mean_of_epochs_is_a_setting_of_task_stages(tmp_path: Path, flat_folder: Path) -> None:
    """Nothing is selected then, and ``select`` does not count; a student takes the setting over."""
    tables = make_tables(tmp_path, flat_folder, average="epochs", epochs=3)
    text = write_tagged(tmp_path, "text", 16, shift=5, language="de")
    tables["stage"].append({"kind": "teach", "teachers": 1, "keep": "all", "text": [text], "transductive": True})
    recipe = parse_recipe(tables)
    assert [stage.average for stage in recipe.stage] == ["epochs", "epochs"]
    done = run(recipe, tmp_path)
    for identity in done.identify_stages(1):
        record = done.store.record(identity)
        assert record["select"] == "not applied: the mean of 3 epochs"
        dev = [entry for entry in record["history"] if "dev" in entry]
        assert dev == [{"step": record["steps"], "dev": record["dev_score"]}] and record["best_step"] == record["steps"]
    plain = RecipeRun(
        parse_recipe({**tables, "stage": [{**tables["stage"][0], "average": "none"}]}),
        done.store,
        tmp_path,
        setup_distributed(recipe.run),
    )
    assert plain.identify_stages(1)[0] != done.identify_stages(1)[0]
    last = parse_recipe(make_tables(tmp_path, flat_folder, average="epochs", epochs=3, select="last"))
    known = RecipeRun(last, done.store, tmp_path, setup_distributed(recipe.run)).identify_stages(1)[0]
    assert known == done.identify_stages(1)[0], "what is not applied does not count"


def test_mean_of_epochs_needs_no_dev_set() -> None:
    custom = {"format": "bio", "path": "x.tsv", "language": "en"}
    settings = finetune.Settings.model_validate({"task": "ner", "train": (custom,), "average": "epochs"})
    assert settings.dev_spec() is None


class _KilledError(Exception):
    pass


class _Kill(NoProgress):
    """Stops a run in the middle of some training, in the second of two epochs."""

    def __init__(self, what: str) -> None:
        self.what, self.now, self.after = what, "", 4

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.now = what

    def advance(self, steps: int = 1, **facts: str) -> None:
        if self.now.startswith(self.what):
            self.after -= 1
            if self.after < 0:
                raise _KilledError


def test_a_killed_run_ends_in_the_same_weights(tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder, checkpoint_seconds=0.0, average="epochs")
    calm = run(recipe, tmp_path / "calm")
    with pytest.raises(_KilledError):
        run(recipe, tmp_path / "hurt", progress=_Kill("fine-tuning (seed 1001)"))
    assert list((tmp_path / "hurt" / "store" / "work").glob("*/best-00000003.safetensors")), "the first epoch's"
    hurt = run(recipe, tmp_path / "hurt")
    final = calm.identify_stages(1)[-1]
    before, after = (read_weights(one.store.artefact(final) / "model.safetensors") for one in (calm, hurt))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_a_study_trains_the_parts_as_jobs_of_their_own(tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder)
    done = RecipeRun(recipe, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
    first, last = done.identify_stages(1)
    cell = PlannedCell("a/seed-1", "a", "", "a", "a", 1, (first, last), "p", tuple(done.list_trainings(1).values()))
    graph = JobGraph.from_cells([cell], finished=(), is_trained=lambda identity: False)
    assert [(job.seed, job.stage) for job in graph.jobs.values()] == [(1, 0), (1001, 0), (1, 1), (1, None)]
    assert graph.jobs[last].needs == (first, done.identify_stages(1001)[0])


def test_students_are_averaged_and_an_average_is_fine_tuned_further(tmp_path: Path, flat_folder: Path) -> None:
    text = write_tagged(tmp_path, "text", 16, shift=5, language="de")
    teach = {"kind": "teach", "teachers": 1, "keep": "all", "text": [text], "transductive": True}
    tables = make_tables(tmp_path, flat_folder, teach, {"kind": "average", "models": 2}, epochs=1)
    further = {**tables["stage"][0], "lr": 1e-12, "fusion": {"kind": "last"}}
    recipe = parse_recipe({**tables, "stage": [*tables["stage"], further]})
    assert recipe.stage[2].train == recipe.stage[0].train and recipe.stage[2].fusion == recipe.stage[0].fusion
    assert parse_recipe(json.loads(json.dumps(recipe.model_dump(mode="json")))) == recipe
    done = run(recipe, tmp_path)
    students = [load_whole(done.store.artefact(done.identify_stages(seed)[1])) for seed in (1, 1001)]
    mean, last = (load_whole(done.store.artefact(identity)) for identity in done.identify_stages(1)[2:])
    check_mean(mean, students)
    name = "encoder.model.embeddings.word_embeddings.weight"
    torch.testing.assert_close(last[name], mean[name], atol=1e-6, rtol=0)


def test_two_processes_average_the_same_models(tmp_path: Path, flat_folder: Path) -> None:
    average = {"kind": "average", "models": 2}
    tables = make_tables(tmp_path, flat_folder, average, checkpoint_seconds=0.0, average="epochs")
    (tmp_path / "r.toml").write_text(to_toml(tables), encoding="utf-8")
    words = ("run", tmp_path / "r.toml", "--out", tmp_path / "out", "--store", tmp_path / "store")
    printed = run_command_in_two_processes(*words, folder=tmp_path)
    assert [text.count("mean of all epochs: dev") for text in printed] == [2, 0], "one process shows progress"
    parts = [load_whole(path) for path in (tmp_path / "store" / "artefacts").glob("finetune-*")]
    assert len(parts) == 2
    check_mean(load_whole(next((tmp_path / "store" / "artefacts").glob("average-*"))), parts)


def test_the_recipe_of_the_documentation_runs(tmp_path: Path, flat_folder: Path) -> None:
    """With a tiny encoder, and on a few rows."""
    page = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text(encoding="utf-8")
    recipe = tomllib.loads(page.split("## Averaging")[1].split("```toml")[1].split("```")[0])
    recipe["encoder"]["name"] = str(flat_folder)
    recipe["stage"][0] |= {"train": "phrasebook-ner:en:train[:16]", "dev": "phrasebook-ner:en:dev[:8]"}
    recipe["evaluate"][0] |= {"languages": ["de"], "split": "test[:8]"}
    done = run(parse_recipe({**recipe, "run": {"threads": 1, "device": "cpu"}}), tmp_path)
    assert done.store.record(done.identify_stages(1)[-1])["averaging"]["seeds"] == [1, 1001, 2001]


Change = Callable[[dict[str, Any]], Any]
TEACH = {"kind": "teach", "text": ["panx:de"]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t["stage"].pop(0), r'stage.0.kind = "average": .*put a finetune or teach stage'),
        (lambda t: t["stage"][0].pop("initial_head"), r'stage.1.*different heads.*initial_head = "shared"'),
        (lambda t: t["stage"].append({"kind": "average"}), r"stage.2.kind = \"average\": .*put a finetune or teach"),
        (lambda t: t["stage"].append(TEACH), r"stage.2.kind = \"teach\": .*An average stage comes after it"),
        (lambda t: t["stage"].insert(1, {**TEACH, "initial_head": "own"}), r"stage.2.*different heads"),
        (lambda t: t["stage"][1].update(epochs=9), r"stage.1.epochs: nothing is trained here"),
        (lambda t: t["stage"][1].update(models=1), r"stage.1.models = 1: .*greater than or equal to 2"),
    ],
)
def test_invalid_average_stages_are_refused(change: Change, said: str, tmp_path: Path, flat_folder: Path) -> None:
    tables = make_tables(tmp_path, flat_folder, {"kind": "average"})
    change(tables)
    with pytest.raises(RecipeError, match=said):
        parse_recipe(tables)


def test_students_that_go_on_from_teachers_have_the_teachers_heads(tmp_path: Path, flat_folder: Path) -> None:
    teach = {**TEACH, "start": "teacher"}
    assert parse_recipe(make_tables(tmp_path, flat_folder, teach, {"kind": "average"})).stage[2].kind == "average"
    tables = make_tables(tmp_path, flat_folder, {**teach, "initial_head": "shared"}, {"kind": "average"})
    tables["stage"][0]["initial_head"] = "own"
    with pytest.raises(RecipeError, match="different heads"):
        parse_recipe(tables)
