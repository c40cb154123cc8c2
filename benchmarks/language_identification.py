"""How well cleaning finds untranslated sentences, also in language pairs of one script.

    CROSSLING_DATA=… python benchmarks/language_identification.py  # NTREX, a tenth of the targets replaced
    CROSSLING_DATA=… python benchmarks/language_identification.py --share 0.3 en-de de-nl

In a share of the pairs the target is replaced by a source sentence of another row. ``found`` is how many of those are
left out for their language, ``wrong`` how many of the others are.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from crossling.data.catalogue import open_data
from crossling.data.cleaning import Cleaning, clean_pairs
from crossling.data.readers.text_files import BadRows
from crossling.data.records import ParallelPair

PAIRS = (
    "en-de",
    "en-es",
    "en-fr",
    "en-nl",
    "en-fi",
    "en-tr",
    "en-vi",
    "es-it",
    "de-nl",
    "en-ru",
    "en-hi",
    "en-ko",
    "en-zh",
)
SETTINGS = Cleaning(min_words=0, max_words=0, ratio=0, identical=False, duplicates=False)


def main() -> None:
    options = parse_options()
    print(f"{'pair':8}{'pairs':>8}{'found':>10}{'wrong':>10}")
    for name in options.pairs or PAIRS:
        total, found, wrong = measure(name, options.share, options.seed)
        print(f"{name:8}{total:8,}{100 * found:9.1f}%{100 * wrong:9.2f}%")


def measure(name: str, share: float, seed: int) -> tuple[int, float, float]:
    """Pairs in all, the share of replaced ones that is found, the share of others that is lost."""
    with tempfile.TemporaryDirectory() as store:
        rows = open_data(f"ntrex:{name}:train", store=Path(store))
        pairs = [pair for pair in rows if isinstance(pair, ParallelPair)]
    dice = random.Random(seed)
    replaced = set(dice.sample(range(len(pairs)), round(share * len(pairs))))
    given = [
        ParallelPair(pair.source, pairs[i - 1].source if i in replaced else pair.target) for i, pair in enumerate(pairs)
    ]
    source, _, target = name.partition("-")
    kept = {id(pair) for pair in clean_pairs(given, SETTINGS, languages=(source, target), bad=BadRows())}
    lost = [i for i, pair in enumerate(given) if id(pair) not in kept]
    found = sum(i in replaced for i in lost)
    return len(pairs), found / max(1, len(replaced)), (len(lost) - found) / (len(pairs) - len(replaced))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", help="pairs of NTREX; default: a dozen")
    parser.add_argument("--share", type=float, default=0.1, help="of the targets that are replaced")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
