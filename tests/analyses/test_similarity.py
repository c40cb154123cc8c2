"""Sentence similarity: against slow and obvious arithmetic, whatever the batch, the fusion and the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from crossling.analyses import AnalysisContext
from crossling.analyses.similarity import (
    SCHEMA,
    Settings,
    _pair_up,
    analyse,
    choose_pooling,
    compare_vectors,
    embed_rows,
    open_analysis_data,
)
from crossling.errors import DataError
from crossling.models.heads import pool_sentence
from crossling.models.model import Model, ModelCard, build_model
from crossling.tasks import PRESETS, parse_task
from crossling.training.distributed import Distributed
from tiny import tiny_encoder

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
ENGLISH = ["the cat sleeps", "a dog in London eats fish", "the red house", "fish", "London Berlin the dog sleeps in"]
GERMAN = ["cat the", "dog fish eats London in a a", "red the house house", "fish fish fish", "in sleeps dog the Berlin"]


def write_pair(folder: Path, sources: list[str] | None = None, targets: list[str] | None = None) -> dict[str, Any]:
    """A custom parallel file, as a table."""
    for name, lines in (("en", sources or ENGLISH), ("de", targets or GERMAN)):
        (folder / f"own.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"format": "parallel", "source": str(folder / "own.en"), "target": str(folder / "own.de"), "language": "de"}


def make_model(fusion: dict[str, Any] | None = None, **encoder: Any) -> Model:
    """A model that distinguishes sentences, and whose fusion's statistics are not the first ones."""
    torch.manual_seed(3)
    model = build_model(tiny_encoder(**encoder), fusion or {"kind": "last"})
    for name, parameter in model.encoder.model.named_parameters():
        if parameter.dim() == 1:  # random biases would be most of every vector
            torch.nn.init.constant_(parameter, float(name.endswith("weight")))
    for parameter in model.fusion.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    for name, buffer in model.fusion.named_buffers():
        torch.nn.init.uniform_(buffer, 0.5 if name.endswith("var") else -0.3, 1.5 if name.endswith("var") else 0.3)
    return model.eval()


def make_card(task: str = "ner", **settings: Any) -> ModelCard:
    stored = parse_task({"preset": task, **settings}).model_dump(mode="json")
    return ModelCard("tiny", "x", tasks={"main": {"settings": stored, "labels": []}})


def run(model: Model, on: Any, store: Path, *, batch: int = 128, card: ModelCard | None = None, **more: Any) -> Any:
    settings = Settings(on=on, **more)
    data = open_analysis_data(settings, source="en", store=store)
    context = AnalysisContext(ONE_PROCESS, store, batch=batch)
    return analyse(model, card or make_card(), data, settings=settings, context=context)


def embed_alone(model: Model, text: str, *, pool: str) -> Tensor:
    """One sentence, without a batch and without padding."""
    encoded = model.encoder.tokenizer(text, return_tensors="pt")
    batch = {"ids": encoded["input_ids"], "mask": torch.ones_like(encoded["input_ids"])}
    if model.encoder.uses_token_types:
        batch["types"] = torch.zeros_like(batch["ids"])
    with torch.no_grad():
        hidden = model.represent(batch)[0].double()
    return hidden[0] if pool == "cls" else hidden.mean(0)


