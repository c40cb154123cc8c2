"""Model probing: which vectors probes read, how their answers are scored, and what a whole analysis gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError

from crossling.analyses import AnalysisContext, probe
from crossling.analyses._probes.features import (
    OnDisk,
    collect_features,
    extract_heads,
    extract_texts,
    extract_words,
    find_folder,
    find_labelled_positions,
)
from crossling.analyses._probes.probing import (
    ProbePredictions,
    ProbeTask,
    count_confusions,
    draw_samples,
    is_own,
    score_confusions,
)
from crossling.analyses.attention_heads import capture_heads
from crossling.analyses.models import AnalysedModels, Pretrained, pretrained_model
from crossling.data.records import LabelledPair, LabelledText, TaggedSentence
from crossling.data.rows import SCHEMAS, Rows
from crossling.errors import DataError, StorageError
from crossling.inference.evaluate import encode_rows
from crossling.models.heads import pool_sentence
from crossling.models.model import Model, ModelCard, build_model
from crossling.scores.metrics import score
from crossling.scores.predictions import Predictions
from crossling.scores.significance.counts import score_supported
from crossling.study.analyse import analyse as analyse_models
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed
from examples import make_rows
from tiny import save_tiny, tiny_encoder

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
KINDS = {"tag": TaggedSentence, "classify": LabelledText, "classify_pair": LabelledPair}


def make_model(family: str = "bert", **settings: Any) -> Model:
    return build_model(tiny_encoder(family, **settings), {"kind": "last"}).eval()


def make_task(kind: str, rows: Rows, **settings: Any) -> Any:
    return build_task(parse_task({"kind": kind, **settings}), rows.labels())


def collect(
    model: Model, kind: str, rows: Rows, folder: Path, *, extract: Any, groups: int = 1, **settings: Any
) -> Any:
    task = make_task(kind, rows, **settings)
    context = AnalysisContext(ONE_PROCESS, folder, batch=5)
    stored, positions = collect_features(
        model,
        task,
        rows,
        extract=extract,
        key=[],
        groups=groups,
        labels=task.labels,
        folder=folder / "f",
        context=context,
    )
    return (
        torch.cat(list(stored.parts(7))),
        positions,
        encode_rows(task, [rows], model.encoder, cache=folder / "encoded", labels=task.labels),
    )


def encode_alone(model: Model, examples: Any, number: int, *, layer: int) -> torch.Tensor:
    """The hidden states of one example without any other, and so without padding: S x D."""
    ids = torch.from_numpy(examples.get("ids", number).astype(np.int64))[None]
    types = (
        torch.from_numpy(examples.get("types", number).astype(np.int64))[None] if "types" in examples.columns else None
    )
    hidden: torch.Tensor = model.encoder(ids, torch.ones_like(ids), types, layers=(layer,))[layer][0]
    return hidden


@pytest.mark.parametrize("layer", [None, 1])
def test_words_are_read_at_their_first_subword(tmp_path: Path, layer: int | None) -> None:
    model, rows = make_model(), make_rows(TaggedSentence)
    features, positions, examples = collect(model, "tag", rows, tmp_path, extract=extract_words(layer))
    expected, gold = [], []
    with torch.no_grad():
        for number in range(len(examples)):
            hidden = encode_alone(model, examples, number, layer=3 if layer is None else layer)
            expected.append(hidden[examples.get("firsts", number).copy()])
            gold += [rows.labels().index(tag) for tag in rows[number].tags]
    torch.testing.assert_close(features[:, 0], torch.cat(expected), atol=3e-3, rtol=3e-3)
    assert positions.gold.tolist() == gold
    assert np.bincount(positions.row).tolist() == [len(record.words) for record in rows]


def test_words_of_a_sentence_that_is_split_stay_in_their_order(tmp_path: Path) -> None:
    words = [f"{letter}{letter}" for letter in "abcdefghijklmnop"]
    table = pa.table(
        {"words": [words, ["cat"]], "tags": [[f"T{n % 3}" for n in range(16)], ["T0"]]}, schema=SCHEMAS[TaggedSentence]
    )
    rows = Rows(table, TaggedSentence, language="en", name="long:en", fingerprint="long")
    features, positions, examples = collect(make_model(), "tag", rows, tmp_path, extract=extract_words(None), length=12)
    assert len(examples) > 2
    assert positions.gold.tolist() == [*(n % 3 for n in range(16)), 0]
    assert positions.row.tolist() == [*[0] * 16, 1]
    assert len(features) == 17


@pytest.mark.parametrize("kind", ["classify", "classify_pair"])
@pytest.mark.parametrize("how", ["first", "mean", "auto"])
def test_texts_are_read_as_a_classifier_reads_them(tmp_path: Path, kind: str, how: Any) -> None:
    model, rows = make_model(pooler=True), make_rows(KINDS[kind])
    features, positions, examples = collect(model, kind, rows, tmp_path, extract=extract_texts(None, how))
    with torch.no_grad():
        for number in range(len(examples)):
            hidden = encode_alone(model, examples, number, layer=3)[None]
            pooled = pool_sentence(
                model.encoder, hidden, torch.ones(1, hidden.shape[1]), how=how if how != "first" else "mean"
            )
            wanted = hidden[0, 0] if how == "first" else pooled[0]
            torch.testing.assert_close(features[number, 0], wanted, atol=3e-3, rtol=3e-3)
    assert positions.gold.tolist() == [rows.labels().index(record.label) for record in rows]


@pytest.mark.parametrize("family", ["bert", "xlm-r", "distilbert", "modernbert"])
@pytest.mark.parametrize("kind", ["tag", "classify"])
def test_heads_are_read_in_the_order_of_layers(tmp_path: Path, family: str, kind: str) -> None:
    model, rows = make_model(family), make_rows(KINDS[kind], 9)
    features, _, examples = collect(model, kind, rows, tmp_path, extract=extract_heads, groups=6)
    assert features.shape[1:] == (6, 8)
    start = 0
    with torch.no_grad():
        for number in range(len(examples)):
            with capture_heads(model.encoder) as seen:
                encode_alone(model, examples, number, layer=3)
            places = examples.get("firsts", number).tolist() if kind == "tag" else [0]
            wanted = torch.stack([heads[0, places].view(len(places), 2, 8) for heads in seen], dim=1).flatten(1, 2)
            torch.testing.assert_close(features[start : start + len(places)], wanted, atol=3e-3, rtol=3e-3)
            start += len(places)
    assert start == len(features)


def test_features_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = make_model(), make_rows(TaggedSentence)
    first, _, _ = collect(model, "tag", rows, tmp_path, extract=extract_words(None))

    def refuse(*_: Any) -> None:
        raise AssertionError("computed again")

    again, _, _ = collect(model, "tag", rows, tmp_path, extract=refuse)
    assert torch.equal(first, again)
    (path,) = (tmp_path / "f").glob("*.f16")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AssertionError, match="computed again"):
        collect(model, "tag", rows, tmp_path, extract=refuse)
    assert sorted((tmp_path / "f").iterdir()) == [path, Path(f"{path}.sha256")], "nothing unfinished is left"


def test_features_belong_to_weights(tmp_path: Path) -> None:
    one, same, other = tiny_encoder(), tiny_encoder(), tiny_encoder(seed=1)
    assert find_folder(one, tmp_path) == find_folder(same, tmp_path) != find_folder(other, tmp_path)


def test_values_beyond_half_precision_are_cut_off(tmp_path: Path) -> None:
    features, _, _ = collect(
        make_model(),
        "tag",
        make_rows(TaggedSentence),
        tmp_path,
        extract=lambda m, b: torch.full((len(b["positions"]), 16), 1e6),
    )
    assert torch.isfinite(features).all()


def test_full_disk_is_reported_with_the_space_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("crossling.analyses._probes.features.os.pwrite", refuse)
    with pytest.raises(StorageError, match=r"the disk is full \([\d,]+ bytes are needed"):
        collect(make_model(), "tag", make_rows(TaggedSentence), tmp_path, extract=extract_words(None))
    assert not list((tmp_path / "f").iterdir())


def test_samples_are_of_whole_rows() -> None:
    row = np.array([0, 0, 0, 1, 2, 2, 3])
    drawn = draw_samples(row, 5, 40, seed=3)
    assert drawn.shape == (41, 7) and (drawn[0] == 1).all()
    assert (drawn[:, 0] == drawn[:, 1]).all() and (drawn[:, 4] == drawn[:, 5]).all()
    assert (draw_samples(row, 5, 40, seed=3) == drawn).all() and (draw_samples(row, 5, 40, seed=4) != drawn).any()
    assert 0.8 < drawn[1:].mean() < 1.2


def test_scores_of_many_probes_are_those_of_predictions() -> None:
    generator = np.random.default_rng(0)
    gold, predicted = generator.integers(-1, 4, 60), generator.integers(0, 3, (60, 5))
    found = score_confusions(count_confusions(gold, predicted, 5))
    for number in range(5):
        made = Predictions.from_classes(
            "en", "x", labels=tuple("abcde"), gold=gold, predicted=predicted[:, number], confidence=np.ones(60)
        )
        for name, value in {**score(made), **score_supported(made)}.items():
            assert found[name][number] == pytest.approx(value)


def test_a_task_is_a_models_own_by_its_kind_and_labels() -> None:
    rows = make_rows(TaggedSentence)
    probed = ProbeTask("ner", make_task("tag", rows), rows, {})
    own = {"settings": {"kind": "tag"}, "labels": ["O", "B-X"]}
    assert is_own(ModelCard("e", "i", tasks={"tag": own}), probed)
    assert is_own(ModelCard("e", "i", tasks={"tag": {**own, "labels": ["O", "B-X", "I-X"]}}), probed)
    assert not is_own(ModelCard("e", "i", tasks={"tag": {**own, "labels": ["O", "B-Y", "I-Y"]}}), probed)
    assert not is_own(ModelCard("e", "i", tasks={"x": {**own, "settings": {"kind": "classify"}}}), probed)
    assert not is_own(ModelCard("e", "i"), probed)


def analyse(model: Model, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    table = {"tasks": {"pos": {"on": "phrasebook-pos"}}, "languages": ("en", "hi"), "rows": 40, "test_rows": 12}
    chosen = probe.Settings(**{**table, **settings})
    data = probe.open_analysis_data(chosen, source="en", store=folder)
    card = ModelCard("tiny", model.encoder.identity)
    rows: list[dict[str, Any]] = probe.analyse(
        model, card, data, settings=chosen, context=AnalysisContext(ONE_PROCESS, folder)
    ).to_pylist()
    return rows


def test_an_analysis_is_scikit_learn_on_the_same_vectors(tmp_path: Path) -> None:
    """Slowly and plainly: hidden states one sentence at a time, their classifier, the scores of its predictions."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    model = make_model()
    rows = analyse(model, tmp_path, tolerance=1e-7)
    settings = probe.Settings(tasks={"pos": {"on": "phrasebook-pos"}}, languages=("en", "hi"), rows=40, test_rows=12)
    (probed,) = probe.open_analysis_data(settings, source="en", store=tmp_path).probed
    vectors, tags = _read_slowly(model, probed.train)
    scaler = StandardScaler().fit(vectors)
    reference = LogisticRegression(tol=1e-8, max_iter=5_000).fit(scaler.transform(vectors), tags)
    together: list[tuple[str, str]] = []
    for language, test in probed.tests.items():
        vectors, gold = _read_slowly(model, test)
        predicted = reference.predict(scaler.transform(vectors))
        together += list(zip(gold, predicted, strict=True))
        right = np.mean([a == b for a, b in zip(gold, predicted, strict=True)])
        found = {row["score"]: row["value"] for row in rows if row["language"] == language}
        assert found["accuracy"] == pytest.approx(right, abs=0.03)
    (accuracy,) = (r["value"] for r in rows if (r["language"], r["score"]) == ("all", "accuracy"))
    assert accuracy == pytest.approx(np.mean([a == b for a, b in together]), abs=0.02)
    assert {row["language"] for row in rows} == {"en", "hi", "all"}


