"""The worked example of CONTRIBUTING.md, carried out as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
import torch

from crossling import registry
from crossling.data.records import LabelledText
from crossling.data.rows import SCHEMAS, Rows
from crossling.inference.evaluate import encode_rows, predict_rows
from crossling.models.model import build_model
from crossling.registry import add_plugin, load_kind
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed
from tiny import tiny_encoder

NAME = "classify_long"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The listing as one more task."""
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (listing,) = re.findall(r"```python\n(.*?)```", text.partition("## Add an analysis")[0], flags=re.DOTALL)
    (tmp_path / f"{NAME}.py").write_text(listing, encoding="utf-8")
    monkeypatch.setattr(registry, "_plugins", {})
    add_plugin("tasks", tmp_path / f"{NAME}.py")
    return load_kind("tasks", NAME)


def test_every_word_of_a_long_text_is_read(added: ModuleType, tmp_path: Path) -> None:
    words = ["cat", "dog", "sees", "the"]
    texts = [" ".join(words * count) for count in (1, 40, 7)]
    columns = {"text": texts, "label": ["a", "b", "a"]}
    rows = Rows(
        pa.table(columns, schema=SCHEMAS[LabelledText]), LabelledText, language="en", name="made", fingerprint="made"
    )
    task = build_task(parse_task({"kind": NAME, "length": 16, "overlap": 2}), ("a", "b"))
    encoder = tiny_encoder("bert")
    examples = encode_rows(task, [rows], encoder, cache=tmp_path, labels=task.labels)
    whole = [len(encoder.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    owners = examples.scalars("row")
    for row, count in enumerate(whole):
        lengths = examples.lengths[owners == row] - 2
        assert lengths.sum() - 2 * (len(lengths) - 1) == count
    assert examples.lengths.max() <= 16
    torch.manual_seed(0)
    model = build_model(encoder, {"kind": "last"})
    model.heads["main"] = task.build_objective("main").build_head(encoder.width)
    distributed = Distributed(0, 1, torch.device("cpu"), torch.float32)
    found = predict_rows(model, task, rows, head="main", distributed=distributed, cache=tmp_path)
    assert found.column("gold").tolist() == [0, 1, 0]
    assert all(0.5 <= c <= 1 for c in found.column("confidence"))
