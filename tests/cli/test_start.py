"""``crossling start`` as a user types it: what it finds, the recipe that it writes, and how it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.cli import main as cli
from crossling.recipe.recipe import load_recipe
from crossling.study import memory_fit, start_data, start_overlaps
from crossling.study.choices import Ingredient, TaskChoices, load_choices
from phrasebook_files import write_rows, write_text

Start = Callable[..., tuple[int, str, str]]
GAIN, WITH_TEXT = (3.4, 2.8, 4.0), (4.0, 3.5, 4.5)


def fix_gains(choices: TaskChoices) -> TaskChoices:
    """The first way to use other text helped, no other was measured: whatever the latest study says."""
    first = find_first(choices)
    figures = {"none": (), "text": (), "none_in": {}, "text_in": {}}
    fixed = [
        one if one.needs == "labels" else one.model_copy(update=figures if one is not first else HELPED)
        for one in choices.ingredients
    ]
    return choices.model_copy(update={"ingredients": tuple(fixed)})


def find_first(choices: TaskChoices) -> Ingredient | None:
    return next((one for one in choices.ingredients if one.needs != "labels"), None)


def let_help(monkeypatch: pytest.MonkeyPatch, task: str, is_chosen: Callable[[Ingredient], bool]) -> Ingredient:
    """An ingredient that helped more than all others of a task."""
    chosen = next(filter(is_chosen, CHOICES[task].ingredients))
    helped = chosen.model_copy(update=HELPED | {"none": (9.0, 8.0, 10.0), "text": (9.0, 8.0, 10.0)})
    others = (one for one in CHOICES[task].ingredients if one is not chosen)
    monkeypatch.setitem(CHOICES, task, CHOICES[task].model_copy(update={"ingredients": (*others, helped)}))
    return helped


HELPED: dict[str, object] = {"none": GAIN, "text": WITH_TEXT, "none_in": {}, "text_in": {}}
CHOICES = {task: fix_gains(choices) for task, choices in load_choices().items()}


@pytest.fixture(autouse=True)
def _fixed_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_data, "load_choices", lambda: CHOICES)


@pytest.fixture
def crossling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, flat_folder: Path
) -> Start:
    """Types a command in an empty folder, without any data set; ``start`` with a tiny encoder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CROSSLING_DATA", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        encoder = ("--encoder", str(flat_folder)) if words[0] == "start" else ()
        monkeypatch.setattr(sys, "argv", ["crossling", *words, *encoder])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, " ".join(captured.out.split()), " ".join(captured.err.split())

    return run


@pytest.mark.parametrize("task", CHOICES)
def test_recipe_for_files_passes_check(task: str, crossling: Start, tmp_path: Path) -> None:
    train, dev = (write_rows(tmp_path, task, "en", split, 30).name for split in ("train", "dev"))
    test = write_rows(tmp_path, task, "de", "test", 20).name
    text = write_text(tmp_path, "hi", 25).name
    words = ("--language", "de", "--labels", train, "--labels", dev, "--test", test, "--text", text)
    code, out, err = crossling("start", task, *words)
    assert code == 0, err
    assert f"labels {train} en 30" in out and f"scored {test} de 20" in out
    assert "German (de):" in out and "subwords a word" in out
    assert "30 labelled rows are few" in out
    assert "time: about" in out and f"next: crossling run {task}-de.toml" in out
    recipe = load_recipe(f"{task}-de.toml")
    first = find_first(CHOICES[task])
    taught = first.after if first and first.needs == "text" and task in ("pos", "ner", "sentiment") else ()
    assert [stage.kind for stage in recipe.stage] == ["finetune", *(stage["kind"] for stage in taught)]
    assert len(recipe.evaluate) == 1
    code, out, err = crossling("check", f"{task}-de.toml")
    assert code == 0, err
    assert test in out


def test_written_recipe_runs(crossling: Start, tmp_path: Path) -> None:
    train, dev = (write_rows(tmp_path, "ner", "en", split, 24).name for split in ("train", "dev"))
    test = write_rows(tmp_path, "ner", "de", "test", 10).name
    text = write_text(tmp_path, "de", 20).name
    words = ("--labels", train, "--labels", dev, "--test", test, "--text", text, "--out", "mine.toml")
    assert crossling("start", "ner", "--language", "de", *words)[0] == 0
    quick = ("--set", "stage.0.epochs=1", "--set", "stage.1.keep=all", "--set", "stage.1.teachers=1")
    code, out, err = crossling("run", "mine.toml", *quick, "--set", "run.threads=1")
    assert code == 0, err
    assert "German" in out
    assert Path("runs/mine/page.html").is_file()


