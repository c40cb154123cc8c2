"""Where the time of a training step goes: the device's own time by kind of work, and how much of it the device is idle.

    python benchmarks/profile_step.py                   # on a GPU: pairs of texts, an encoder of mBERT's size
    python benchmarks/profile_step.py --kernels fused --batch 128
    python benchmarks/profile_step.py --device cpu --steps 4

Epochs are trained before the one that is looked at, so that graphs are captured. The share of a kind is that of the
profiled steps' wall time; what is left of a GPU's is time in which it waits. Profiling itself costs some of a CPU's.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any, get_args

import torch
from torch.profiler import ProfilerActivity, profile

from _speed import Scale, build_run, choose_scale, wait, workspace
from _synthetic import TEXTS, make_rows, write_rows
from crossling.training.settings import Kernels
from finetune import build_task

KINDS = {
    "attention": ("attention", "flash", "fmha", "sdpa"),
    "optimiser": ("adam", "multi_tensor", "foreach", "clip", "_update", "_sum_squares"),
    "matrix products": ("gemm", "mm", "cutlass", "nvjet", "xmma", "linear", "matmul"),
    "normalisation": ("norm",),
    "embeddings": ("embedding", "index", "gather", "scatter", "sort"),
    "copies": ("memcpy", "memset", "copy", "cast", "fill", "zero"),
    "softmax and losses": ("softmax", "nll", "loss"),
}
"""Parts of the names of kernels and operations; the first kind that fits counts."""
OTHER = "other (activation, dropout, sums)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="Tiny sizes, to see that it works.")
    parser.add_argument("--batch", type=int, help="Default: as in the other benchmarks.")
    parser.add_argument("--kernels", choices=get_args(Kernels), default="torch")
    options = parser.parse_args()
    scale = choose_scale(options.device, quick=options.quick)
    scale = replace(scale, batch=options.batch or scale.batch)
    wall, times, names = profile_steps(scale, options.steps, kernels=options.kernels)
    print(f"{1e3 * wall / options.steps:.2f} ms a step, {options.steps} steps")
    rest = "idle" if scale.on_gpu else "not in operations"
    shown = [*sorted(times.items(), key=lambda item: -item[1]), (rest, wall - sum(times.values()))]
    for kind, seconds in shown:
        print(f"{kind:36} {1e3 * seconds / options.steps:8.3f} ms {100 * seconds / wall:6.1f} %")
    print("\nThe longest:")
    for name, seconds in sorted(names.items(), key=lambda item: -item[1])[:12]:
        print(f"{100 * seconds / wall:6.1f} %  {name[:100]}")


def profile_steps(
    scale: Scale, steps: int, *, kernels: str = "torch"
) -> tuple[float, dict[str, float], dict[str, float]]:
    """Seconds of an epoch, and of those the device's own by kind and by name."""
    with workspace() as folder:
        rows = make_rows(TEXTS, steps * scale.batch, scale.size.drawn, batch=scale.batch)
        examples = write_rows(TEXTS, rows, folder / "examples.arrow")
        model, stream = build_task(TEXTS, scale, examples)
        run = build_run(model, stream, scale, folder / "work", batch=scale.batch, epochs=4, kernels=kernels)
        for _ in range(3):
            run.train_epoch()
        wait(scale.device)
        activity = ProfilerActivity.CUDA if scale.on_gpu else ProfilerActivity.CPU
        with profile(activities=[activity]) as found:
            began = time.perf_counter()
            run.train_epoch()
            wait(scale.device)
            wall = time.perf_counter() - began
    names = {event.key: _own_seconds(event, scale) for event in found.key_averages()}
    times: dict[str, float] = {}
    for name, seconds in names.items():
        kind = classify(name)
        times[kind] = times.get(kind, 0.0) + seconds
    return wall, times, names


def classify(name: str) -> str:
    """The kind of work that a kernel or operation does, by its name."""
    lower = name.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), OTHER)


def _own_seconds(event: Any, scale: Scale) -> float:
    return float(event.self_device_time_total if scale.on_gpu else event.self_cpu_time_total) / 1e6


if __name__ == "__main__":
    main()