@pytest.mark.parametrize("pool", ["mean", "cls"])
@pytest.mark.parametrize("family", ["bert", "xlm-r"])
@pytest.mark.parametrize("fusion", [{"kind": "last"}, {"kind": "dlfa", "layer": 1}, {"kind": "scalar_mix"}])
def test_equals_sentences_one_by_one(tmp_path: Path, fusion: dict[str, Any], family: str, pool: str) -> None:
    model = make_model(fusion, family=family)
    table = run(model, write_pair(tmp_path), tmp_path, pool=pool)
    left, right = ([embed_alone(model, text, pool=pool) for text in side] for side in (ENGLISH, GERMAN))
    cosines = [[float(torch.cosine_similarity(a, b, dim=0)) for b in right] for a in left]
    count = len(left)
    together = sum(cosines[i][i] for i in range(count)) / count
    apart = [cosines[i][j] for i in range(count) for j in range(count) if i != j]
    row = table.to_pylist()[0]
    assert (row["language"], row["sentences"]) == ("de", count)
    assert row["cosine"] == pytest.approx(together, abs=1e-5)
    assert row["unrelated"] == pytest.approx(sum(apart) / len(apart), abs=1e-5)
    assert row["margin"] == pytest.approx(together - sum(apart) / len(apart), abs=1e-5)
    assert max(apart) - min(apart) > 0.01, "sentences all alike would say nothing"


def test_sums_equal_all_pairs_one_by_one() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(7, 4)), rng.normal(size=(7, 4)) * 5
    pairs = [
        [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in right.astype(np.float64)]
        for a in left.astype(np.float64)
    ]
    found = compare_vectors(left.astype(np.float32), right.astype(np.float32))
    assert found["cosine"] == pytest.approx(np.mean([pairs[i][i] for i in range(7)]), abs=1e-6)
    others = [pairs[i][j] for i in range(7) for j in range(7) if i != j]
    assert found["unrelated"] == pytest.approx(np.mean(others), abs=1e-6)
    assert found["margin"] == pytest.approx(found["cosine"] - found["unrelated"])


def test_a_collapsed_encoder_has_cosine_1_and_margin_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    same = torch.linspace(-1, 2, model.encoder.width)
    monkeypatch.setattr(model, "represent", lambda batch: same.expand(*batch["ids"].shape, -1))
    (row,) = run(model, write_pair(tmp_path), tmp_path).to_pylist()
    assert row["cosine"] == pytest.approx(1, abs=1e-6)
    assert row["margin"] == pytest.approx(0, abs=1e-6)


def test_a_perfect_translator_has_the_largest_margin(tmp_path: Path) -> None:
    model = make_model()
    (same,) = run(model, write_pair(tmp_path, ENGLISH, ENGLISH), tmp_path).to_pylist()
    (other,) = run(model, write_pair(tmp_path), tmp_path).to_pylist()
    assert same["cosine"] == pytest.approx(1, abs=1e-6)
    assert same["margin"] > other["margin"]


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_neither_batch_nor_neighbours_matter(tmp_path: Path, batch: int) -> None:
    model = make_model({"kind": "dlfa", "layer": 2})
    whole, parts = (
        run(model, write_pair(tmp_path), tmp_path, batch=size).select(["cosine", "unrelated", "margin"]).to_pylist()[0]
        for size in (128, batch)
    )
    assert whole == pytest.approx(parts, abs=1e-5)


def test_padding_takes_no_part(tmp_path: Path) -> None:
    model = make_model({"kind": "dlfa", "layer": 1})
    settings = Settings(on=write_pair(tmp_path))
    rows = open_analysis_data(settings, source="en", store=tmp_path).pairs[0].source
    vectors = embed_rows(model, rows, how="mean", length=128, context=AnalysisContext(ONE_PROCESS, tmp_path))
    for text, vector in zip(ENGLISH, vectors, strict=True):
        assert np.allclose(vector, embed_alone(model, text, pool="mean").numpy(), atol=1e-5)


@pytest.mark.parametrize("task", PRESETS)
def test_pools_as_each_task_does(tmp_path: Path, task: str) -> None:
    model = make_model(pooler=True)
    pooled = {"nli": "auto", "paraphrase": "auto", "sentiment": "auto"}.get(task, "mean")
    assert choose_pooling(make_card(task), "task") == pooled
    assert choose_pooling(make_card(task), "mean") == "mean"
    assert choose_pooling(make_card(task), "cls") == "first"
    (row,) = run(model, write_pair(tmp_path), tmp_path, pool="task", card=make_card(task)).to_pylist()
    (mean,) = run(model, write_pair(tmp_path), tmp_path, pool="mean").to_pylist()
    assert (row["cosine"] == mean["cosine"]) == (pooled == "mean")


