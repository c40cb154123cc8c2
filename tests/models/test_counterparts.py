"""Models for transformers: the same logits from every family, task and fusion, with or without crossling's classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    pipeline,
)

from crossling.encoders.encoder import Encoder
from crossling.errors import ArtefactError, UserError
from crossling.inference.predictor import Predictor
from crossling.models.counterparts import TOLERANCE, convert, measure_difference, write_transformers
from crossling.models.model import Model, ModelCard, build_model
from crossling.study.export import export_model
from crossling.tasks import build_task, parse_task
from prepared import run_code
from tiny import FAMILIES, tiny_encoder
from trained import wrap

Trained = Callable[[str], Path]
LABELS = ("B-X", "I-X", "O")
TASKS: dict[str, Any] = {
    "tag": "ner",
    "classify": "sentiment",
    "cls": {"preset": "sentiment", "pooling": "cls"},
    "pair": "nli",
    "answer": "qa",
}
FUSIONS: list[dict[str, Any]] = [
    {"kind": "last"},
    {"kind": "mean", "layer": 1},
    {"kind": "scalar_mix"},
    {"kind": "dlfa", "layer": 1},
]
AUTO = {
    "tag": AutoModelForTokenClassification,
    "classify": AutoModelForSequenceClassification,
    "classify_pair": AutoModelForSequenceClassification,
    "answer": AutoModelForQuestionAnswering,
}
POOLED = [*((family, False) for family in FAMILIES), ("bert", True), ("xlm-r", True)]


def build(encoder: Encoder, task: Any, fusion: dict[str, Any]) -> tuple[Model, ModelCard]:
    """A model with random weights everywhere, and its card."""
    torch.manual_seed(3)
    built = build_task(parse_task(task), () if task == "qa" else LABELS)
    model = build_model(encoder, fusion)
    model.heads["main"] = built.build_objective("main").build_head(encoder.width)
    with torch.no_grad():
        for weight in [*model.heads.parameters(), *model.fusion.parameters()]:
            weight.add_(0.3 * torch.randn_like(weight))
    stored: Any = {"main": {"settings": built.settings.model_dump(mode="json"), "labels": list(built.labels)}}
    return model.eval(), ModelCard("base", "0" * 64, fusion=fusion, tasks=stored)


def make_encoder(family: str, pooler: bool) -> Encoder:
    """A tiny encoder; a ModernBERT whose last states are so large that the epsilon of a normalisation is nothing."""
    encoder = tiny_encoder(family, pooler=pooler)
    if family == "modernbert":
        with torch.no_grad():
            encoder.model.layers[-1].mlp.Wo.weight.mul_(30)
    return encoder


def expect_counterpart(family: str, pooler: bool, task: str, fusion: dict[str, Any]) -> bool:
    """The table in ``counterparts.py``."""
    if fusion["kind"] != "last":
        return False
    return task in ("tag", "answer") or pooler or (task == "cls" and family == "modernbert")


@pytest.mark.parametrize("fusion", FUSIONS, ids=lambda fusion: fusion["kind"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("family", "pooler"), POOLED)
def test_auto_classes_compute_the_same_logits(
    tmp_path: Path, family: str, pooler: bool, task: str, fusion: dict[str, Any]
) -> None:
    model, card = build(make_encoder(family, pooler), TASKS[task], fusion)
    settings = card.tasks["main"]["settings"]
    reason = write_transformers(model, card, tmp_path / "out")
    loaded, report = AUTO[settings["kind"]].from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    own = expect_counterpart(family, pooler, task, fusion)
    assert (reason == "", type(loaded).__name__.startswith("Crossling")) == (own, not own)
    pooling = settings.get("pooling", "auto")
    assert measure_difference(model, loaded.eval(), "main", settings["kind"], pooling) <= TOLERANCE
    rows = loaded.get_input_embeddings().num_embeddings
    assert rows > model.encoder.vocabulary if (family, task) == ("xlm-r", "tag") else rows == model.encoder.vocabulary
    if settings["kind"] != "answer":
        assert loaded.config.id2label == dict(enumerate(LABELS))
        assert loaded.config.label2id == {label: number for number, label in enumerate(LABELS)}


@pytest.mark.parametrize(
    "fusion",
    [
        {"kind": "mean", "layers": [0, 2]},
        {"kind": "scalar_mix", "layers": [0, -1]},
        {"kind": "dlfa", "layer": 0, "second": -2, "statistics": "debiased", "frozen": True},
    ],
    ids=lambda fusion: fusion["kind"],
)
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_fusions_of_any_layers_compute_the_same_logits(tmp_path: Path, family: str, fusion: dict[str, Any]) -> None:
    model, card = build(make_encoder(family, False), "ner", fusion)
    write_transformers(model, card, tmp_path / "out")
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    assert measure_difference(model, loaded.eval(), "main", "tag", "auto") <= TOLERANCE


def test_class_that_computes_something_else_is_not_used() -> None:
    """A tiny ModernBERT whose last states are so small that the epsilon of their normalisation counts."""
    model, card = build(tiny_encoder("modernbert"), "ner", {"kind": "last"})
    with torch.no_grad():
        for layer in model.encoder.model.layers:
            layer.mlp.Wo.weight.mul_(1e-3)
            layer.attn.Wo.weight.mul_(1e-3)
        model.encoder.model.embeddings.norm.weight.mul_(1e-3)
    converted, reason = convert(model, card)
    assert type(converted).__name__ == "CrosslingForTokenClassification"
    assert "ModernBertForTokenClassification computes other logits" in reason


def test_loss_is_that_of_training(tmp_path: Path) -> None:
    model, card = build(tiny_encoder("bert"), "sentiment", {"kind": "mean", "layer": 1})
    converted, _ = convert(model, card)
    ids = torch.arange(5, 15)[None]
    labels = torch.tensor([1])
    output = converted(input_ids=ids, labels=labels)
    assert torch.allclose(output.loss, torch.nn.functional.cross_entropy(output.logits, labels))
    output.loss.backward()
    assert converted.head.linear.weight.grad.abs().sum() > 0


def test_tokenizer_cuts_off_where_training_did(tmp_path: Path) -> None:
    for task, longest in (("sentiment", 128), ("ner", 512), ("qa", 384)):
        model, card = build(tiny_encoder("xlm-r"), task, {"kind": "last"})
        write_transformers(model, card, tmp_path / task)
        assert AutoTokenizer.from_pretrained(tmp_path / task).model_max_length == longest


TEXTS = ["the cat sees a dog", "не кошка", "我们看书 猫", "in London"]
ALONE = """
import json, sys
hidden, folder, task, texts = json.loads(sys.argv[1])
if hidden:
    sys.modules["crossling"] = None
