"""Pseudo-perplexity: against one subword hidden at a time, whatever the batch; one head for all models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from crossling.analyses import AnalysisContext, masked_word_heads, perplexity
from crossling.analyses.masked_word_head_choice import HeadTraining, name_place
from crossling.analyses.models import AnalysedModel, AnalysedModels, Pretrained, pretrained_model
from crossling.analyses.perplexity import SubwordPredictor, score_copies
from crossling.analyses.result import AnalysisTable, write_result
from crossling.analyses.settings import parse_settings
from crossling.analyses.summary import summarise_models
from crossling.cli.main import app
from crossling.data.records import LabelledPair, ParallelPair, PlainText
from crossling.encoders.loading import load_encoder
from crossling.encoders.masked_word_head import load_head
from crossling.encoders.unlabelled import Chunking, encode_unlabelled
from crossling.errors import ArtefactError, DataError
from crossling.models.model import Model, ModelCard, build_model, load_model, save_model
from crossling.progress import NoProgress
from crossling.study.analyse import analyse
from crossling.training.distributed import Distributed
from examples import rows_of
from tiny import FAMILIES, save_tiny, save_with_head

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
TEXTS = [
    "the walking cat sleeps in London",
    "fish",
    "walking dogs, red house; не кошка",
    "我是猫",
    "the dog eats fish " * 6,
]
TRAINING = {"train": [{"data": "phrasebook-pos:de", "limit": 30}], "epochs": 2, "batch": 8}


@pytest.fixture(autouse=True)
def _forget_heads() -> None:
    masked_word_heads._known.clear()


def score_one_by_one(model: Model, head: Any, table: Any, text: str, *, l2r: bool) -> list[float]:
    """One subword hidden at a time, each alone in its batch, by the plain sum of exponentials."""
    encoder = model.encoder
    encoded = encoder.tokenizer(text)
    ids = torch.tensor(encoded["input_ids"])
    words = encode_unlabelled([rows_of([PlainText(text)])], encoder, Chunking(words=True), cache=_scratch)
    number = words.examples.get("words", 0)
    losses = []
    for place in range(len(ids)):
        if number[place] < 0:
            continue
        masked = ids.clone()
        masked[place] = encoder.tokenizer.mask_token_id
        for later in range(place + 1, len(ids)):
            if l2r and number[later] == number[place]:
                masked[later] = encoder.tokenizer.mask_token_id
        with torch.no_grad():
            hidden = encoder(masked[None], torch.ones_like(masked[None]), layers=[encoder.layers])[encoder.layers]
            scores = head(hidden[0, place][None], table)[0].double()
        losses.append(float(torch.log(torch.exp(scores).sum()) - scores[ids[place]]))
    return losses


_scratch = Path()


@pytest.fixture(autouse=True)
def _own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "_scratch", tmp_path / "scratch")


def load_tiny(folder: Path, family: str) -> tuple[Model, SubwordPredictor]:
    save_with_head(folder, family)
    encoder = load_encoder(str(folder))
    head = load_head(encoder)
    assert head is not None
    return build_model(encoder, {"kind": "last"}).eval(), SubwordPredictor(
        head.eval(), encoder.model.get_input_embeddings().weight
    )


@pytest.mark.parametrize("l2r", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_one_subword_at_a_time_whatever_the_batch(family: str, l2r: bool, tmp_path: Path) -> None:
    model, words = load_tiny(tmp_path / "encoder", family)
    texts = encode_unlabelled(
        [rows_of([PlainText(text) for text in TEXTS])], model.encoder, Chunking(words=True), cache=tmp_path
    )
    expected = [score_one_by_one(model, words.head, words.table, text, l2r=l2r) for text in TEXTS]
    for tokens, scores in ((100_000, 2**26), (64, 2**26), (1, 2**26), (100_000, 700)):
        found = score_copies(
            model,
            words,
            texts.examples,
            rest_of_word=l2r,
            distributed=ONE_PROCESS,
            progress=NoProgress(),
            tokens=tokens,
            scores=scores,
        )
        for row, losses in enumerate(expected):
            assert found.loss[found.text == row].tolist() == pytest.approx(losses, abs=1e-5)
    assert 0 < found.right.mean() + 0.01 < 1.01


def test_masking_the_rest_of_a_word_matters_only_within_words(tmp_path: Path) -> None:
    model, words = load_tiny(tmp_path / "encoder", "bert")
    rows = rows_of([PlainText("the cat sleeps"), PlainText("walking cats")])
    texts = encode_unlabelled([rows], model.encoder, Chunking(words=True), cache=tmp_path).examples
    plain, rest = (
        score_copies(model, words, texts, rest_of_word=flag, distributed=ONE_PROCESS, progress=NoProgress())
        for flag in (False, True)
    )
    assert np.allclose(plain.loss[plain.text == 0], rest.loss[rest.text == 0], atol=1e-6)
    inside, hidden = plain.loss[plain.text == 1], rest.loss[rest.text == 1]
    assert len(inside) == 4  # walk ##ing cat ##s
    assert np.allclose(inside[[1, 3]], hidden[[1, 3]], atol=1e-6)
    assert (np.abs(inside[[0, 2]] - hidden[[0, 2]]) > 1e-3).all()


def prepare(settings: perplexity.Settings, *encoders: Pretrained) -> perplexity.Settings:
    return perplexity.prepare(settings, AnalysedModels(tuple(map(pretrained_model, encoders))))[0]


def run(model: Model, folder: Path, store: Path, **settings: Any) -> list[dict[str, Any]]:
    loaded = prepare(perplexity.Settings(**settings), Pretrained(str(folder)))
    data = perplexity.open_analysis_data(loaded, source="en", store=store)
    card = ModelCard(str(folder), model.encoder.identity)
    table = perplexity.analyse(model, card, data, settings=loaded, context=AnalysisContext(ONE_PROCESS, store))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def write_text(folder: Path, texts: list[str]) -> dict[str, Any]:
    (folder / "own.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return {"format": "text", "path": str(folder / "own.txt"), "language": "de"}


def test_the_figure_of_a_language_is_exp_of_the_mean_over_all_its_subwords(tmp_path: Path) -> None:
    model, words = load_tiny(tmp_path / "encoder", "xlm-r")
    (row,) = run(model, tmp_path / "encoder", tmp_path, on=write_text(tmp_path, TEXTS))
    losses = [loss for text in TEXTS for loss in score_one_by_one(model, words.head, words.table, text, l2r=False)]
    assert row["perplexity"] == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)
    assert row["subwords"] == len(losses)
    assert (row["language"], row["texts"], row["head_accuracy"]) == ("de", len(TEXTS), None)


def test_fine_tuned_encoder_is_scored_with_the_pretrained_head_and_table_by_default(tmp_path: Path) -> None:
    model, words = load_tiny(tmp_path / "encoder", "bert")
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    base = load_encoder(str(tmp_path / "encoder")).model.get_input_embeddings().weight
    own = model.encoder.model.get_input_embeddings().weight
    on = write_text(tmp_path, TEXTS[:2])
    for choice, table in (("original", base), ("own", own)):
        (row,) = run(model, tmp_path / "encoder", tmp_path, on=on, table=choice)
        losses = [loss for text in TEXTS[:2] for loss in score_one_by_one(model, words.head, table, text, l2r=False)]
        assert row["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
        assert row["head"].endswith(" own") == (choice == "own")


def test_of_translations_each_side_is_its_own_language(tmp_path: Path) -> None:
    model, _ = load_tiny(tmp_path / "encoder", "xlm-r")
    found = run(model, tmp_path / "encoder", tmp_path, on="phrasebook-parallel", languages=("en", "de"), sentences=5)
    assert [row["language"] for row in found] == ["en", "de"]
    assert [row["texts"] for row in found] == [5, 5]
    assert found[0]["perplexity"] != found[1]["perplexity"]


def test_texts_of_a_pair_are_scored_apart_or_together(tmp_path: Path) -> None:
    model, _ = load_tiny(tmp_path / "encoder", "bert")
    settings = {"on": "phrasebook-nli", "languages": ("de",), "sentences": 4}
    (apart,) = run(model, tmp_path / "encoder", tmp_path, **settings)
    (together,) = run(model, tmp_path / "encoder", tmp_path, **settings, pairs="together")
    assert (apart["texts"], together["texts"]) == (8, 4)
    assert apart["subwords"] == together["subwords"]
    assert apart["loss"] != together["loss"]


def save_model_of(folder: Path, encoder: Path, *, add: float) -> Path:
    model = build_model(load_encoder(str(encoder)), {"kind": "last"})
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.add_(add * torch.randn_like(parameter))
    save_model(model, ModelCard(str(encoder), load_encoder(str(encoder)).identity), folder)
    return folder


def test_a_head_is_trained_once_for_all_models_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = save_tiny(tmp_path / "encoder", "xlm-r", layers=1)
    models = [f"original={encoder}", str(save_model_of(tmp_path / "tuned", encoder, add=0.1))]
    settings = parse_settings(
        {"kind": "perplexity", "on": "phrasebook-pos", "languages": ["de"], "sentences": 4, "training": TRAINING}
    )
    trained = []
    original = masked_word_heads._train

    def watch(*arguments: Any) -> Any:
        trained.append(1)
        return original(*arguments)

    monkeypatch.setattr(masked_word_heads, "_train", watch)
    found = analyse(models, settings)
    rows = found.table.to_pylist()
    assert len(trained) == 1
    assert found.settings.head == "trained"
    assert [row["model"] for row in rows] == ["original", "tuned"]
    assert len({row["head"] for row in rows}) == 1
    assert all(0 <= row["head_accuracy"] <= 1 for row in rows)
    assert rows[0]["perplexity"] != rows[1]["perplexity"]
    table, ratios = perplexity.summarise(found)
    assert ratios.rows[0][:3] == ("tuned", "de", "original")
    assert "one head" in table.notes[0] and "it predicts" in table.notes[1]
    store = tmp_path / "store"
    assert len(list((store / "heads").glob("*.safetensors"))) == 1
    assert not list((store / "work").glob("head-*"))
    masked_word_heads._known.clear()
    other = analyse([str(save_model_of(tmp_path / "third", encoder, add=0.2))], settings).table.to_pylist()
    assert len(trained) == 1, "the head lies in the store"
    assert other[0]["head"] == rows[0]["head"]
    _, files = write_result(found, tmp_path / "out.csv")
    names = {"out.csv", "out.md", "out-languages.svg", "out-compared.svg", "out.parquet", "out.json"}
    assert {path.name for path in files} == names
    assert "tuned" in (tmp_path / "out-languages.svg").read_text(encoding="utf-8")


def test_a_damaged_head_is_trained_again(tmp_path: Path) -> None:
    encoder = save_tiny(tmp_path / "encoder", "xlm-r", layers=1)
    model = build_model(load_encoder(str(encoder)), {"kind": "last"}).eval()
    settings = {"on": "phrasebook-pos", "languages": ("de",), "sentences": 2, "training": TRAINING}
    first = run(model, encoder, tmp_path, **settings)
    (path,) = (tmp_path / "heads").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-40])
    masked_word_heads._known.clear()
    assert run(model, encoder, tmp_path, **settings) == first


def test_training_the_head_leaves_the_encoder_and_its_table_alone(tmp_path: Path) -> None:
    encoder = save_tiny(tmp_path / "encoder", "xlm-r", layers=1)
    training = HeadTraining.model_validate(TRAINING)
    rows = rows_of([PlainText(text) for text in TEXTS * 3])
    known = masked_word_heads.find_head(
        str(encoder), None, training=training, rows=(rows,), context=AnalysisContext(ONE_PROCESS, tmp_path)
    )
    assert torch.equal(known.table, load_encoder(str(encoder)).model.get_input_embeddings().weight)
    assert set(known.accuracy) == {"en"}


def adapt_model(folder: Path, encoder: Path, *, seed: int) -> tuple[Path, Model]:
    """A model as a stage adapt leaves it: encoder and head have moved together."""
    model = build_model(load_encoder(str(encoder)), {"kind": "last"})
    head = load_head(model.encoder)
    assert head is not None
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in (*model.encoder.parameters(), *head.parameters()):
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.kept["words"] = head
    save_model(model, ModelCard(str(encoder), load_encoder(str(encoder)).identity), folder)
    return folder, model.eval()


def test_an_adapted_encoder_is_scored_with_the_head_that_was_adapted_with_it(tmp_path: Path) -> None:
    _, words = load_tiny(tmp_path / "encoder", "bert")
    folder, adapted = adapt_model(tmp_path / "adapted", tmp_path / "encoder", seed=1)
    table = {"kind": "perplexity", "on": write_text(tmp_path, TEXTS[:2])}
    models = [f"original={tmp_path / 'encoder'}", f"da={folder}"]
    own = adapted.encoder.model.get_input_embeddings().weight

    def score(head: Any, weight: Any) -> float:
        found = [loss for text in TEXTS[:2] for loss in score_one_by_one(adapted, head, weight, text, l2r=False)]
        return sum(found) / len(found)

    found = analyse(models, table)
    rows = {row["model"]: row for row in found.rows()}
    assert rows["da"]["loss"] == pytest.approx(score(adapted.kept["words"], own), abs=1e-5)
    assert rows["da"]["head"].startswith("adapted ") and not rows["original"]["head"].startswith("adapted ")
    notes = " ".join(perplexity.summarise(found)[0].notes)
    assert "adapted with the encoder: da" in notes
    stale = analyse(models, {**table, "adapted_heads": False}).rows()[1]
    assert stale["loss"] == pytest.approx(score(words.head, words.table), abs=1e-5)


def test_a_fine_tuned_model_is_scored_with_the_head_that_is_named(tmp_path: Path) -> None:
    load_tiny(tmp_path / "encoder", "bert")
    folder, adapted = adapt_model(tmp_path / "adapted", tmp_path / "encoder", seed=1)
    tuned = save_model_of(tmp_path / "tuned", tmp_path / "encoder", add=0.02)
    table = {"kind": "perplexity", "on": write_text(tmp_path, TEXTS[:2]), "head": str(folder)}
    found = analyse([str(tuned), str(folder)], table)
    weight = adapted.encoder.model.get_input_embeddings().weight
    model = load_model(tuned)[0]
    losses = [
        loss for text in TEXTS[:2] for loss in score_one_by_one(model, adapted.kept["words"], weight, text, l2r=False)
    ]
    rows = found.rows()
    assert rows[0]["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    assert rows[0]["head"] == rows[1]["head"], "one head for all"
    with pytest.raises(ArtefactError, match="no masked-word head is stored beside this model"):
        analyse([str(folder)], {**table, "head": str(tuned)})
    of_a_run = AnalysedModel("", "tuned", 1, tuned, "en", tmp_path, Pretrained("x", None))
    with pytest.raises(ArtefactError, match="head = 'runs/tuned': no masked-word head is stored"):
        name_place("runs/tuned", [of_a_run])


def test_times_the_perplexity_of_the_base_has_the_interval_of_paired_texts(tmp_path: Path) -> None:
    """With one seed and texts of equal length, the paired t-test of texts' mean losses."""
    from scipy.stats import ttest_rel

    load_tiny(tmp_path / "encoder", "bert")
    tuned = save_model_of(tmp_path / "tuned", tmp_path / "encoder", add=0.02)
    texts = [" ".join(pair) for pair in zip(["cat", "dog", "fish", "red", "house"], ["the"] * 5, strict=True)]
    table = {"kind": "perplexity", "on": write_text(tmp_path, texts)}
    found = analyse([f"original={tmp_path / 'encoder'}", str(tuned)], table)
    assert found.bases == {"tuned": "original"} and found.pretrained == {"original"}
    ratios = perplexity.summarise(found)[1]
    models = [load_model(tuned)[0], build_model(load_encoder(str(tmp_path / "encoder")), {"kind": "last"}).eval()]
    head, weight = load_head(models[1].encoder), models[1].encoder.model.get_input_embeddings().weight
    means = [[np.mean(score_one_by_one(model, head, weight, text, l2r=False)) for text in texts] for model in models]
    wanted = ttest_rel(*means).confidence_interval(0.95)
    value = np.mean(means[0]) - np.mean(means[1])
    assert ratios.rows[0][:3] == ("tuned", "de", "original")
    assert ratios.rows[0][4] == f"{value:+.3f} [{wanted.low:+.2f}, {wanted.high:+.2f}]"
    assert ratios.rows[0][3].startswith(f"{math.exp(value):.3g} [{math.exp(wanted.low):.3g}")
    assert set(perplexity.draw(found)) == {"languages", "compared"}


