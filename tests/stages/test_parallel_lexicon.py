"""Lexicons that recipes have made from parallel text: the same stage as with a file, made once, again if damaged."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from crossling.aligners import lexicon as lexicons
from crossling.aligners import parallel_lexicon, statistical
from crossling.aligners.parallel_lexicon import ParallelLexicon, identify_lexicon
from crossling.errors import DataError, RecipeError, UserError
from crossling.progress import NoProgress
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import freeze, parse_recipe
from crossling.store.artefacts import Store
from crossling.study.export import export_model
from crossling.study.memory import inspect_recipe
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.training.distributed import setup_distributed

SETS = ["phrasebook-parallel:en-de:train[:60]", "phrasebook-parallel:en-de:dev[:60]"]
TABLE: dict[str, Any] = {"parallel": SETS}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that the aligner runs in this process."""
    made: list[Any] = []
    align = statistical.align
    monkeypatch.setattr(statistical, "align", lambda *a, **k: made.append(a) or align(*a, **k))
    return made


def make_tables(encoder: Path, lexicon: Any, *, words: float = 0.8, **changes: Any) -> dict[str, Any]:
    stage = {
        "kind": "finetune",
        "task": "ner",
        "train": "phrasebook-ner:en:train[:24]",
        "select": "last",
        "epochs": 1,
        "consistency": {"words": words, "lexicon": lexicon},
    }
    return {"encoder": {"name": str(encoder)}, "stage": [{**stage, **changes}], "run": {"threads": 1}}


