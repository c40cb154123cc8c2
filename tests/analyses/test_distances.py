"""Distances of words: against slow and obvious arithmetic, one sentence at a time; and what is drawn for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from typer.testing import CliRunner

from crossling.aligners import neural
from crossling.aligners.linked_text import Sentences
from crossling.analyses import AnalysisContext
from crossling.analyses.distance_histograms import PANELS, draw_histograms, measure_overlap, shared_edges
from crossling.analyses.distances import (
    Data,
    Settings,
    analyse,
    compare_words,
    draw,
    measure_auc,
    open_analysis_data,
    prepare,
    share_dimensions,
    summarise,
)
from crossling.analyses.models import AnalysedModels, Pretrained, pretrained_model
from crossling.analyses.result import AnalysisTable
from crossling.analyses.word_pairs import WordPairs, draw_pairs
from crossling.cli.main import app
from crossling.encoders.loading import load_encoder
from crossling.errors import DataError, EncoderError, RecipeError
from crossling.models.model import Model, ModelCard, build_model
from crossling.training.distributed import Distributed
from parallel_text import count_aligned
from tiny import tiny_encoder

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
CARD = ModelCard("tiny", "x")
SOURCES = ["the cat sleeps", "a dog in London eats fish", "the red house", "fish", "London Berlin the dog"]
TARGETS = ["кошка не", "le chien mange du poisson London", "maison rouge", "poisson", "Berlin London der Hund"]
LINKS = ["1-0 2-1", "1-1 4-2 5-4 3-5", "1-1 2-0 0-0", "0-0", "0-1 1-0 3-3 3-2"]


def write_text(
    folder: Path, sources: list[str] = SOURCES, targets: list[str] = TARGETS, links: list[str] = LINKS
) -> dict[str, Any]:
    """Settings for a custom text, with links."""
    for name, lines in (("own.en", sources), ("own.fr", targets), ("own.links", links)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    on = {"format": "parallel", "source": str(folder / "own.en"), "target": str(folder / "own.fr"), "language": "fr"}
    return {"on": on, "links": str(folder / "own.links")}


def make_model(fusion: dict[str, Any] | None = None, **encoder: Any) -> Model:
    torch.manual_seed(3)
    model = build_model(tiny_encoder(**encoder), fusion or {"kind": "last"})
    for parameter in model.fusion.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def measure(model: Model, store: Path, *, batch: int = 128, **settings: Any) -> tuple[dict[str, Any], WordPairs]:
    """The only row, and the words that it was made from."""
    parsed = Settings(**settings)
    data = open_analysis_data(parsed, source="en", store=store)
    context = AnalysisContext(ONE_PROCESS, store, batch=batch)
    (row,) = analyse(model, CARD, data, settings=parsed, context=context).to_pylist()
    return row, data.drawn[0]


def embed_alone(model: Model, words: tuple[str, ...], word: int, *, layer: int | str, pooling: str) -> Tensor:
    """A word's vector from its sentence alone, without a batch and without padding."""
    tokenizer = model.encoder.tokenizer
    blank = tokenizer.convert_tokens_to_ids("▁")  # a mark before an unknown first letter, which says nothing
    cut = [tokenizer(one, add_special_tokens=False)["input_ids"] for one in words]
    pieces = [[piece for piece in part if piece != blank] for part in cut]
    first = 1 + sum(map(len, pieces[:word]))
    around = tokenizer("the")["input_ids"]
    ids = torch.tensor([[around[0], *(piece for part in pieces for piece in part), around[-1]]])
    batch = {"ids": ids, "mask": torch.ones_like(ids)}
    if model.encoder.uses_token_types:
        batch["types"] = torch.zeros_like(ids)
    with torch.no_grad():
        if layer == "fused":
            hidden = model.represent(batch)[0]
        else:
            number = model.encoder.layers if layer == "last" else int(layer)
            hidden = model.encoder(ids, batch["mask"], batch.get("types"), layers=(number,))[number][0]
    own = hidden[first : first + len(pieces[word])].double()
    return {"mean": own.mean(0), "first": own[0], "last": own[-1]}[pooling]


