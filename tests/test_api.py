"""The Python interface, as a user's script calls it."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

import datasets
import pandas
import pyarrow as pa
import pytest
import torch
from rich.console import Console

import crossling
from crossling import registry
from crossling.errors import ArtefactError, DataError, RecipeError
from crossling.inference.predictor import Predictor
from crossling.report import terminal

TRAIN = "phrasebook-ner:en:train[:40]"
DEV = "phrasebook-ner:en:dev[:10]"


@pytest.fixture(scope="module")
def model(flat_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    encoder = crossling.load_encoder(str(flat_folder))
    store = tmp_path_factory.mktemp("store")
    return crossling.finetune(encoder, "ner", TRAIN, dev=DEV, epochs=1, batch=8, store=store)


def test_scores_by_language(model: Predictor) -> None:
    scores = crossling.evaluate(model, "phrasebook-ner", ["de", "hi"], split="test[:10]")
    assert list(scores) == ["de", "hi"]
    assert all(0 <= scores[code]["span_f1"] <= 1 for code in scores)


def test_a_saved_model_predicts_the_same(model: Predictor, tmp_path: Path) -> None:
    texts = ["Anna lives in Paris.", "我 住 在 巴黎"]
    before = crossling.predict(model, texts, language="en")
    crossling.save(model, tmp_path / "saved")
    assert crossling.predict(crossling.load(tmp_path / "saved"), texts, language="en") == before
    assert len(before) == 2


def test_a_lone_string_is_one_language_one_text_or_one_override(
    model: Predictor, flat_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    scores = crossling.evaluate(model, "phrasebook-ner", "hi", split="test[:10]")
    assert scores == crossling.evaluate(model, "phrasebook-ner", ["hi"], split="test[:10]")
    assert crossling.predict(model, "Anna lives in Paris.") == crossling.predict(model, ["Anna lives in Paris."])
    recipe = write_recipe(tmp_path, flat_folder)
    recipe.write_text(recipe.read_text().replace('["de"]', '"de"'))
    summary = crossling.run(recipe, "seeds=[2]", out=tmp_path / "out", store=tmp_path / "store")
    assert summary.seeds == (2,) and [result.language for result in summary.results] == ["de"]
    plugin = tmp_path / "plain_mean.py"
    plugin.write_text(
        (Path(crossling.__file__).parent / "fusions/mean.py").read_text().replace('"mean"', '"plain_mean"')
    )
    crossling.save(model, tmp_path / "saved")
    assert crossling.load(tmp_path / "saved", plugins={"fusions": str(plugin)}).card.source == "en"


def test_prediction_needs_no_language(model: Predictor) -> None:
    texts = ["Anna lives in Paris."]
    assert crossling.predict(model, texts) == crossling.predict(model, texts, language="en")


def test_progress_is_shown_unless_it_is_switched_off(
    flat_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = logging.getLogger().handlers[:]
    for shown in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=True, width=200)
        monkeypatch.setattr(terminal, "err", screen)
        store = tmp_path / str(shown)
        model = crossling.finetune(str(flat_folder), "ner", TRAIN, dev=DEV, epochs=1, store=store, progress=shown)
        crossling.evaluate(model, "phrasebook-ner", "de", split="test[:10]", store=store, progress=shown)
        assert isinstance(screen.file, io.StringIO)
        printed = screen.file.getvalue()
        assert ("fine-tuning" in printed) == ("predicting" in printed) == shown
    assert logging.getLogger().handlers == handlers, "the handlers of the calling program stay"


def test_threads_and_device_of_fine_tuning_can_be_set(flat_folder: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        model = crossling.finetune(
            str(flat_folder), "ner", TRAIN, dev=DEV, epochs=1, store=tmp_path, threads=before + 1, device="cpu"
        )
        assert torch.get_num_threads() == before + 1 and model.engine.distributed.device.type == "cpu"
    finally:
        torch.set_num_threads(before)
    with pytest.raises(RecipeError, match="threads"):
        crossling.finetune(str(flat_folder), "ner", TRAIN, threads=0)


def test_the_same_call_again_trains_nothing(flat_folder: Path, tmp_path: Path) -> None:
    said: list[str] = []

    class Listener:
        def begin(self, what: str, total: int, done: int = 0) -> None:
            said.append(what)

        def advance(self, steps: int = 1, **facts: str) -> None: ...
        def end(self) -> None: ...
        def say(self, line: str) -> None: ...

    for _ in range(2):
        crossling.finetune(
            str(flat_folder), "ner", [TRAIN], dev=DEV, epochs=1, store=tmp_path / "store", progress=Listener()
        )
    assert sum("fine-tuning" in what for what in said) == 1


def test_all_wrong_settings_are_reported_at_once(flat_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"epoks.*epochs(.|\n)*lr"):
        crossling.finetune(str(flat_folder), "ner", TRAIN, epoks=2, lr=-1.0)
    with pytest.raises(RecipeError, match="nre.*ner"):
        crossling.finetune(str(flat_folder), "nre", TRAIN)


def test_evaluation_needs_languages(model: Predictor) -> None:
    with pytest.raises(RecipeError, match="languages: missing"):
        crossling.evaluate(model, "phrasebook-ner")


def test_encoder_in_memory_must_be_saved_first() -> None:
    from tiny import tiny_encoder

    with pytest.raises(RecipeError, match="save_encoder"):
        crossling.finetune(tiny_encoder("bert"), "ner", TRAIN)


def test_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="not the folder of a run"):
        crossling.load(tmp_path)
    (tmp_path / "tagger").mkdir()
    with pytest.raises(ArtefactError, match="no such folder.*Did you mean 'tagger'"):
        crossling.load(tmp_path / "taggr")


def write_recipe(folder: Path, encoder: Path) -> Path:
    recipe = folder / "small.toml"
    recipe.write_text(
        f'[encoder]\nname = "{encoder}"\n[[stage]]\nkind = "finetune"\ntask = "ner"\ntrain = "{TRAIN}"\n'
        f'dev = "{DEV}"\nepochs = 1\n[[evaluate]]\non = "phrasebook-ner"\nsplit = "test[:5]"\nlanguages = ["de"]\n'
    )
    return recipe


def test_run_gives_scores_of_every_seed(flat_folder: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, flat_folder)
    summary = crossling.run(recipe, ["seeds=[1, 2]"], out=tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written >= {"page.html", "scores.md"}, "the same files as the command line writes"
    assert [result.language for result in summary.results] == ["de"]
    assert summary.seeds == (1, 2)
    assert crossling.load(tmp_path / "out", seed=2).card.source == "en"


REVIEWS = [("good film", "pos"), ("bad film", "neg"), ("what a day", "pos"), ("never again", "neg")] * 4


def tune(encoder: Path, store: Path, train: object, **settings: object) -> Predictor:
    return crossling.finetune(
        str(encoder), "sentiment", train, select="last", epochs=1, store=store, progress=False, **settings
    )


def test_lists_frames_and_data_sets_are_the_same_training_data(flat_folder: Path, tmp_path: Path) -> None:
    frame = pandas.DataFrame(REVIEWS, columns=["text", "label"])
    names = datasets.ClassLabel(names=["neg", "pos"])
    numbered = datasets.Dataset.from_dict(
        {"text": [text for text, _ in REVIEWS], "label": [int(label == "pos") for _, label in REVIEWS]},
        features=datasets.Features({"text": datasets.Value("string"), "label": names}),
    )
    renamed = {"rows": frame.rename(columns={"text": "Review"}), "fields": {"text": "Review", "label": "label"}}
    dicts = [{"text": text, "label": label} for text, label in REVIEWS]
    found = []
    for number, train in enumerate((REVIEWS, dicts, frame, numbered, pa.table(dict(frame)), [renamed])):
        model = tune(flat_folder, tmp_path / str(number), train)
        assert model.task.labels == ("neg", "pos")
        found.append(crossling.predict(model, ["good day"]))
    assert all(one == found[0] for one in found)


def test_rows_in_memory_have_a_language_and_stand_beside_named_sets(flat_folder: Path, tmp_path: Path) -> None:
    swahili = {"rows": [(["Asha", "anaishi"], ["B-PER", "O"])] * 4, "language": "sw", "limit": 3}
    model = crossling.finetune(
        str(flat_folder), "ner", [TRAIN, swahili], dev=DEV, epochs=1, store=tmp_path, progress=False
    )
    rows = [{"words": ["Asha"], "tags": ["B-PER"]}]
    assert list(crossling.evaluate(model, rows, "sw", store=tmp_path, progress=False)) == ["sw"]
    with pytest.raises(RecipeError, match="one language, not de, hi"):
        crossling.evaluate(model, rows, ["de", "hi"], store=tmp_path)


def test_rows_in_memory_that_cannot_be_read_are_errors(flat_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 1: .* is not \(text, label\)"):
        tune(flat_folder, tmp_path, [("good", "pos"), ("bad",)])
    with pytest.raises(DataError, match="no kind of record.*fields ="):
        tune(flat_folder, tmp_path, [{"review": "good", "stars": 5}])
    with pytest.raises(DataError, match="row 0: no value for the key 'label'"):
        tune(flat_folder, tmp_path, pandas.DataFrame({"text": ["a", "b"], "label": [None, "x"]}))


def test_results_are_frames(model: Predictor, flat_folder: Path, tmp_path: Path) -> None:
    scores = crossling.evaluate(model, "phrasebook-ner", ["de", "hi"], split="test[:10]", progress=False)
    frame = crossling.to_frame(scores)
    assert list(frame.index) == ["de", "hi"] and frame.loc["hi", "span_f1"] == scores["hi"]["span_f1"]
    assert list(crossling.to_frame(crossling.predict(model, ["Anna", "Paris"])).text) == ["Anna", "Paris"]
    recipe = write_recipe(tmp_path, flat_folder)
    summary = crossling.run(recipe, "seeds=[1, 2]", out=tmp_path / "out", store=tmp_path / "s", progress=False)
    frame = crossling.to_frame(summary)
    assert list(zip(frame.language, frame.seed, strict=True)) == [("de", 1), ("de", 2)]
    assert tuple(frame.span_f1) == summary.results[0].scores["span_f1"]


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, crossling; print(sorted({'torch', 'pydantic', 'numpy', 'typer'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="finetune"):
        _ = crossling.fine_tune
