"""On how many words taggers agree, text by text: python docs/results/agreement.py FIRST SECOND ... TEXT.txt ...

FIRST and the others are runs or saved models; no gold labels are needed. Each is compared with FIRST: of a run every
seed with the same seed. A line for each model, seed and text: words, and percent of them with the same tag.
"""

from __future__ import annotations

import csv
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import crossling


def list_seeds(path: Path) -> list[int | None]:
    """The seeds of a run's folder; a saved model has none."""
    return sorted(int(found.name.removeprefix("seed-")) for found in path.glob("seed-[0-9]*")) or [None]


def read_tags(model: Any, texts: list[str]) -> list[str]:
    """The tags of all words, one after the other."""
    return list(chain.from_iterable((word["tag"] for word in one["words"]) for one in crossling.predict(model, texts)))


def main(*paths: str) -> None:
    files = [Path(path) for path in paths if path.endswith(".txt")]
    texts = {
        path.stem: [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()] for path in files
    }
    models = [Path(path) for path in paths if not path.endswith(".txt")]
    if len(models) < 2 or not texts:
        sys.exit("usage: agreement.py FIRST SECOND ... TEXT.txt ...")
    first, *others = models
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("system", "seed", "text", "words", "agreed"))
    for seed in list_seeds(first):
        model = crossling.load(first, seed=seed)
        tags = {name: read_tags(model, lines) for name, lines in texts.items()}
        for path in others:
            model = crossling.load(path, seed=seed)
            for name, lines in texts.items():
                agreed = sum(a == b for a, b in zip(tags[name], read_tags(model, lines), strict=True))
                row = (
                    path.name,
                    "" if seed is None else seed,
                    name,
                    len(tags[name]),
                    f"{100 * agreed / len(tags[name]):.2f}",
                )
                table.writerow(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
