"""On how many words two taggers agree, text by text: python docs/results/agreement.py FIRST SECOND TEXT.txt ...

FIRST and SECOND are runs or saved models; no gold labels are needed. A line for each text: its name, words, percent.
"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any

import crossling


def read_tags(model: Any, texts: list[str]) -> list[str]:
    """The tags of all words, one after the other."""
    return list(chain.from_iterable((word["tag"] for word in one["words"]) for one in crossling.predict(model, texts)))


def main(first: str, second: str, *paths: str) -> None:
    models = [crossling.load(name) for name in (first, second)]
    for path in map(Path, paths):
        texts = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        one, other = (read_tags(model, texts) for model in models)
        agreed = sum(a == b for a, b in zip(one, other, strict=True))
        sys.stdout.write(f"{path.stem},{len(one)},{100 * agreed / len(one):.2f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