def embed_side(model: Model, sentences: Any, places: Any, **how: Any) -> list[Tensor]:
    return [
        embed_alone(model, sentences[sentence], word, **how)
        for sentence, word in zip(places.sentence.tolist(), places.word.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("family", "fusion", "layer", "pooling"),
    [
        ("bert", {"kind": "last"}, "last", "mean"),
        ("xlm-r", {"kind": "last"}, "last", "mean"),
        ("xlm-r", {"kind": "dlfa", "layer": 1}, "last", "last"),
        ("bert", {"kind": "dlfa", "layer": 1}, "fused", "first"),
        ("xlm-r", {"kind": "mean", "layer": 1}, 1, "mean"),
        ("bert", {"kind": "last"}, 0, "mean"),
    ],
)
def test_equals_sentences_one_by_one(
    tmp_path: Path, family: str, fusion: dict[str, Any], layer: int | str, pooling: str
) -> None:
    model = make_model(fusion, family=family)
    row, words = measure(model, tmp_path, **write_text(tmp_path), layer=layer, pooling=pooling, drop_identical=False)
    how = {"layer": layer, "pooling": pooling}
    left = embed_side(model, words.sentences.source, words.source, **how)
    right = embed_side(model, words.sentences.target, words.target, **how)
    related = [float((a - b).norm()) for a, b in zip(left, right, strict=True)]
    unrelated = [float((left[i] - right[j]).norm()) for i, j in words.unrelated.tolist()]
    assert row["language"] == "fr"
    assert len(related) == row["pairs"] == sum(len(line.split()) for line in LINKS)
    assert row["related_distances"] == pytest.approx(related, abs=1e-4)
    assert row["unrelated_distances"] == pytest.approx(unrelated, abs=1e-4)
    assert row["related"] == pytest.approx(np.mean(related), abs=1e-4)
    assert row["unrelated"] == pytest.approx(np.mean(unrelated), abs=1e-4)
    assert len(set(np.round(related, 4))) > 3, "words all alike would say nothing"


@pytest.mark.parametrize("batch", [1, 2])
def test_neither_batch_nor_neighbours_matter(tmp_path: Path, batch: int) -> None:
    model = make_model({"kind": "dlfa", "layer": 2}, family="xlm-r")
    settings = {**write_text(tmp_path), "layer": "fused"}
    whole, parts = (measure(model, tmp_path, batch=size, **settings)[0] for size in (128, batch))
    assert whole["unrelated_distances"] == pytest.approx(parts["unrelated_distances"], abs=1e-4)


def test_the_same_text_on_both_sides_is_perfectly_related(tmp_path: Path) -> None:
    links = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in SOURCES]
    settings = write_text(tmp_path, SOURCES, SOURCES, links)
    row, _ = measure(make_model(), tmp_path, **settings, drop_identical=False)
    assert row["related"] == pytest.approx(0, abs=1e-5)
    assert (row["auc"], row["overlap"]) == (1, 0)
    with pytest.raises(DataError, match="no links between words that differ"):
        measure(make_model(), tmp_path, **settings)