def _read_slowly(model: Model, rows: Rows) -> tuple[np.ndarray, list[str]]:
    task = make_task("tag", rows)
    vectors, tags = [], []
    with torch.no_grad():
        for record in rows:
            (example,) = task.encode(
                [{"words": [record.words], "tags": [record.tags]}], model.encoder, labels=task.labels
            )
            for ids, firsts in zip(example["ids"], example["firsts"], strict=True):
                given = torch.from_numpy(ids.astype(np.int64))[None]
                hidden = model.encoder(given, torch.ones_like(given), layers=(3,))[3][0]
                vectors.append(hidden[firsts].half().double().numpy())
            tags += record.tags
    return np.concatenate(vectors), tags


def test_an_unchanged_encoder_differs_in_nothing_from_itself_without_its_pooler(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    whole, bare = (save_tiny(tmp_path / name, pooler=True, layers=1) for name in ("whole", "bare"))
    weights = load_file(bare / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "pooler" not in name}
    assert len(kept) == len(weights) - 2
    save_file(kept, bare / "model.safetensors", metadata={"format": "pt"})
    table = {"kind": "probe", "tasks": {"nli": {"on": "phrasebook-nli"}}, "languages": ["en", "de"], "rows": 40}
    found = analyse_models([f"tuned={whole}"], {**table, "test_rows": 12, "against": str(bare)})
    results = probe.find_results(found)
    assert results and all(one.result == 0 for one in results)
    assert isinstance(found.settings, probe.Settings) and found.settings.pooling == "mean"
    summary = probe.summarise(found)[0]
    assert summary.rows == (("tuned", "+0.00 [+0.00, +0.00]"),)
    assert any("by the mean of their tokens" in note for note in summary.notes)
    both = AnalysedModels(tuple(pretrained_model(Pretrained(str(one))) for one in (whole, bare)))
    assert probe.choose_pooling("cls", both) == "first"
    alone = AnalysedModels(both.models[:1])
    assert (probe.choose_pooling("auto", alone), probe.choose_pooling("first", both)) == ("cls", "first")


def test_scores_of_pretrained_encoders_have_no_mean_over_tasks(tmp_path: Path) -> None:
    rows = [{"task": "", "model": "tiny", "seed": None, **row} for row in analyse(make_model(), tmp_path)]
    sheet = probe.tabulate_scores(rows, score="accuracy")
    assert [row[:3] for row in sheet.rows] == [("pos", code, "tiny") for code in ("en", "hi", "all")]
    with pytest.raises(DataError, match="Did you mean 'accuracy'"):
        probe.tabulate_scores(rows, score="acuracy")


def test_keep_features_decides_whether_features_stay(tmp_path: Path) -> None:
    model = make_model()
    kept = analyse(model, tmp_path)
    assert len(list((tmp_path / "features").rglob("*.f16"))) == 3
    assert analyse(model, tmp_path, keep_features=False) == kept
    assert not list((tmp_path / "features").rglob("*.f16"))


def test_neither_batches_nor_memory_change_a_score(tmp_path: Path) -> None:
    model = make_model()
    held = analyse(model, tmp_path / "a")
    read = analyse(model, tmp_path / "b", memory=0)
    for one, other in zip(held, read, strict=True):
        assert {**one, "value": 0} == {**other, "value": 0}
        assert one["value"] == pytest.approx(other["value"], abs=0.02)


def test_bootstrap_samples_are_numbered(tmp_path: Path) -> None:
    rows = analyse(make_model(), tmp_path, samples=2)
    plain = analyse(make_model(), tmp_path)
    assert {row["sample"] for row in rows} == {0, 1, 2}
    first = [row["value"] for row in rows if row["sample"] == 0]
    assert first == pytest.approx([row["value"] for row in plain], abs=0.02)
    assert [row["value"] for row in rows if row["sample"] == 1] != first


def test_a_label_that_training_never_saw_counts_as_wrong() -> None:
    rows = make_rows(LabelledText, 6)
    probed = ProbeTask("x", make_task("classify", rows.head(1)), rows.head(1), {"de": rows})
    assert probed.labels[:1] == probed.task.labels and set(probed.labels) == {"cat", "none"}
    gold = np.array([probed.labels.index(record.label) for record in rows])
    from crossling.analyses._probes.features import LabelledPositions

    answers = ProbePredictions(
        "de", "x:de", LabelledPositions(np.arange(7), gold, np.arange(6)), np.zeros((6, 1, 1), np.int16), 6
    )
    scored = {row["score"]: row["value"] for row in probe.score_answers(probed, [answers], own=False)}
    assert scored["accuracy"] == np.mean(gold == 0) < 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"tasks": ("qa",), "languages": ("en",)}, "answers are neither"),
        ({"tasks": {"mine": {"task": "tag"}}, "languages": ("en",)}, "the data set to score on"),
        ({"tasks": ("pos",)}, "languages: missing"),
        ({"tasks": (), "languages": ("en",)}, "at least one task"),
        ({"tasks": ("poss",), "languages": ("en",)}, "Did you mean 'pos'"),
    ],
)
def test_tasks_that_cannot_be_probed_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        probe.Settings(**table)


def test_probes_learn_from_the_source_language_alone(tmp_path: Path) -> None:
    tasks = {"pos": {"on": "phrasebook-pos", "train": "phrasebook-pos:de"}}
    with pytest.raises(DataError, match=r"is in 'de'; probes learn from 'en' alone"):
        probe.open_analysis_data(probe.Settings(tasks=tasks, languages=("de",)), source="en", store=tmp_path)


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    settings = probe.Settings(tasks={"sentiment": {"on": "phrasebook-pos"}}, languages=("de",))
    with pytest.raises(DataError, match="holds TaggedSentence rows"):
        probe.open_analysis_data(settings, source="en", store=tmp_path)


def test_no_examples_have_no_sites_and_no_features(tmp_path: Path) -> None:
    from crossling.data.batching import write_examples

    examples = write_examples(tmp_path / "e.arrow", [{"ids": [], "gold": np.zeros(0, np.int32)}])
    assert len(find_labelled_positions(examples)) == 0
    assert list(OnDisk(tmp_path / "e.arrow", (0, 1, 4), ONE_PROCESS.device).parts(5)) == []
