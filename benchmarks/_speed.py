"""Timing of crossling's training loop and of the device: shared by all training benchmarks."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from _synthetic import MBERT, OFFLINE, TINY, Array, Kind, Size

if TYPE_CHECKING:
    from crossling.recipe.recipe import Precision

TRAINED, READ = 3, 1
"""Passes that a subword costs: forward and twice as much backward, or forward alone."""


LONG = 100
"""Epochs of a long training, of which the first few are timed: in a short one batches are padded to fewer lengths,
which takes less time to capture and more for each step."""


@dataclass(frozen=True)
class Scale:
    """How large everything is, so that a run takes minutes on its device."""

    device: torch.device
    size: Size
    batch: int
    long_batch: int
    """Of answers, whose windows are several times as long."""
    steps: int
    """Of ours in an epoch."""
    epochs: int
    """Of ours that are timed; their median counts, and one more goes before them."""
    peer_steps: Mapping[str, int]
    peer_epochs: int
    rounds: int
    """In which a method and plain fine-tuning take turns."""
    turn: int
    """Steps of the main task in a turn."""
    quick: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


def choose_scale(device: str, *, quick: bool = False) -> Scale:
    """The sizes for a GPU, for a CPU, or tiny ones that only try the code."""
    where = torch.device(device)
    if quick:
        few = {"as it comes": 2, "tuned": 2, "compiled": 2, "without graphs": 2}
        return Scale(where, TINY, 4, 4, 2, 1, few, 1, 1, 2, quick=True)
    if where.type == "cuda":
        some = {"as it comes": 60, "tuned": 100, "compiled": 100, "without graphs": 100}
        return Scale(where, MBERT, 32, 32, 250, 4, some, 2, 6, 100)
    return Scale(where, OFFLINE, 32, 8, 6, 2, {"as it comes": 2, "tuned": 6}, 2, 3, 2)


def measure_matrix_rate(device: torch.device, *, quick: bool = False) -> float:
    """Floating-point operations per second of large matrix products: the device's limit."""
    size, rounds = (128, 2) if quick else (8192, 20) if device.type == "cuda" else (1536, 10)
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    best = float("inf")
    for _ in range(4):  # the first one warms up
        wait(device)
        began = time.perf_counter()
        for _ in range(rounds):
            a @ b
        wait(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 * rounds / best


def count_operations(size: Size, lengths: Array, *, passes: int = TRAINED) -> float:
    """Multiplications and additions of an encoder over texts of these lengths; padding is not counted."""
    by_subword = size.layers * (4 * size.width**2 + 2 * size.width * size.inner) * 2
    attention = size.layers * 2 * size.width * 2
    lengths = lengths.astype(float)
    return float(passes * (by_subword * lengths.sum() + attention * (lengths**2).sum()))


def wait(device: torch.device) -> None:
    """Wait for the device to finish."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder, after freeing the memory of earlier measurements."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def build_run(
    model: Any,
    program: Any,
    scale: Scale,
    folder: Path,
    *,
    batch: int,
    epochs: int = LONG,
    capture: bool = True,
    precision: Precision = "auto",
    **more: Any,
) -> Any:
    """A trainer that has not begun, by default of a long training; other settings are a recipe's defaults."""
    from crossling.training.loop import Execution, Trainer
    from crossling.training.mixture import Mixture
    from crossling.training.settings import TrainingSettings

    settings = TrainingSettings(epochs=epochs, batch=batch, **more)
    execution = Execution(setup_device(scale.device, precision), 1, folder, checkpoint_seconds=1e9, capture=capture)
    return Trainer(model, program if isinstance(program, Mixture) else Mixture(program), settings, execution)


def setup_device(device: torch.device, precision: Precision = "auto") -> Any:
    """Device and precision of a recipe's run: bfloat16 on a GPU, the same bits every time on a CPU."""
    from crossling.recipe.recipe import RunSettings
    from crossling.training.distributed import setup_distributed

    return setup_distributed(RunSettings(device="cuda" if device.type == "cuda" else "cpu", precision=precision))


def take_turns(runs: dict[str, Any], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of every epoch of each run but the first, in alternating order: other load affects all equally."""
    return alternate({name: run.train_epoch for name, run in runs.items()}, rounds, device)


def alternate(actions: Mapping[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Seconds of each action in every round but a first one, in which all of them meet all of their shapes."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1):
        for name in list(actions) if number % 2 else list(reversed(actions)):
            wait(device)
            began = time.perf_counter()
            actions[name]()
            wait(device)
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def time_epochs(run: Any, epochs: int, device: torch.device) -> float:
    """Seconds of an epoch: the median of several, after one in which graphs are captured and libraries warm up."""
    return statistics.median(take_turns({"ours": run}, epochs, device)["ours"])


def batch_of(kind: Kind, scale: Scale) -> int:
    """Examples in a batch."""
    return scale.long_batch if kind.name == "answers" else scale.batch