def test_without_files_the_phrasebook_stands_in(crossling: Start) -> None:
    code, out, err = crossling("start", "nli", "--language", "hi")
    assert code == 0, err
    assert "the embedded phrasebook stands in" in out
    recipe = load_recipe("nli-hi.toml")
    assert [stage.kind for stage in recipe.stage] == ["finetune", "teach"]
    assert recipe.stage[0].select == "last"
    text = Path("nli-hi.toml").read_text(encoding="utf-8")
    assert 'parallel = [{ source = "phrasebook-nli:en:dev", target = ["hi", "de", "es", "ru", "zh"] }]' in text
    assert "# The last epoch is kept, since the dev set is taught on." in text
    assert "In our study: +4.0 points [+3.5, +4.5] over plain" in text.replace("\n# ", " ")


def test_catalogue_set_named_whole_brings_its_dev_set_and_its_text(crossling: Start, tmp_path: Path) -> None:
    words = ("start", "ner", "--language", "hi", "--labels")
    code, out, err = crossling(*words, "phrasebook-ner:en")
    assert code == 0, err
    finetune, *others = load_recipe("ner-hi.toml").stage
    assert (finetune.train, finetune.dev) == (("phrasebook-ner:en:train",), "phrasebook-ner:en:dev")
    assert [stage.kind for stage in others] == ["teach", "teach"]
    assert "stands in" not in out
    dev = write_rows(tmp_path, "ner", "en", "dev", 12).name
    assert crossling(*words, "phrasebook-ner:en", "--labels", dev, "--force")[0] == 0
    assert load_recipe("ner-hi.toml").stage[0].train == ("phrasebook-ner:en:train",)
    assert dev in str(load_recipe("ner-hi.toml").stage[0].dev), "the user's own selects"
    assert crossling(*words, "phrasebook-ner:en:train[:50]", "--force")[0] == 0
    text = Path("ner-hi.toml").read_text(encoding="utf-8")
    assert 'train = "phrasebook-ner:en:train[:50]"' in text
    assert "# The last epoch is kept, since no dev set was found for these labels." in text


def test_what_is_missing_is_named_with_its_gain(crossling: Start, tmp_path: Path) -> None:
    train = write_rows(tmp_path, "ner", "en", "train", 30).name
    code, out, _ = crossling("start", "ner", "--language", "sw", "--labels", train)
    assert code == 0
    best = find_first(CHOICES["ner"])
    assert best is not None
    assert "The recipe: finetune. Other text would help; there is none here." in out
    assert f"{best.ask}: +3.4 points [+2.8, +4.0] on entities ({best.page})" in out
    assert "a few hundred labelled rows in sw to score on (the catalogue has panx:sw:test" in out
    assert "Swahili (sw): no text of it here" in out
    text = Path("ner-sw.toml").read_text(encoding="utf-8")
    assert "# Not scored for lack of a labelled test set: sw." in text
    assert 'select = "last"' in text


def test_scored_text_is_left_out_and_broken_rows_are_named(crossling: Start, tmp_path: Path) -> None:
    train = write_rows(tmp_path, "ner", "en", "train", 100)
    train.write_text(train.read_text(encoding="utf-8") + "\nlonely\n", encoding="utf-8")
    test = write_rows(tmp_path, "ner", "de", "test", 10)
    lines = [
        "".join(line.split("\t")[0] + " " for line in block.splitlines()) for block in test.read_text().split("\n\n")
    ]
    Path("text.de.txt").write_text("\n".join([*lines[:4], "Ein ganz anderer Satz ."]) + "\n", encoding="utf-8")
    words = ("--labels", train.name, "--test", test.name, "--text", "text.de.txt")
    code, out, err = crossling("start", "ner", "--language", "de", *words)
    assert code == 0, err
    assert "1 broken row left out; the first: train.en.tsv:" in out
    assert "4 rows are also scored: left out" in out
    text = Path("ner-de.toml").read_text(encoding="utf-8")
    assert 'on_error = "skip"' in text
    assert 'leave_out = [{ format = "bio", path = "test.de.tsv", language = "de" }]' in text


