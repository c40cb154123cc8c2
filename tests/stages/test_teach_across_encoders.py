"""Teachers of one encoder, a student of another: a finetune stage that names an encoder of its own, then teach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.cli.paths import check_recipes
from crossling.data.records import LabelledPair, Question, TaggedSentence
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.errors import DataError, Problems, RecipeError
from crossling.models.model import load_model, read_card, read_weights
from crossling.progress import NoProgress
from crossling.recipe.recipe import Recipe, parse_recipe
from crossling.scores.predictions import read_predictions
from crossling.stages import teach
from crossling.stages.labelling import Labelled
from crossling.store.artefacts import Store
from crossling.study.forecast import Speeds
from crossling.study.memory import fit_gpu_memory, forecast_gpu_bytes, inspect_recipe
from crossling.study.model_arguments import find_models
from crossling.study.model_facts import describe_model
from crossling.study.plan import Job
from crossling.study.pool import Resources
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.study.report import list_used
from crossling.study.run_record import read_run_record
from crossling.study.run_report import summarise_run
from crossling.training.distributed import setup_distributed
from examples import make_rows
from tiny import save_tiny
from tiny_families import make_family

TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classify_pair": (LabelledPair, {"kind": "classify_pair"}),
    "tag": (TaggedSentence, {"kind": "tag", "scheme": "bio"}),
    "answer": (Question, {"kind": "answer", "length": 48, "question": 8, "overlap": 8}),
}
TEACHERS = {"classify_pair": "gemma3_text", "tag": "bert", "answer": "bert"}
"""A causal teacher reads the last token of a pair, where the student reads the mean of all."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Encoders of other widths, layers and kinds of subwords."""
    folder = tmp_path_factory.mktemp("encoders")
    return {
        "student": save_encoder(make_family("xlm-roberta"), folder / "student"),
        "gemma3_text": save_encoder(make_family("gemma3_text"), folder / "gemma"),
        "bert": save_tiny(folder / "bert", "bert", layers=3, width=24),
    }


