"""One contract for all families of encoders: what each can do, compared with transformers' own models."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Gemma3TextModel, T5EncoderModel

from crossling.analyses._probes.features import extract_texts
from crossling.analyses.attention_heads import capture_heads, find_attention
from crossling.data.batching import Batch
from crossling.data.records import TaggedSentence
from crossling.encoders.encoder import Encoder
from crossling.encoders.extending import extend_on
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.encoders.masked_word_head import HEADS as MASKED_WORD_HEADS
from crossling.encoders.masked_word_head import load_head
from crossling.encoders.structure import FAMILIES, find_family
from crossling.encoders.trimming import write_trimmed
from crossling.encoders.vocabulary import trim_encoder
from crossling.errors import ArtefactError, EncoderError
from crossling.inference.evaluate import encode_rows
from crossling.inference.onnx.encoders import FAMILIES as ONNX_FAMILIES
from crossling.models.counterparts import TOLERANCE, convert, measure_difference, write_transformers
from crossling.models.model import Model, ModelCard, build_model, load_model, save_model
from crossling.models.standalone import write_standalone
from crossling.recipe.recipe import EncoderSettings, freeze
from crossling.registry import load_kind
from crossling.stages import adapt, adjust, finetune
from crossling.stages.context import StageContext
from crossling.stages.word_pairs import freeze_reference
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed
from crossling.training.fast.bf16_weights import Bf16Weights
from crossling.training.fast.cpu_operations import replace_operations
from examples import make_rows
from parallel_text import describe, make_linked
from tiny_families import (
    CASES,
    DECODERS,
    ENCODER_DECODERS,
    HEADS,
    INSTALLED,
    LAYERS,
    WIDTH,
    fill,
    list_cases,
    make_config,
    make_family,
    make_pretrained,
    make_tokenizer,
)

CPU = torch.device("cpu")
ONE = Distributed(0, 1, CPU, torch.float32)
TEXTS = ["the cat sleeps", "the dog eats fish in London не кошка", "我是学生"]
EVERY = range(LAYERS + 1)
HEADLESS = ("eurobert", "gemma3_text", "qwen3")
"""Those with grouped-query attention here."""


@cache
def _build(label: str) -> Encoder:
    return make_family(label, pooler=True)


def make(label: str) -> Encoder:
    """A copy, which a test may change."""
    encoder = _build(label)
    return copy.deepcopy(encoder, {id(encoder.tokenizer): encoder.tokenizer})


def read(encoder: Encoder) -> tuple[Tensor, Tensor]:
    inputs = encoder.tokenizer(TEXTS, padding=True, padding_side="right", return_tensors="pt")
    return inputs["input_ids"], inputs["attention_mask"]


def run(encoder: Encoder, ids: Tensor, mask: Tensor) -> dict[int, Tensor]:
    with torch.no_grad():
        found: dict[int, Tensor] = encoder(ids, mask, layers=EVERY)
    return found


each = pytest.mark.parametrize("label", CASES)


def test_every_family_of_the_table_is_tested() -> None:
    assert {family for family, _ in CASES.values()} == set(FAMILIES)


def test_documented_table_says_what_each_family_can_do() -> None:
    text = (Path(__file__).parents[2] / "docs" / "encoders.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", text, flags=re.MULTILINE)
    rows = {family: [cell.strip() for cell in rest.split("|")] for family, rest in lines if rest.count("|") == 5}
    rows.pop("model_type")
    assert list(rows) == sorted(FAMILIES)
    for family, (_, direction, _, head, transformers, onnx) in rows.items():
        assert (direction == "a setting") is (family in DECODERS)
        assert head.startswith(("yes", "generators")) is (family in MASKED_WORD_HEADS)
        assert (transformers == "yes") is (family not in (*DECODERS, *ENCODER_DECODERS))
        assert (onnx == "yes") is (family in ONNX_FAMILIES)


@each
def test_states_of_all_layers_equal_those_of_transformers(label: str) -> None:
    encoder = make(label)
    ids, mask = read(encoder)
    model, given = encoder.model, mask
    if label == "gemma3_text-bidirectional":  # transformers has this one itself
        config = copy.deepcopy(model.config)
        config.update({"use_bidirectional_attention": True, "sliding_window": config.sliding_window // 2 + 1})
        weights = model.state_dict()
        model = type(model)(config).eval()
        model.load_state_dict(weights)
    elif encoder.has_changed_attention:  # and this one where the mask says what is visible
        given = mask[:, None, None, :].bool().expand(-1, 1, ids.shape[1], -1)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=given, output_hidden_states=True)
    found = run(encoder, ids, mask)
    for layer in EVERY:
        torch.testing.assert_close(
            found[layer][mask.bool()], expected.hidden_states[layer][mask.bool()], rtol=1e-4, atol=1e-4
        )
    torch.testing.assert_close(
        found[LAYERS][mask.bool()], expected.last_hidden_state[mask.bool()], rtol=1e-4, atol=1e-4
    )


def test_model_that_was_trained_in_both_directions_is_read_in_both() -> None:
    tokenizer = make_tokenizer("gemma3_text")
    config = make_config("gemma3_text", tokenizer)
    config.update({"use_bidirectional_attention": True, "sliding_window": 4})
    encoder = Encoder(fill(Gemma3TextModel(config)), tokenizer, name="embedding-gemma")
    ids, mask = read(encoder)
    with torch.no_grad():
        expected = encoder.model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(
        run(encoder, ids, mask)[LAYERS][mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4
    )
    assert (encoder.attention, encoder.has_changed_attention, encoder.has_cls) == ("bidirectional", False, True)


@pytest.mark.parametrize("family", ["albert", "t5", "gemma3_text"])
def test_extended_encoder_reads_new_subwords(family: str, tmp_path: Path) -> None:
    save_encoder(make(family), tmp_path / "base")
    (tmp_path / "text").write_text("Hamburg sleeps in Hamburg\n" * 5, encoding="utf-8")
    found = extend_on(str(tmp_path / "base"), tmp_path / "text", pieces=2, out=tmp_path / "larger")
    encoder, larger = load_encoder(str(tmp_path / "base")), load_encoder(str(tmp_path / "larger"))
    assert found.merges > 0 and type(larger.model.get_input_embeddings()) is type(encoder.model.get_input_embeddings())
    ids, mask = read(encoder)
    assert torch.equal(run(larger, ids, mask)[LAYERS], run(encoder, ids, mask)[LAYERS])


@each
def test_states_do_not_depend_on_batch_and_padding(label: str) -> None:
    encoder = make(label)
    ids, mask = read(encoder)
    together = run(encoder, ids, mask)
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = run(encoder, ids[row : row + 1, :length], mask[row : row + 1, :length])
        for layer in EVERY:
            torch.testing.assert_close(alone[layer][0], together[layer][row, :length], rtol=1e-3, atol=1e-3)


@each
def test_later_subwords_are_seen_unless_attention_is_causal(label: str) -> None:
    encoder = make(label)
    ids, mask = read(encoder)
    changed = ids.clone()
    changed[1, 4] = ids[1, 1]
    before, after = (run(encoder, some[1:2], mask[1:2])[LAYERS][0, :4] for some in (ids, changed))
    assert torch.allclose(before, after, atol=1e-6) is encoder.is_causal is (label in DECODERS)


@each
def test_lower_layers_are_read_without_running_the_others(label: str) -> None:
    encoder = make(label)
    ids, mask = read(encoder)
    expected = run(encoder, ids, mask)
    with torch.no_grad():
        for layer in range(LAYERS):
            assert torch.equal(encoder(ids, mask, layers=(layer,))[layer], expected[layer])
    assert not any(module._forward_pre_hooks for module in encoder.modules())


@each
def test_saved_encoder_round_trips(label: str, tmp_path: Path) -> None:
    encoder = make(label)
    again = load_encoder(str(save_encoder(encoder, tmp_path / "saved")), attention=CASES[label][1])
    ids, mask = read(encoder)
    assert torch.equal(read(again)[0], ids)
    for layer, states in run(encoder, ids, mask).items():
        assert torch.equal(run(again, ids, mask)[layer], states)
    assert again.has_pooler is encoder.has_pooler
    assert (again.max_length, again.attention) == (encoder.max_length, encoder.attention)
    if encoder.has_pooler:
        assert torch.equal(again.pool_cls(states), encoder.pool_cls(states))


@pytest.mark.parametrize("family", INSTALLED)
def test_pretrained_model_with_its_head_loads_as_encoder(family: str, tmp_path: Path) -> None:
    whole, tokenizer = make_pretrained(family)
    whole.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path))
    ids, mask = read(encoder)
    with torch.no_grad():
        if family in ENCODER_DECODERS:
            expected = whole.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        else:
            expected = whole.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(
        run(encoder, ids, mask)[LAYERS][mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4
    )
    head = load_head(encoder)
    assert (head is not None) is (family in MASKED_WORD_HEADS)
    if head is not None:
        with torch.no_grad():
            logits = whole(input_ids=ids, attention_mask=mask).logits
            scores = head(run(encoder, ids, mask)[LAYERS], encoder.model.get_input_embeddings().weight)
        torch.testing.assert_close(scores[mask.bool()], logits[mask.bool()], rtol=1e-3, atol=1e-3)


@each
def test_trimmed_encoder_gives_the_same_vectors(label: str, tmp_path: Path) -> None:
    encoder = make(label)
    ids, mask = read(encoder)
    expected = run(encoder, ids, mask)[LAYERS]
    folder = write_trimmed(encoder, ids.numpy().reshape(-1), tmp_path / "smaller")
    written = load_encoder(str(folder), attention=CASES[label][1])
    assert written.vocabulary < encoder.vocabulary
    torch.testing.assert_close(run(written, *read(written))[LAYERS][mask.bool()], expected[mask.bool()])
    trimmed = trim_encoder(encoder, ids.numpy())
    rows = torch.from_numpy(trimmed.map_ids(ids.numpy()))
    torch.testing.assert_close(run(encoder, rows, mask)[LAYERS][mask.bool()], expected[mask.bool()])


@each
def test_heads_through_their_projection_make_the_attentions_output(label: str) -> None:
    encoder = make(label)
    if CASES[label][0] in HEADLESS:
        with pytest.raises(EncoderError, match="grouped-query attention"):
            find_attention(encoder)
        return
    outputs: list[Tensor] = []
    found = find_attention(encoder)
    for attention in found:
        attention.output.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    with capture_heads(encoder) as seen:
        run(encoder, *read(encoder))
    assert len(seen) == len(outputs) == LAYERS
    assert len(found) == (1 if label == "albert" else LAYERS)
    width = WIDTH // HEADS
    for layer, (heads_BSD, output_BSD) in enumerate(zip(seen, outputs, strict=True)):
        output = found[min(layer, len(found) - 1)].output
        parts = [
            heads_BSD[..., head * width : (head + 1) * width] @ output.weight[:, head * width : (head + 1) * width].T
            for head in range(HEADS)
        ]
        total = sum(parts) + (output.bias if output.bias is not None else 0)
        torch.testing.assert_close(total, output_BSD, rtol=1e-4, atol=1e-4)


TASKS: dict[str, Any] = {
    "tag": {"kind": "tag"},
    "classify": {"kind": "classify"},
    "classify_pair": {"kind": "classify_pair"},
    "answer": {"kind": "answer", "length": 60, "question": 16, "overlap": 8},
}


def learn(label: str, kind: str, folder: Path, fusion: dict[str, Any] | None = None) -> tuple[Model, Any, Any]:
    """A model that is about to learn, its objective, and a batch with padding."""
    record = load_kind("tasks", kind).Task.record
    rows = make_rows(record, 8)
    task = build_task(parse_task(TASKS[kind]), load_kind("tasks", kind).Task.collect_labels([rows]))
    torch.manual_seed(0)
    model = build_model(make(label), fusion or {"kind": "last"})
    objective = task.build_objective("main")
    model.heads["main"] = objective.build_head(WIDTH)
    model.heads["main"].dropout.p = 0.0  # type: ignore[union-attr]
    examples = encode_rows(task, [rows], model.encoder, cache=folder, labels=task.labels)
    plan = Batch(np.arange(len(examples)), int(examples.lengths.max()) + 2)
    return model, objective, model.prepare(objective.collate(examples, plan, size=len(examples)), CPU)


@each
def test_one_step_of_every_task_lowers_the_loss_and_reaches_every_layer(label: str, tmp_path: Path) -> None:
    for kind in TASKS:
        fusion = {"kind": "dlfa", "layer": 1} if kind == "classify" else None
        model, objective, batch = learn(label, kind, tmp_path, fusion)
        loss = objective.sum_loss(model.train(), batch).task
        loss.backward()
        for number, layer in enumerate(model.encoder.get_layers(), 1):
            gradients = [p.grad for p in layer.parameters() if p.grad is not None]
            assert gradients and any(bool(g.any()) for g in gradients), (kind, number)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
        assert torch.isfinite(norm)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.grad is not None:
                    weight -= 0.1 * weight.grad
            assert objective.sum_loss(model, batch).task < loss, kind


@each
def test_fast_paths_give_the_gradients_of_autograd(label: str, tmp_path: Path) -> None:
    """Fused products in float32, bf16 weights roughly; recomputed layers exactly."""
    model, objective, batch = learn(label, "tag", tmp_path)

    def gradients() -> dict[str, Tensor]:
        found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        return found

    loss = objective.sum_loss(model, batch).task
    loss.backward()
    expected = gradients()
    Bf16Weights(model, torch.float32).backward(objective, batch, torch.ones(4))
    for name, gradient in gradients().items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
    rough = Bf16Weights(model, torch.bfloat16).backward(objective, batch, torch.ones(4)).sum()
    assert abs(float(rough) - loss.item()) < 0.1 * loss.item()
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients().values())
    model.train()
    model.encoder.checkpoint_gradients()
    objective.sum_loss(model, batch).task.backward()
    found = gradients()
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@each
def test_reference_in_bf16_is_close_far_from_the_beginning(label: str) -> None:
    encoder = make(label)
    ids = torch.arange(5, 65)[None] % encoder.vocabulary
    exact = run(encoder, ids, torch.ones_like(ids))[LAYERS]
    reference = freeze_reference(encoder, replace(ONE, precision=torch.bfloat16))
    assert next(reference.parameters()).dtype == torch.bfloat16
    rough = run(reference, ids, torch.ones_like(ids))[LAYERS]
    assert rough.dtype == torch.float32 and (rough - exact)[:, -20:].norm() < 0.08 * exact[:, -20:].norm()


def test_positions_of_t5_learn_on_a_cpu_with_dropout() -> None:
    config = make_config("t5", make_tokenizer("t5"))
    config.dropout_rate = 0.1
    encoder = Encoder(fill(T5EncoderModel(config)), make_tokenizer("t5"), name="t5").train()
    with replace_operations(CPU):
        encoder(*read(encoder), layers=(LAYERS,))[LAYERS].square().sum().backward()
    (table,) = [p for name, p in encoder.named_parameters() if "relative_attention_bias" in name]
    assert table.grad is not None and table.grad.any()


class _Transfers(TorchDispatchMode):
    """Operations that read from another memory than they write to, except single numbers, which are arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, operation: Any, _types: Any, inputs: Any = (), named: Any = None) -> Any:
        output = operation(*inputs, **(named or {}))
        read = [one for one in tree_leaves((inputs, named)) if isinstance(one, Tensor)]
        written = {one.device for one in tree_leaves(output) if isinstance(one, Tensor)}
        copies = "copy" in str(operation)
        if any(one.device not in written for one in read if written and (copies or one.ndim)):
            self.found.append(str(operation))
        return output


