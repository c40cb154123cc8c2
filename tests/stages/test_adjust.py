"""Adjustment: which links it learns from, what it does to vectors, and what it leaves to the next stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from crossling.data.batching import Batch
from crossling.encoders.loading import load_encoder
from crossling.errors import DataError, RecipeError, UserError
from crossling.models.model import Model
from crossling.objectives.aligned_words import AdjustmentSettings, Objective, identify_pairs
from crossling.recipe.recipe import EncoderSettings, freeze, parse_recipe
from crossling.stages import adjust
from crossling.stages.context import StageContext
from crossling.stages.word_pairs import PairData, encode_pairs, filter_links, link_sentences
from crossling.store.artefacts import Store
from crossling.study.recipe_run import run_recipe
from crossling.study.run_report import summarise_run
from crossling.training.distributed import Distributed
from parallel_text import count_aligned, describe, make_linked, make_raw
from tiny import save_tiny

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)


def _context(folder: Path, seed: int = 1) -> StageContext:
    encoder = folder / "encoder"
    if not encoder.exists():
        save_tiny(encoder)
    return StageContext(
        seed,
        "en",
        load_encoder(str(encoder)),
        EncoderSettings(name=str(encoder)),
        ONE,
        folder / f"work-{seed}-{np.random.default_rng().integers(2**60)}",
        folder,
    )


def _settings(**changes: Any) -> adjust.Settings:
    table = {"parallel": "made:en-ru", "batch": 8, "lr": 3e-3, "epochs": 8, **changes}
    return adjust.Settings.model_validate(freeze(table))


def _train(folder: Path, data: PairData, seed: int = 1, **changes: Any) -> tuple[Model, Any, dict[str, Any]]:
    return adjust.train(_settings(**changes), data, _context(folder, seed))


def _distances(model: Model, folder: Path, data: PairData, context: StageContext) -> tuple[float, float]:
    """Mean squared distance of linked words, and of source words from the original encoder's."""
    examples = encode_pairs(AdjustmentSettings(), data, context)
    objective = Objective("judge", AdjustmentSettings(), model.encoder, reference=context.encoder)
    arrays = objective.collate(
        examples, Batch(np.arange(len(examples)), int(examples.lengths.max())), size=len(examples)
    )
    model.eval()
    _, pull, stay, _ = objective.sum_loss(model, model.prepare(arrays, ONE.device))
    counts = objective.count_targets(arrays)
    return float(pull.detach()) / counts.pull, float(stay.detach()) / counts.stay


