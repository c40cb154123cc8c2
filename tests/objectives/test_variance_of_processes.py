"""The variance that relative distances are divided by, over two processes; its workers import little."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from crossling.objectives.aligned_words import average_variance
from two_processes import run_in_two_processes

WORDS = torch.tensor([[-1, 0, 0, 1, -1], [-1, 0, 1, 2, -1], [-1, -1, -1, -1, -1], [-1, 0, -1, -1, -1]])
SHARES = {"halves": slice(0, 2), "nothing for the second": slice(0, 4)}


def _divide(rows: slice) -> dict[str, Tensor]:
    """A loss of some rows, as each process has it, with the gradient of its vectors."""
    torch.manual_seed(1)
    vectors = (torch.randn(4, 5, 3) + 2.0)[rows].requires_grad_()
    loss = vectors.pow(3).sum() / average_variance(vectors, WORDS[rows])
    loss.backward()  # type: ignore[no-untyped-call]
    assert vectors.grad is not None
    return {"loss": loss.detach().reshape(1), "gradient": vectors.grad}


def _work(rank: int, folder: Path) -> None:
    for name, first in SHARES.items():
        save_file(_divide(first if rank == 0 else slice(first.stop, 4)), folder / f"{name} {rank}")


def test_two_processes_divide_by_the_variance_of_the_whole_batch(tmp_path: Path) -> None:
    whole = _divide(slice(0, 4))
    run_in_two_processes(_work, tmp_path)
    for name in SHARES:
        parts = [load_file(tmp_path / f"{name} {rank}") for rank in (0, 1)]
        torch.testing.assert_close(parts[0]["loss"] + parts[1]["loss"], whole["loss"])
        torch.testing.assert_close(torch.cat([part["gradient"] for part in parts]), whole["gradient"])


def test_variance_is_that_of_words_alone() -> None:
    """Padding and words that are not there do not count; one word has none, so that distances stay as they are."""
    vectors = torch.randn(4, 5, 3)
    real = torch.cat([vectors[0, :2], vectors[1, :3], vectors[3, :1]])
    torch.testing.assert_close(average_variance(vectors, WORDS), real.var(0, correction=0).mean())
    assert float(average_variance(vectors[3:], WORDS[3:])) == 1.0