def test_distances_equal_a_slow_reference() -> None:
    rng = np.random.default_rng(5)
    source, target = rng.normal(size=(40, 130)), rng.normal(size=(40, 130)) * np.linspace(0.2, 4, 130)
    related = np.stack([np.arange(40), np.arange(40)], 1)
    unrelated = np.stack([np.arange(30), rng.integers(40, size=30)], 1)
    inside = np.stack([np.arange(20), rng.integers(40, size=20)], 1)
    found = compare_words(source.astype(np.float32), target.astype(np.float32), related, unrelated, inside, bins=7)
    within = [np.linalg.norm(source[i] - target[j]) for i, j in inside]
    assert found["same_sentence"] == pytest.approx(np.mean(within), abs=1e-5)
    assert found["same_sentence_relative"] == pytest.approx(found["same_sentence"] / found["unrelated"])
    assert found["relative"] == pytest.approx(found["related"] / found["unrelated"])
    near = [np.linalg.norm(source[i] - target[j]) for i, j in related]
    far = [np.linalg.norm(source[i] - target[j]) for i, j in unrelated]
    assert found["related"] == pytest.approx(np.mean(near), abs=1e-5)
    assert found["unrelated"] == pytest.approx(np.mean(far), abs=1e-5)
    squares = sum((source[i] - target[j]) ** 2 for i, j in [*related, *unrelated])
    assert isinstance(squares, np.ndarray)
    for count in (10, 100):
        assert found[f"top{count}"] == pytest.approx(sum(sorted(squares)[-count:]) / sum(squares), abs=1e-5)
    assert 10 / 130 < found["top10"] < found["top100"] < 1
    wins = [(a < b) + 0.5 * (a == b) for a in near for b in far]
    assert found["auc"] == pytest.approx(np.mean(wins), abs=1e-9)
    assert found["pairs"] == 40


def test_ties_count_half_in_the_area_under_the_curve() -> None:
    rng = np.random.default_rng(0)
    near, far = rng.integers(4, size=50).astype(float), rng.integers(6, size=30).astype(float)
    wins = [(a < b) + 0.5 * (a == b) for a in near for b in far]
    assert measure_auc(near, far) == pytest.approx(np.mean(wins), abs=1e-12)
    assert measure_auc(np.zeros(3), np.zeros(5)) == 0.5
    assert measure_auc(np.zeros(3), np.ones(5)) == 1


def test_a_narrow_encoder_has_all_of_the_distance_in_100_dimensions() -> None:
    assert share_dimensions(np.ones(16)) == {10: 10 / 16, 100: 1.0}
    assert share_dimensions(np.zeros(16)) == {10: 0.0, 100: 0.0}


def random_text(*, seed: int = 0, sentences: int = 40) -> tuple[Sentences, list[list[tuple[int, int]]]]:
    """Sentences of few distinct words, so that chance alone would often meet related ones."""
    rng = np.random.default_rng(seed)
    source = [tuple(f"w{n}" for n in rng.integers(8, size=6)) for _ in range(sentences)]
    target = [tuple(word if word == "w7" else word.upper() + "x" for word in words) for words in source]
    return Sentences(tuple(range(sentences)), tuple(source), tuple(target)), [[(i, i) for i in range(6)]] * sentences


def test_unrelated_words_are_linked_nowhere_and_stand_in_other_sentences() -> None:
    sentences, links = random_text()
    drawn = draw_pairs(sentences, links, count=150, drop_identical=True, seed=1, name="text")
    assert len(drawn) == len(drawn.unrelated) == 150
    source = [sentences.source[s][w] for s, w in zip(drawn.source.sentence, drawn.source.word, strict=True)]
    target = [sentences.target[s][w] for s, w in zip(drawn.target.sentence, drawn.target.word, strict=True)]
    assert all(right == left.upper() + "x" for left, right in zip(source, target, strict=True))
    assert "w7" not in source, "identical strings are dropped"
    for left, right in drawn.unrelated.tolist():
        assert target[right] != source[left].upper() + "x"
        assert drawn.source.sentence[left] != drawn.target.sentence[right]
    assert drawn.unrelated[:, 0].tolist() == list(range(150)), "every source word has one"
    assert len(set(drawn.unrelated[:, 1].tolist())) > 60
    kept = draw_pairs(sentences, links, count=10**6, drop_identical=False, seed=1, name="text")
    assert len(kept) == 6 * 40


def test_unrelated_words_of_one_sentence_are_linked_nowhere() -> None:
    sentences, links = random_text()
    drawn = draw_pairs(sentences, links, count=150, drop_identical=True, seed=3, name="x")
    linked = {
        (sentences.source[n][i].casefold(), sentences.target[n][j].casefold())
        for n, found in enumerate(links)
        for i, j in found
    }
    assert len(drawn.same_sentence) > 40
    for left, right in drawn.same_sentence.tolist():
        number = drawn.source.sentence[left]
        assert number == drawn.target.sentence[right]
        first = sentences.source[number][drawn.source.word[left]].casefold()
        second = sentences.target[number][drawn.target.word[right]].casefold()
        assert first != second and (first, second) not in linked


