"""Nearest sentences against comparing all of them one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from crossling.inference import sentence_vectors
from crossling.inference.sentence_vectors import find_neighbours


@pytest.mark.parametrize(("sentences", "block"), [(40, 1024), (40, 16), (2, 16)])
def test_neighbours_equal_a_slow_reference(sentences: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_vectors, "BLOCK", block)
    vectors = np.random.default_rng(0).normal(size=(sentences, 8)).astype(np.float32)
    found = find_neighbours(vectors, 3, torch.device("cpu"))
    for row, vector in enumerate(vectors):
        cosine = {
            other: float(vector @ vectors[other] / np.linalg.norm(vector) / np.linalg.norm(vectors[other]))
            for other in range(sentences)
            if other != row
        }
        assert found[row].tolist() == sorted(cosine, key=lambda other: -cosine[other])[:3]