@pytest.fixture
def untrimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that can be compared with an encoder of the whole vocabulary."""
    monkeypatch.setattr(StageContext, "should_trim", lambda self, weight_decay: False)


def test_adjusting_pulls_translations_together_and_keeps_the_source(tmp_path: Path, untrimmed: None) -> None:
    data = describe(make_linked())
    before, _ = _distances(Model(_context(tmp_path).encoder, torch.nn.Identity()), tmp_path, data, _context(tmp_path))
    after = {}
    for stay in (0.0, 10.0):
        model, card, record = _train(tmp_path, data, stay=stay)
        after[stay] = _distances(model, tmp_path, data, _context(tmp_path))
        assert card.tasks == {} and record["links"] > 0 and record["pairs"] == 40
    assert after[0.0][0] < 0.3 * before
    assert after[10.0][0] < 0.9 * before
    assert after[10.0][1] < 0.5 * after[0.0][1], "the staying term holds the source"


def test_record_says_what_became_of_the_source(tmp_path: Path, untrimmed: None) -> None:
    """Against vectors that are read from both encoders sentence by sentence."""
    data, context = describe(make_linked()), _context(tmp_path)
    model, _, record = _train(tmp_path, data, layer=2, epochs=2)
    found = record["source_vectors"]
    examples = encode_pairs(AdjustmentSettings(), data, context)
    sides: list[list[torch.Tensor]] = [[], []]
    for row in range(len(examples)):
        ids = torch.from_numpy(examples.get("ids", row).astype(np.int64))[None]
        words = examples.get("words", row)
        for side, encoder in zip(sides, (context.encoder.eval(), model.encoder.eval()), strict=True):
            with torch.no_grad():
                hidden = encoder(ids, torch.ones_like(ids), torch.zeros_like(ids), layers=[2])[2][0].double()
            side.append(torch.stack([hidden[words == word].mean(0) for word in range(words.max() + 1)]))
    before, after = (torch.cat(side) for side in sides)
    assert (found["sentences"], found["words"]) == (len(examples), len(before))
    variance = [float((x - x.mean(0)).square().sum()) for x in (before, after)]
    within = [float(sum((x - x.mean(0)).square().sum() for x in side)) for side in sides]
    product = float(((before - before.mean(0)) * (after - after.mean(0))).sum())
    assert found["drift"] == pytest.approx((float((after - before).square().sum()) / variance[0]) ** 0.5, abs=1e-4)
    assert found["variance"] == pytest.approx(variance[1] / variance[0], abs=1e-4)
    assert found["variance_within"] == pytest.approx(within[1] / within[0], abs=1e-4)
    assert found["correlation"] == pytest.approx(product / (variance[0] * variance[1]) ** 0.5, abs=1e-4)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_scale_and_direction_of_the_change_are_kept_apart(tmp_path: Path, untrimmed: None, family: str) -> None:
    save_tiny(tmp_path / "encoder", family=family)
    data = describe(make_linked())
    found = {}
    for keep in ("all", "scale", "direction"):
        model, _, record = _train(tmp_path, data, keep=keep, epochs=2)
        found[keep] = record["source_vectors"]
        if keep == "scale":
            weights, original = model.encoder.state_dict(), _context(tmp_path).encoder.state_dict()
            changed = {name for name in weights if not torch.equal(weights[name], original[name])}
            assert {name.split(".")[-2].lower().replace("_", "") for name in changed} <= {
                "layernorm",
                "outputlayernorm",
            }
            assert len(changed) == 2, "weight and bias of the last normalisation alone"
    assert found["all"]["variance"] < 0.9 and found["all"]["correlation"] < 0.999
    assert found["scale"]["variance"] == pytest.approx(found["all"]["variance"], rel=1e-3)
    assert found["scale"]["correlation"] == pytest.approx(1.0, abs=1e-5)
    assert found["direction"]["variance"] == pytest.approx(1.0, rel=1e-3)
    assert found["direction"]["correlation"] == pytest.approx(found["all"]["correlation"], abs=1e-5)


def test_encoder_that_cannot_be_scaled_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "encoder", family="modernbert")
    with pytest.raises(UserError, match="set keep = 'all'"):
        _train(tmp_path, describe(make_linked(8)), keep="scale", epochs=1)


def test_source_shrinks_less_with_relative_distances(tmp_path: Path) -> None:
    shrunk = {
        distance: _train(tmp_path, describe(make_linked()), distance=distance, epochs=4)[2]["source_vectors"][
            "variance"
        ]
        for distance in ("absolute", "relative")
    }
    assert shrunk["absolute"] < 0.8 * shrunk["relative"]


def test_later_settings_count_only_where_they_are_used() -> None:
    """Stored results are known by the others."""
    data = describe(make_linked(4))
    known = adjust.identity_inputs(_settings(), data)["settings"]
    assert not {"distance", "keep", "parallel", "links"} & known.keys()
    assert {"pull", "stay", "layer", "epochs", "lr", "kind"} <= known.keys()
    used = adjust.identity_inputs(_settings(distance="relative", keep="scale"), data)["settings"]
    assert used == {**known, "distance": "relative", "keep": "scale"}
    assert adjust.identity_inputs(_settings(pull=0.0), data)["settings"] == {**known, "pull": 0.0}


def test_seed_determines_sentences_and_bits(tmp_path: Path) -> None:
    data = describe(make_linked(200))
    finals = []
    for seed in (1, 1, 2):
        model, _, record = _train(tmp_path, data, seed, sentences=30, epochs=1)
        assert record["pairs"] == 30
        finals.append(torch.cat([p.detach().flatten() for n, p in model.named_parameters() if "embeddings" not in n]))
    assert torch.equal(finals[0], finals[1]) and not torch.equal(finals[0], finals[2])


def test_pairs_of_several_languages_are_read_together(tmp_path: Path) -> None:
    _, _, record = _train(tmp_path, describe(make_linked(20), make_linked(30, "en-de")), sentences=25, epochs=1)
    assert record["pairs"] == 20 + 25


def test_links_are_filtered_by_settings() -> None:
    links = [(0, 0), (1, 1), (1, 2), (2, 3), (3, 9), (4, 4)]
    sides = (["a", "b", "c", "d", "London"], ["x", "y", "z", "w", "London", *"qqqqq"])

    def keep(**changes: Any) -> list[tuple[int, int]]:
        found = filter_links(links, sides, AdjustmentSettings(**changes), seen=(5, 8))
        return [(int(i), int(j)) for i, j in found.reshape(-1, 2)]

    assert keep() == [(0, 0), (2, 3)]
    assert keep(one_to_one=False) == [(0, 0), (1, 1), (1, 2), (2, 3)]
    assert keep(drop_identical=False) == [(0, 0), (2, 3), (4, 4)]


def test_raw_text_is_aligned_and_pairs_without_links_are_dropped(tmp_path: Path) -> None:
    data = describe(make_raw([("the cat sees London", "кошка мир London")] * 6 + [("London", "London")]))
    examples = encode_pairs(AdjustmentSettings(aligner={"kind": "statistical"}), data, _context(tmp_path))
    assert 1 <= len(examples) <= 6


def test_aligner_learns_from_the_whole_set_whatever_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = "the cat sees a dog and a bird", "кошка мир"
    rows = make_raw([("the cat sees a dog", "кошка не мир"), ("a dog", "мир")] * 20 + [longer])
    (text,) = describe(rows).texts
    seen = count_aligned(monkeypatch)
    table = {"aligner": {"kind": "statistical"}, "sentences": 3, "words": 6}
    found = {}
    for align_on in ("drawn", "all"):
        settings = AdjustmentSettings.model_validate({**table, "align_on": align_on})
        found[align_on], links = link_sentences(settings, text, _context(tmp_path))
        assert len(links) == 3
    assert seen == [3, 41], "also from a pair that is too long to be drawn"
    assert found["drawn"] == found["all"], "the same pairs are drawn"
    whole, every = link_sentences(
        AdjustmentSettings.model_validate({**table, "sentences": None, "words": 64}), text, _context(tmp_path)
    )
    assert links == [every[whole.rows.index(row)] for row in found["all"].rows]
    assert "align_on" not in identify_pairs(AdjustmentSettings()), "older results stay known"


def test_links_can_be_between_subwords(tmp_path: Path) -> None:
    data = describe(make_raw([("the cat sees a dog", "кошка не мир")] * 8))
    context = _context(tmp_path)
    settings = AdjustmentSettings(pooling="subword", aligner={"kind": "statistical"}, one_to_one=False)
    examples = encode_pairs(settings, data, context)
    words = examples.get("words", 0)
    assert np.array_equal(words[1:-1], np.arange(len(words) - 2)), "every subword is a unit of its own"
    with pytest.raises(DataError, match="statistical"):
        encode_pairs(AdjustmentSettings(pooling="subword"), data, context)


def test_links_file_is_used_and_checked(tmp_path: Path) -> None:
    rows = make_raw([("the cat", "кошка мир"), ("a dog", "не нам")])
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("1-0\n0-1\n", encoding="utf-8")
    bad.write_text("1-0\n0-7\n", encoding="utf-8")
    examples = encode_pairs(AdjustmentSettings(links=str(good)), describe(rows, links=str(good)), _context(tmp_path))
    assert [examples.get("links", row).tolist() for row in range(2)] == [[1, 0], [0, 1]]
    with pytest.raises(DataError, match=r"bad:2.*0-7"):
        encode_pairs(AdjustmentSettings(links=str(bad)), describe(rows, links=str(bad)), _context(tmp_path))


def test_learning_rate_scales_with_number_of_pairs() -> None:
    settings = _settings(lr=4e-5, rate_for=30_000)
    assert adjust.scale_rate(settings, 60_000).lr == pytest.approx(2e-5)
    assert adjust.scale_rate(_settings(lr=4e-5), 60_000).lr == 4e-5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parallel": []}, "name sentences"),
        ({"pull": 0.0, "stay": 0.0}, "nothing would be learnt"),
        ({"keep": "scale", "layer": 1}, "leave layer out"),
        ({"anchors": ["words", "words"]}, "each once"),
        ({"aligner": "nural"}, "neural"),
        ({"pooling": "median"}, "mean"),
    ],
)
def test_invalid_settings_are_explained(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        _settings(**changes)


def test_wrong_direction_or_layer_raises(tmp_path: Path) -> None:
    settings = _settings(parallel="phrasebook-parallel:de-en")
    with pytest.raises(DataError, match="source language is 'en'.*en-de"):
        adjust.open_stage_data(settings, source="en", store=tmp_path)
    with pytest.raises(DataError, match=r"layer = 9: .* has 0 .* to 3"):
        _train(tmp_path, describe(make_linked()), layer=9)


def test_next_stage_starts_from_adjusted_encoder(tmp_path: Path) -> None:
    """A whole recipe: adjusted on gold links, then fine-tuned with replay, which takes over what was adjusted on."""
    encoder = save_tiny(tmp_path / "encoder")
    tables = {
        "seeds": [1],
        "encoder": {"name": str(encoder)},
        "stage": [
            {"kind": "adjust", "parallel": "phrasebook-parallel:en-de", "sentences": 24, "batch": 8},
            {
                "kind": "finetune",
                "task": "pos",
                "train": {"data": "phrasebook-pos:en:train", "limit": 24},
                "select": "last",
                "epochs": 1,
                "batch": 8,
                "replay": {"batch": 4},
            },
        ],
        "evaluate": [{"on": {"data": "phrasebook-pos:de:test", "limit": 10}}],
    }
    recipe = parse_recipe(tables)
    assert recipe.stage[1].replay.parallel == ("phrasebook-parallel:en-de",)
    assert recipe.stage[1].replay.sentences == 24 and recipe.stage[1].replay.pull == 0.01
    finished = run_recipe(recipe, store=Store(tmp_path / "store"), out=tmp_path / "out")
    records = [finished.store.record(identity) for identity in finished.identify_stages(1)]
    assert records[0]["pairs"] == 24
    names = set(records[1]["history"][0])
    assert {"replay_pull", "replay_stay"} <= names
    assert [record["source_vectors"]["sentences"] for record in records] == [24, 24]
    notes = summarise_run(tmp_path / "out", store=tmp_path / "store").notes
    assert [note.split(",")[0].split(" ", 1)[1] for note in notes] == ["words of en"] * 2
    assert all("drift" in note and "within sentences" in note and "correlation" in note for note in notes)


def test_missing_parallel_text_or_task_raises(tmp_path: Path) -> None:
    stage = {"kind": "finetune", "task": "pos", "train": "phrasebook-pos:en", "replay": {}}
    with pytest.raises(RecipeError, match=r"stage.0.replay.parallel: missing"):
        parse_recipe({"encoder": {"name": "x"}, "stage": [stage]})
    encoder = save_tiny(tmp_path / "encoder")
    tables = {
        "encoder": {"name": str(encoder)},
        "stage": [{"kind": "adjust", "parallel": "phrasebook-parallel:en-de"}],
        "evaluate": [{"on": "phrasebook-pos", "languages": ["de"]}],
    }
    with pytest.raises(RecipeError, match="learns no task"):
        run_recipe(parse_recipe(tables), store=Store(tmp_path / "store"), out=tmp_path / "out")


def test_aligning_keeps_the_number_of_threads(tmp_path: Path) -> None:
    """A run is known by it: the next stage must find the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        encode_pairs(
            AdjustmentSettings(), describe(make_raw([("the cat sees a dog", "кошка не мир")] * 8)), _context(tmp_path)
        )
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_low_rank_adapters_pull_translations_together(tmp_path: Path) -> None:
    data = describe(make_linked())
    model, _, record = _train(tmp_path, data, lora={"rank": 4, "targets": "all"}, freeze=1, lr=1e-2)
    pulls = [entry["words_pull"] for entry in record["history"]]
    assert pulls[-1] < 0.9 * pulls[0]
    before = dict(_context(tmp_path).encoder.named_parameters())
    changed = {name for name, p in model.encoder.named_parameters() if not torch.equal(p, before[name])}
    assert {name.split(".")[3] for name in changed if ".layer." in name} == {"1", "2"}, "the lowest layer is frozen"
    assert not {"lora", "freeze"} & set(adjust.identity_inputs(_settings(), data)["settings"])