def test_training_rows_that_are_also_scored_are_warned_of_in_the_output_and_in_the_recipe(
    crossling: Start, tmp_path: Path
) -> None:
    train = write_rows(tmp_path, "ner", "en", "train", 30).name
    test = write_rows(tmp_path, "ner", "de", "test", 10)
    own = tmp_path / "own.de.tsv"
    own.write_text(test.read_text(encoding="utf-8"), encoding="utf-8")
    words = ("start", "ner", "--language", "de", "--labels", train, "--test", test.name)
    code, out, err = crossling(*words, "--labels", own.name)
    assert code == 0, err
    assert "10 training rows are also in the test set: scores will be too high" in out
    warning = "arning: own.de.tsv: 10 of its 10 training rows are also in the test set, so scores will be too high"
    assert f"w{warning}; most so on test.de.tsv, of whose 10 rows 10 are trained on." in out
    comments = Path("ner-de.toml").read_text(encoding="utf-8").partition("[[stage]]")[0].replace("\n# ", " ")
    assert f"W{warning}" in comments
    assert "arning: " not in crossling(*words, "--force")[1] + Path("ner-de.toml").read_text(encoding="utf-8")


def test_few_training_rows_that_are_also_scored_are_counted_without_a_warning(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_overlaps, "MOST_SCORED", 0.2)
    train, test = (write_rows(tmp_path, "ner", *of) for of in (("en", "train", 30), ("de", "test", 10)))
    first = test.read_text(encoding="utf-8").partition("\n\n")[0]
    train.write_text(f"{train.read_text(encoding='utf-8')}\n{first}\n", encoding="utf-8")
    code, out, err = crossling("start", "ner", "--language", "de", "--labels", train.name, "--test", test.name)
    assert code == 0, err
    assert "1 training rows are also in the test set" in out
    assert "arning: " not in out + Path("ner-de.toml").read_text(encoding="utf-8")


def test_labels_in_the_target_language_join_those_of_the_source(crossling: Start, tmp_path: Path) -> None:
    train = write_rows(tmp_path, "sentiment", "en", "train", 40).name
    own = write_rows(tmp_path, "sentiment", "de", "train", 20).name
    code, out, err = crossling("start", "sentiment", "--language", "de", "--labels", train, "--labels", own)
    assert code == 0, err
    assert "labelled texts in the target language" not in out
    assert [table["language"] for table in load_recipe("sentiment-de.toml").stage[0].train] == ["en", "de"]


def test_translations_are_text_for_taggers_and_pairs_for_classes(crossling: Start, tmp_path: Path) -> None:
    train = write_rows(tmp_path, "ner", "en", "train", 30).name
    Path("a.en").write_text("A house .\nA dog .\n")
    Path("a.de").write_text("Ein Haus .\nEin Hund .\n")
    words = ("start", "ner", "--language", "de", "--labels", train)
    code, _, err = crossling(*words, "--parallel", "en-de=a")
    assert code == 0, err
    assert 'text = [{ format = "moses", path = "a", language = "en-de" }]' in Path("ner-de.toml").read_text()
    code, _, err = crossling(*words, "--parallel", "en-de=a.en,a.de", "--force")
    assert code == 0, err
    assert 'format = "parallel", source = "a.en", target = "a.de"' in Path("ner-de.toml").read_text()
    pairs = [write_rows(tmp_path, "nli", code, "dev", 20).name for code in ("en", "de")]
    labels = write_rows(tmp_path, "nli", "en", "train", 30).name
    given = ("--labels", labels, "--parallel", f"en-de={','.join(pairs)}")
    code, _, err = crossling("start", "nli", "--language", "de", *given)
    assert code == 0, err
    assert load_recipe("nli-de.toml").stage[1].parallel[0]["target"][0]["path"] == "dev.de.tsv"


