"""The stage ``teach`` in whole runs on tiny encoders: what is learnt, what is never read, what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.encoders.loading import save_encoder
from crossling.errors import DataError, RecipeError
from crossling.models.model import read_weights
from crossling.progress import NoProgress
from crossling.recipe.recipe import Recipe, parse_recipe
from crossling.registry import load_kind
from crossling.stages import teach
from crossling.store.artefacts import Store
from crossling.study.folder import PlannedCell, StudyPlan, read_plan
from crossling.study.grid import StudySettings, SystemSettings
from crossling.study.memory import inspect_recipe
from crossling.study.plan import JobGraph
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.study.run_report import report_run
from crossling.training.distributed import setup_distributed
from examples import make_rows
from tiny_families import CASES, make_family

KINDS: dict[str, Any] = {
    "tag": TaggedSentence,
    "classify": LabelledText,
    "classify_pair": LabelledPair,
    "answer": Question,
}

QUERY = "encoder.model.encoder.layer.0.attention.self.query.weight"


def write_set(
    folder: Path, kind: str, name: str, count: int = 24, *, shift: int = 0, language: str = "en", shuffled: bool = False
) -> dict[str, Any]:
    """A file of made-up rows of a task, as a recipe names it; ``shuffled``: the same texts, labels mixed up."""
    path, lines, dice = folder / f"{name}.jsonl", [], random.Random(0)
    for record in make_rows(KINDS[kind], count, shift=shift):
        table = {field: getattr(record, field) for field in record.__dataclass_fields__}
        if shuffled and "tags" in table:
            table["tags"] = [dice.choice(["O", "B-X"]) for _ in table["tags"]]
        elif shuffled:
            table["label"] = dice.choice("xyz")
        lines.append(json.dumps(table, ensure_ascii=False))
    path.write_text("\n".join(lines), encoding="utf-8")
    return {"format": "jsonl", "path": str(path), "language": language}


def make_recipe(
    folder: Path,
    encoder: Path,
    kind: str = "tag",
    *,
    seeds: tuple[int, ...] = (1,),
    checkpoint_seconds: float = 600.0,
    **taught: Any,
) -> Recipe:
    """Fine-tuning in English, then teaching on text in Hindi; scored on other text in Hindi."""
    folder.mkdir(parents=True, exist_ok=True)
    task: dict[str, Any] = {"kind": kind}
    if kind == "tag":
        task |= {"scheme": "bio"}
    if kind == "answer":
        task |= {"length": 48, "question": 8, "overlap": 8}
    first = {"kind": "finetune", "task": task, "train": write_set(folder, kind, "train"), "select": "last"}
    text = {"text": [write_set(folder, kind, "text", 16, shift=3, language="hi")]} if "parallel" not in taught else {}
    rounds = taught.pop("rounds", 1)
    tables = {
        "encoder": {"name": str(encoder)},
        "stage": [
            {**first, "epochs": 2, "batch": 8, "lr": 5e-3},
            {"kind": "teach", "teachers": 2, "keep": "all", **text, **taught},
            *[{"kind": "teach"}] * (rounds - 1),
        ],
        "evaluate": [{"on": write_set(folder, kind, "test", 6, shift=2, language="hi")}],
        "run": {"threads": 1, "device": "cpu", "checkpoint_seconds": checkpoint_seconds},
    }
    return parse_recipe(tables)


def run(recipe: Recipe, folder: Path, **settings: Any) -> RecipeRun:
    return run_recipe(recipe, store=Store(folder / "store"), out=folder / "out", **settings)


def record_of(done: RecipeRun, seed: int = 1) -> dict[str, Any]:
    return done.store.record(done.identify_stages(seed)[-1])


def weights_of(done: RecipeRun, seed: int = 1) -> dict[str, torch.Tensor]:
    return read_weights(done.store.artefact(done.identify_stages(seed)[-1]) / "model.safetensors")


def count_artefacts(done: RecipeRun) -> dict[str, int]:
    names = [path.parent.name.partition("-")[0] for path in done.store.root.glob("artefacts/*/complete.json")]
    return {name: names.count(name) for name in sorted(set(names))}


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("tag", "bert"),
        ("tag", "deberta-v2"),
        ("classify", "t5"),
        ("classify_pair", "albert"),
        ("answer", "xlm-roberta"),
        ("answer", "gemma3_text"),
        *(pytest.param("tag", label, marks=pytest.mark.slow) for label in CASES if label not in ("bert", "deberta-v2")),
    ],
)
def test_every_task_is_taught_on_text_in_another_language(kind: str, family: str, tmp_path: Path) -> None:
    encoder = save_encoder(make_family(family), tmp_path / "encoder")
    done = run(make_recipe(tmp_path, encoder, kind), tmp_path)
    assert count_artefacts(done) == {"finetune": 2, "teach": 1}, "a teacher of this seed, and one more"
    record = record_of(done)
    facts = record["teaching"]
    assert facts["labels read"] == "no" and facts["teachers"] == [1, 1001] and not facts["transductive"]
    assert facts["languages"]["hi"]["offered"] == 16 >= facts["languages"]["hi"]["kept"] > 0
    examples = 24 + facts["languages"]["hi"]["kept"]
    assert record["steps"] >= 2 * -(-examples // 8), "an epoch counts labelled and taught examples"
    assert list((tmp_path / "out").glob("seed-1/predictions/*/*.parquet"))


@pytest.mark.parametrize("kind", ["tag", "classify_pair"])
def test_labels_of_the_text_are_never_read(kind: str, tmp_path: Path, flat_folder: Path) -> None:
    """Other labels: the same identity, and the same weights where nothing of the first run is at hand."""
    plain = run(make_recipe(tmp_path / "a", flat_folder, kind), tmp_path / "a")
    other = make_recipe(tmp_path / "b", flat_folder, kind)
    write_set(tmp_path / "b", kind, "text", 16, shift=3, shuffled=True)
    shuffled = run(other, tmp_path / "b")
    assert plain.identify_stages(1) == shuffled.identify_stages(1)
    before, after = weights_of(plain), weights_of(shuffled)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    write_set(tmp_path / "b", kind, "text", 16, shift=5)
    changed = RecipeRun(other, shuffled.store, tmp_path, setup_distributed(other.run))
    assert changed.identify_stages(1)[-1] != plain.identify_stages(1)[-1], "other text is other work"


def test_scored_text_is_refused_left_out_or_named_transductive(tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder)
    scored = write_set(tmp_path, "tag", "test", 6, shift=2, language="hi")
    mixed = write_set(tmp_path, "tag", "text", 20, shift=2, language="de", shuffled=True)

    def check(**changes: Any) -> RecipeRun:
        stage = recipe.stage[1].model_copy(update={"text": (mixed,), **changes})
        changed = recipe.model_copy(update={"stage": (recipe.stage[0], stage)})
        done = RecipeRun(changed, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
        done.check_targets()
        return done

    with pytest.raises(
        DataError, match=r"stage.1: .*text.jsonl.*also scored \(\d+ in .*leave_out.*transductive = true"
    ):
        check()
    assert len(check(transductive=True).opened[1].text[0]) == 20
    assert len(check(leave_out=(scored,)).opened[1].text[0]) < 20
    stage = recipe.stage[1].model_copy(update={"text": (mixed,)})
    with pytest.raises(DataError, match=r"stage.1: .*also scored"):
        inspect_recipe(recipe.model_copy(update={"stage": (recipe.stage[0], stage)}), store=tmp_path)


class _KilledError(Exception):
    pass


class _Kill(NoProgress):
    """Stops a run in the middle of the student's training, or while teachers are trained."""

    def __init__(self, what: str, after: int) -> None:
        self.what, self.after, self.now = what, after, ""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.now = what

    def advance(self, steps: int = 1, **facts: str) -> None:
        if self.now.startswith(self.what):
            self.after -= 1
            if self.after < 0:
                raise _KilledError


