"""A contract for every registered task and objective, and what is particular to each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from crossling.data.batching import Batch, plan_prediction
from crossling.data.records import LabelledText
from crossling.data.rows import Rows
from crossling.errors import DataError, RecipeError
from crossling.inference import evaluate as evaluation
from crossling.inference.evaluate import encode_ahead, encode_rows, predict_rows, predict_sets
from crossling.models.model import build_model
from crossling.registry import list_kinds, load_kind
from crossling.scores.metrics import score
from crossling.tasks import PRESETS, build_task, parse_task, resolve_task, restore_task
from crossling.tasks.answer import cut_answer, cut_windows, find_subwords
from crossling.tasks.tag import split_to_fit
from crossling.training.distributed import Distributed
from examples import make_rows
from tiny import tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
FAMILIES = ("bert", "xlm-r", "distilbert", "modernbert")


def _build(kind: str, family: str = "bert", **settings: Any) -> tuple[Any, Any, Any]:
    """A task of a kind, a model with its head, rows of its records."""
    module = load_kind("tasks", kind)
    rows = make_rows(module.Task.record)
    task = build_task(module.Settings(**settings), module.Task.collect_labels([rows]))
    torch.manual_seed(0)
    model = build_model(tiny_encoder(family), {"kind": "last"})
    model.heads["main"] = task.build_objective("main").build_head(model.encoder.width)
    return task, model.eval(), rows


@pytest.mark.parametrize("kind", list_kinds("tasks"))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_predicts_every_row_whatever_the_batch(kind: str, family: str, tmp_path: Path) -> None:
    task, model, rows = _build(kind, family)
    many = predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path, batch=16)
    one = predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path, batch=1)
    assert many.n_rows == len(rows)
    assert many.table.column("predicted").equals(one.table.column("predicted"))
    assert np.allclose(many.column("confidence"), one.column("confidence"), atol=1e-5)
    scores = score(many)
    assert task.settings.score in scores
    assert all(0 <= value <= 1 for value in scores.values())


@pytest.mark.parametrize("kind", list_kinds("tasks"))
@pytest.mark.parametrize("together", [1, 30, 1_000])
def test_predicting_several_sets_together_equals_each_alone(
    kind: str, together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model, _ = _build(kind)
    sizes = {"en": 9, "de": 0, "fi": 24, "hi": 5}
    sets = [make_rows(task.record, size, language=code, shift=size) for code, size in sizes.items()]
    batches: list[int] = []
    forward = model.represent
    monkeypatch.setattr(model, "represent", lambda batch: (batches.append(len(batch["ids"])), forward(batch))[1])
    monkeypatch.setattr(evaluation, "STREAM", together)
    settings: dict[str, Any] = {"head": "main", "distributed": ONE, "cache": tmp_path, "batch": 16}
    found = list(predict_sets(model, task, sets, **settings, meta={"seed": 3}))
    in_stream, batches[:] = list(batches), []
    assert [one.language for one in found] == list(sizes)
    for rows, one in zip(sets, found, strict=True):
        alone = predict_rows(model, task, rows, **settings)
        assert one.meta == {**alone.meta, "seed": 3} and one.labels == alone.labels
        assert one.table.drop(["confidence"]).equals(alone.table.drop(["confidence"]))
        assert np.allclose(one.column("confidence"), alone.column("confidence"), atol=1e-5)
    assert sum(in_stream) == sum(batches)
    assert (len(in_stream) < len(batches)) == (together > 1), "small sets share batches"


@pytest.mark.parametrize("kind", list_kinds("tasks"))
def test_examples_encoded_ahead_are_used_by_prediction(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model, _ = _build(kind)
    sets = [make_rows(task.record, size, language=code, shift=size) for code, size in {"en": 9, "fi": 24}.items()]
    fewer = build_task(task.settings, task.labels[:1])
    model.heads["main"] = fewer.build_objective("main").build_head(model.encoder.width)
    thread = encode_ahead(fewer, sets, model.encoder, cache=tmp_path)
    # Asked for while the thread is at it: waited for, not written twice.
    first = predict_rows(model, fewer, sets[0], head="main", distributed=ONE, cache=tmp_path)
    thread.join()
    assert first.n_rows == 9 and len(list(tmp_path.glob("*.arrow"))) == 2

    def refuse(*arguments: Any, **more: Any) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(type(fewer), "encode", refuse)
    found = list(predict_sets(model, fewer, sets, head="main", distributed=ONE, cache=tmp_path))
    assert [one.n_rows for one in found] == [9, 24]


def test_error_of_encoding_ahead_is_raised_by_prediction(tmp_path: Path) -> None:
    task, model, _ = _build("tag")
    other = make_rows(load_kind("tasks", "classify").Task.record)
    encode_ahead(task, [other], model.encoder, cache=tmp_path).join()
    with pytest.raises(DataError, match="rows"):
        predict_rows(model, task, other, head="main", distributed=ONE, cache=tmp_path)


@pytest.mark.parametrize("kind", list_kinds("tasks"))
def test_every_task_learns(kind: str, tmp_path: Path) -> None:
    task, model, rows = _build(kind, "xlm-r")
    objective = task.build_objective("main")
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=task.labels)
    batch = model.prepare(
        objective.collate(examples, Batch(np.arange(len(examples)), 64), size=len(examples)), ONE.device
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(300):
        optimiser.zero_grad()
        loss = objective.sum_loss(model, batch).task
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if losses[-1] < 0.5 * losses[0]:
            break
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("kind", list_kinds("tasks"))
def test_empty_rows_of_a_batch_change_nothing(kind: str, tmp_path: Path) -> None:
    task, model, rows = _build(kind)
    objective = task.build_objective("main")
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=task.labels)
    plan = Batch(np.arange(5), 64)
    exact, filled = (objective.collate(examples, plan, size=size) for size in (5, 8))
    assert objective.count_targets(exact) == objective.count_targets(filled)
    assert objective.count_targets(exact).task > 0
    losses = [objective.sum_loss(model, model.prepare(b, ONE.device)).task for b in (exact, filled)]
    assert torch.isfinite(losses[1])
    assert torch.allclose(losses[0], losses[1], rtol=1e-5)


@pytest.mark.parametrize("kind", list_kinds("tasks"))
def test_every_task_is_restored_from_a_card(kind: str) -> None:
    task, _, _ = _build(kind)
    stored = {"settings": task.settings.model_dump(mode="json"), "labels": list(task.labels)}
    again = restore_task(stored)
    assert again.settings == task.settings
    assert again.labels == task.labels


@pytest.mark.parametrize("kind", list_kinds("tasks"))
def test_every_task_rejects_rows_of_another_kind(kind: str, tmp_path: Path) -> None:
    task, model, _ = _build(kind)
    other = next(
        load_kind("tasks", k).Task.record
        for k in list_kinds("tasks")
        if load_kind("tasks", k).Task.record is not task.record
    )
    with pytest.raises(DataError, match="name another data set"):
        predict_rows(model, task, make_rows(other), head="main", distributed=ONE, cache=tmp_path)


def test_every_objective_is_used_by_a_task_or_a_stage() -> None:
    used = {_build(kind)[0].build_objective("x").__class__.__module__.rsplit(".", 1)[1] for kind in list_kinds("tasks")}
    assert used | {"aligned_words", "masked_words"} == set(list_kinds("objectives"))  # adjust and replay; adapt


def test_tagging_loss_is_cross_entropy_at_first_subwords(tmp_path: Path) -> None:
    task, model, rows = _build("tag", "xlm-r")
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=task.labels)
    objective = task.build_objective("main")
    plan = plan_prediction(examples.lengths, 8)[0]
    batch = model.prepare(objective.collate(examples, plan, size=8), ONE.device)
    expected = 0.0
    for row in plan.rows:
        ids = torch.tensor(examples.get("ids", int(row))).long()[None]
        hidden = model.encoder(ids, torch.ones_like(ids), layers=(3,))[3]
        scores = torch.log_softmax(model.heads["main"](hidden)[0], -1)
        for first, gold in zip(examples.get("firsts", int(row)), examples.get("gold", int(row)), strict=True):
            expected -= float(scores[int(first), int(gold)].detach())
    assert float(objective.sum_loss(model, batch).task.detach()) == pytest.approx(expected, rel=1e-5)


def test_long_sentences_are_split_and_lose_no_word(tmp_path: Path) -> None:
    task, model, rows = _build("tag", "bert", length=8)
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=task.labels)
    assert examples.lengths.max() <= 8
    assert len(examples) > len(rows)
    predictions = predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path)
    assert len(predictions.table) == sum(len(record.words) for record in rows)
    assert (predictions.column("predicted") >= 0).all()
    gold = [predictions.labels[code] for code in predictions.column("gold")]
    assert gold == [tag for record in rows for tag in record.tags]


@pytest.mark.parametrize(
    ("counts", "room", "expected"),
    [
        ([1, 1, 1], 3, [(0, 3)]),
        ([2, 2, 2], 4, [(0, 2), (2, 3)]),
        ([9, 1, 1], 4, [(0, 1), (1, 3)]),
        ([1, 9, 1], 4, [(0, 1), (1, 2), (2, 3)]),
        ([], 4, []),
    ],
)
def test_words_are_split_to_fit(counts: list[int], room: int, expected: list[tuple[int, int]]) -> None:
    assert list(split_to_fit(np.array(counts), room)) == expected


def test_labels_that_training_never_saw_count_as_wrong(tmp_path: Path) -> None:
    task, model, rows = _build("classify")
    fewer = build_task(task.settings, ("none",))
    model.heads["main"] = fewer.build_objective("main").build_head(model.encoder.width)
    predictions = predict_rows(model, fewer, rows, head="main", distributed=ONE, cache=tmp_path)
    share = sum(record.label == "none" for record in rows) / len(rows)
    assert predictions.labels == ("none", "cat")
    assert score(predictions)["accuracy"] == pytest.approx(share)


@pytest.mark.parametrize(("count", "room", "overlap"), [(10, 4, 2), (4, 4, 1), (0, 4, 0), (101, 17, 5)])
def test_windows_cover_the_context(count: int, room: int, overlap: int) -> None:
    windows = list(cut_windows(count, room, overlap))
    assert sorted({i for a, b in windows for i in range(a, b)}) == list(range(count))
    assert all(b - a <= room for a, b in windows)
    assert all(after[0] == before[1] - overlap for before, after in zip(windows, windows[1:], strict=False))


@pytest.mark.parametrize(("room", "overlap"), [(4, 4), (4, 9), (-2, 0)])
def test_windows_without_new_text_are_refused(room: int, overlap: int) -> None:
    """An encoder may read less than the setting allows; a text that fits needs no second window."""
    with pytest.raises(RecipeError, match=f"Set overlap to {max(room - 1, 0)} or less"):
        list(cut_windows(10, room, overlap))
    assert list(cut_windows(3, 4, 9)) == [(0, 3)]


def test_an_answer_is_found_in_one_of_its_windows(tmp_path: Path) -> None:
    task, model, rows = _build("answer", "xlm-r", length=32, question=8, overlap=4)
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=())
    found = set()
    for example in range(len(examples)):
        first, last, offset = (int(examples.get(n, example)[0]) for n in ("first", "last", "context_from"))
        if first:
            row = int(examples.get("row", example)[0])
            start, end = examples.get("starts", example)[first - offset], examples.get("ends", example)[last - offset]
            assert rows[row].context[start:end].strip() == "cat"  # type: ignore[union-attr]
            found.add(row)
    assert found == set(range(len(rows)))
    assert len(examples) >= len(rows)


def test_the_best_span_equals_a_search_over_all_pairs(tmp_path: Path) -> None:
    task, model, rows = _build("answer", "bert", answer=3)
    objective = task.build_objective("main")
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=())
    plan = plan_prediction(examples.lengths, 6)[0]
    batch = model.prepare(objective.collate(examples, plan, size=len(plan.rows)), ONE.device)
    outputs = objective.predict(model, batch)
    first, last = (torch.log_softmax(x, -1) for x in objective.logits(model, batch).unbind(-1))
    for b in range(len(plan.rows)):
        inside = [i for i in range(plan.length) if batch["context"][b, i]]
        spans = [(float((first[b, i] + last[b, j]).detach()), i, j) for i in inside for j in inside if 0 <= j - i < 3]
        best = max(spans)
        assert float(outputs["confidence"][b].detach()) == pytest.approx(np.exp(best[0]), rel=1e-4)
        assert (int(outputs["start"][b]), int(outputs["end"][b])) == best[1:]


def test_answers_are_found_by_character() -> None:
    starts, ends = np.array([0, 3, 8]), np.array([2, 7, 9])
    assert find_subwords(starts, ends, ["word"], [3]) == (1, 1)
    assert find_subwords(starts, ends, ["ab word"], [0]) == (0, 1)
    assert find_subwords(starts, ends, [], []) is None
    assert find_subwords(starts, ends, ["x"], [20]) is None
    assert cut_answer("a  bc d", 1, 5) == ("bc", 3)
    assert cut_answer("abc", -1, -1) == ("", -1)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name: str) -> None:
    assert parse_task(name).kind == resolve_task(name)["kind"]
    assert parse_task({"preset": name, "length": 64 if name != "qa" else 256}).length in (64, 256)


def test_unknown_task_error_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'sentiment'"):
        resolve_task("sentimnt")


@pytest.mark.parametrize(
    ("labels", "scheme", "chosen"),
    [
        (("B-PER", "I-PER", "O"), "bio", "span_f1"),
        (("I-LOC", "I-PER", "O"), "bio", "span_f1"),
        (("B-a-b", "E-a-b", "I-a-b", "O", "S-a-b"), "bio", "span_f1"),
        (("ADJ", "NOUN", "O"), "none", "accuracy"),
        (("B-PER", "NOUN"), "none", "accuracy"),
        (("S-1", "S-2"), "none", "accuracy"),
        (("O",), "none", "accuracy"),
    ],
)
def test_spans_are_detected_in_the_training_labels(labels: tuple[str, ...], scheme: str, chosen: str) -> None:
    task = build_task(parse_task({"kind": "tag"}), labels)
    assert (task.settings.scheme, task.settings.score) == (scheme, chosen)  # type: ignore[attr-defined]
    named = {"kind": "tag", "scheme": "none", "score": "macro_f1"}
    assert build_task(parse_task(named), labels).settings == parse_task(named), "what is named stays"


def test_score_of_spans_needs_labels_of_spans() -> None:
    settings = parse_task({"kind": "tag", "score": "span_macro_f1"})
    assert build_task(settings, ("B-PER", "O")).settings.score == "span_macro_f1"
    with pytest.raises(DataError, match=r"span_macro_f1.*mark no spans \(ADJ, NOUN"):
        build_task(settings, ("ADJ", "NOUN"))
    with pytest.raises(DataError, match="xtreme_pos_f1.*mark spans"):
        build_task(parse_task({"kind": "tag", "score": "xtreme_pos_f1"}), ("B-PER", "O"))


def _long_texts() -> Any:
    texts = [" ".join(["the cat sat on a mat"] * count) for count in (1, 3, 12, 30)]
    table = pa.table({"text": texts, "label": ["a", "b", "a", "b"]})
    return Rows(table, LabelledText, language="en", name="long", fingerprint="long")


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_a_long_text_is_read_in_windows(family: str, tmp_path: Path) -> None:
    """Compared with each window predicted alone, as a text of its own."""
    from crossling.encoders.special_tokens import special_layout
    from crossling.encoders.tokenization import SubwordTokenizer

    rows, room, overlap = _long_texts(), 16 - 2, 4
    task = build_task(parse_task({"kind": "classify", "length": 16, "overlap": overlap}), ("a", "b"))
    torch.manual_seed(0)
    model = build_model(tiny_encoder(family), {"kind": "last"}).eval()
    model.heads["main"] = task.build_objective("main").build_head(model.encoder.width).eval()
    found = predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path, batch=3)
    layout = special_layout(model.encoder.tokenizer)
    objective = task.build_objective("main")
    for row, pieces in enumerate(SubwordTokenizer(model.encoder.tokenizer).encode_texts([r.text for r in rows]).pieces):
        total, seen = np.zeros(2), 0
        for begin, end in cut_windows(len(pieces), room, overlap):
            ids = torch.tensor([[*layout.prefix, *pieces[begin:end], *layout.single_suffix]])
            batch = {"ids": ids, "mask": torch.ones_like(ids), "labels": torch.zeros(1)}
            if model.encoder.uses_token_types:
                batch["types"] = torch.zeros_like(ids)
            with torch.inference_mode():
                probabilities = objective.logits(model, batch).softmax(-1)[0].numpy()  # type: ignore[attr-defined]
            total += probabilities * (end - seen)
            seen = end
        assert seen == len(pieces)
        assert int(found.column("predicted")[row]) == int(total.argmax())
        assert found.column("confidence")[row] == pytest.approx(total.max() / total.sum(), abs=1e-5)


def test_short_texts_are_predicted_the_same_in_windows(tmp_path: Path) -> None:
    rows = make_rows(LabelledText, 20)
    found = []
    for settings in ({}, {"overlap": 8}):
        task = build_task(parse_task({"kind": "classify", **settings}), ("a", "b"))
        torch.manual_seed(0)
        model = build_model(tiny_encoder("bert"), {"kind": "last"}).eval()
        model.heads["main"] = task.build_objective("main").build_head(model.encoder.width).eval()
        found.append(predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path))
    assert found[0].table.column("predicted").equals(found[1].table.column("predicted"))
    assert np.allclose(found[0].column("confidence"), found[1].column("confidence"), atol=1e-6)


def test_settings_without_windows_are_stored_as_before() -> None:
    assert "overlap" not in parse_task("sentiment").model_dump(mode="json")
    assert parse_task({"kind": "classify", "overlap": 8}).model_dump(mode="json")["overlap"] == 8
    with pytest.raises(ValueError, match="leaves no new text"):
        parse_task({"kind": "classify", "length": 16, "overlap": 12})