def test_where_the_sentence_dominates_only_negatives_of_other_sentences_are_separated() -> None:
    """Each word's vector is its sentence's, and a little noise that says nothing of the word."""
    rng = np.random.default_rng(5)
    sentence, width = np.repeat(np.arange(60), 6), 16
    centres = rng.normal(size=(60, width))
    source, target = (centres[sentence] + 0.1 * rng.normal(size=(360, width)) for _ in range(2))
    related = np.stack([np.arange(360), np.arange(360)], 1)
    others = np.stack([np.arange(360), (np.arange(360) + 6 * rng.integers(1, 59, size=360)) % 360], 1)
    inside = np.stack([np.arange(360), 6 * sentence + (np.arange(360) + rng.integers(1, 6, size=360)) % 6], 1)
    found = compare_words(source, target, related, others, inside, bins=20)
    assert found["auc"] > 0.999 and found["relative"] < 0.2
    assert found["same_sentence_auc"] == pytest.approx(0.5, abs=0.05)
    assert found["same_sentence_relative"] == pytest.approx(found["relative"], rel=0.05)
    words = rng.normal(size=(360, width))
    both = compare_words(source + words, target + words, related, others, inside, bins=20)
    assert both["same_sentence_auc"] > 0.999, "words are distinguished where their vectors say which they are"


def test_relative_distances_do_not_depend_on_the_scale_of_the_space() -> None:
    rng = np.random.default_rng(6)
    source, target = rng.normal(size=(2, 40, 8))
    pairs = [np.stack([np.arange(40), rng.permutation(40)], 1) for _ in range(3)]
    one, large = (compare_words(size * source, size * target, *pairs, bins=9) for size in (1, 30))
    for name in ("relative", "same_sentence_relative", "auc", "same_sentence_auc"):
        assert one[name] == pytest.approx(large[name])
    assert one["related"] != pytest.approx(large["related"])


def test_settings_choose_what_is_shown(tmp_path: Path) -> None:
    row, _ = measure(make_model(), tmp_path, **write_text(tmp_path))
    table = pa.Table.from_pylist([{"task": "", "model": "tiny", "seed": None, "language": "fr", **row}])
    for negatives, shown, distance in (
        ("both", {"unrelated", "same_sentence", "auc", "same_sentence_auc"}, "l2"),
        ("other_sentences", {"relative", "auc"}, "relative"),
        ("same_sentence", {"relative", "same_sentence_relative", "same_sentence_auc"}, "relative"),
    ):
        settings = Settings(**write_text(tmp_path), negatives=negatives, distance=distance)
        (sheet,) = summarise(AnalysisTable(settings, table))
        assert shown <= set(sheet.head)
        assert ("auc" in sheet.head) == (negatives != "same_sentence")
        (figure,) = draw(AnalysisTable(settings, table)).values()
        assert ("unrelated, same sentence" in figure) == (negatives != "other_sentences")
        assert ("relative distance" in figure) == (distance == "relative")


def test_draws_follow_the_seed() -> None:
    sentences, links = random_text()

    def drawn(seed: int) -> tuple[list[int], list[int]]:
        found = draw_pairs(sentences, links, count=30, drop_identical=True, seed=seed, name="text")
        return found.source.sentence.tolist(), found.unrelated[:, 1].tolist()

    assert drawn(1) == drawn(1)
    assert drawn(1)[0] != drawn(2)[0]
    assert drawn(1)[1] != drawn(2)[1]


def test_words_that_are_all_related_are_refused() -> None:
    sentences = Sentences((0, 1), (("a",), ("a",)), (("b",), ("b",)))
    with pytest.raises(DataError, match="every word is related"):
        draw_pairs(sentences, [[(0, 0)], [(0, 0)]], count=5, drop_identical=True, seed=0, name="text")