def test_auto_goes_through_the_checkpoints_pooler(tmp_path: Path) -> None:
    model = make_model(pooler=True)
    rows = open_analysis_data(Settings(on=write_pair(tmp_path)), source="en", store=tmp_path).pairs[0].source
    vectors = embed_rows(model, rows, how="auto", length=128, context=AnalysisContext(ONE_PROCESS, tmp_path))
    first = embed_alone(model, ENGLISH[0], pool="cls").float()
    mask = torch.ones(1, 1, dtype=torch.long)
    with torch.no_grad():
        expected = pool_sentence(model.encoder, first[None, None], mask, how="cls")[0]
    assert np.allclose(vectors[0], expected.numpy(), atol=1e-5)


def test_a_sentence_counts_once_and_both_sides_stay_together(tmp_path: Path) -> None:
    on = write_pair(tmp_path, ["fish", "fish", "the cat", "a dog"], ["eins", "zwei", "drei", "vier"])
    (pair,) = open_analysis_data(Settings(on=on), source="en", store=tmp_path).pairs
    assert pair.source.column("text").to_pylist() == ["fish", "the cat", "a dog"]
    assert pair.target.column("text").to_pylist() == ["eins", "drei", "vier"]
    (drawn,) = open_analysis_data(Settings(on=on, sentences=2, seed=1), source="en", store=tmp_path).pairs
    both = list(zip(*(side.column("text").to_pylist() for side in (drawn.source, drawn.target)), strict=True))
    assert len(both) == 2
    assert set(both) < {("fish", "eins"), ("the cat", "drei"), ("a dog", "vier")}
    alone = write_pair(tmp_path, ["fish", "fish"], ["eins", "zwei"])
    with pytest.raises(DataError, match="two or more"):
        open_analysis_data(Settings(on=alone), source="en", store=tmp_path)


def test_an_empty_translation_in_one_language_changes_no_draw_in_another(tmp_path: Path) -> None:
    settings = Settings(on="ntrex", languages=("de",), sentences=12, seed=3)
    sources = [(f"the cat {number}",) for number in range(30)]

    def draw(*empty: str) -> list[str]:
        targets = [("",) if f"t{number}" in empty else (f"t{number}",) for number in range(30)]
        drawn: list[str] = _pair_up(settings, "de", sources, targets, name="made up").target.column("text").to_pylist()
        return drawn

    first, second, *others = draw()
    found = draw(first, second)
    assert found[:10] == others and len(set(found)) == 12 and "" not in found


def write_xnli(folder: Path, rows: int, **counts: int) -> None:
    (folder / "xnli").mkdir()
    (folder / "xnli" / "test_labels.txt").write_text("neutral\n" * rows, encoding="utf-8")
    for language in ("en", "de", "hi"):
        lines = [f"{language} premise {i}\t{language} hypothesis {i}" for i in range(counts.get(language, rows))]
        (folder / "xnli" / f"test-{language}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_as_published_takes_the_same_20_random_rows_in_every_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_xnli(tmp_path, 60)
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    settings = Settings(as_published=True, languages=("de", "hi"))
    assert (settings.on, settings.split, settings.sentences, settings.seed) == ("xnli", "test", 20, 0)
    data = open_analysis_data(settings, source="en", store=tmp_path)
    numbers = [[text.split()[-1] for text in pair.target.column("text").to_pylist()] for pair in data.pairs]
    assert numbers[0] == numbers[1] == [t.split()[-1] for t in data.pairs[0].source.column("text").to_pylist()]
    assert len(set(numbers[0])) == 20
    other = open_analysis_data(Settings(as_published=True, languages=("de",), seed=1), source="en", store=tmp_path)
    assert [t.split()[-1] for t in other.pairs[0].target.column("text").to_pylist()] != numbers[0]
    assert len(Settings(as_published=True).languages) == 14
    with pytest.raises(ValidationError, match="20 sentences"):
        Settings(as_published=True, languages=("de",), sentences=30)


def test_texts_of_a_pair_apart_or_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_xnli(tmp_path, 5)
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))

    def first(text: Any) -> Any:
        settings = Settings(on="xnli", languages=("hi",), text=text)
        rows = open_analysis_data(settings, source="en", store=tmp_path).pairs[0].target
        return rows[0]

    assert first("first").text == "hi premise 0"
    assert first("second").text == "hi hypothesis 0"
    assert (first("pair").first, first("pair").second) == ("hi premise 0", "hi hypothesis 0")
    table = run(make_model(), "xnli", tmp_path, languages=("hi",), text="pair", card=make_card("nli"))
    assert table.schema == SCHEMA


