"""Stored examples: shared by whatever encodes alike, and by nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossling.errors import RecipeError
from crossling.inference.encoding_key import identify_encoding
from crossling.inference.evaluate import encode_rows
from crossling.registry import list_kinds, load_kind
from crossling.tasks import build_task
from examples import make_rows
from tiny import tiny_encoder

KINDS = list_kinds("tasks")
OTHER: dict[str, dict[str, Any]] = {
    "tag": {"length": 40, "dropout": 0.3, "score": "accuracy", "scheme": "none"},
    "classify": {"length": 40, "overlap": 9, "dropout": 0.3, "score": "macro_f1", "pooling": "mean"},
    "classify_pair": {"length": 40, "dropout": 0.3, "score": "macro_f1", "pooling": "mean"},
    "answer": {"length": 300, "overlap": 90, "question": 30, "answer": 9, "dropout": 0.3, "score": "exact_match"},
}
"""Another value for every setting."""


def encode(kind: str, cache: Path, encoder: Any = None, **settings: Any) -> Any:
    """The examples of some rows of a kind."""
    module = load_kind("tasks", kind)
    rows = make_rows(module.Task.record)
    task = build_task(module.Settings(**settings), module.Task.collect_labels([rows]))
    return encode_rows(task, [rows], encoder or tiny_encoder(), cache=cache, labels=task.labels)


def count(cache: Path) -> int:
    return len(list(cache.glob("*.arrow")))


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_is_tried(kind: str) -> None:
    assert OTHER[kind].keys() == load_kind("tasks", kind).Settings.model_fields.keys() - {"kind"}


@pytest.mark.parametrize(("kind", "setting"), [(kind, name) for kind in KINDS for name in OTHER[kind]])
def test_settings_count_where_encoding_reads_them(kind: str, setting: str, tmp_path: Path) -> None:
    first = encode(kind, tmp_path)
    other = encode(kind, tmp_path, **{setting: OTHER[kind][setting]})
    assert count(tmp_path) == 1 + (setting in load_kind("tasks", kind).ENCODING_SETTINGS)
    assert (first.path == other.path) == (count(tmp_path) == 1)


@pytest.mark.parametrize("kind", KINDS)
def test_another_checkpoint_with_the_same_tokenizer_shares_examples(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = tiny_encoder(layers=2, seed=0), tiny_encoder(layers=3, seed=1)
    assert first.identity != other.identity
    stored = encode(kind, tmp_path, first)
    fresh = encode(kind, tmp_path / "other", other)
    monkeypatch.setattr(load_kind("tasks", kind).Task, "encode", None)
    shared = encode(kind, tmp_path, other)
    assert shared.path == stored.path
    for column in fresh.columns:
        for row in range(len(fresh)):
            assert np.array_equal(fresh.get(column, row), shared.get(column, row))


def add_subword(encoder: Any) -> None:
    encoder.tokenizer.add_tokens(["cat"])


def change_steps(encoder: Any) -> None:
    encoder.tokenizer.backend_tokenizer.normalizer = None


def change_special(encoder: Any) -> None:
    encoder.tokenizer.mask_token = "cat"


def shorten(encoder: Any) -> None:
    encoder.max_length = 400


def leave_out_types(encoder: Any) -> None:
    encoder.uses_token_types = False


def look_back(encoder: Any) -> None:
    encoder.attention = "causal"


CHANGES = (add_subword, change_steps, change_special, shorten, leave_out_types, look_back)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_what_encoding_reads_of_an_encoder_counts(kind: str, change: Callable[[Any], None], tmp_path: Path) -> None:
    other = copy.deepcopy(tiny_encoder())
    change(other)
    assert encode(kind, tmp_path).path != encode(kind, tmp_path, other).path


@pytest.mark.parametrize("kind", KINDS)
def test_labels_rows_and_version_count(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_kind("tasks", kind)
    rows = make_rows(module.Task.record)
    task = build_task(module.Settings(), module.Task.collect_labels([rows]))
    encoder = tiny_encoder()

    def identify(task: Any = task, rows: Any = rows, labels: tuple[str, ...] = task.labels) -> str:
        return identify_encoding(task, [rows], encoder, labels)

    keys = [
        identify(),
        identify(labels=(*task.labels, "new")),
        identify(task=build_task(module.Settings(), (*task.labels, "new"))),
        identify(rows=make_rows(module.Task.record, 23)),
        identify_encoding(task, [rows, rows], encoder, task.labels),
    ]
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert len({*keys, identify()}) == len(keys) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_declares_nothing_shares_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(load_kind("tasks", kind), "ENCODING_SETTINGS")
    encode(kind, tmp_path)
    encode(kind, tmp_path)
    assert count(tmp_path) == 1
    encode(kind, tmp_path, dropout=0.3)
    encode(kind, tmp_path, tiny_encoder(seed=1))
    assert count(tmp_path) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_that_is_read_must_be_declared(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_kind("tasks", kind)
    monkeypatch.setattr(module, "ENCODING_SETTINGS", tuple(n for n in module.ENCODING_SETTINGS if n != "length"))
    with pytest.raises(RecipeError, match=rf"task {kind!r}: encode reads settings\.length, .*ENCODING_SETTINGS"):
        encode(kind, tmp_path)
    assert not count(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_cannot_be_read_by_a_kind_that_shares(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_weights(self: Any, chunks: Any, encoder: Any, *, labels: Any) -> Any:
        yield {"ids": [np.zeros(getattr(encoder, "width", 3), np.int32)]}

    monkeypatch.setattr(load_kind("tasks", kind).Task, "encode", read_weights)
    with pytest.raises(RecipeError, match=r"encode reads encoder\.width"):
        encode(kind, tmp_path)