def test_sentences_are_random_few_and_not_too_long(tmp_path: Path) -> None:
    settings = write_text(tmp_path)
    _, all_of_them = measure(make_model(), tmp_path, **settings)
    assert all_of_them.sentences.rows == (0, 1, 2, 3, 4)
    _, short = measure(make_model(), tmp_path, **settings, words=4)
    assert short.sentences.rows == (0, 2, 3, 4)
    found = {measure(make_model(), tmp_path, **settings, sentences=3, seed=seed)[1].sentences.rows for seed in range(6)}
    assert all(len(rows) == 3 and list(rows) == sorted(rows) for rows in found)
    assert len(found) > 1
    with pytest.raises(DataError, match="1 sentence pairs with 1 to 1 words"):
        measure(make_model(), tmp_path, **settings, words=1)


def test_words_beyond_the_encoders_input_are_left_out(tmp_path: Path) -> None:
    model = make_model()
    model.encoder.max_length = 5  # three pieces and two special ones
    row, words = measure(model, tmp_path, **write_text(tmp_path))
    assert 0 < row["pairs"] < len(words)
    assert all(np.isfinite(row["unrelated_distances"]))


def test_links_of_a_file_must_fit(tmp_path: Path) -> None:
    def open_it(links: list[str]) -> None:
        measure(make_model(), tmp_path, **write_text(tmp_path, links=links))

    with pytest.raises(DataError, match=r"own\.links:3: the link 1-7 leads outside 3 and 2 words"):
        open_it([*LINKS[:2], "1-7", *LINKS[3:]])
    with pytest.raises(DataError, match="has 4 lines, but .*5 sentence pairs"):
        open_it(LINKS[:4])
    with pytest.raises(DataError, match=r"links: no file .*fr\.links"):
        measure(make_model(), tmp_path, **{**write_text(tmp_path), "links": str(tmp_path / "{language}.links")})


def test_invalid_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="leave one out"):
        Settings.model_validate({"languages": ("de",), "links": "x", "aligner": "neural"})
    with pytest.raises(ValidationError, match="languages: missing"):
        Settings()
    with pytest.raises(ValidationError, match="every language once"):
        Settings(languages=("de", "de"))
    with pytest.raises(DataError, match="'en' is the source"):
        open_analysis_data(Settings(languages=("en",)), source="en", store=tmp_path)
    with pytest.raises(DataError, match="TaggedSentence rows"):
        table = {"data": "phrasebook-ner:de:dev", "limit": 3}
        open_analysis_data(Settings(on=table), source="en", store=tmp_path)
    with pytest.raises(RecipeError, match="aligner"):
        settings = Settings(on="phrasebook-parallel", languages=("de",), aligner={"kind": "nural"})
        open_analysis_data(settings, source="en", store=tmp_path)
    with pytest.raises(EncoderError, match="no layer 9"):
        measure(make_model(), tmp_path, **write_text(tmp_path), layer=9)


def open_neural(tmp_path: Path, encoder: Path, **settings: Any) -> tuple[Data, Settings]:
    """Raw text, linked by the original encoder of a model."""
    table = {key: value for key, value in write_text(tmp_path).items() if key != "links"}
    models = AnalysedModels(tuple(pretrained_model(Pretrained(name)) for name in (str(encoder), "another")))
    prepared, _ = prepare(Settings(**{**table, **settings}), models)
    return open_analysis_data(prepared, source="en", store=tmp_path), prepared