else:
    import crossling
from transformers import pipeline
found = pipeline(task, model=folder)(texts)
print(json.dumps(found, default=float))
assert hidden == ("crossling.models.auto_model" not in sys.modules)
"""


def run_alone(*arguments: Any) -> Any:
    """What a pipeline finds in a process of its own."""
    done = run_code(ALONE, json.dumps(arguments))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pipeline_predicts_without_crossling(tmp_path: Path) -> None:
    model, card = build(tiny_encoder("bert", pooler=True), "sentiment", {"kind": "last"})
    assert write_transformers(model, card, tmp_path / "out") == ""
    found = run_alone(True, str(tmp_path / "out"), "text-classification", TEXTS)
    expected = wrap(model, card).predict(TEXTS)
    assert [one["label"] for one in found] == [one["label"] for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one["confidence"] for one in expected], abs=1e-4)


def test_importing_crossling_first_registers_its_classes(trained: Trained, tmp_path: Path) -> None:
    said = export_model(trained("sentiment"), tmp_path / "out", to="transformers", store=tmp_path)
    assert "transformers has no class for mean pooling: its users must import crossling first" in said
    found = run_alone(False, str(tmp_path / "out"), "text-classification", TEXTS)
    expected = Predictor.load(trained("sentiment")).predict(TEXTS)
    assert [one["label"] for one in found] == [one["label"] for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one["confidence"] for one in expected], abs=1e-4)
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "import crossling  # registers" in readme and "library_name: transformers" in readme


def test_pairs_are_classified_as_ours(trained: Trained, tmp_path: Path) -> None:
    export_model(trained("nli"), tmp_path / "out", to="transformers", vocabulary="used", store=tmp_path)
    pairs = [("the cat", "a dog"), ("a dog", "the cat")]
    given = [{"text": first, "text_pair": second} for first, second in pairs]
    found = pipeline("text-classification", model=str(tmp_path / "out"))(given)
    expected = Predictor.load(trained("nli")).predict(pairs)
    assert [one["label"] for one in found] == [one["label"] for one in expected]
    assert [one["score"] for one in found] == pytest.approx([one["confidence"] for one in expected], abs=1e-4)


SENTENCES = [
    ["the", "cat", ",", "sees", "(", "a", "dog", ")", "."],
    ["не", "кошка", "!", "in", "Berlin"],
    ["我", "们", "看", "书", "。", "the", "猫"],
    ["the", "walking", "zebra", "in", "London", "house"],
    ["cat"],
]


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "modernbert"])
def test_pipeline_finds_the_spans_of_given_words(tmp_path: Path, family: str) -> None:
    """In several scripts: where spans begin and end, and their labels; their score is a mean, ours the least."""
    model, card = build(make_encoder(family, False), "ner", {"kind": "last"})
    balance(model)
    write_transformers(model, card, tmp_path / "out")
    tagger = pipeline("token-classification", model=str(tmp_path / "out"), aggregation_strategy="first")
    found = [tagger(words, is_split_into_words=True) for words in SENTENCES]
    expected = wrap(model, card).predict(SENTENCES)
    spans = [[(one["label"], one["start"], one["end"]) for one in sentence["spans"]] for sentence in expected]
    assert [[(one["entity_group"], one["start"], one["end"]) for one in flat(some)] for some in found] == spans
    assert sum(map(len, spans)) > 3


def balance(model: Model) -> None:
    """Let every label be the best one of some subwords."""
    ids = torch.arange(5, 200).reshape(13, 15)
    with torch.no_grad():
        logits = model.heads["main"](model.represent({"ids": ids, "mask": torch.ones_like(ids)})).flatten(0, 1)
        linear: Any = model.heads["main"].get_submodule("linear")
        linear.bias -= logits.mean(0)


def flat(found: Any) -> Any:
    return found[0] if found and isinstance(found[0], list) else found


def test_models_without_a_task_are_refused(tmp_path: Path, trained: Trained) -> None:
    from crossling.models.standalone import write_standalone

    write_standalone(build_model(tiny_encoder(), {"kind": "last"}), ModelCard("base", "0" * 64), tmp_path / "model")
    with pytest.raises(ArtefactError, match="has no task"):
        export_model(tmp_path / "model", tmp_path / "out", to="transformers", store=tmp_path)
    with pytest.raises(UserError, match="--to transformer: unknown.*Did you mean 'transformers'"):
        export_model(trained("ner"), tmp_path / "out", to="transformer", store=tmp_path)
