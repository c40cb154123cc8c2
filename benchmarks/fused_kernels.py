"""What fused kernels bring: the captured training step with torch's kernels and with each choice of ``kernels``, the
last also with AdamW's moments in bf16.

    python benchmarks/fused_kernels.py                          # on a GPU: batches of 32 and of 128, mBERT's size
    python benchmarks/fused_kernels.py --batch 32 --out fused.json
    python benchmarks/fused_kernels.py --batch 32 --only fused "fused, bf16 states"
    python benchmarks/fused_kernels.py --device cpu --quick     # only to see that it works: a CPU has no such kernels

All variants train the same model on the same examples and take turns, epoch by epoch. The share of the limit is as in
``finetune.py``: real subwords only, against large matrix products.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from pathlib import Path
from typing import Any, get_args

import torch

from _speed import Scale, build_run, choose_scale, count_operations, measure_matrix_rate, take_turns, workspace
from _synthetic import TEXTS, make_rows, write_rows
from crossling.training.settings import Kernels
from finetune import build_task

VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"kernels": name} for name in get_args(Kernels)},
    "fused, bf16 states": {"kernels": "fused", "optimizer_states": "bfloat16"},
    "equal priority": {"kernels": "fused", "optimizer_states": "bfloat16"},
}
"""By name: the settings of a stage. With equal priority, products of weights' gradients do not wait."""
WARM = 2
"""Epochs before those that alternate: a length is captured when it occurs again."""
SUBWORDS = 140_000
"""In an epoch of a batch size, about: 100 steps of 32 pairs of texts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", nargs="+", type=int, default=[32, 128])
    parser.add_argument("--rounds", type=int, default=4, help="Timed epochs of each variant.")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--quick", action="store_true", help="Tiny sizes; the figures mean nothing.")
    parser.add_argument("--out", type=Path, help="Also save what is found as JSON.")
    options = parser.parse_args()
    scale = choose_scale(options.device, quick=options.quick)
    rate = measure_matrix_rate(scale.device, quick=options.quick)
    print(f"{rate / 1e12:.0f} Tflop/s of large matrix products")
    found: dict[str, Any] = {"matrix_rate": rate}
    for batch in options.batch:
        found[f"batch {batch}"] = compare(scale, batch, rate, rounds=options.rounds, only=options.only)
        if options.out:
            options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


def compare(scale: Scale, batch: int, rate: float, *, rounds: int, only: list[str]) -> dict[str, Any]:
    """By variant: milliseconds of a step (median, least), examples a second, share of the limit."""
    steps = 2 if scale.quick else max(30, SUBWORDS // (43 * batch))
    with workspace() as folder:
        data = make_rows(TEXTS, steps * batch, scale.size.drawn, batch=batch)
        examples = write_rows(TEXTS, data, folder / "examples.arrow")
        operations = count_operations(scale.size, examples.lengths)
        model, stream = build_task(TEXTS, scale, examples)
        runs = {}
        for name in only:
            more: Any = {"batch": batch, **VARIANTS[name]}
            runs[name] = build_run(copy.deepcopy(model), stream, scale, folder / name, **more)
            if name == "equal priority" and scale.on_gpu:
                runs[name].steps.stream = torch.cuda.Stream()
            for _ in range(WARM):
                runs[name].train_epoch()
        times = take_turns(runs, rounds, scale.device)
        rows = {}
        for name, seconds in times.items():
            median, taken = statistics.median(seconds), runs[name].steps
            rows[name] = {
                "ms": round(1e3 * median / steps, 4),
                "least ms": round(1e3 * min(seconds) / steps, 4),
                "examples/s": round(steps * batch / median, 1),
                "of the limit": round(operations / median / rate, 4),
                "captured": getattr(taken, "can_capture", False),
                "kernels": taken.kernels,
                "last loss": runs[name].position.history[-1]["loss"],
            }
    show(batch, steps, rows)
    return {"steps": steps, "epochs": rounds, **rows}


def show(batch: int, steps: int, rows: dict[str, Any]) -> None:
    """Print a table."""
    base = rows.get("torch", {}).get("ms")
    print(f"\nbatch {batch}, epochs of {steps} steps")
    print(f"{'':20}{'ms':>9}{'least':>9}{'times':>8}{'examples/s':>12}{'limit':>9}")
    for name, row in rows.items():
        times = f"{base / row['ms']:8.3f}" if base else " " * 8
        share, speed = f"{100 * row['of the limit']:7.1f} %", f"{row['examples/s']:12,.0f}"
        note = f"  loss {row['last loss']:.4f}{'' if row['captured'] else '  not captured'}"
        note += "" if row["kernels"] == VARIANTS[name]["kernels"] else f"  {row['kernels']}'s kernels"
        print(f"{name:20}{row['ms']:9.3f}{row['least ms']:9.3f}{times}{speed}{share}{note}", flush=True)


if __name__ == "__main__":
    main()
