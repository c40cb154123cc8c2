"""Fine-tuning speed: crossling's loop compared with Hugging Face's Trainer, on the same examples in the same run.

    python benchmarks/finetune.py                               # on a GPU: an encoder of mBERT's size, batches of 32
    python benchmarks/finetune.py --device cpu                  # an encoder of the offline one's size, a few steps
    python benchmarks/finetune.py --task words answers --out speed.json

Examples are made up, of the lengths that real ones have: pairs of texts (43 subwords on average, at most 128), tagged
sentences (30, at most 128), windows with answers (175, at most 384). Whole epochs are timed, after a first one, so
that start-up, capturing graphs and warming up do not count. The limit is the device's rate of matrix products, measured
here too; of each example, only real subwords count.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _rows import LIMIT, VALUE, Board, Row, describe_machine
from _speed import (
    Scale,
    batch_of,
    build_run,
    choose_scale,
    count_operations,
    measure_matrix_rate,
    time_epochs,
    workspace,
)
from _synthetic import ANSWERS, CLASSES, TAGS, TEXTS, WORDS, Kind, build_encoder, make_rows, write_rows
from _trainer import check_trainer, time_trainer

TITLES = {
    TEXTS.name: ("pairs of texts", "fine-tuning of a classifier"),
    WORDS.name: ("tagging", "fine-tuning of a tagger"),
    ANSWERS.name: ("answers", "fine-tuning on windows of contexts"),
}
KINDS = {kind.name: kind for kind in (TEXTS, WORDS, ANSWERS)}
XNLI = 5 * 392_702
"""Examples of five epochs."""
GPU_TARGETS = {"Trainer as it comes": 10.0, "Trainer tuned": 5.0, LIMIT: 0.16, VALUE: XNLI / 360}
CPU_TARGETS = {"Trainer as it comes": 4.0, "Trainer tuned": 1.3, LIMIT: 0.75}


def measure_task(kind: Kind, scale: Scale, matrix_rate: float) -> Row:
    """Ours, the Trainer as it comes, the Trainer tuned."""
    check_trainer()
    name, what = TITLES[kind.name]
    if not scale.on_gpu and not scale.quick:
        matrix_rate = measure_matrix_rate(scale.device)
    ours, facts = time_crossling(kind, scale)
    batch = batch_of(kind, scale)
    notes: dict[str, Any] = {"batch": batch, "padding": facts["padding"], "timed steps": {"ours": facts["steps"]}}
    peers = {}
    for way in ("as it comes", "tuned"):
        peers[f"Trainer {way}"], notes["timed steps"][way] = time_trainer(kind, scale, way=way)
    if not scale.on_gpu and not scale.quick:
        # Again after its peers, and the limit too: other guests of the host change the CPU's speed.
        again, more = time_crossling(kind, scale)
        rates = [matrix_rate, measure_matrix_rate(scale.device)]
        ours, notes["ours, before and after its peers"] = (ours + again) / 2, [round(ours, 2), round(again, 2)]
        matrix_rate, notes["matrix products, Tflop/s"] = sum(rates) / 2, [round(rate / 1e12, 4) for rate in rates]
        notes["timed steps"]["ours"] += more["steps"]
    if scale.on_gpu and kind is TEXTS:
        peers["ours without CUDA graphs"], more = time_crossling(kind, scale, capture=False)
        notes["timed steps"]["without CUDA graphs"] = more["steps"]
        notes["seconds for XNLI's 5 epochs"] = round(XNLI / ours, 1)
    targets = GPU_TARGETS if scale.on_gpu else CPU_TARGETS
    return Row(
        name,
        f"{what}, batch {batch}, up to {kind.longest} subwords",
        "examples/s",
        ours,
        peers,
        limit=matrix_rate / facts["operations"],
        targets=dict(targets) if kind is TEXTS else {},
        notes=notes,
    )


def time_crossling(kind: Kind, scale: Scale, *, capture: bool = True) -> tuple[float, dict[str, Any]]:
    """Examples a second; padding, steps, and operations of an average example."""
    steps = scale.steps if capture else scale.peer_steps["without graphs"]
    epochs, batch = scale.epochs if capture else scale.peer_epochs, batch_of(kind, scale)
    with workspace() as folder:
        rows = make_rows(kind, steps * batch, scale.size.drawn, batch=batch)
        examples = write_rows(kind, rows, folder / "examples.arrow")
        model, stream = build_task(kind, scale, examples)
        run = build_run(model, stream, scale, folder / "work", batch=batch, capture=capture)
        seconds = time_epochs(run, epochs, scale.device)
        facts = {
            "padding": measure_padding(examples, batch, scale.device),
            "steps": steps * epochs,
            "operations": count_operations(scale.size, examples.lengths) / len(examples),
        }
        return len(examples) / seconds, facts


def measure_padding(examples: Any, batch: int, device: torch.device) -> str:
    """The share of padding in an epoch."""
    from crossling.data.batching import plan_epoch
    from crossling.training.loop import trim_padding

    plan = [trim_padding(one, examples, device) for one in plan_epoch(examples.lengths, batch, seed=1, epoch=1)]
    computed = sum(len(one.rows) * one.length for one in plan)
    return f"{100 * (1 - float(examples.lengths.sum()) / computed):.1f} %"


def build_task(
    kind: Kind,
    scale: Scale,
    examples: Any,
    *,
    fusion: dict[str, Any] | None = None,
    others: Sequence[Any] = (),
    trim: bool = True,
) -> Any:
    """A model, with its vocabulary trimmed as every run has it by default, and the stream that it learns from."""
    from crossling.models.model import build_model
    from crossling.training.mixture import Stream

    objective = build_objective(kind)
    encoder = build_encoder(kind, scale.size)
    model = build_model(encoder, fusion or {"kind": "last"})
    model.heads["main"] = objective.build_head(encoder.width)
    if trim:
        model.trim(np.unique(np.concatenate([part.distinct_ids() for part in (examples, *others)])))
    return model, Stream(objective, examples)


def build_objective(kind: Kind, name: str = "main") -> Any:
    """The objective of a kind of example."""
    from crossling.objectives import find_span, label_texts, label_words

    if kind is TEXTS:
        return label_texts.Objective(name, classes=CLASSES)
    return label_words.Objective(name, classes=TAGS) if kind is WORDS else find_span.Objective(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--task", nargs="+", choices=tuple(KINDS), default=[TEXTS.name])
    parser.add_argument("--quick", action="store_true", help="Tiny sizes, to see that everything works.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    scale = choose_scale(options.device, quick=options.quick)
    rate = measure_matrix_rate(scale.device, quick=options.quick)
    facts = {"machine": describe_machine(options.device), "quick": options.quick, "matrix_rate": rate}
    board = Board(options.out, facts)
    for name in options.task:
        board.add(measure_task(KINDS[name], scale, rate))


if __name__ == "__main__":
    main()
