"""Full memory: prediction goes on with smaller batches, training says what to set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.batching import Batch
from crossling.data.records import LabelledText
from crossling.errors import OutOfMemoryError
from crossling.inference.evaluate import predict_rows
from crossling.models.model import build_model
from crossling.objectives.label_texts import Objective
from crossling.tasks import learn_labels, parse_task
from crossling.training.distributed import Distributed
from crossling.training.out_of_memory import Halving, explain_full_memory, is_out_of_memory
from crossling.training.settings import TrainingSettings
from examples import make_rows
from tiny import tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)


def test_prediction_goes_on_with_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(LabelledText, 23)
    task = learn_labels(parse_task("sentiment"), [rows])
    torch.manual_seed(0)
    model = build_model(tiny_encoder("bert"), {"kind": "last"})
    model.heads["main"] = task.build_objective("main").build_head(model.encoder.width)
    settings: dict[str, Any] = {"head": "main", "distributed": ONE, "cache": tmp_path, "batch": 16}
    expected = predict_rows(model.eval(), task, rows, **settings)
    predict, sizes = Objective.predict, []

    def limited(self: Objective, model: Any, batch: dict[str, torch.Tensor]) -> Any:
        sizes.append(len(batch["ids"]))
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return predict(self, model, batch)

    monkeypatch.setattr(Objective, "predict", limited)
    found = predict_rows(model, task, rows, **settings)
    assert found.table.column("predicted").equals(expected.table.column("predicted"))
    assert np.allclose(found.column("confidence"), expected.column("confidence"), atol=1e-5)
    assert sum(size for size in sizes if size <= 3) == 23
    assert sum(size > 3 for size in sizes) <= 5, "a size that did not fit is not tried again (9 without that)"


def test_single_example_that_does_not_fit_is_an_error_that_says_so() -> None:
    def fail(batch: Batch) -> None:
        raise torch.OutOfMemoryError("full")

    with pytest.raises(OutOfMemoryError, match="single example of 64 subwords"):
        list(Halving().run(Batch(np.arange(4), 64), fail))


def test_other_errors_are_not_taken_for_full_memory() -> None:
    def fail(batch: Batch) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        list(Halving().run(Batch(np.arange(4), 64), fail))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert is_out_of_memory(MemoryError())


def fail_to_train(**settings: Any) -> None:
    with explain_full_memory("fine-tuning (seed 1)", TrainingSettings(**settings)):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_full_memory_in_training_names_the_settings_that_help() -> None:
    with pytest.raises(OutOfMemoryError, match=r"batch = 16 with accumulate = 2 .*gradient_checkpointing = true"):
        fail_to_train(batch=32)
    with pytest.raises(OutOfMemoryError, match="a smaller length") as caught:
        fail_to_train(batch=1, gradient_checkpointing=True)
    assert "gradient_checkpointing" not in str(caught.value)