@pytest.mark.parametrize("moment", ["teaching", "fine-tuning (seed 1001)", "teacher reads"])
def test_a_killed_run_ends_in_the_same_weights(moment: str, tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder, checkpoint_seconds=0.0, labels="soft", weight=0.5)
    calm = run(recipe, tmp_path / "calm")
    with pytest.raises(_KilledError):
        run(recipe, tmp_path / "hurt", progress=_Kill(moment, 1 if moment == "teaching" else 0))
    again = run(recipe, tmp_path / "hurt")
    before, after = weights_of(calm), weights_of(again)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert record_of(again)["teaching"] == record_of(calm)["teaching"]


def test_source_rows_teach_their_translations(tmp_path: Path, flat_folder: Path) -> None:
    """The student learns the target rows with the classes that the teachers give the source rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    source = write_set(folder, "classify_pair", "source", 16, shift=3)
    targets = [write_set(folder, "classify_pair", code, 16, shift=9, language=code) for code in ("hi", "ru")]
    parallel = [{"source": source, "target": targets}]
    recipe = make_recipe(tmp_path, flat_folder, "classify_pair", parallel=parallel, transductive=True)
    done = run(recipe, tmp_path)
    languages = record_of(done)["teaching"]["languages"]
    assert set(languages) == {"hi", "ru"} and languages["hi"] == languages["ru"], "both have the source's classes"
    assert sum(languages["hi"]["classes"].values()) == 16
    write_set(folder, "classify_pair", "ru", 15, shift=9)
    with pytest.raises(DataError, match="row i must say the same"):
        RecipeRun(recipe, Store(tmp_path / "s"), tmp_path, setup_distributed(recipe.run)).check_targets()


def write_lines(folder: Path, pairs: list[tuple[str, str]], name: str = "lines") -> dict[str, Any]:
    """A file of sentences with translations, as a recipe names it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return {"format": "tsv", "path": str(path), "language": "en-ru", "source": 1, "target": 2}