def test_ingredient_that_needs_no_data_is_used(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Ingredient(none=GAIN, text=(), page="x.md", needs="nothing", ask="", why="Smooth.", finetune={"epochs": 3})
    monkeypatch.setitem(CHOICES, "qa", CHOICES["qa"].model_copy(update={"ingredients": (one,)}))
    labels = write_rows(tmp_path, "qa", "en", "train", 12).name
    code, out, err = crossling("start", "qa", "--language", "de", "--labels", labels)
    assert code == 0, err
    assert "The recipe: finetune. Smooth. In our study: +3.4 points [+2.8, +4.0]" in out
    assert load_recipe("qa-de.toml").stage[0].epochs == 3


def test_test_files_of_several_languages_share_a_table(crossling: Start, tmp_path: Path) -> None:
    train = write_rows(tmp_path, "pos", "en", "train", 20).name
    tests = [write_rows(tmp_path, "pos", code, "test", 8).name for code in ("de", "hi")]
    words = [word for name in tests for word in ("--test", name)]
    assert crossling("start", "pos", "--language", "de", "--language", "hi", "--labels", train, *words)[0] == 0
    assert [entry.name for entry in load_recipe("pos-de-hi.toml").evaluate] == ["test", "test"]


def test_existing_recipe_is_kept_unless_forced(crossling: Start, tmp_path: Path) -> None:
    words = ("start", "ner", "--language", "de", "--labels", write_rows(tmp_path, "ner", "en", "train", 12).name)
    Path("ner-de.toml").write_text("mine")
    code, _, err = crossling(*words)
    assert code == 2 and "ner-de.toml: is there already" in err
    assert Path("ner-de.toml").read_text() == "mine"
    assert crossling(*words, "--force")[0] == 0
    assert load_recipe("ner-de.toml").stage


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tagging", "--language", "de"), "unknown task 'tagging'."),
        (("ner", "--language", "swahilli"), "Did you mean 'sw' (Swahili)?"),
        (("ner", "--language", "en"), "is the source language"),
        (("ner", "--language", "de", "--labels", "missing.tsv"), "missing.tsv: there is no such file"),
        (("ner", "--language", "de", "--labels", "pos.tsv"), "its tags mark no spans; use the task pos"),
        (
            ("pos", "--language", "de", "--labels", "spans.tsv"),
            "its tags mark spans (B-PER, I-PER, O); use the task ner",
        ),
        (("sentiment", "--language", "de", "--labels", "many.tsv"), "different labels in 150 rows"),
        (("ner", "--language", "de", "--text", "text.txt"), "which language is it? Write its code before the name"),
        (("ner", "--language", "de", "--parallel", "spans.tsv"), "which languages? Write en-sw=FILE"),
        (("ner", "--language", "de", "--parallel", "de-en=spans.tsv"), "the first language is the source, 'en'"),
        (("ner", "--language", "de", "--labels", "phrasebook-nli:en"), "holds LabelledPair rows"),
        (("ner", "--language", "de", "--labels", "de=other.tsv"), "have other labels than phrasebook-ner:en:train"),
        (("ner", "--language", "de", "--labels", "broken.tsv"), "there are no rows (1 broken row skipped)"),
        (("ner", "--language", "de", "--source", "sw"), "no labelled set in 'sw' was found"),
    ],
)
def test_wrong_input_is_refused(crossling: Start, words: tuple[str, ...], message: str) -> None:
    Path("pos.tsv").write_text("cats\tNOUN\nsleep\tVERB\n")
    Path("spans.tsv").write_text("Anna\tB-PER\nsleeps\tO\n")
    Path("other.tsv").write_text("Anna\tB-PERSON\nschläft\tO\n")
    Path("broken.tsv").write_text("Anna\n")
    Path("text.txt").write_text("Ein Satz .\n")
    Path("many.tsv").write_text("".join(f"text {i} and more of it\tlabel{i}\n" for i in range(150)))
    code, _, err = crossling("start", *words)
    assert code == 2, err
    assert message in err
    assert not list(Path().glob("*.toml"))


