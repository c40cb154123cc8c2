"""Weights that are converted once for prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.batching import plan_prediction
from crossling.progress import NoProgress
from crossling.training import loop
from crossling.training.distributed import Distributed
from crossling.training.fast.converted_weights import ConvertedWeights
from crossling.training.loop import predict_examples
from learner import make_learner
from tiny_families import CASES, make_family


@pytest.mark.parametrize("label", CASES)
def test_converted_encoder_computes_as_one_with_converted_copies_and_is_restored(label: str) -> None:
    encoder = make_family(label).eval()
    before = {name: (weight.data_ptr(), weight.clone()) for name, weight in encoder.named_parameters()}
    ids_BS = torch.arange(3, 15).view(2, 6)
    inputs = (ids_BS, torch.ones_like(ids_BS))
    copies = {name: weight.detach().bfloat16() for name, weight in encoder.named_parameters()}
    with torch.no_grad():
        expected = torch.func.functional_call(encoder, copies, inputs, {"layers": (1, encoder.layers)})
    weights = ConvertedWeights(encoder, torch.bfloat16)
    for _ in range(2):
        with weights.in_place(), torch.inference_mode():
            found = encoder(*inputs, layers=(1, encoder.layers))
        assert all(torch.equal(found[layer], states) for layer, states in expected.items())
    with pytest.raises(KeyError), weights.in_place():
        raise KeyError
    for name, weight in encoder.named_parameters():
        assert weight.data_ptr() == before[name][0] and torch.equal(weight, before[name][1]), name


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_weights_are_converted_on_a_gpu_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: torch.dtype
) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(loop, "ConvertedWeights", refuse)
    model, stream = make_learner(tmp_path, count=20)
    here = Distributed(0, 1, torch.device("cpu"), precision)
    plan = plan_prediction(stream.examples.lengths, 8)
    found = predict_examples(
        model, stream.objective, stream.examples, distributed=here, plan=plan, progress=NoProgress(), convert=True
    )
    assert sorted(np.concatenate([batch.rows for batch, _ in found]).tolist()) == list(range(20))