def test_models_of_different_encoders_are_refused(tmp_path: Path) -> None:
    first, second = (save_tiny(tmp_path / name, "bert", seed=seed, layers=1) for seed, name in enumerate("ab"))
    settings = perplexity.Settings(on="phrasebook-pos", languages=("de",))
    with pytest.raises(ArtefactError, match="one head and one vocabulary"):
        prepare(settings, Pretrained(str(first)), Pretrained(str(second)))
    same = save_tiny(tmp_path / "c", "bert", seed=0, layers=1)
    prepare(settings, Pretrained(str(first)), Pretrained(f"{first}/"), Pretrained(str(same)))


def test_figures_of_different_heads_are_refused(tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    model, _ = load_tiny(encoder, "bert")
    on = write_text(tmp_path, TEXTS)
    before = run(model, encoder, tmp_path, on=on)
    weights = load_file(encoder / "model.safetensors")
    weights["cls.predictions.bias"] = weights["cls.predictions.bias"] + 0.5 * torch.randn(
        len(weights["cls.predictions.bias"])
    )
    save_file(weights, encoder / "model.safetensors", metadata={"format": "pt"})
    masked_word_heads._known.clear()
    after = run(model, encoder, tmp_path, on=on)
    assert before[0]["head"] != after[0]["head"]
    with pytest.raises(ArtefactError, match="different heads"):
        perplexity.summarise(AnalysisTable(perplexity.Settings(on=on), pa.Table.from_pylist([*before, *after])))


def test_settings_and_texts_that_cannot_be_scored_are_refused(tmp_path: Path) -> None:
    for wrong, what in (
        ({"on": "ud"}, "languages: missing"),
        ({"on": "ud", "languages": ("de", "de")}, "every language once"),
        ({"on": "ud", "languages": ("de",), "method": "left"}, "method"),
    ):
        with pytest.raises(ValidationError, match=what):
            perplexity.Settings.model_validate(wrong)
    encoder = save_tiny(tmp_path / "encoder", "bert", layers=1)
    own = perplexity.Settings(on=write_text(tmp_path, TEXTS))
    with pytest.raises(DataError, match=r"training\.train"):
        prepare(own, Pretrained(str(encoder)))
    model = build_model(load_encoder(str(encoder)), {"kind": "last"}).eval()
    with pytest.raises(ArtefactError, match="holds no head for masked words"):
        run(model, encoder, tmp_path, on=write_text(tmp_path, TEXTS), head="checkpoint")
    alone = perplexity.Settings(on="phrasebook-parallel", languages=("en",))
    with pytest.raises(DataError, match="another language"):
        perplexity.open_analysis_data(alone, source="en", store=tmp_path)


def test_rows_of_every_kind_can_be_scored(tmp_path: Path) -> None:
    model, words = load_tiny(tmp_path / "encoder", "bert")
    for records in ([LabelledPair("the cat", "fish", "x")], [ParallelPair("the cat", "не")]):
        texts = encode_unlabelled([rows_of(records, "en-ru")], model.encoder, Chunking(words=True), cache=tmp_path)
        found = score_copies(
            model, words, texts.examples, rest_of_word=False, distributed=ONE_PROCESS, progress=NoProgress()
        )
        assert np.isfinite(found.loss).all() and len(found.loss) == 3


def test_the_verb_shows_a_table_and_leaves_files(tmp_path: Path) -> None:
    """Through the command line: a model and its original, on a custom file."""
    encoder = tmp_path / "encoder"
    save_with_head(encoder, "xlm-r")
    tuned = save_model_of(tmp_path / "tuned", encoder, add=0.05)
    path = str(write_text(tmp_path, TEXTS)["path"])
    on = f'{{ format = "text", path = "{path}", language = "de" }}'
    arguments = [
        "analyse",
        "perplexity",
        f"original={encoder}",
        str(tuned),
        "--on",
        on,
        "--out",
        str(tmp_path / "out.csv"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "original" in done.output and "tuned" in done.output and "one head" in done.output
    lines = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3 and "perplexity" in lines[0]
    assert (tmp_path / "out-languages.svg").is_file()


def test_means_over_languages_are_geometric(tmp_path: Path) -> None:
    """A language whose perplexity is ten times as high would else count ten times as much."""
    rows = [
        {"task": "", "model": "da", "seed": seed, "language": code, "perplexity": level * seed, "accuracy": 0.5}
        for code, level in (("de", 10.0), ("hi", 1000.0))
        for seed in (1, 2)
    ]
    found = AnalysisTable(perplexity.Settings(on="ntrex", languages=("de", "hi")), pa.Table.from_pylist(rows))
    shown = summarise_models(found, ("perplexity", "accuracy"), geometric=("perplexity",))
    assert shown.rows[-1] == ("mean of 2", "150.00 ± 70.71", "0.5000 ± 0.0000"), "of 100 and 200, by seed"
    assert shown.notes == ("Means; ± standard deviation over seeds. Of perplexity means over languages are geometric.",)