def test_text_that_a_task_cannot_read_is_noted(crossling: Start, tmp_path: Path) -> None:
    labels, text = write_rows(tmp_path, "qa", "en", "train", 12).name, write_text(tmp_path, "de", 12).name
    code, out, err = crossling("start", "qa", "--language", "de", "--labels", labels, "--text", text)
    assert code == 0, err
    assert "PlainText rows cannot teach this task, which reads Question rows; it is not used" in out
    Path("a.tsv").write_text("A house .\tEin Haus .\n")
    words = ("--labels", labels, "--parallel", "en-de=a.tsv", "--force")
    out = crossling("start", "qa", "--language", "de", *words)[1]
    assert "a.tsv: no lexicon is made from it, since it takes 1,000 sentence pairs or more" in out
    labels = write_rows(tmp_path, "paraphrase", "en", "train", 12).name
    words = ("--labels", labels, "--parallel", "en-de=a.tsv")
    out = crossling("start", "paraphrase", "--language", "de", *words)[1]
    assert "Translations were not found to help with this task" in out


def test_lexicons_are_made_from_the_users_translations_and_from_those_of_the_folder(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_data, "LEXICON_PAIRS", 40)
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "flores").mkdir(parents=True)
    for code in ("en", "es", "ru"):
        text = "\n".join(f"{code} {word}" for word in ("alpha", "beta", "gamma") * 20)
        (tmp_path / "data" / "flores" / f"{code}.txt").write_text(text + "\n", encoding="utf-8")
    labels = write_rows(tmp_path, "qa", "en", "train", 12).name
    given = ("phrasebook-parallel:en-de:dev[:60]", "phrasebook-parallel:en-zh:dev[:60]")
    words = ("--labels", labels, "--parallel", given[0], "--parallel", given[1])
    code, out, err = crossling("start", "qa", "--language", "es", *words)
    assert code == 0, err
    assert "The recipe: finetune. The model gives the same answer when words are replaced by translations" in out
    assert "In our study: +4.0 points [+3.5, +4.5]" in out, "the target language gave text"
    assert "translations flores:en-es:train en-es 60" in out and f"translations {given[0]} en-de 60" in out
    assert f"not used {given[1]} en-zh 60" in out
    assert f"{given[1]}: no lexicon is made from it, since its words are not separated by spaces" in out
    assert "lexicon en-es: " in err, "it is made here, so that one without an entry shows at once"
    text = Path("qa-es.toml").read_text(encoding="utf-8")
    assert (
        """
[stage.consistency]
words = 0.3
lexicon = [
    { parallel = ["phrasebook-parallel:en-de:dev[:60]"] },
    { parallel = ["flores:en-es:train"] },
    { parallel = ["flores:en-ru:train"] },
]
"""
        in text
    )
    assert crossling("check", "qa-es.toml")[0] == 0
    without = crossling("start", "qa", "--language", "es", *words, "--parallel", "flores:en-es", "--force")
    assert without[1].count("flores:en-es") == 1, "what the user names is not read twice"


def test_teaching_and_code_switching_take_pairs_and_translations(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_data, "LEXICON_PAIRS", 40)
    helped = let_help(monkeypatch, "nli", lambda one: one.needs == "pairs" and one.replaces_words)
    pairs = ",".join(write_rows(tmp_path, "nli", code, "dev", 20).name for code in ("en", "de"))
    labels = write_rows(tmp_path, "nli", "en", "train", 30).name
    words = ("start", "nli", "--language", "de", "--labels", labels, "--parallel", f"en-de={pairs}")
    code, out, err = crossling(*words)
    assert code == 0, err
    assert f"{helped.ask}: +9.0 points" in out, "translations are missing"
    assert load_recipe("nli-de.toml").stage[1].consistency is None
    code, out, err = crossling(*words, "--parallel", "phrasebook-parallel:en-de:dev[:60]", "--force")
    assert code == 0, err
    assert helped.ask not in out, out
    assert "translations phrasebook-parallel" in out  # how much of a name is shown depends on the terminal's width
    finetune, teach = load_recipe("nli-de.toml").stage
    assert finetune.consistency is None
    assert teach.consistency.lexicon[0].parallel == ("phrasebook-parallel:en-de:dev[:60]",)
    assert (teach.teachers, teach.weight, teach.labels) == (2, 3, "soft")
    assert crossling("check", "nli-de.toml")[0] == 0


