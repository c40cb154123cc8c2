"""``crossling align`` as a user types it, and the aligner that is somebody else's package."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crossling.aligners.lexicon import LexiconSettings
from crossling.aligners.picture import draw_links
from crossling.cli import main as cli
from crossling.registry import list_kinds, load_kind
from tiny import save_tiny

Types = Callable[..., tuple[int, str, str]]


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Types:
    """Types a command in a folder that has a small text and gold links."""
    monkeypatch.chdir(tmp_path)
    Path("en").write_text("the house\nthe book\na book\na house\n")
    Path("de").write_text("das Haus\ndas Buch\nein Buch\nein Haus\n")
    Path("gold").write_text("1-1 2-2\n1-1 2p2\n1-1 2-2\n1-1 2-2\n")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["crossling", *words])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize("verb", [(), ("run",)])
def test_align_and_score(types: Types, verb: tuple[str, ...]) -> None:
    code, out, _ = types("align", *verb, "en", "de", "--out", "links", "--aligner", "statistical")
    assert code == 0
    assert "8 links between the words of 4 sentence pairs: links" in out
    assert Path("links").read_text() == "0-0 1-1\n" * 4
    code, out, _ = types("align", "score", "links", "gold")
    assert code == 0
    assert "words are counted from 1, for no word 0 occurs (--base 0 if that is wrong)" in out
    assert "AER 0.0000  precision 1.0000  recall 1.0000  F1 1.0000" in out
    assert "8 links, 8 of them right; 7 of 7 sure ones" in out


def test_score_depends_on_the_base_of_gold_numbers(types: Types) -> None:
    types("align", "en", "de", "--out", "links", "--aligner", "statistical")
    code, out, _ = types("align", "score", "links", "gold", "--base", "0")
    assert code == 0
    assert "counted from" not in out
    assert "AER 0.4667" in out  # 8 links, 4 of them right, all 4 sure; of 7 sure ones: 1 - 8 / 15


def test_options_come_first_and_one_file_holds_both_sides(types: Types) -> None:
    Path("both").write_text("the house ||| das Haus\nthe book ||| das Buch\n")
    code, _, _ = types("align", "--aligner", "statistical", "--set", "iterations=2", "both", "--out", "new/links")
    assert code == 0
    assert len(Path("new/links").read_text().splitlines()) == 2


def test_neural_links_by_an_encoder_in_a_folder(types: Types, tmp_path: Path) -> None:
    save_tiny(tmp_path / "encoder")
    Path("same").write_text("the red cat ||| the red cat\n")
    code, _, err = types("align", "same", "--out", "links", "--set", "encoder=./encoder", "--set", "layer=1")
    assert code == 0, err
    assert Path("links").read_text() == "0-0 1-1 2-2\n"
    code, _, err = types("align", "same", "--out", "links", "--set", "encoder=./encoder", "--set", "layer=9")
    assert code == 2 and "no layer 9" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--aligner", "statistic"), "Did you mean 'statistical'?"),
        (("--symmetrize", "grow"), "aligner.symmetrize = 'grow': unknown."),
        (("--aligner", "statistical", "--set", "layer=3"), "aligner.layer: unknown key."),
    ],
)
def test_wrong_input_is_refused(types: Types, words: tuple[str, ...], message: str) -> None:
    code, _, err = types("align", "en", "de", "--out", "links", *words)
    assert code == 2
    assert message in err.replace("\n", " ")
    assert not Path("links").exists()


def test_draw_writes_a_grid_of_words(types: Types) -> None:
    Path("links").write_text("0-0\n0-0\n0-1\n\n")
    assert types("align", "draw", "links", "en", "de", "--line", "3", "--gold", "gold", "--out", "pair.svg")[0] == 0
    root = ElementTree.parse("pair.svg").getroot()
    squares = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert (squares.count("link"), squares.count("sure"), squares.count("possible")) == (1, 2, 0)
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")] == ["a", "book", "ein", "Buch"]
    code, _, err = types("align", "draw", "links", "en", "de", "--line", "5", "--out", "pair.svg")
    assert code == 2 and "there is no line 5" in err
    Path("links").write_text("0-0\n0-2\n0-1\n\n")
    code, _, err = types("align", "draw", "links", "en", "de", "--out", "pair.svg")
    assert code == 2 and "links:2: the link 0-2 leads outside 2 and 2 words" in err


def test_draw_escapes_markup_in_words() -> None:
    root = ElementTree.fromstring(draw_links(["<b>", "&"], ["猫"], [(1, 0)]))
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")] == ["<b>", "&", "猫"]


def test_lexicon_is_made_and_scored(types: Types) -> None:
    words = ("align", "lexicon", "en", "de", "--aligner", "statistical", "--languages", "en-de", "--out", "lexicon.tsv")
    code, out, err = types(*words, "--gold", "gold")
    assert code == 0, err
    assert "4 translations of 4 words, from 4 sentence pairs: lexicon.tsv" in out
    assert "precision 1.0000  recall 1.0000  (words of GOLD are counted from 1)" in out
    assert "4 of 4 entries are in gold links; 4 of 4 word pairs with a sure link are entries" in out
    lines = Path("lexicon.tsv").read_text().splitlines()
    assert lines == ["# crossling lexicon en-de", *(f"{pair}\t1\t2" for pair in _TRANSLATIONS)]
    assert types(*words, "--least", "3")[1].endswith("lower --least or --probability, or take more text.\n")


_TRANSLATIONS = ("a\tein", "book\tbuch", "house\thaus", "the\tdas")


def test_help_of_a_lexicon_shows_the_defaults_of_its_settings(types: Types, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lines = types("align", "lexicon", "--help")[1].splitlines()
    for name, field in LexiconSettings.model_fields.items():
        (line,) = [line for line in lines if f" --{name} " in line]
        assert isinstance(field.default, bool) or f"[default: ({field.default})]" in line


def test_lexicon_from_named_sets(types: Types) -> None:
    sets = ("--on", "phrasebook-parallel:en-es:dev[:200]", "--on", "phrasebook-parallel:en-es:test[:200]")
    code, out, err = types("align", "lexicon", *sets, "--aligner", "statistical", "--out", "new/lexicon.tsv")
    assert code == 0, err
    assert "from 400 sentence pairs: new/lexicon.tsv" in out
    assert Path("new/lexicon.tsv").read_text().startswith("# crossling lexicon en-es\n")


def test_lexicon_of_running_text_says_how_to_cut_it(types: Types) -> None:
    Path("raw.en").write_text("A house.\nThe dog!\n")
    Path("raw.de").write_text("Ein Haus.\nDer Hund!\n")
    code, _, err = types("align", "lexicon", "raw.en", "raw.de", "--aligner", "statistical", "--out", "lexicon.tsv")
    assert code == 0
    assert "50% of the distinct words end in a punctuation mark" in err
    assert '--on \'{ format = "parallel"' in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name parallel text, either as files (SRC TGT) or as data sets"),
        (("en", "de", "--on", "ntrex:en-de"), "name parallel text, either as files (SRC TGT) or as data sets"),
        (("en", "gold"), "the names of the files do not say which languages these are"),
        (("--on", "phrasebook-parallel:en-de", "--gold", "gold"), "gold links belong to the lines of a file"),
        (("--on", "phrasebook-ner:de"), "holds TaggedSentence rows"),
        (("--on", "ntrx:en-de"), "Did you mean 'ntrex'?"),
        (("en", "de", "--least", "0"), "lexicon: least = 0: Input should be greater than or equal to 1"),
        (("en", "de", "--languages", "en-de", "--aligner", "statistic"), "Did you mean 'statistical'?"),
        (("en", "gold", "--languages", "en-de", "--gold", "missing"), "missing: there is no such file"),
    ],
)
def test_wrong_input_of_a_lexicon_is_refused(types: Types, words: tuple[str, ...], message: str) -> None:
    code, _, err = types("align", "lexicon", *words, "--out", "lexicon.tsv")
    assert code == 2
    assert message in err.replace("\n", " ")
    assert not Path("lexicon.tsv").exists()


def test_missing_eflomal_is_reported_with_its_extra(types: Types, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eflomal", None)
    code, _, err = types("align", "en", "de", "--out", "links", "--aligner", "eflomal")
    assert code == 2
    assert 'pip install "crossling[align]"' in err


def test_eflomal_is_given_lines_and_its_links_are_merged(types: Types, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    class Aligner:
        def __init__(self, **settings: Any) -> None:
            made.update(settings)

        def align(
            self, source: Iterable[str], target: Iterable[str], *, links_filename_fwd: str, links_filename_rev: str
        ) -> None:
            made["lines"] = list(source), list(target)
            Path(links_filename_fwd).write_text("0-0 1-1\n0-0\n0-0\n0-0\n")
            Path(links_filename_rev).write_text("0-0\n0-0\n1-0\n0-0\n")

    module = ModuleType("eflomal")
    module.Aligner = Aligner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "eflomal", module)
    words = ("--aligner", "eflomal", "--symmetrize", "intersection", "--set", "samplers=1")
    assert types("align", "en", "de", "--out", "links", *words)[0] == 0
    assert made["lines"][1] == ["das Haus\n", "das Buch\n", "ein Buch\n", "ein Haus\n"]
    assert (made["n_samplers"], made["model"]) == (1, 3)
    assert Path("links").read_text() == "0-0\n0-0\n\n0-0\n"


@pytest.mark.parametrize("kind", list_kinds("aligners"))
def test_every_aligner_has_settings_with_defaults(kind: str) -> None:
    assert load_kind("aligners", kind).Settings().kind == kind
