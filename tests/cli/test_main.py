"""Every verb as a user types it, in this process: what it prints, what it leaves, and how it refuses."""

from __future__ import annotations

import errno
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crossling import __version__
from crossling.cli import main as cli
from crossling.encoders.loading import load_encoder
from crossling.recipe.overrides import to_toml

Trained = Callable[[str], Path]
Crossling = Callable[..., "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def crossling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    """Types a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def type_in(*arguments: str | Path, given: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return type_in


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_recipe(folder: Path, encoder: Path, **stage: Any) -> Path:
    """A recipe for the embedded corpus that trains in a moment."""
    tables = {
        "encoder": {"name": str(encoder)},
        "stage": [
            {
                "kind": "finetune",
                "task": "ner",
                "train": ["phrasebook-ner:en:train[:24]"],
                "dev": "phrasebook-ner:en:dev[:8]",
                "epochs": 1,
                **stage,
            }
        ],
        "evaluate": [{"on": "phrasebook-ner", "languages": ["en", "hi"], "split": "test[:6]"}],
        "run": {"threads": 1},
    }
    return write(folder / "small.toml", to_toml(tables))


def list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_run_prints_a_row_for_every_language_and_the_next_command(
    crossling: Crossling, tmp_path: Path, tiny_folder: Path
) -> None:
    done = crossling("run", write_recipe(tmp_path, tiny_folder), "--set", "stage.0.lr=1e-3")
    assert done.code == 0, done.err
    assert re.search(r"^ *hi +Hindi +6 +\d+\.\d", done.out, re.MULTILINE)
    assert "crossling predict runs/small --language hi FILE" in done.out
    facts = json.loads((tmp_path / "runs/small/run.json").read_text(encoding="utf-8"))
    assert facts["command"].endswith("--set stage.0.lr=1e-3")
    assert "lr = 0.001" in (tmp_path / "runs/small/recipe.toml").read_text(encoding="utf-8")
    again = crossling("run", "small.toml", "--set", "stage.0.lr=1e-3")
    assert again.code == 0 and "already trained" in again.err
    assert again.out == done.out
    predicted = crossling("predict", "runs/small", "--format", "jsonl", given=b"the cat\n")
    assert predicted.code == 0 and json.loads(predicted.out)["text"] == "the cat"


def test_two_ways_to_test_a_study_exclude_each_other(crossling: Crossling) -> None:
    refused = crossling("study", "compare", "studies/x", "--as-published", "--interval", "hierarchical")
    assert refused.code == 2
    assert "--as-published and --interval hierarchical: each says how to test; leave one out" in refused.err


@pytest.mark.usefixtures("forked_workers")
def test_demo_runs_its_study_with_overrides(crossling: Crossling, tmp_path: Path, tiny_folder: Path) -> None:
    """The first run, all systems, the analysis and the report, with a tiny encoder and a few sentences."""
    few = '"{0}.train" = "phrasebook-ner:en:train[:16]", "{0}.dev" = "phrasebook-ner:en:dev[:5]", "{0}.epochs" = 1'
    plain, second = few.format("stage.0"), few.format("stage.1")
    second += ', "stage.0.parallel" = "phrasebook-parallel:en-de", "stage.0.sentences" = 6'
    fusion = '.fusion" = { kind = "dlfa", layer = 1 }'
    small = [
        "seeds=[1]",
        f'encoder.name="{tiny_folder}"',
        'evaluate.0.languages=["en", "zh"]',
        "evaluate.0.split=test[:5]",
        f"systems.plain.set={{ {plain} }}",
        f'systems.dlfa.set={{ {plain}, "stage.0{fusion} }}',
        f"systems.adjusted.set={{ {second} }}",
    ]
    options = [part for value in small for part in ("--set", value)]
    quick = crossling("demo", "--quick", *options)
    assert quick.code == 0, quick.err
    assert list_files(tmp_path / "demo") >= {"run/page.html"} and not (tmp_path / "demo/study/report.html").exists()
    done = crossling("demo", *options)
    assert done.code == 0, done.err
    assert {"run/page.html", "study/comparison.json", "study/report.html"} <= list_files(tmp_path / "demo")
    assert "distances" in (tmp_path / "demo/study/report.html").read_text(encoding="utf-8")
    assert all(system in done.out for system in ("plain", "dlfa", "adjusted"))
    assert "no evidence" in done.out
    assert re.search(r"echo .* \| \S*crossling predict demo/run --language ru", done.out)


def test_check_shows_recipe_data_and_memory_and_trains_nothing(
    crossling: Crossling, tmp_path: Path, tiny_folder: Path
) -> None:
    done = crossling("check", write_recipe(tmp_path, tiny_folder))
    assert done.code == 0, done.err
    assert "weight_decay = 0.0" in done.out
    assert re.search(r"stage\.0: train .*phrasebook-ner:en:train\[:24\] .* 24 ", done.out)
    assert re.search(r"stage\.0 +about \d+\.\d GB", done.out)
    assert not (tmp_path / "runs").exists() and not (tmp_path / "store" / "artefacts").exists()


def test_predict_writes_each_format(crossling: Crossling, trained: Trained, tmp_path: Path) -> None:
    path = write(tmp_path / "in.txt", "the cat\n\na dog in\n")
    table = crossling("predict", trained("ner"), path)
    assert re.search(r"1 +cat +X +4–7 +[01]\.\d\d", table.out)
    assert re.search(r"3 +dog +X +2–5 ", table.out)
    columns = crossling("predict", trained("ner"), path, "--format", "conll")
    assert columns.out == "the\tO\ncat\tB-X\n\na\tO\ndog\tB-X\nin\tO\n\n"
    lines = crossling("predict", trained("ner"), path, "--format", "jsonl", "--language", "de").out.splitlines()
    assert [json.loads(line)["line"] for line in lines] == [1, 3]
    assert table.code == columns.code == 0


def test_predict_reads_words_pairs_and_questions(crossling: Crossling, trained: Trained) -> None:
    words = crossling("predict", trained("ner"), "--words", "--format", "conll", given=b"the\ncat\n\nin\n")
    assert words.out == "the\tO\ncat\tB-X\n\nin\tO\n\n"
    pairs = crossling("predict", trained("nli"), given="the cat\tмир\n".encode())
    assert re.search(r"1 +the cat +мир +(cats|other) +[01]\.\d\d", pairs.out)
    answer = crossling("predict", trained("qa"), given=b"the cat\tin in cat in\n")
    assert re.search(r"1 +the cat +cat +[01]\.\d\d +6–9", answer.out)
    label = crossling("predict", trained("sentiment"), "--format", "jsonl", given=b"[bold]cat[/] the\n")
    assert json.loads(label.out)["text"] == "[bold]cat[/] the"


def test_data_lists_sets_and_shows_rows(crossling: Crossling) -> None:
    listed = crossling("data")
    assert listed.code == 0 and "phrasebook-paraphrase" in listed.out and "embedded" in listed.out
    shown = crossling("data", "show", "phrasebook-ner:hi:test[:3]", "--rows", "1")
    assert "3 rows" in shown.out and "/B-" in shown.out and re.search(r"O +\d+ +\d+\.\d %", shown.out)
    table = '{ data = "phrasebook-parallel:en-hi", rows = 40, clean = { max_words = 9 } }'
    cleaned = crossling("data", "show", table, "--rows", "0").out
    assert (
        "left out (" in cleaned and "over 9 words" in cleaned and "script distinguishes English from Hindi" in cleaned
    )


def test_encoder_coverage_and_trim(crossling: Crossling, tiny_folder: Path, tmp_path: Path) -> None:
    described = crossling("encoder", tiny_folder)
    assert re.search(r"layers +3", described.out) and re.search(r"heads +2 a layer, 6 in all", described.out)
    path = write(tmp_path / "text.txt", "the cat ßß\n")
    covered = crossling("coverage", tiny_folder, path)
    assert re.search(r"characters it cannot write +ß \(2\)", covered.out)
    trimmed = crossling("trim", tiny_folder, "--on", path, "--out", "smaller")
    assert trimmed.code == 0 and "subwords in use" in trimmed.out
    assert load_encoder("smaller").vocabulary < load_encoder(str(tiny_folder)).vocabulary


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "smal.toml"), "smal.toml: no such file. Did you mean 'small.toml'"),
        (("run", "small.toml", "--set", "stage.0.epoch=2"), "Did you mean 'epochs'"),
        (("run", "small.toml", "--set", "stage.7.epochs=2"), "is not one of the 1 items"),
        (("run", "small.toml", "--set", "epochs"), "write key=value"),
        (("run", "small.toml", "--set", 'evaluate.0.languages=["sw"]'), "has no language 'sw'"),
        (("run", "small.toml", "--set", "encoder.name=./nowhere"), "no such folder"),
        (("run", "small.toml", "--set", "stage=[]"), "a run trains at least once"),
        (("run", "small.toml", "--out", "file/x"), "file/x/recipe.toml: a part of the path is a file"),
        (("run", "small.toml", "--out", "file"), "file/recipe.toml: a part of the path is a file"),
        (("run", "small.toml", "--store", "file/x"), "file/x: a part of the path is a file"),
        (("check", "small.toml", "--set", "stage.0.fusion={kind='dlfa', layer=9}"), "the encoder has 3 layers"),
        (
            ("check", "small.toml", "--set", "stage.0.train=phrasebook-ner:xx"),
            "stage.0: phrasebook-ner has no language 'xx'",
        ),
        (("predict", "gine", "in.txt"), "gine: no such folder; crossling run makes one. Did you mean 'gone'?"),
        (("export", "gine", "new"), "gine: no such folder"),
        (("serve", "gine"), "gine: no such folder"),
        (("study", "status", "gine"), "studies/gine: no such folder; crossling study run makes one"),
        (("predict", "study", "in.txt"), "study: is the folder of a study; name one of its runs: study/a, study/b"),
        (("predict", "file", "in.txt"), "file: is a file; name the folder of a run"),
        (("predict", "damaged", "in.txt"), "run.json: damaged"),
        (("predict", "odd", "in.txt"), "names no trained stages"),
        (("predict", "gone", "in.txt"), "run its recipe again: crossling run gone/recipe.toml --out gone"),
        (("predict", "gone", "in.txt", "--seed", "4"), "has no seed 4; it has 1"),
        (("predict", "MODEL", "nothing.txt"), "nothing.txt: no such file"),
        (("predict", "MODEL", "."), "cannot be read: Is a directory"),
        (("predict", "MODEL", "binary"), "binary:1: not text"),
        (("predict", "MODEL"), "standard input: holds no text"),
        (("predict", "MODEL", "in.txt", "--format", "jsn"), "Did you mean 'jsonl'"),
        (("predict", "MODEL", "in.txt", "--language", "hindu"), "Did you mean 'hi' (Hindi)"),
        (("data", "show", "phrasebok-ner:de"), "Did you mean 'phrasebook-ner'"),
        (("data", "show", "phrasebook-ner:de:tst"), "Did you mean 'test'"),
        (("encoder", "./nowhere"), "no such folder"),
        (("encoder", "damaged"), "not an encoder's folder"),
        (("coverage", "ENCODER", "nothing.txt"), "nothing.txt: no such file"),
        (("coverage", "ENCODER", "binary"), "binary:1: not UTF-8"),
        (("trim", "ENCODER", "--on", "nothing.txt", "--out", "new"), "nothing.txt: no such file"),
        (("trim", "ENCODER", "--on", "in.txt", "--out", "file"), "file: is a file"),
        (("trim", "ENCODER", "--on", "in.txt", "--out", "file/x"), "file/x: a part of the path is a file"),
        (("trim", "ENCODER", "--on", "in.txt", "--out", "new", "--blocks"), "write it without --blocks"),
        (("demo", "--set", "stage.0.epochs=0"), "stage.0.epochs = 0"),
    ],
)
def test_user_errors_exit_with_2_and_write_nothing(
    arguments: tuple[str, ...],
    message: str,
    crossling: Crossling,
    trained: Trained,
    tiny_folder: Path,
    tmp_path: Path,
) -> None:
    write_recipe(tmp_path, tiny_folder)
    write(tmp_path / "in.txt", "the cat\n")
    write(tmp_path / "file", "")
    write(tmp_path / "binary", b"\x7fELF\0\xff")
    write(tmp_path / "damaged/run.json", "{")
    cells = [
        {"name": name, "task": "", "label": "", "seed": 1, "identity": "", "stages": []}
        for name in ("a/seed-1", "a/seed-2", "b/seed-1")
    ]
    write(tmp_path / "study/study.json", json.dumps({"name": "study", "cells": cells}))
    write(tmp_path / "odd/run.json", '{"stages": {"1": []}}')
    write(tmp_path / "gone/run.json", json.dumps({"store": "away", "stages": {"1": ["x"]}}))
    before = list_files(tmp_path)
    places = {"MODEL": trained("ner"), "ENCODER": tiny_folder}
    done = crossling(*(places.get(argument, argument) for argument in arguments))
    assert done.code == 2
    assert message in done.err
    assert done.err.startswith("crossling: ") and "Traceback" not in done.err
    assert done.out == ""
    assert {name for name in list_files(tmp_path) - before if not name.startswith("store/")} == set()


