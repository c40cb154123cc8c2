"""What DLFA costs in fine-tuning: the same batches with and without it, turn by turn in one process.

    python benchmarks/fusion_cost.py                                  # the offline encoder, on whatever device is there
    python benchmarks/fusion_cost.py --device cpu --rounds 20 --examples 64
    python benchmarks/fusion_cost.py --encoder bert-base-multilingual-cased --data ud:en_ewt:train

Each round trains one short epoch of each model, in changing order, so that what else the machine does hits both alike.
The first round warms up (on a GPU it captures the graphs) and is not counted. The last line is the median of the
rounds' ratios; the target is at most 1.15.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch

from _speed import take_turns
from crossling.data.catalogue import open_data
from crossling.encoders.loading import load_encoder
from crossling.inference.evaluate import encode_rows
from crossling.models.model import build_model
from crossling.recipe.recipe import RunSettings
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed, setup_distributed
from crossling.training.loop import Execution, Trainer
from crossling.training.mixture import Mixture, Stream
from crossling.training.settings import TrainingSettings

TARGET = 1.15


def main() -> None:
    options = parse_options()
    run = RunSettings(device=options.device, precision=options.precision, threads=options.threads)
    distributed = setup_distributed(run)
    with tempfile.TemporaryDirectory() as folder:
        fusions = {"plain": {"kind": "last"}, "dlfa": {"kind": "dlfa", "layer": options.layer}}
        runs = {name: prepare(fusion, options, distributed, Path(folder) / name) for name, fusion in fusions.items()}
        where = (
            torch.cuda.get_device_name() if distributed.device.type == "cuda" else f"{torch.get_num_threads()} threads"
        )
        examples = runs["plain"].mixture.main.examples
        print(
            f"{options.encoder}, {options.task} on {options.data}: {len(examples)} examples, "
            f"{distributed.device} ({where})"
        )
        print(f"batch {options.batch}, {distributed.precision}, {int(examples.lengths.sum())} subwords an epoch")
        seconds = take_turns(runs, options.rounds, distributed.device)
    sums = {name: sum(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        print(f"{name:6} {statistics.median(values):.4f} s an epoch (median of {len(values)})")
    ratios = sorted(fused / plain for plain, fused in zip(seconds["plain"], seconds["dlfa"], strict=True))
    ratio = statistics.median(ratios)
    print(f"rounds side by side: {ratios[0]:.3f} to {ratios[-1]:.3f}; totals {sums['dlfa'] / sums['plain']:.3f}")
    print(f"ratio {ratio:.3f} (target at most {TARGET}): {'met' if ratio <= TARGET else 'NOT met'}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="multilingual-e5-small")
    parser.add_argument("--task", default="pos")
    parser.add_argument("--data", default="phrasebook-pos:en:train")
    parser.add_argument("--examples", type=int, default=640)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--layer", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--threads", type=int, default=None)
    return parser.parse_args()


def prepare(fusion: dict[str, object], options: argparse.Namespace, distributed: Distributed, folder: Path) -> Trainer:
    """A model, trimmed as a stage trims it, and its training, about to begin."""
    store = folder.parent / "store"
    rows = open_data(options.data, store=store).head(options.examples)
    settings = parse_task(options.task)
    task = build_task(settings, build_task(settings, ()).collect_labels([rows]))
    encoder = load_encoder(options.encoder)
    torch.manual_seed(0)
    model = build_model(encoder, fusion)
    objective = task.build_objective("main")
    model.heads["main"] = objective.build_head(encoder.width)
    examples = encode_rows(task, [rows], encoder, cache=store / "encoded", labels=task.labels)
    model.trim(np.unique(examples.distinct_ids()))
    training = TrainingSettings(epochs=options.rounds + 1, batch=options.batch)
    execution = Execution(distributed, 1, folder, checkpoint_seconds=1e9)
    return Trainer(model, Mixture(Stream(objective, examples)), training, execution)


if __name__ == "__main__":
    main()