def test_the_embedded_corpus_needs_no_file(tmp_path: Path) -> None:
    table = run(make_model(family="xlm-r"), "phrasebook-parallel", tmp_path, languages=("de", "zh"), sentences=10)
    assert table.column("language").to_pylist() == ["de", "zh"]
    assert table.column("sentences").to_pylist() == [10, 10]
    pair = open_analysis_data(
        Settings(on="phrasebook-parallel", languages=("zh",), sentences=3), source="en", store=tmp_path
    ).pairs[0]
    assert " " not in pair.target.column("text")[0].as_py()
    assert " " in pair.source.column("text")[0].as_py()


def test_sets_that_are_not_parallel_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_it(**settings: Any) -> None:
        open_analysis_data(Settings(**settings), source="en", store=tmp_path)

    with pytest.raises(DataError, match="not known to be translations"):
        open_it(on="panx", languages=("de",))
    with pytest.raises(DataError, match="'en' is the source"):
        open_it(on="ntrex", languages=("de", "en"))
    write_xnli(tmp_path, 5)
    (tmp_path / "own.jsonl").write_text('{"text": "a", "label": "b"}\n', encoding="utf-8")
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    with pytest.raises(DataError, match="LabelledText rows"):
        open_it(on={"format": "jsonl", "path": str(tmp_path / "own.jsonl"), "language": "de"})
    with pytest.raises(ValidationError, match="languages: missing"):
        Settings(on="ntrex")
    with pytest.raises(ValidationError, match="every language once"):
        Settings(languages=("de", "de"))


def test_rows_that_do_not_match_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crossling.analyses import similarity

    write_xnli(tmp_path, 5)
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    real = similarity.open_data
    monkeypatch.setattr(
        similarity, "open_data", lambda spec, **more: real(spec, **more).head(4 if ":de" in spec else 5)
    )
    with pytest.raises(DataError, match=r"5 rows of xnli:en.*4 rows of xnli:de"):
        open_analysis_data(Settings(on="xnli", languages=("de",)), source="en", store=tmp_path)


@pytest.mark.gpu
def test_a_gpu_gives_the_same(tmp_path: Path) -> None:
    model = make_model({"kind": "dlfa", "layer": 1})
    settings = Settings(on=write_pair(tmp_path))
    data = open_analysis_data(settings, source="en", store=tmp_path)
    (row,) = run(model, write_pair(tmp_path), tmp_path).to_pylist()
    distributed = Distributed(0, 1, torch.device("cuda"), torch.bfloat16)
    context = AnalysisContext(distributed, tmp_path)
    table: pa.Table = analyse(model.to("cuda"), make_card(), data, settings=settings, context=context)
    (other,) = table.to_pylist()
    assert {k: other[k] for k in ("cosine", "margin")} == pytest.approx(
        {k: row[k] for k in ("cosine", "margin")}, abs=1e-4
    )