@pytest.mark.parametrize("arguments", [("predic",), ("run",), ("data", "shw"), ("trim", "x"), ("run", "a", "--st")])
def test_unknown_commands_show_usage(crossling: Crossling, arguments: tuple[str, ...]) -> None:
    done = crossling(*arguments)
    assert done.code == 2 and "Usage" in done.err and done.out == ""


def test_conll_is_for_tags_only(crossling: Crossling, trained: Trained) -> None:
    done = crossling("predict", trained("sentiment"), "--format", "conll", given=b"the cat\n")
    assert done.code == 2 and "only tags come in columns" in done.err and done.out == ""


def test_interrupted_run_names_how_to_continue(
    crossling: Crossling, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_folder: Path
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("crossling.training.loop.fit", interrupt)
    done = crossling("run", write_recipe(tmp_path, tiny_folder))
    assert done.code == 130
    assert "the same command continues from the last checkpoint" in done.err


def test_full_disk_is_a_user_error_and_other_os_errors_are_not(
    crossling: Crossling, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        def show() -> None:
            raise OSError(number, "of some kind", "results")

        monkeypatch.setattr("crossling.cli.show_data.show_catalogue", show)

    fail(errno.ENOSPC)
    done = crossling("data")
    assert done.code == 2 and "results: the disk is full" in done.err
    fail(errno.EBADF)
    with pytest.raises(OSError, match="of some kind"):
        crossling("data")


def test_output_is_utf8_on_any_locale(crossling: Crossling, monkeypatch: pytest.MonkeyPatch, trained: Trained) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    done = crossling("predict", trained("ner"), "--language", "zh", "--format", "conll", given="我们\n".encode())
    sys.stdout.flush()
    assert done.code == 0
    assert raw.getvalue().decode() == "我\tO\n们\tO\n\n"


def test_help_shows_every_verb_in_its_panel_in_order_of_use(crossling: Crossling) -> None:
    shown = crossling("--help").out
    places = [shown.index(f"─ {panel} ─") for panel in cli.PANELS]
    assert places == sorted(places)
    verbs = [verb for verbs in cli.PANELS.values() for verb in verbs]
    assert re.findall(r"^│ (\w+) ", shown, flags=re.MULTILINE) == verbs
    groups = {group.name for group in cli.app.registered_groups}
    commands = {command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    assert groups | commands == set(verbs)


def test_version_is_shown_without_torch() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['crossling', '--version']\n"
        "from crossling.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert not {'torch', 'pydantic'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"crossling {__version__}\n"), done.stderr


def test_help_of_every_verb_imports_nothing_heavy() -> None:
    """Of the command line itself test_architecture says more: there, typer does without pydantic."""
    code = (
        "import sys\n"
        "from crossling.cli.main import app\n"
        "verbs = [c.name or c.callback.__name__ for c in app.registered_commands]\n"
        "verbs += [group.name for group in app.registered_groups]\n"
        "assert {'run', 'check', 'predict', 'data', 'encoder', 'coverage', 'trim', 'demo'} <= set(verbs), verbs\n"
        "for arguments in [[], *([verb] for verb in verbs), ['data', 'show']]:\n"
        "    try:\n        app([*arguments, '--help'])\n"
        "    except SystemExit as stop:\n        assert not stop.code, (arguments, stop.code)\n"
        "    heavy = {'torch', 'transformers', 'pyarrow', 'numpy', 'datasets'} & set(sys.modules)\n"
        "    assert not heavy, (arguments, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--language" in done.stdout


def test_missing_paths_are_noticed_before_torch_is_imported(tmp_path: Path) -> None:
    """Importing it takes seconds, and the error would come after them."""
    (tmp_path / "own.toml").write_text(
        '[encoder]\nname = "./nowhere"\n[[stage]]\nkind = "finetune"\ntask = { kind = "tag" }\n'
        'train = { format = "bio", path = "sw.tsv", language = "sw" }\nselect = "last"\n'
        '[[evaluate]]\non = { format = "bio", path = "test-{language}.tsv" }\nlanguages = ["de", "hi"]\n'
    )
    (tmp_path / "study.toml").write_text('seeds = [1]\nbaseline = "a"\n[systems.a]\nrecipe = "own.toml"\n')
    (tmp_path / "in.txt").write_text("text")
    commands = {
        "run own.toml": ("encoder.name", "sw.tsv", "test-de.tsv", "test-hi.tsv"),
        "check own.toml": ("encoder.name", "sw.tsv", "test-de.tsv", "test-hi.tsv"),
        "study run study.toml": ("encoder.name", "sw.tsv", "test-de.tsv", "test-hi.tsv"),
        "predict nowhere in.txt": ("nowhere: no such folder",),
        "predict nowhere missing.txt": ("missing.txt: no such file",),
        "encoder ./nowhere": ("no such folder",),
        "coverage multilingual-e5-small missing.txt": ("missing.txt: no such file",),
        "trim multilingual-e5-small --on missing.txt --out x": ("missing.txt: no such file",),
        "extend multilingual-e5-small --on missing.txt --pieces 10 --out x": ("missing.txt: no such file",),
        "align missing.txt in.txt --out links": ("missing.txt: no such file",),
    }
    code = (
        "import json, sys\nfrom crossling.cli.main import app\nfrom crossling.errors import UserError\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    try:\n        app(command.split(), standalone_mode=False)\n"
        "    except UserError as error:\n        print(json.dumps([command, str(error), 'torch' in sys.modules]))\n"
    )
    arguments = [sys.executable, "-c", code, json.dumps(list(commands))]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [command for command, _, _ in found] == list(commands)
    for command, message, imported in found:
        assert not imported, command
        assert all(part in message for part in commands[command]), message


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, r"rows\.tsv: there is no such file"),
        ("good\tpositive\nbroken\n", r"stage\.0: rows\.tsv:2: 1 tab-separated fields instead of 2"),
    ],
)
def test_message_on_data_begins_with_the_recipe_that_names_it(
    crossling: Crossling, tiny_folder: Path, verb: str, text: str | None, fault: str
) -> None:
    if text is not None:
        Path("rows.tsv").write_text(text, encoding="utf-8")
    data = {"format": "tsv", "path": "rows.tsv", "language": "en", "text": 1, "label": 2}
    stage = {"kind": "finetune", "task": "sentiment", "train": data, "select": "last"}
    tables = {"encoder": {"name": str(tiny_folder)}, "stage": [stage]}
    Path("mine.toml").write_text(to_toml(tables), encoding="utf-8")
    done = crossling(verb, "mine.toml")
    assert done.code == 2
    assert re.match(rf"crossling: mine\.toml: (stage\.0: )?{fault}", done.err), done.err


def test_run_exempts_libraries_from_collection_before_it_opens_data(
    crossling: Crossling, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr("crossling.encoders.loading.exempt_libraries", lambda: done.append("exempt"))
    monkeypatch.setattr("crossling.study.recipe_run.run_recipe", lambda *_, **__: done.append("run") or sys.exit(0))
    stage = {"kind": "finetune", "task": "ner", "train": "phrasebook-ner:en:train[:8]", "select": "last"}
    Path("mine.toml").write_text(to_toml({"encoder": {"name": str(tiny_folder)}, "stage": [stage]}), encoding="utf-8")
    crossling("run", "mine.toml")
    assert done == ["exempt", "run"]