def write_set(path: Path, kind: str, count: int, *, shift: int = 0, language: str = "en") -> dict[str, Any]:
    """A file of made-up rows of a task, as a recipe names it."""
    rows = make_rows(TASKS[kind][0], count, shift=shift)
    lines = [json.dumps({name: getattr(row, name) for name in row.__dataclass_fields__}) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")
    return {"format": "jsonl", "path": str(path), "language": language}


def make_tables(folder: Path, student: Path, teacher: Path | None, kind: str = "tag") -> dict[str, Any]:
    """A teacher's fine-tuning in English, a student's on text in Hindi."""
    table = {"task": TASKS[kind][1], "train": write_set(folder / "train.jsonl", kind, 24), "select": "last"}
    first = {"kind": "finetune", **table, "epochs": 2, "batch": 8, "lr": 5e-3}
    text = write_set(folder / "text.jsonl", kind, 16, shift=3, language="hi")
    return {
        "encoder": {"name": str(student)},
        "stage": [
            {**first, **({"encoder": {"name": str(teacher)}} if teacher else {})},
            {"kind": "teach", "text": [text], "teachers": 1, "keep": "all"},
        ],
        "evaluate": [{"on": write_set(folder / "test.jsonl", kind, 6, shift=2, language="hi")}],
        "run": {"threads": 1, "device": "cpu", "checkpoint_seconds": 0.0},
    }


def open_run(tables: dict[str, Any] | Recipe, folder: Path) -> RecipeRun:
    recipe = tables if isinstance(tables, Recipe) else parse_recipe(tables)
    return RecipeRun(recipe, Store(folder / "store"), folder / "out", setup_distributed(recipe.run))


@dataclass(frozen=True)
class Taught:
    """A finished run, what was taught in it, and its encoders."""

    done: RecipeRun
    labelled: Labelled
    tables: dict[str, Any]
    kind: str
    student: Path
    teacher: Path


@pytest.fixture(scope="module", params=list(TASKS))
def taught(
    request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Taught]:
    kind, folder, kept = request.param, tmp_path_factory.mktemp("taught"), []
    student, teacher = folders["student"], folders[TEACHERS[request.param]]
    tables = make_tables(folder, student, teacher, kind)
    encode = teach.encode_labelled

    def keep(labelled: Labelled, *arguments: Any) -> Any:
        kept.append(labelled)
        return encode(labelled, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(teach, "encode_labelled", keep)
        done = run_recipe(parse_recipe(tables), store=Store(folder / "store"), out=folder / "out")
    yield Taught(done, kept[0], tables, kind, student, teacher)


def test_taught_labels_are_what_the_teacher_predicts_by_itself(taught: Taught, tmp_path: Path) -> None:
    """A plain recipe of the teacher's encoder finds the teacher in the store, and predicts the text."""
    first, second = taught.tables["stage"]
    plain = {**taught.tables, "encoder": first["encoder"], "evaluate": [{"on": second["text"][0]}]}
    plain["stage"] = [{name: value for name, value in first.items() if name != "encoder"}]
    alone = run_recipe(parse_recipe(plain), store=taught.done.store, out=tmp_path / "alone")
    assert alone.identify_stages(1) == taught.done.identify_stages(1)[:1]
    (path,) = (tmp_path / "alone").glob("seed-1/predictions/*/*.parquet")
    predictions = read_predictions(path)
    columns = taught.labelled.columns
    if taught.kind == "answer":
        table = predictions.table.to_pydict()
        expected = [([start], [text]) for start, text in zip(table["start"], table["predicted"], strict=True)]
        assert list(zip(columns["starts"], columns["answers"], strict=True)) == expected
        return
    names = [predictions.labels[code] for code in predictions.column("predicted")]
    given = columns["label"] if taught.kind == "classify_pair" else [tag for tags in columns["tags"] for tag in tags]
    assert given == names and len(given) >= 16


def test_student_has_the_recipes_encoder_and_vocabulary(taught: Taught) -> None:
    teacher, student = (load_model(taught.done.store.artefact(identity)) for identity in taught.done.identify_stages(1))
    for (model, card), folder in ((teacher, taught.teacher), (student, taught.student)):
        encoder = load_encoder(str(folder))
        assert card.encoder == str(folder) and card.encoder_identity == encoder.identity
        assert model.encoder.tokenizer.get_vocab() == encoder.tokenizer.get_vocab()
        assert (model.encoder.layers, model.encoder.width) == (encoder.layers, encoder.width)


def test_records_and_pages_name_the_encoder_of_each_stage(taught: Taught) -> None:
    done = taught.done
    named = [done.store.record(identity)["work"]["encoder"] for identity in done.identify_stages(1)]
    assert named == [str(taught.teacher), str(taught.student)]
    labels = [load_encoder(str(folder)).name for folder in (taught.student, taught.teacher)]
    record = read_run_record(done.out)
    assert (record.encoder, record.teachers) == (labels[0], (labels[1],))
    summary = summarise_run(done.out, store=done.store.root)
    assert summary.encoder == labels[0] and f"taught by models of {labels[1]}" in summary.notes
    assert {f"encoder/{taught.student}", f"encoder/{taught.teacher}"} <= list_used([done.recipe])
    card = read_card(done.store.artefact(done.identify_stages(1)[-1]))
    assert f"Taught by models of {labels[1]}." in describe_model(done.out, card, name="student", seed=1).limits
    bases = [find_models([f"{done.out}{after}"]).models[0].encoder for after in ("@0", "@1", "")]
    assert [base.name for base in bases] == [str(taught.teacher), *[str(taught.student)] * 2]


class _KilledError(Exception):
    pass


class _Kill(NoProgress):
    """Stops a run as a teacher reads, or notes what is trained."""

    def __init__(self, at: str = "") -> None:
        self.at, self.begun = at, []

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.begun.append(what)
        if self.at and what.startswith(self.at):
            raise _KilledError


@pytest.mark.parametrize("taught", ["tag"], indirect=True)
def test_a_killed_run_finds_its_teachers_and_ends_in_the_same_weights(taught: Taught, tmp_path: Path) -> None:
    with pytest.raises(_KilledError):
        run_recipe(taught.done.recipe, store=Store(tmp_path), out=tmp_path / "out", progress=_Kill("teacher reads"))
    watch = _Kill()
    again = run_recipe(taught.done.recipe, store=Store(tmp_path), out=tmp_path / "out", progress=watch)
    trained = [what for what in watch.begun if "seed" in what]
    assert trained and all(what.startswith("teaching") for what in trained)
    identity = again.identify_stages(1)[-1]
    before, after = (read_weights(one.store.artefact(identity) / "model.safetensors") for one in (taught.done, again))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_identities_change_with_the_teachers_encoder_alone(tmp_path: Path, folders: dict[str, Path]) -> None:
    student, found = folders["student"], {}
    for name in ("student", "bert", "gemma3_text", "none"):
        found[name] = open_run(make_tables(tmp_path, student, folders.get(name)), tmp_path).identify_stages(1)
    assert found["student"] == found["none"], "the recipe's own encoder by another way"
    assert len({stages[0] for stages in found.values()}) == len({stages[1] for stages in found.values()}) == 3
    plain = parse_recipe(make_tables(tmp_path, student, None))
    assert "encoder" not in plain.stage[0].model_dump(mode="json")
    tables = make_tables(tmp_path, student, folders["gemma3_text"])
    tables["stage"][0]["encoder"]["attention"] = "bidirectional"
    assert open_run(tables, tmp_path).identify_stages(1)[0] != found["gemma3_text"][0]
    recipe = parse_recipe(tables)
    assert parse_recipe(json.loads(json.dumps(recipe.model_dump(mode="json")))) == recipe


def test_stages_before_the_teachers_train_the_students_encoder(tmp_path: Path, folders: dict[str, Path]) -> None:
    """The student starts from what they made of it; teachers of other seeds need none of them."""
    tables = make_tables(tmp_path, folders["student"], folders["bert"])
    own, taught = tables["stage"]
    plain = {name: value for name, value in own.items() if name != "encoder"}
    tables["stage"] = [plain, own, {**taught, "teachers": 2}, {"kind": "teach"}]
    run = open_run(tables, tmp_path)
    trainings = run.list_trainings(1, count=3)
    assert [(one.seed, one.stage) for one in trainings.values()] == [(1, 0), (1, 1), (1001, 1), (1, 2)]
    before, teacher, other, student = trainings.values()
    assert teacher.needs == other.needs == () and set(student.needs) == {*list(trainings)[:3]}
    assert len(run.list_trainings(1001, count=2)) == 1 and before.needs == ()
    rounds = run.list_trainings(1)
    last = list(rounds.values())[-1]
    assert {rounds[need].stage for need in last.needs} == {0, 2}, "students of the first round teach the second"


def refuse(tables: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        parse_recipe(tables)


def test_an_encoder_of_its_own_is_refused_where_nothing_is_taught(tmp_path: Path, folders: dict[str, Path]) -> None:
    tables = make_tables(tmp_path, folders["student"], folders["bert"])
    first, second = tables["stage"]
    said = r'stage.0.encoder: .*kind = "teach" comes next. Name .*bert.* under \[encoder\]'
    refuse({**tables, "stage": [first]}, said)
    refuse({**tables, "stage": [first, {name: first[name] for name in first if name != "encoder"}]}, said)
    refuse({**tables, "stage": [first, {**second, "encoder": first["encoder"]}]}, r"stage.1.encoder: unknown key")
    refuse(
        {**tables, "stage": [first, {**second, "start": "teacher"}]}, r'stage.1.start = "teacher": the teachers have'
    )
    refuse({**tables, "stage": [{**first, "encoder": {"nam": "x"}}, second]}, r"stage.0.encoder.nam")
    missing = parse_recipe({**tables, "stage": [{**first, "encoder": {"name": str(tmp_path / "no")}}, second]})
    with pytest.raises(DataError, match=r"stage.0.encoder.name: .*no such folder"):
        check_recipes([missing])


def test_what_the_students_encoder_lacks_is_refused_before_training(tmp_path: Path, folders: dict[str, Path]) -> None:
    """Layer 3 is the teachers'; the student has two, and takes settings over unless it names its own."""
    tables = make_tables(tmp_path, folders["student"], folders["bert"])
    first, second = tables["stage"]
    for changes, own in (
        ({"fusion": {"kind": "dlfa", "layer": 3, "r": 8}}, {"fusion": "last"}),
        ({"freeze": 3}, {"freeze": 1}),
    ):
        changed, problems = {**tables, "stage": [{**first, **changes}, second]}, Problems()
        open_run(changed, tmp_path).check_layers(problems)
        (line,) = problems.lines()
        assert line.startswith("stage.1: ") and "2" in line and "whose models have another encoder" in line
        with pytest.raises(RecipeError, match=r"stage.1: .*name it here"):
            inspect_recipe(parse_recipe(changed), store=tmp_path)
        problems = Problems()
        open_run({**tables, "stage": [{**first, **changes}, {**second, **own}]}, tmp_path).check_layers(problems)
        assert not problems


def test_forecasts_read_each_stages_encoder(tmp_path: Path, folders: dict[str, Path]) -> None:
    recipe = parse_recipe(make_tables(tmp_path, folders["student"], folders["bert"]))
    student, teacher = (load_encoder(str(folders[name])) for name in ("student", "bert"))
    facts = inspect_recipe(recipe, store=tmp_path).forecast
    assert facts["encoder"].startswith(student.name) and facts["stage.0.encoder"].startswith(teacher.name)
    run, resources = open_run(recipe, tmp_path), Resources("cpu", 1, 1, 1)
    measured = {(str(folders["bert"]), "finetune"): 1.0, (str(folders["student"]), "teach"): 1e6}
    speeds = Speeds(measured, resources, "", {})
    slow, quick = (speeds.estimate(Job(str(n), "", "", "", 1, n, (), 0), run) for n in (0, 1))
    assert slow > 100 * quick
    on_gpu = replace(resources, device="cuda", cores=64, gpus=1, gpu_bytes=100e9)
    parts = [(recipe.stage[:1], teacher), (recipe.stage[1:], student)]
    needs = [forecast_gpu_bytes(recipe.model_copy(update={"stage": part}), encoder) for part, encoder in parts]
    assert fit_gpu_memory(on_gpu, {"a": run}) == on_gpu.fit_gpu_memory(max(needs))
