"""Standalone models: they load without their base, compute the same, and are refused when a file was changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.encoders.trimming import collect_ids
from crossling.errors import ArtefactError, UserError
from crossling.inference.predictor import Predictor
from crossling.models.model import Model, ModelCard, build_model, load_model, read_card
from crossling.models.standalone import write_standalone
from crossling.study.export import export_model
from crossling.tasks import build_task, parse_task
from tiny import FAMILIES, tiny_encoder

Trained = Callable[[str], Path]
FUSIONS: list[dict[str, Any]] = [
    {"kind": "last"},
    {"kind": "mean", "layer": 1},
    {"kind": "scalar_mix"},
    {"kind": "dlfa", "layer": 1},
]


def build(encoder: Encoder, task: str = "ner", **fusion: Any) -> tuple[Model, ModelCard]:
    """A model with random weights everywhere, and its card."""
    torch.manual_seed(3)
    built = build_task(parse_task(task), () if task == "qa" else ("A", "B-X", "O"))
    model = build_model(encoder, fusion or {"kind": "last"})
    model.heads["main"] = built.build_objective("main").build_head(encoder.width)
    with torch.no_grad():
        for weight in [*model.heads.parameters(), *model.fusion.parameters()]:
            weight.add_(0.1 * torch.randn_like(weight))
    stored: Any = {"main": {"settings": built.settings.model_dump(mode="json"), "labels": list(built.labels)}}
    return model.eval(), ModelCard("gone/base", "0" * 64, fusion=fusion or {"kind": "last"}, tasks=stored)


@pytest.mark.parametrize("fusion", FUSIONS, ids=lambda fusion: fusion["kind"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_fusion_loads_with_the_same_bits(tmp_path: Path, family: str, fusion: dict[str, Any]) -> None:
    model, card = build(tiny_encoder(family, pooler=family in ("bert", "xlm-r")), **fusion)
    write_standalone(model, card, tmp_path / "model")
    loaded, again = load_model(tmp_path / "model")
    assert (again.encoder, again.fusion, again.tasks) == (card.encoder, card.fusion, card.tasks)
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    ids = torch.arange(5, 25)[None]
    batch = {"ids": ids, "mask": torch.ones_like(ids)}
    with torch.no_grad():
        assert torch.equal(loaded.represent(batch), model.represent(batch))


@pytest.mark.parametrize("task", ["ner", "pos", "sentiment", "nli", "qa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_predicts_the_same_with_fewer_subwords(tmp_path: Path, family: str, task: str) -> None:
    encoder = tiny_encoder(family)
    first, second = "the cat sleeps in London", "не кошка 我们看书。"
    inputs: list[Any] = {"nli": [(first, second)], "qa": [(first, second)]}.get(task, [first, second])
    model, card = build(encoder, task)
    before = Predictor.from_model(model, card).predict(inputs)
    (tmp_path / "text.txt").write_text(f"{first}\n{second}\n", encoding="utf-8")
    used = collect_ids(encoder, str(tmp_path / "text.txt"), store=tmp_path)
    write_standalone(model, card, tmp_path / "model", used=used)
    loaded = Predictor.load(tmp_path / "model")
    assert loaded.predict(inputs) == before
    if family != "modernbert":  # whose bytes all stay
        assert loaded.engine.encoder.vocabulary < encoder.vocabulary


def test_model_without_heads_can_be_written(tmp_path: Path) -> None:
    model = build_model(tiny_encoder(), {"kind": "last"})
    write_standalone(model, ModelCard("base", "0" * 64), tmp_path / "model")
    assert not load_model(tmp_path / "model")[0].heads


@pytest.fixture(scope="module")
def exported(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "ner"
    export_model(trained("ner"), out, store=tmp_path_factory.mktemp("store"))
    return out


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def test_card_names_no_folder_of_the_machine(exported: Path, trained: Trained) -> None:
    card = read_card(exported)
    assert card.encoder == "encoder"
    assert str(trained("ner").parent) not in (exported / "model.json").read_text(encoding="utf-8")
    assert set(card.files) == {path.name for path in exported.iterdir()} - {"model.json", "README.md"}


def test_other_users_can_read_the_files(exported: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in exported.iterdir())


def test_saved_from_python_and_saved_again(exported: Path, trained: Trained, tmp_path: Path) -> None:
    texts = ["the cat sees a dog", "кошка 我们"]
    model = Predictor.load(trained("ner"))
    model.save(tmp_path / "first")
    Predictor.load(tmp_path / "first").save(tmp_path / "second")
    expected = model.predict(texts)
    assert [Predictor.load(folder).predict(texts) for folder in (exported, tmp_path / "second")] == [expected] * 2


def test_used_vocabulary_is_that_of_training_and_of_named_text(trained: Trained, tmp_path: Path) -> None:
    text = tmp_path / "more.txt"
    text.write_text("кошка 我们看书\n", encoding="utf-8")
    whole = load_model(trained("ner"))[0].encoder.vocabulary
    sizes = []
    for on in ((), (str(text),)):
        said = export_model(trained("ner"), tmp_path / f"out{len(on)}", vocabulary="used", on=on, store=tmp_path)
        loaded = Predictor.load(tmp_path / f"out{len(on)}")
        sizes.append(loaded.engine.encoder.vocabulary)
        assert f"of {whole} subwords" in said
        assert loaded.predict(["the cat"]) == Predictor.load(trained("ner")).predict(["the cat"])
    assert sizes[0] < sizes[1] < whole
    assert loaded.predict(["кошка 我们"]) == Predictor.load(trained("ner")).predict(["кошка 我们"])


def test_a_recipe_can_start_from_its_encoder(exported: Path) -> None:
    encoder, model = load_encoder(str(exported)), load_model(exported)[0]
    assert encoder.identity == model.encoder.identity
    assert all(torch.equal(a, b) for a, b in zip(encoder.parameters(), model.encoder.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "heads.safetensors").unlink(), "heads.safetensors: is missing"),
        (lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs"), "git lfs pull"),
        (lambda folder: flip(folder / "model.safetensors"), "model.safetensors: was changed"),
        (lambda folder: flip(folder / "tokenizer.json"), "tokenizer.json: was changed"),
        (lambda folder: (folder / "pytorch_model.bin").write_bytes(b"x"), "pytorch_model.bin: is no part"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter_config.json: is no part"),
        (lambda folder: edit(folder, files={"../x": {"bytes": 1, "sha256": ""}}), "files are names in its folder"),
        (lambda folder: edit(folder, files={"config.json": {"bytes": "many"}}), r"files.config.json.bytes: .* integer"),
        (lambda folder: edit(folder, heads={"tag": {"classes": 10**12, "dropout": 0}}), "heads.tag.classes: "),
        (
            lambda folder: edit(folder, heads={"tag": {"classes": 99, "dropout": 0}}),
            "99 classes for 2 labels",
        ),
        (lambda folder: edit(folder, tasks={"tag": {"settings": {}}}), "tasks.tag.labels: Field required"),
        (lambda folder: edit(folder, unknown=1), "unknown: "),
        (lambda folder: (folder / "model.json").write_bytes(b"\xff{"), "not a model card"),
    ],
)
def test_changed_folders_are_refused(copied: Path, change: Callable[[Path], Any], message: str) -> None:
    change(copied)
    with pytest.raises(ArtefactError, match=message):
        load_model(copied)


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)


def edit(folder: Path, **facts: Any) -> None:
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    (folder / "model.json").write_text(json.dumps({**card, **facts}), encoding="utf-8")


def test_files_beside_the_model_are_ignored(copied: Path) -> None:
    (copied / "README.md").write_text("# mine", encoding="utf-8")
    (copied / "notes").mkdir()
    assert load_model(copied)[1].files


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary": "hole"}, "Did you mean 'whole'"),
        ({"on": ["panx:de"]}, "add --vocabulary used"),
        ({"vocabulary": "used", "on": ["nowhere.txt"]}, "no such file"),
    ],
)
def test_invalid_export_options_are_refused(trained: Trained, tmp_path: Path, settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        export_model(trained("ner"), tmp_path / "out", store=tmp_path, **settings)
    assert not (tmp_path / "out").exists()


def test_unknown_training_text_must_be_named(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="Name that text with --on"):
        export_model(exported, tmp_path / "out", vocabulary="used", store=tmp_path)


def test_folders_that_hold_something_are_not_overwritten(trained: Trained, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="is not empty"):
        export_model(trained("ner"), exported, store=tmp_path)