@pytest.mark.parametrize("label", [label for label in CASES if label != "modernbert"])  # it asks whether all is padding
def test_a_pass_on_a_device_copies_nothing_from_main_memory(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph could not hold it; the device without memory stands for the GPU."""
    monkeypatch.setattr(Encoder, "_mask_type", lambda _: torch.float32)
    encoder, (ids_BS, mask_BS) = make(label).to("meta"), torch.ones(2, 2, 9, dtype=torch.long, device="meta")
    states = [encoder(ids_BS, mask_BS, layers=EVERY)]  # what is computed once is computed here, as before a capture
    with _Transfers() as transfers:
        states.append(encoder(ids_BS, mask_BS, layers=EVERY))
        states[1][LAYERS].sum().backward()
    assert transfers.found == []


def test_copies_from_main_memory_are_found() -> None:
    with _Transfers() as transfers:
        torch.tensor(1).to("meta")
        torch.ones(2, device="meta") + torch.tensor(1.0)
    assert transfers.found == ["aten._to_copy.default"]


def test_relative_positions_that_were_computed_without_gradients_are_trained_with() -> None:
    encoder, batch = make("deberta-v2"), torch.ones(1, 7, dtype=torch.long)
    with torch.inference_mode():
        before = encoder(batch, batch, layers=[LAYERS])[LAYERS]
    after = encoder(batch, batch, layers=[LAYERS])[LAYERS]
    after.sum().backward()
    torch.testing.assert_close(after, before.clone())


STAGED = ("albert", "deberta-v2", "electra", "mpnet", "modernbert", "t5", "gemma3_text", "qwen3-bidirectional")


@pytest.mark.parametrize("label", list_cases(*STAGED))
def test_stages_train_store_and_export_a_model(label: str, tmp_path: Path) -> None:
    """Adjusted, then fine-tuned with fused layers and replay; the stored and the exported model predict the same."""
    family, attention = CASES[label]
    base = save_encoder(make(label), tmp_path / "base")
    chosen = EncoderSettings(name=str(base), attention=attention)
    encoder = load_encoder(str(base), attention=attention)
    context = StageContext(1, "en", encoder, chosen, ONE, tmp_path / "adjust", tmp_path)
    parallel, pairs = {"parallel": "made:en-ru", "batch": 4}, describe(make_linked(8))
    adjusted = adjust.Settings.model_validate(freeze({**parallel, "lr": 1e-3, "epochs": 1}))
    model, card, _ = adjust.train(adjusted, pairs, context)
    save_model(model, card, tmp_path / "adjusted")
    model, card = load_model(tmp_path / "adjusted")
    context = StageContext(
        1, "en", model.encoder, chosen, ONE, tmp_path / "tune", tmp_path, base=lambda: load_encoder(str(base))
    )
    table = {"task": {"kind": "tag"}, "train": "made:en", "select": "last", "epochs": 1, "batch": 4, "lr": 1e-3}
    tuned = finetune.Settings.model_validate(
        freeze({**table, "fusion": {"kind": "dlfa", "layer": 1}, "replay": {**parallel, "batch": 2}})
    )
    rows = make_rows(TaggedSentence, 8)
    model, card, record = finetune.train(tuned, finetune.Data((rows,), None, (), pairs), context)
    assert record["steps"] == 2
    save_model(model, card, tmp_path / "stored")
    stored, _ = load_model(tmp_path / "stored")
    assert stored.encoder.attention == encoder.attention
    write_standalone(stored, card, tmp_path / "exported")
    exported, _ = load_model(tmp_path / "exported")
    batch = dict(zip(("ids", "mask"), read(encoder), strict=True))
    with torch.no_grad():
        logits = [one.heads[next(iter(card.tasks))](one.represent(batch)) for one in (stored, exported)]
    assert torch.equal(*logits)
    if encoder.structure.is_decoder or family in ENCODER_DECODERS:
        with pytest.raises(ArtefactError, match="--to crossling"):
            write_transformers(stored, card, tmp_path / "transformers")


@pytest.mark.parametrize(
    "label", list_cases("albert", "electra", "deberta-v2", "t5", "gemma3_text", "qwen3-bidirectional")
)
def test_masked_words_are_learnt_or_refused_with_reason(label: str, tmp_path: Path) -> None:
    base = save_encoder(make(label), tmp_path / "base")
    chosen = EncoderSettings(name=str(base), attention=CASES[label][1])
    encoder = load_encoder(str(base), attention=CASES[label][1])
    context = StageContext(1, "en", encoder, chosen, ONE, tmp_path / "work", tmp_path)
    table = {"train": "made:en", "epochs": 1, "batch": 4, "held_out": 0.2, "head": {"epochs": 1}}
    settings = adapt.Settings.model_validate(freeze(table))
    data = adapt.Data((make_rows(TaggedSentence, 16),))
    if encoder.tokenizer.mask_token_id is None:
        with pytest.raises(EncoderError, match="tokenizer has no mask"):
            adapt.train(settings, data, context)
        return
    _, _, record = adapt.train(settings, data, context)
    assert record["steps"] > 0


@pytest.mark.parametrize("family", [family for family in INSTALLED if family not in (*DECODERS, *ENCODER_DECODERS)])
def test_models_for_transformers_give_the_same_logits(family: str) -> None:
    for table in ({"kind": "tag", "scheme": "none"}, {"kind": "classify", "pooling": "cls"}, TASKS["answer"]):
        task = build_task(parse_task(table), () if table["kind"] == "answer" else ("A", "B", "C"))
        torch.manual_seed(3)
        model = build_model(make(family), {"kind": "last"})
        model.heads["main"] = task.build_objective("main").build_head(WIDTH)
        model.eval()
        stored: Any = {"main": {"settings": task.settings.model_dump(mode="json"), "labels": list(task.labels)}}
        other, _ = convert(model, ModelCard("base", "0" * 64, tasks=stored))
        pooling = table.get("pooling", "auto")
        assert measure_difference(model, other.eval(), "main", str(table["kind"]), pooling) <= TOLERANCE


@pytest.mark.parametrize("family", ["camembert", "electra", "albert"])
def test_graphs_for_onnx_give_the_same_logits_or_are_refused(family: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from crossling.inference.onnx.engine import OnnxEngine
    from crossling.inference.onnx.export import export_onnx
    from crossling.models.model import read_card

    model, objective, batch = learn(family, "tag", tmp_path)
    settings: Any = {"main": {"settings": {"kind": "tag", "scheme": "none"}, "labels": ["B-X", "O"]}}
    card = ModelCard("base", "0" * 64, tasks=settings)
    if family not in ONNX_FAMILIES:
        with pytest.raises(ArtefactError, match=f"{family}.*no form for ONNX.*--to crossling"):
            export_onnx(model.eval(), card, tmp_path / "onnx")
        return
    export_onnx(model.eval(), card, tmp_path / "onnx")
    engine = OnnxEngine(tmp_path / "onnx", read_card(tmp_path / "onnx"), threads=1)
    given = {name: batch[name].numpy() for name in ("ids", "mask")}
    with torch.no_grad():
        expected = objective.logits(model, batch).numpy()
    kept = given["mask"] == 1
    np.testing.assert_allclose(engine.compute_logits("main", given)[kept], expected[kept], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("label", DECODERS)
def test_words_and_answers_are_read_where_all_of_them_was_seen(label: str, tmp_path: Path) -> None:
    encoder = make(label)
    task = build_task(parse_task(TASKS["tag"]), ("O", "X"))
    (chunk,) = task.encode([{"words": [["the", "sleeping", "cat"]]}], encoder, labels=task.labels)
    ids, places = chunk["ids"][0], chunk["firsts"][0]
    cut = encoder.tokenizer.convert_ids_to_tokens(ids.tolist())
    begin = [place for place, piece in enumerate(cut) if piece.startswith("Ġ")]
    assert places.tolist() == [begin[1] - 1, begin[2] - 1, len(cut) - 2]
    task = build_task(parse_task(TASKS["answer"]), ())
    context = "a sleeping-cat in 我是, Hamburg"
    for answer in ("cat", "sleeping-cat", "我", "Hamburg"):
        rows = {"question": ["who"], "context": [context], "answers": [[answer]], "starts": [[context.index(answer)]]}
        (chunk,) = task.encode([rows], encoder, labels=())
        first, last, origin = (int(chunk[name][0]) for name in ("first", "last", "context_from"))
        starts, ends = chunk["starts"][0], chunk["ends"][0]
        assert context[starts[first - origin] : ends[last - origin]].strip() == answer
        word = answer.split("-")[0]
        assert ends[first - origin] == context.index(answer) + len(word), "its first word has been seen"
    (chunk,) = task.encode([{"question": ["who"], "context": [context]}], encoder, labels=())
    end = len(chunk["ids"][0]) - 1
    assert int(chunk["first"][0]) == int(chunk["last"][0]) == int(chunk["nowhere"][0]) == end
    assert chunk["ids"][0][end] == encoder.tokenizer.eos_token_id


@pytest.mark.parametrize("label", ["t5", "qwen3", "gemma3_text"])
def test_first_tokens_that_stand_for_nothing_are_not_read(label: str, tmp_path: Path) -> None:
    model, _, batch = learn(label, "classify", tmp_path)
    for how in ("first", "cls"):
        with pytest.raises(EncoderError, match='cannot stand for a text. Use pooling = "mean" or "last"'):
            extract_texts(None, how)(model, batch)  # type: ignore[arg-type]
    with torch.no_grad():
        auto, last, mean = (extract_texts(None, how)(model, batch) for how in ("auto", "last", "mean"))  # type: ignore[arg-type]
        hidden = model.encoder(batch["ids"], batch["mask"], layers=(LAYERS,))[LAYERS]
    ends = batch["mask"].sum(1) - 1
    assert torch.equal(last, hidden[torch.arange(len(ends)), ends])
    assert torch.equal(auto, last if model.encoder.is_causal else mean)


def test_attention_counts_in_identities_only_where_it_is_changed(tmp_path: Path) -> None:
    folder = str(save_encoder(make("qwen3"), tmp_path / "qwen3"))
    plain, same, other = (load_encoder(folder, attention=way).identity for way in (None, "causal", "bidirectional"))
    assert plain == same != other
    assert "attention" not in EncoderSettings(name="x").model_dump()
    with pytest.raises(EncoderError, match="trained to read in both directions"):
        load_encoder(str(save_encoder(make("bert"), tmp_path / "bert")), attention="causal")
    assert make("qwen3").identity != make("qwen3-bidirectional").identity


def test_weights_of_another_architecture_are_noticed(tmp_path: Path) -> None:
    save_encoder(make("bert"), tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    heads = {"cls.predictions.bias": torch.zeros(3), "classifier.weight": torch.zeros(2, 2)}
    save_file(weights | heads | {"embeddings.position_ids": torch.arange(66)[None]}, path, metadata={"format": "pt"})
    load_encoder(str(tmp_path))
    gated = {"encoder.layer.0.mlp.gated_layers.weight": torch.zeros(2, 2)}
    save_file(weights | gated, path, metadata={"format": "pt"})
    with pytest.raises(EncoderError, match=r"model_type = 'bert'.*gated_layers\.weight.*of another architecture"):
        load_encoder(str(tmp_path))


def test_code_of_others_is_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    save_encoder(make("bert"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for model_type, advice in (("bert", "models of type 'bert' itself.*-hf"), ("new", 'older code of gte.*type "gte"')):
        changed = config | {"model_type": model_type, "auto_map": {"AutoModel": "modeling.New"}}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        with pytest.raises(EncoderError, match=f"Code of others is never run.*{advice}"):
            load_encoder(str(tmp_path))
    with pytest.raises(EncoderError, match='type "gte"'):
        find_family("new", "gte-multilingual-base")


def test_untested_family_is_tried_out_and_used(tmp_path: Path) -> None:
    from transformers import RoFormerConfig, RoFormerModel

    tokenizer = make_tokenizer("bert")
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = RoFormerConfig(**sizes, intermediate_size=32, embedding_size=8, max_position_embeddings=64)
    fill(RoFormerModel(config)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path))
    ids, mask = read(encoder)
    assert [tuple(states.shape) for states in run(encoder, ids, mask).values()] == [(*ids.shape, 16)] * 3