def write_by_command(path: Path, store: Path, *, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lexicon that the command makes with the defaults of a recipe's table."""
    from crossling.cli import main as cli

    words = ["align", "lexicon", "--on", SETS[0], "--on", SETS[1], "--aligner", "statistical", "--least", "3"]
    monkeypatch.setattr(sys, "argv", ["crossling", *words, "--out", str(path), "--store", str(store)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    return path


def test_table_and_file_are_the_same_stage_with_the_same_weights(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_by_command(tmp_path / "lexicon.en-de.tsv", tmp_path / "one", monkeypatch=monkeypatch)
    weights, identities = [], []
    for name, lexicon in (("one", [str(path)]), ("other", [TABLE]), ("third", TABLE)):
        recipe = parse_recipe(make_tables(flat_folder, lexicon))
        if name == "third":  # a table alone stands for a list, and finds what was trained with the list
            run = RecipeRun(recipe, Store(tmp_path / "other"), tmp_path / name, setup_distributed(recipe.run))
            identities.append(run.identify_stages(1)[0])
            assert run.store.is_complete(identities[-1])
            continue
        done = run_recipe(recipe, store=Store(tmp_path / name), out=tmp_path / f"{name}-run")
        identities.append(done.identify_stages(1)[0])
        weights.append(load_file(next(done.store.artefact(identities[-1]).glob("*.safetensors"))))
    assert len(set(identities)) == 1
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
    (stored,) = (tmp_path / "other" / "lexicons").glob("*.tsv")
    assert stored.read_bytes() == path.read_bytes()


def test_lexicon_is_made_once_for_seeds_stages_and_runs(tmp_path: Path, flat_folder: Path, runs: list[Any]) -> None:
    tables = make_tables(flat_folder, [TABLE]) | {"seeds": [1, 2]}
    taught = {"kind": "teach", "text": ["phrasebook-ner:de:train[:8]"], "teachers": 1, "keep": "all"}
    tables["stage"].append(taught)  # which has the consistency of the stage before
    recipe = parse_recipe(tables)
    shown: list[str] = []
    done = run_recipe(recipe, store=Store(tmp_path / "store"), out=tmp_path / "out", progress=_Lines(shown))
    assert len(runs) == 1
    assert [line for line in shown if line.startswith("lexicon en-de: ") and "from 120 sentence pairs" in line]
    again = RecipeRun(recipe, done.store, tmp_path / "again", setup_distributed(recipe.run))
    assert again.identify_stages(2) == done.identify_stages(2)
    stored = parse_recipe(tomllib.loads(to_toml(done.resolved.model_dump(mode="json"))))
    assert stored.stage == done.resolved.stage, "a stored recipe says the same"
    assert len(runs) == 1
    other = parse_recipe(make_tables(flat_folder, [{**TABLE, "least": 2}]))
    changed = RecipeRun(other, done.store, tmp_path / "again", setup_distributed(recipe.run))
    assert changed.identify_stages(1)[0] != done.identify_stages(1)[0]
    assert len(runs) == 2


class _Lines(NoProgress):
    """Progress that keeps its messages."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def say(self, line: str) -> None:
        self.lines.append(line)


PROCESS = """
import sys, time
from pathlib import Path
from crossling.aligners import parallel_lexicon
from crossling.aligners.lexicon import LinkedWords, open_sets
from crossling.progress import NoProgress

def link(rows, **settings):
    with Path(sys.argv[2]).open("a") as log:
        log.write("made\\n")
    time.sleep(0.3)  # the other process comes meanwhile
    return LinkedWords(("en", "de"), [(["house"], ["haus"])] * 3, [[(0, 0)]] * 3)

parallel_lexicon.link_sets = link
store = Path(sys.argv[1])
settings = parallel_lexicon.ParallelLexicon(parallel=("phrasebook-parallel:en-de:dev[:4]",))
rows = open_sets(settings.parallel, store=store)
print(parallel_lexicon.make_lexicon(settings, rows, store=store, progress=NoProgress()).translations)
"""


def test_of_two_processes_one_makes_the_lexicon(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROCESS, str(tmp_path / "store"), str(tmp_path / "log")]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [process.communicate()[0] for process in started]
    assert found == ["{'house': [('haus', 1.0)]}\n"] * 2
    assert (tmp_path / "log").read_text() == "made\n"
    assert list((tmp_path / "store" / "leases").iterdir()) == []


def test_damaged_lexicon_is_made_again(tmp_path: Path, flat_folder: Path, runs: list[Any]) -> None:
    def identify() -> tuple[str, ...]:
        recipe = parse_recipe(make_tables(flat_folder, [TABLE]))
        return RecipeRun(recipe, Store(tmp_path), tmp_path, setup_distributed(recipe.run)).identify_stages(1)

    first = identify()
    (path,) = (tmp_path / "lexicons").glob("*.tsv")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"\t1\t", b"\t0.5\t", 1))
    assert identify() == first
    assert path.read_bytes() == whole and len(runs) == 2
    path.unlink()
    assert identify() == first and len(runs) == 3
    path.with_name(f"{path.name}.sha256").unlink()
    assert identify() == first and len(runs) == 4


def test_lexicon_is_known_by_text_and_settings(tmp_path: Path) -> None:
    def identify(**changes: Any) -> str:
        settings = ParallelLexicon.model_validate(freeze({**TABLE, **changes}))
        return identify_lexicon(settings, lexicons.open_sets(settings.parallel, store=tmp_path))

    known = identify()
    assert known == identify(aligner="statistical") == identify(least=3, most=3, probability=0.1, identical=False)
    other = ({"parallel": SETS[0]}, {"least": 2}, {"most": 1}, {"probability": 0.2}, {"identical": True})
    aligned = ({"aligner": {"kind": "statistical", "iterations": 6}}, {"aligner": "eflomal"})
    assert len({known, *(identify(**one) for one in (*other, *aligned))}) == 8


def test_neural_aligner_counts_by_the_content_of_its_encoder(tmp_path: Path) -> None:
    from tiny import save_tiny

    settings = ParallelLexicon(parallel=(SETS[0],), aligner={"kind": "neural", "encoder": str(tmp_path / "tiny")})
    rows = lexicons.open_sets(settings.parallel, store=tmp_path)
    found = set()
    for seed in (1, 2):
        save_tiny(tmp_path / "tiny", family="xlm-r", seed=seed)
        found.add(identify_lexicon(settings, rows))
    assert len(found) == 2


@pytest.mark.parametrize(
    ("lexicon", "message"),
    [
        ([{"parallel": "phrasebook-paralel:en-de"}], "Did you mean 'phrasebook-parallel'?"),
        ([{"parallel": "phrasebook-ner:en"}], "holds TaggedSentence rows; links are between sentences"),
        (
            [{"parallel": "phrasebook-parallel:de-en:dev[:9]"}],
            "consistency.lexicon.0: phrasebook-parallel:de-en:dev[:9] translates from 'de', but training data are in "
            "'en'",
        ),
        (
            [TABLE, {"parallel": "phrasebook-parallel:en-fr:dev[:9]", "least": 99}],
            "consistency.lexicon.1: no entry; in 9 sentence pairs of phrasebook-parallel:en-fr:dev[:9] no word is "
            "linked to another 99 times or more, with a probability of 0.1 or more. Name more text, or lower least.",
        ),
        (
            [{"parallel": [SETS[0], "phrasebook-parallel:en-fr:dev"]}],
            "is en-de, but phrasebook-parallel:en-fr:dev is en-fr; a lexicon has one pair of languages",
        ),
        (["empty.en-de.tsv"], "consistency.lexicon.0: empty.en-de.tsv has no entry"),
        (["missing.en-de.tsv"], "missing.en-de.tsv: there is no such file"),
    ],
)
def test_check_refuses_lexicons_that_cannot_be_used(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch, lexicon: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.en-de.tsv").write_text("# crossling lexicon en-de\n")
    recipe = parse_recipe(make_tables(flat_folder, lexicon))
    with pytest.raises(UserError) as error:
        inspect_recipe(recipe, store=tmp_path)
    assert message in " ".join(str(error.value).split())


@pytest.mark.parametrize(
    ("lexicon", "message"),
    [
        ([{"parallel": SETS, "leest": 2}], "stage.0.consistency.lexicon.0.leest: unknown key. Did you mean 'least'?"),
        ({"parallel": SETS, "leest": 2}, "stage.0.consistency.lexicon.0.leest: unknown key. Did you mean 'least'?"),
        ([{"least": 2}], "stage.0.consistency.lexicon.0.parallel: missing"),
        ([{"parallel": []}], 'at least one data set, such as "ntrex:en-de"'),
        ([{"parallel": SETS, "least": 0}], "stage.0.consistency.lexicon.0.least = 0: input should be greater than"),
        ([{"parallel": SETS, "aligner": "statistic"}], "Did you mean 'statistical'?"),
        ([{"parallel": SETS, "aligner": 3}], '3 is no aligner; write "statistical", or a table'),
        ([7], "stage.0.consistency.lexicon.0 = 7: input should be a valid dictionary"),
    ],
)
def test_wrong_table_is_one_error_with_its_key(lexicon: Any, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        parse_recipe(make_tables(Path("x"), lexicon))
    assert message in str(error.value)
    assert "recipe: 1 problem\n" in str(error.value)


def test_record_and_card_name_the_parallel_text_and_its_licence(tmp_path: Path, flat_folder: Path) -> None:
    tables = make_tables(flat_folder, [TABLE])
    tables["evaluate"] = [{"on": "phrasebook-ner", "languages": ["de"], "split": "test[:4]"}]
    done = run_recipe(parse_recipe(tables), store=Store(tmp_path / "store"), out=tmp_path / "run")
    record = done.describe({"1": done.identify_stages(1)}, "")
    assert tuple((one.name, one.rows) for one in record.data if one.role == "stage 0: lexicon") == tuple(
        (name, 60) for name in SETS
    )
    export_model(tmp_path / "run", tmp_path / "model", store=tmp_path / "store")
    readme = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| stage 0: lexicon | {SETS[0]} |" in readme
    assert "| phrasebook-parallel |" in readme[readme.index("Licences") :]


def test_text_of_lexicons_is_no_text_that_an_encoder_reads(tmp_path: Path, flat_folder: Path) -> None:
    """Neither forecasts of memory and time nor the rule that scored text is not taught on count it."""
    tables = make_tables(flat_folder, [TABLE])
    made = inspect_recipe(parse_recipe(tables), store=tmp_path)
    (path,) = (tmp_path / "lexicons").glob("*.tsv")
    read = inspect_recipe(parse_recipe(make_tables(flat_folder, [str(path)])), store=tmp_path)
    assert made.forecast == read.forecast
    assert [role for role, _ in made.data] == ["stage.0: train", "stage.0: lexicon", "stage.0: lexicon"]
    taught = {"kind": "teach", "text": ["phrasebook-ner:de:train[:8]"], "teachers": 1}
    tables["stage"].append(taught)
    tables["evaluate"] = [{"on": "phrasebook-ner", "languages": ["de"], "split": "test[:4]"}]
    inspect_recipe(parse_recipe(tables), store=tmp_path)


def test_statistical_lexicon_needs_no_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of raw text, but for scripts that only a tokenizer cuts."""
    from crossling.encoders import loading

    def refuse(*names: Any, **settings: Any) -> Any:
        raise DataError("an encoder is loaded")

    monkeypatch.setattr(loading, "load_encoder", refuse)
    for language, line in (("de", "Das Haus ist neu."), ("th", "บ้านใหม่")):
        (tmp_path / "a.en").write_text("The house is new.\n" * 3)
        (tmp_path / f"a.{language}").write_text(f"{line}\n" * 3)
        sides = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / f"a.{language}")}
        settings = ParallelLexicon(parallel=({"format": "parallel", "language": f"en-{language}", **sides},))
        rows = lexicons.open_sets(settings.parallel, store=tmp_path)

        def make(settings: ParallelLexicon = settings, rows: Any = rows) -> Any:
            return parallel_lexicon.make_lexicon(settings, rows, store=tmp_path, progress=_Lines([]))

        if language == "th":
            with pytest.raises(DataError, match="an encoder is loaded"):
                make()
        else:
            assert make().language_pair == ("en", "de")
