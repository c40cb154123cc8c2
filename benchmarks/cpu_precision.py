"""Training on a CPU with matrix products in bfloat16, beside the same steps in float32.

    python benchmarks/run.py --device cpu --only cpu-precision

Both runs take turns, an epoch each, so that what else the machine does meets both.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from _rows import MissingError, Row
from _speed import Scale, build_run, take_turns, workspace
from _synthetic import WORDS, make_rows, write_rows
from finetune import build_task

if TYPE_CHECKING:
    from crossling.recipe.recipe import Precision

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def measure_training(scale: Scale) -> Iterator[Row]:
    """Examples a second of both precisions."""
    from crossling.training.distributed import has_bf16_products

    if not has_bf16_products():
        raise MissingError("this CPU has no matrix products in bfloat16")
    steps, batch, rounds = (2, 4, 1) if scale.quick else (6, 32, 4)
    with workspace() as folder:
        rows = make_rows(WORDS, steps * batch, scale.size.drawn, batch=batch)
        examples = write_rows(WORDS, rows, folder / "examples.arrow")
        runs: dict[str, Any] = {}
        for name in PRECISIONS:
            model, stream = build_task(WORDS, scale, examples)
            runs[name] = build_run(model, stream, scale, folder / name, batch=batch, precision=name)
        seconds = take_turns(runs, rounds, scale.device)
        speed = {name: len(examples) / statistics.median(found) for name, found in seconds.items()}
    yield Row(
        "training on a CPU in bfloat16",
        f"fine-tuning a tagger, batch {batch}, float32 beside it",
        "examples/s",
        speed["bfloat16"],
        {"float32": speed["float32"]},
        notes={"timed steps of each": steps * rounds},
    )