def test_another_task_comes_first_where_its_data_is_there(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helped = let_help(monkeypatch, "paraphrase", lambda one: bool(one.before))
    pairs = ",".join(write_rows(tmp_path, "paraphrase", code, "dev", 20).name for code in ("en", "de"))
    labels = write_rows(tmp_path, "paraphrase", "en", "train", 30).name
    words = ("start", "paraphrase", "--language", "de", "--labels", labels, "--parallel", f"en-de={pairs}")
    code, out, err = crossling(*words)
    assert code == 0, err
    assert f"{helped.ask}: +9.0 points" in out, "labelled pairs of inference are missing"
    assert [stage.kind for stage in load_recipe("paraphrase-de.toml").stage] == ["finetune", "teach"]
    pool = tmp_path / "data" / "nli_pool"
    pool.mkdir(parents=True)
    write_rows(pool, "nli", "en", "train", 12).rename(pool / "train.tsv")
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path / "data"))
    code, out, err = crossling(*words, "--force")
    assert code == 0, err
    inference, _, teach, average = load_recipe("paraphrase-de.toml").stage
    assert (inference.kind, inference.train) == ("finetune", ("nli_pool:en:train",))
    assert teach.parallel and average.models == 3
    assert crossling("check", "paraphrase-de.toml")[0] == 0


def test_average_of_fine_tuned_models_reads_no_text_and_memory_is_that_of_training(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_data, "LEXICON_PAIRS", 40)
    let_help(monkeypatch, "qa", lambda one: bool(one.after))
    labels = write_rows(tmp_path, "qa", "en", "train", 30).name
    words = ("start", "qa", "--language", "de", "--labels", labels, "--parallel", "phrasebook-parallel:en-de:dev[:60]")
    code, out, err = crossling(*words)
    assert code == 0, err
    finetune, average = load_recipe("qa-de.toml").stage
    assert finetune.consistency.words == 0.3 and finetune.initial_head == "shared"
    assert (average.kind, average.models) == ("average", 3)
    assert "# One model, whose weights are the mean" in Path("qa-de.toml").read_text(encoding="utf-8")
    _, checked, _ = crossling("check", "qa-de.toml")
    training = checked.partition("stage.0 about ")[2].partition(" GB")[0]
    assert float(training) > float(checked.partition("stage.1 about ")[2].partition(" GB")[0])
    assert f"memory: about {training} GB" in out