LINES = [
    *(
        ("a cat", "мир"),
        ("the cat eats", "нам мир"),
        ("a dog", "нам"),
        ("the dog", "нам нам"),
        ("a dog eats", "мир мир"),
    ),
    ("a  cat", "нам нам мир"),
]


@pytest.mark.parametrize(
    ("kind", "read"), [("classify", "source"), ("classify_pair", "both"), ("tag", "target"), ("tag", "both")]
)
def test_parallel_text_teaches_every_kind_of_label(kind: str, read: str, tmp_path: Path, flat_folder: Path) -> None:
    parallel = [write_lines(tmp_path, LINES)]
    recipe = make_recipe(tmp_path, flat_folder, kind, parallel=parallel, read=read)
    facts = record_of(run(recipe, tmp_path))["teaching"]["languages"]
    assert set(facts) == {"ru"} and facts["ru"]["offered"] == facts["ru"]["kept"]
    if kind == "classify_pair":
        assert facts["ru"]["offered"] in (6, 8), "five lines, each with its nearest, in both orders"
    else:
        assert facts["ru"]["offered"] == 6
        assert sum(facts["ru"]["classes"].values()) == (11 if kind == "tag" else 6), "no word is without a tag"


def test_tables_and_parallel_text_teach_together(tmp_path: Path, flat_folder: Path) -> None:
    sides = [write_set(tmp_path, "classify", code, 8, shift=9, language=code) for code in ("en", "hi")]
    parallel = [{"source": sides[0], "target": sides[1]}, write_lines(tmp_path, LINES)]
    recipe = make_recipe(tmp_path, flat_folder, "classify", parallel=parallel, sentences=4, transductive=True)
    facts = record_of(run(recipe, tmp_path))["teaching"]["languages"]
    assert {language: one["offered"] for language, one in facts.items()} == {"hi": 8, "ru": 4}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("classify", ("{}", "нам")),
        ("classify", ("a cat", "{}")),
        ("classify_pair", ("{}", "нам")),
        ("classify_pair", ("a cat", "{}")),
    ],
)
def test_lines_that_are_scored_are_refused_or_left_out(
    kind: str, line: tuple[str, str], tmp_path: Path, flat_folder: Path
) -> None:
    """Of scored pairs, either text by itself."""
    record: Any = make_rows(KINDS[kind], 6, shift=2)[3]
    scored = record.text if kind == "classify" else record.second
    parallel = [write_lines(tmp_path, [*LINES, (line[0].format(scored), line[1].format(scored))])]
    recipe = make_recipe(tmp_path, flat_folder, kind, parallel=parallel)

    def check(**changes: Any) -> RecipeRun:
        stage = recipe.stage[1].model_copy(update=changes)
        changed = recipe.model_copy(update={"stage": (recipe.stage[0], stage)})
        done = RecipeRun(changed, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
        done.check_targets()
        return done

    with pytest.raises(DataError, match=r"stage.1: .*lines.tsv.*also scored \(1 in .*leave_out"):
        check()
    left = check(leave_out=(write_set(tmp_path, kind, "test", 6, shift=2, language="hi"),))
    assert len(left.opened[1].translations.texts[0].rows) == len(LINES)
    check(transductive=True)


def test_a_run_that_is_killed_while_lines_are_compared_ends_in_the_same_weights(
    tmp_path: Path, flat_folder: Path
) -> None:
    parallel = [write_lines(tmp_path, LINES)]
    recipe = make_recipe(tmp_path, flat_folder, "classify_pair", checkpoint_seconds=0.0, parallel=parallel, read="both")
    calm = run(recipe, tmp_path / "calm")
    for moment in ("reading", "teacher reads"):
        with pytest.raises(_KilledError):
            run(recipe, tmp_path / "hurt", progress=_Kill(moment, 0))
    again = run(recipe, tmp_path / "hurt")
    before, after = weights_of(calm), weights_of(again)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert record_of(again)["teaching"] == record_of(calm)["teaching"]


def test_settings_that_are_not_used_do_not_count(tmp_path: Path, flat_folder: Path) -> None:
    def identify(kind: str, **taught: Any) -> str:
        recipe = make_recipe(tmp_path, flat_folder, kind, **taught)
        done = RecipeRun(recipe, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
        return done.identify_stages(1)[-1]

    lines = [write_lines(tmp_path, LINES)]
    unused = {"read": "both", "neighbours": 3, "both_orders": False, "sentences": 5}
    assert identify("classify") == identify("classify", **unused)
    kinds: dict[str, set[str]] = {"classify": {"read", "sentences"}, "classify_pair": set(unused)}
    for kind, used in kinds.items():
        plain = identify(kind, parallel=lines)
        for name, value in unused.items():
            assert (identify(kind, parallel=lines, **{name: value}) != plain) == (name in used), name


def write_questions(folder: Path, name: str, rows: list[tuple[str, str, str]], *, answer: str) -> dict[str, Any]:
    """A file of questions (id, question, context) that are all answered by one word, as a recipe names it."""
    lines = [
        {"id": key, "question": question, "context": text, "answers": [answer], "starts": [text.index(answer)]}
        for key, question, text in rows
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return {"format": "jsonl", "path": str(folder / f"{name}.jsonl"), "language": "hi" if name != "en" else "en"}


@pytest.mark.parametrize("read", ["source", "both"])
def test_answers_are_taught_through_translated_questions(read: str, tmp_path: Path, flat_folder: Path) -> None:
    """Rows are matched by id; the answers in the files, which are others in the second store, are not read."""
    contexts = ["the red fish eats a cat in London", "a dog in the house sleeps"]
    english = [("a", "who eats", contexts[0]), ("b", "who", contexts[1]), ("c", "what", contexts[1])]
    hindi = [("c", "мир", contexts[1]), ("x", "не", contexts[1]), ("a", "нам", f"{contexts[0]} не")]
    weights, names = [], []
    for answer in ("the", "in"):
        folder = tmp_path / answer
        folder.mkdir()
        sides = [write_questions(folder, name, rows, answer=answer) for name, rows in (("en", english), ("hi", hindi))]
        parallel = [{"source": sides[0], "target": sides[1]}]
        done = run(make_recipe(folder, flat_folder, "answer", parallel=parallel, read=read), folder)
        facts = record_of(done)["teaching"]["languages"]["hi"]
        assert facts["offered"] == 2 >= facts["kept"] >= 1
        weights.append(weights_of(done)), names.append(done.identify_stages(1))
    assert names[0] == names[1]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_questions_that_are_scored_are_refused_on_either_side(tmp_path: Path, flat_folder: Path) -> None:
    scored: Any = make_rows(Question, 6, shift=2)[3]
    texts = [[("a", scored.question, scored.context)], [("a", "who", scored.context)]]
    for number, sides in enumerate((texts, texts[::-1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = [
            write_questions(folder, name, rows, answer="cat") for name, rows in zip(("en", "hi"), sides, strict=True)
        ]
        recipe = make_recipe(folder, flat_folder, "answer", parallel=[{"source": files[0], "target": files[1]}])
        done = RecipeRun(recipe, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
        with pytest.raises(DataError, match="also scored"):
            done.check_targets()


def test_tags_follow_links_to_translations(tmp_path: Path, flat_folder: Path) -> None:
    lines = [
        {"source": ["the", "cat", "sees"], "target": ["мир", "нам"], "links": [[1, 0], [2, 1]]},
        {"source": ["a", "dog"], "target": ["нам", "мир", "нам"], "links": [[1, 1]]},
    ]
    path = tmp_path / "linked.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    parallel = [{"format": "jsonl", "path": str(path), "language": "en-ru"}]
    done = run(make_recipe(tmp_path, flat_folder, parallel=parallel, transductive=True), tmp_path)
    facts = record_of(done)["teaching"]["languages"]["ru"]
    assert facts["offered"] == facts["kept"] == 2
    assert sum(facts["classes"].values()) == 3, "three words are linked, the other two have no tag"


@pytest.mark.parametrize("kind", ["tag", "classify"])
def test_plain_text_is_taught_on(kind: str, tmp_path: Path, flat_folder: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text("the cat sees a dog.\n我们 мир\n", encoding="utf-8")
    text = [{"format": "text", "path": str(path), "language": "zh"}]
    facts = record_of(run(make_recipe(tmp_path, flat_folder, kind, text=text), tmp_path))["teaching"]["languages"]["zh"]
    assert facts["offered"] == 2
    assert sum(facts["classes"].values()) == (9 if kind == "tag" else 2), "six words and a stop, then three words"


def test_rounds_are_stages_in_a_row(tmp_path: Path, flat_folder: Path) -> None:
    """The second round's teachers are students, who had the same teachers; one start for all."""
    recipe = make_recipe(tmp_path, flat_folder, rounds=2)
    assert recipe.stage[2].text == recipe.stage[1].text and recipe.stage[2].train == recipe.stage[0].train
    done = run(recipe, tmp_path)
    assert count_artefacts(done) == {"finetune": 2, "teach": 3}
    assert done._find_start(2) == done._find_start(1) == -1
    part = report_run(done).teaching
    assert part is not None and len(part.figures) == 1
    assert [row[0] for row in part.tables[0].rows] == ["1", "1", "2", "2"], "the language and all of them, twice"
    page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert "Teaching over rounds" in page and (tmp_path / "out" / "teaching.csv").is_file()


def test_a_study_trains_teachers_as_jobs_of_their_own(tmp_path: Path, flat_folder: Path) -> None:
    """The student's job waits for all its teachers, which other workers may train; what is trained is left alone."""
    recipe = make_recipe(tmp_path, flat_folder, rounds=2)
    done = RecipeRun(recipe, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
    first, second, third = done.identify_stages(1)
    trainings = tuple(done.list_trainings(1).values())
    cell = PlannedCell("taught/seed-1", "taught", "", "taught", "taught", 1, (first, second, third), "p", trainings)
    graph = JobGraph.from_cells([cell], finished=(), is_trained=lambda identity: False)
    assert [(job.seed, job.stage) for job in graph.jobs.values()] == [
        *((1, 0), (1001, 0), (1, 1), (1001, 1), (1, 2)),
        (1, None),
    ]
    other = done.identify_stages(1001)
    assert graph.jobs[third].needs == (second, other[1])
    assert set(graph.jobs[other[1]].needs) == {first, other[0]}
    assert {job.key for job in graph.ready()} == {first, other[0]}
    graph = JobGraph.from_cells([cell], finished=(), is_trained=lambda identity: identity in (second, other[0]))
    assert set(graph.jobs) == {first, other[1], third, "taught/seed-1"}
    StudyPlan(
        "s", StudySettings(seeds=(1,), baseline="taught", systems={"taught": SystemSettings()}), (), (cell,), tmp_path
    ).write(tmp_path)
    assert read_plan(tmp_path).cells == (cell,)


def test_a_student_may_go_on_from_its_teacher(tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder, start="teacher", lr=1e-12)
    done = run(recipe, tmp_path)
    teacher, student = (
        read_weights(done.store.artefact(name) / "model.safetensors") for name in done.identify_stages(1)
    )
    head = "heads.tag.linear.weight"
    torch.testing.assert_close(student[head], teacher[head])


def test_a_student_takes_low_rank_adapters_from_the_stage_before_unless_it_says_false(
    tmp_path: Path, flat_folder: Path
) -> None:
    """They are adapters of the teacher's merged weights: both models have the weights of an ordinary one."""
    recipe = make_recipe(tmp_path, flat_folder, start="teacher", teachers=1)
    tables = recipe.model_dump(mode="json")
    tables["stage"][0]["lora"] = {"rank": 2}
    del tables["stage"][1]["lora"]
    adapted = parse_recipe(tables)
    assert adapted.stage[1].lora == adapted.stage[0].lora != None  # noqa: E711
    done = run(adapted, tmp_path)
    teacher, student = (
        read_weights(done.store.artefact(name) / "model.safetensors") for name in done.identify_stages(1)
    )
    assert teacher.keys() == student.keys() and not any("lora" in name for name in student)
    rank = torch.linalg.matrix_rank(student[QUERY] - teacher[QUERY], rtol=1e-3)
    assert int(rank) == 2
    tables["stage"][1]["lora"] = False
    full = parse_recipe(tables)
    assert full.stage[1].lora is None and parse_recipe(full.model_dump(mode="json")) == full


def test_seeds_that_are_counted_up_share_no_teacher() -> None:
    settings = teach.Settings(teachers=3)
    ensembles = [teach.list_earlier(settings, seed) for seed in range(1, 6)]
    assert ensembles[0] == (1, 1001, 2001)
    assert len({seed for ensemble in ensembles for seed in ensemble}) == 15
    assert teach.list_earlier(settings, 1001) == ensembles[0], "students that teach had one ensemble"
    assert all(seed in teach.list_earlier(settings, seed) for seed in (0, 42, 3999, 7042))


def test_weights_and_soft_labels_change_the_student(tmp_path: Path, flat_folder: Path) -> None:
    heads = {}
    for name, changes in {"plain": {}, "half": {"weight": 0.5}, "soft": {"labels": "soft"}}.items():
        done = run(make_recipe(tmp_path, flat_folder, "classify", **changes), tmp_path)
        heads[name] = weights_of(done)["heads.classify.linear.weight"]
    assert count_artefacts(done) == {"finetune": 2, "teach": 3}, "teachers are shared"
    assert not torch.equal(heads["plain"], heads["half"]) and not torch.equal(heads["plain"], heads["soft"])


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("answer", {"labels": "soft"}, "labels = 'soft': not supported for answers"),
        ("answer", {"parallel": ["ntrex:en-de"]}, "parallel: write { source"),
        ("answer", {"links": "links.txt"}, "links = .*not supported for answers"),
        ("answer", {"decide": "mean"}, "decide"),
        ("tag", {"parallel": [{"source": "panx:en", "target": "de"}]}, "parallel text"),
        ("tag", {"parallel": ["ntrex:en-de"], "labels": "soft"}, "spans that follow links"),
        ("tag", {"text": []}, "text: missing"),
        ("tag", {"task": {"kind": "classify"}}, "task: .*teachers learnt"),
        ("tag", {"share": 0.0}, "share"),
    ],
)
def test_incompatible_settings_of_teaching_are_refused(
    kind: str, changes: dict[str, Any], said: str, tmp_path: Path, flat_folder: Path
) -> None:
    with pytest.raises(RecipeError, match=said):
        make_recipe(tmp_path, flat_folder, kind, **changes)


def test_teaching_needs_a_stage_before() -> None:
    tables = {"encoder": {"name": "x"}, "stage": [{"kind": "teach", "text": "panx:de"}]}
    with pytest.raises(RecipeError, match=r"stage.0.kind = \"teach\".*put a finetune stage before"):
        parse_recipe(tables)


def test_teachers_that_never_agree_are_reported(tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder, "classify", keep="confidence", threshold=1.0)
    with pytest.raises(DataError, match="no row was kept"):
        run(recipe, tmp_path)


def test_a_completed_stage_comes_back_from_a_stored_recipe(tmp_path: Path, flat_folder: Path) -> None:
    recipe = make_recipe(tmp_path, flat_folder, rounds=2)
    assert parse_recipe(json.loads(json.dumps(recipe.model_dump(mode="json")))) == recipe
    assert load_kind("stages", "teach").VERSION == 1