def test_links_are_the_original_encoders_and_the_same_for_all_models(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, settings = open_neural(tmp_path, tiny_folder)
    assert settings.encoder == str(tiny_folder)
    original = load_encoder(str(tiny_folder))
    assert data.linker.aligner.layer == round(original.layers * 7 / 12)
    calls = []
    real = neural.align_with

    def count(encoder: Any, corpus: Any, *rest: Any, **more: Any) -> Any:
        calls.append((encoder.identity, len(corpus)))
        return real(encoder, corpus, *rest, **more)

    monkeypatch.setattr(neural, "align_with", count)
    assert data.fingerprints(), "to know whether the work was done before, nothing is linked"
    assert calls == []
    context = AnalysisContext(ONE_PROCESS, tmp_path)
    tables = [
        analyse(make_model(family=family), CARD, data, settings=settings, context=context)
        for family in ("bert", "xlm-r")
    ]
    assert calls == [(original.identity, 5)]
    assert data.linker.encoder is None, "it is as large as a model, and no longer needed"
    assert tables[0].column("pairs") == tables[1].column("pairs")
    assert tables[0].column("related") != tables[1].column("related")


def test_aligner_is_part_of_the_fingerprint(tmp_path: Path, tiny_folder: Path) -> None:
    prints = [
        open_neural(tmp_path, tiny_folder, **more)[0].fingerprints()
        for more in ({}, {"aligner": {"kind": "neural", "layer": 0}}, {"aligner": "statistical"})
    ]
    (tmp_path / "other.links").write_text("\n".join(LINKS) + "\n", encoding="utf-8")
    given = write_text(tmp_path)
    prints.append(open_analysis_data(Settings(**given), source="en", store=tmp_path).fingerprints())
    same = {**given, "links": str(tmp_path / "other.links")}
    assert prints[-1] == open_analysis_data(Settings(**same), source="en", store=tmp_path).fingerprints()
    assert len({str(one) for one in prints}) == 4


def test_aligner_learns_from_the_whole_set_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_aligned(monkeypatch)
    table = {"on": "phrasebook-parallel", "languages": ("de",), "split": "test[:30]", "sentences": 6, "pairs": 20}
    found, prints = {}, []
    for align_on in ("drawn", "all"):
        settings = Settings(**table, aligner="statistical", align_on=align_on)
        data = open_analysis_data(settings, source="en", store=tmp_path)
        prints.append(data.fingerprints())
        (found[align_on],) = data.draw(settings, AnalysisContext(ONE_PROCESS, tmp_path))
    assert seen == [6, 30]
    assert found["drawn"].sentences == found["all"].sentences, "the same sentences are compared"
    assert prints[1] == [*prints[0], "aligned on all, of any length"], "those on drawn ones stay known"
    assert Settings(**table).model_dump() == Settings(**table, align_on="all").model_dump()


def test_raw_text_is_cut_into_words_and_gold_links_give_way_to_a_named_aligner(
    tmp_path: Path, tiny_folder: Path
) -> None:
    raw = write_text(tmp_path, ["the cat, sleeps!", "fish"], ["我看猫。", "Fisch"], ["", ""])
    settings = Settings(**{**raw, "links": ""}, encoder=str(tiny_folder))
    data = open_analysis_data(settings, source="en", store=tmp_path)
    (words,) = data.draw(settings, AnalysisContext(ONE_PROCESS, tmp_path))
    assert words.sentences.source == (("the", "cat", ",", "sleeps", "!"), ("fish",))
    assert words.sentences.target[0] == ("我", "看", "猫", "。")
    gold = Settings(on="phrasebook-parallel", languages=("de",), sentences=6)
    own = open_analysis_data(gold, source="en", store=tmp_path)
    assert (own.texts[0].aligned, own.linker.encoder) == (False, None)
    named = gold.model_copy(update={"aligner": {"kind": "neural"}, "encoder": str(tiny_folder)})
    assert open_analysis_data(named, source="en", store=tmp_path).texts[0].aligned


def test_a_figure_for_each_language_with_a_panel_for_each_model(tmp_path: Path, tiny_folder: Path) -> None:
    models = [f"original={tiny_folder}", f"other={tiny_folder}"]
    options = ["--on", "phrasebook-parallel", "--languages", "de,hi", "--sentences", "12", "--pairs", "30"]
    result = CliRunner().invoke(
        app, ["analyse", "distances", *models, *options, "--layer", "1", "--out", str(tmp_path / "d.csv")]
    )
    assert result.exit_code == 0, result.output
    figure = (tmp_path / "d-hi.svg").read_text(encoding="utf-8")
    for text in ("original", "other", "Hindi", "overlap", "unrelated", "L2 distance, layer 1"):
        assert f"{text}" in figure, text
    assert (tmp_path / "d-de.svg").is_file()
    head = (tmp_path / "d.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head.replace('"', "") == (
        "task,model,seed,language,related,unrelated,overlap,auc,top10,top100,pairs,relative,same_sentence,"
        "same_sentence_relative,same_sentence_overlap,same_sentence_auc,same_sentence_pairs"
    )


def test_seeds_of_a_run_are_one_panel() -> None:
    def row(seed: int, overlap: float) -> dict[str, Any]:
        near, far = [1.0 + seed, 2.0], [3.0, 4.0 + seed]
        figures = {"overlap": overlap, "auc": 0.9, "related_distances": near, "unrelated_distances": far}
        return {"task": "ner", "model": "tuned", "seed": seed, "language": "hi", **figures}

    table = pa.Table.from_pylist([row(1, 0.2), row(2, 0.4)])
    found = AnalysisTable(Settings(languages=("hi",)), table)
    (figure,) = draw(found).values()
    assert figure.count("ner: tuned") == 1
    assert "overlap 0.30" in figure
    assert figure == draw(found)["hi"], "same numbers, same file"


@pytest.mark.gpu
def test_a_gpu_gives_the_same(tmp_path: Path, tiny_folder: Path) -> None:
    context = AnalysisContext(Distributed(0, 1, torch.device("cuda"), torch.bfloat16), tmp_path)
    data, settings = open_neural(tmp_path, tiny_folder)
    (row,) = analyse(make_model().to("cuda"), CARD, data, settings=settings, context=context).to_pylist()
    data, settings = open_neural(tmp_path, tiny_folder)
    (other,) = analyse(
        make_model(), CARD, data, settings=settings, context=AnalysisContext(ONE_PROCESS, tmp_path)
    ).to_pylist()
    assert row["related_distances"] == pytest.approx(other["related_distances"], abs=1e-3)
    assert row["unrelated_distances"] == pytest.approx(other["unrelated_distances"], abs=1e-3)


def test_overlap_is_the_shared_area_of_both_histograms() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=300), rng.normal(1.5, 2, size=200)
    edges = shared_edges(first, second, bins=9)
    shared = 0.0
    for number in range(9):
        low, high = edges[number], edges[number + 1]
        last = number == 8
        counts = [sum(low <= x < high or (last and x == high) for x in group) for group in (first, second)]
        shared += min(counts[0] / 300, counts[1] / 200)
    assert measure_overlap(first, second, bins=9) == pytest.approx(shared)
    assert 0 < shared < 1


def test_overlap_is_between_0_and_1() -> None:
    some = np.array([1.0, 2.0, 3.0])
    assert measure_overlap(some, some, bins=5) == pytest.approx(1)
    assert measure_overlap(some, some + 10, bins=5) == 0
    assert measure_overlap(np.ones(3), np.ones(2), bins=5) == pytest.approx(1), "one value only is no error"


@pytest.mark.parametrize("count", [1, PANELS, PANELS + 1, 2 * PANELS + 3])
def test_any_number_of_panels_is_drawn(count: int) -> None:
    rng = np.random.default_rng(0)
    models = {
        f"model-{n}.": [
            {
                "related_distances": rng.random(20),
                "unrelated_distances": rng.random(20) + n,
                "overlap": n / 100,
                "auc": 0.5,
            }
        ]
        for n in range(count)
    }
    figure = draw_histograms(models, title="Title", axis="distance", bins=8)
    for n in range(count):
        assert (
            figure.count(f">model-{n}.<") == figure.count(f">overlap {n / 100:.2f}, area under the curve 0.500<") == 1
        )
    columns = -(-count // PANELS)
    assert figure.count(">distance<") == columns
    assert figure.startswith("<?xml")
