"""From logits to predictions: numpy's arrays give what torch's tensors do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crossling.objectives import find_span, label_texts, label_words

MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
CONTEXT = np.array([[0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])


@pytest.mark.parametrize("shape", [(3, 4), (3, 6, 4), (3, 6, 2)])
def test_arrays_of_both_libraries_decode_alike(shape: tuple[int, ...]) -> None:
    logits = np.random.default_rng(1).normal(0, 3, shape).astype(np.float32)
    logits[0] = logits[0].round()  # equal scores: the first one counts
    objective = {
        (3, 4): label_texts.Objective("head", classes=4),
        (3, 6, 4): label_words.Objective("head", classes=4),
        (3, 6, 2): find_span.Objective("head", longest=2),
    }[shape]
    batch = {"mask": MASK, "context": CONTEXT}
    tensors = {name: torch.from_numpy(values) for name, values in batch.items()}
    expected = objective.decode(torch.from_numpy(logits), tensors)
    found = objective.decode(logits, batch)
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name].numpy(), rtol=1e-5, atol=1e-6)