def test_recipe_fits_into_the_memory_of_the_machine(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = write_rows(tmp_path, "qa", "en", "train", 40).name
    words = ("start", "qa", "--language", "de", "--labels", labels)
    assert crossling(*words)[0] == 0
    assert (load_recipe("qa-de.toml").stage[0].batch, load_recipe("qa-de.toml").stage[0].accumulate) == (32, 1)
    monkeypatch.setattr(memory_fit, "find_main_memory", lambda: 1e3)  # so that nothing fits
    _, out, _ = crossling("check", "qa-de.toml")
    assert "--set stage.0.batch=1 --set stage.0.accumulate=32" in out
    code, out, err = crossling(*words, "--force")
    assert code == 0, err
    (finetune,) = load_recipe("qa-de.toml").stage
    assert (finetune.batch, finetune.accumulate) == (1, 32)
    assert "# An update reads 32 rows, in parts that fit" in Path("qa-de.toml").read_text(encoding="utf-8")
    assert "activations of 1 x" in out


def test_text_beyond_what_was_measured_is_sampled(crossling: Start, tmp_path: Path) -> None:
    labels = write_rows(tmp_path, "ner", "en", "train", 20).name
    Path("text.de.txt").write_text("".join(f"Satz {i} .\n" for i in range(3100)))
    assert crossling("start", "ner", "--language", "de", "--labels", labels, "--text", "text.de.txt")[0] == 0
    assert "limit = 3000, sample_seed = 1" in Path("ner-de.toml").read_text()


def test_gain_names_the_rows_that_it_was_measured_with_where_there_are_fewer_than_half(
    crossling: Start, tmp_path: Path
) -> None:
    labels = write_rows(tmp_path, "ner", "en", "train", 20).name
    words = ("start", "ner", "--language", "de", "--labels", labels, "--text", "text.de.txt")
    Path("text.de.txt").write_text("".join(f"Satz {i} .\n" for i in range(200)))
    out = crossling(*words)[1]
    best = find_first(CHOICES["ner"])
    assert best is not None
    said = f"plain fine-tuning ({best.page}; measured with 3,000 rows a language, here 200 in de)."
    assert said in out
    assert said in Path("ner-de.toml").read_text(encoding="utf-8").replace("\n# ", " ")
    Path("text.de.txt").write_text("".join(f"Satz {i} .\n" for i in range(1500)))
    assert f"plain fine-tuning ({best.page})." in crossling(*words, "--force")[1]


def test_text_of_other_languages_is_used_and_that_of_the_target_asked_for(crossling: Start, tmp_path: Path) -> None:
    labels, text = write_rows(tmp_path, "ner", "en", "train", 20).name, write_text(tmp_path, "hi", 20).name
    code, out, _ = crossling("start", "ner", "--language", "de", "--labels", labels, "--text", text)
    assert code == 0
    assert "In our study: +3.4 points [+2.8, +4.0] over plain fine-tuning" in out
    suggestion = "such text in de: languages with text gained +4.0 points [+3.5, +4.5], others +3.4 points [+2.8, +4.0]"
    assert suggestion in out


def write_sides(folder: Path, language: str, count: int = 30) -> str:
    """Sentences and their translations, as ``--parallel`` names them."""
    for code in ("en", language):
        (folder / f"news.{code}").write_text("".join(f"word{i} {code} .\n" for i in range(count)), encoding="utf-8")
    return f"en-{language}=news.en,news.{language}"


@pytest.mark.parametrize(
    ("language", "layer", "kinds"),
    [("hi", 1, ["finetune"]), ("hi", 8, ["finetune", "teach"]), ("fr", 1, ["finetune", "teach"])],
    ids=["gained-most", "encoder-lacks-the-layer", "gained-nothing"],
)
def test_what_helped_in_the_very_language_is_chosen_for_it(
    language: str, layer: int, kinds: list[str], crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay, by which Hindi gained more than by teaching and French nothing; this encoder has one layer."""
    choices = load_choices()["pos"]
    replays = {"finetune": {"replay": {"layer": layer}}}
    ingredients = (one.model_copy(update=replays) if one.layer else one for one in choices.ingredients)
    monkeypatch.setitem(CHOICES, "pos", choices.model_copy(update={"ingredients": tuple(ingredients)}))
    labels = write_rows(tmp_path, "pos", "en", "train", 20).name
    words = ("--labels", labels, "--parallel", write_sides(tmp_path, language))
    code, out, err = crossling("start", "pos", "--language", language, *words)
    assert code == 0, err
    recipe = load_recipe(f"pos-{language}.toml")
    assert [stage.kind for stage in recipe.stage] == kinds
    if len(kinds) == 1:
        assert "points [+1.9, +4.3] over plain fine-tuning in Hindi (docs/results/adjustment.md" in out
        replay = recipe.stage[0].replay
        assert (replay.layer, replay.parallel[0]["target"]) == (1, "news.hi")


def test_target_languages_that_lose_by_the_choice_are_named(
    crossling: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helped = HELPED | {
        "text_in": {"hi": (9.0, 8.0, 10.0), "ru": (-2.0, -3.0, -1.0)},
        "none_in": {"fi": (1.0, 0.5, 1.5)},
    }
    only = next(one for one in CHOICES["pos"].ingredients if one.needs == "translations").model_copy(update=helped)
    monkeypatch.setitem(CHOICES, "pos", CHOICES["pos"].model_copy(update={"ingredients": (only,)}))
    labels = write_rows(tmp_path, "pos", "en", "train", 20).name
    sides = [word for code in ("hi", "ru") for word in ("--parallel", write_sides(tmp_path, code))]
    code, out, err = crossling("start", "pos", "--language", "hi", "--language", "ru", "--labels", labels, *sides)
    assert code == 0, err
    assert "+3.5 points [+2.5, +4.5] over plain fine-tuning in Hindi, Russian (" in out
    assert "). Russian itself: -2.0 points [-3.0, -1.0]." in out
    words = ("--labels", labels, "--parallel", write_sides(tmp_path, "fi"))
    out = crossling("start", "pos", "--language", "fi", *words)[1]
    assert "over plain fine-tuning (" in out and "Finnish without such text: +1.0 points [+0.5, +1.5]." in out
    code, out, err = crossling("start", "pos", "--language", "ru", "--labels", labels, *sides)
    assert (
        "The recipe: finetune. In our studies no use of other text gained anything significant on this task in" in out
    )
