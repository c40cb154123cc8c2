"""Aligners on gold alignments and on Multi30k: alignment error rates, and how long they take.

    python benchmarks/alignment.py                              # the statistical aligner: gold sets, then Multi30k
    python benchmarks/alignment.py --aligner neural --set method=itermax
    python benchmarks/alignment.py --aligner eflomal            # where its package is installed
    python benchmarks/alignment.py --growth 29000 250000 1000000 # time and memory as pairs grow

Needs the sets ``gold_alignments`` and ``multi30k`` (CROSSLING_DATA). Aligners that learn are scored twice: on the gold
pairs alone, and for English-French on those together with Multi30k, lower-cased and cut at ``\\w+|[^\\w\\s]``. Speed is
that of Multi30k, both directions and symmetrised, once everything is compiled; the last lines compare the best
round with what fast_align and eflomal took on 2 cores, on another occasion.

Growth is that of made-up pairs, each number in a process of its own: 4 to 20 words, drawn by Zipf's law among a
million, so that new ones come as in text; the translation has a word for each, in nearly the same order, one in seven
of them drawn anew.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from _rows import Row, clock
from crossling.aligners import align_words, parse_aligner
from crossling.aligners.corpus import Corpus, Side, build_corpus
from crossling.aligners.links import Links
from crossling.aligners.score import AlignmentScore, Gold, score_links
from crossling.data.catalogue import open_data
from crossling.data.ragged import Ragged, to_offsets
from crossling.recipe.overrides import apply_overrides

PAIRS = ("en-fr", "ro-en", "zh-en")
WAYS = ("grow-diag-final-and", "intersection")
PEER_SECONDS = {"fast_align, on another occasion": 6.9, "eflomal, on another occasion": 15.3}
"""What others took for Multi30k on 2 cores: both directions and grow-diag-final-and."""


def main() -> None:
    options = parse_options()
    if options.growth:
        for count in options.growth:
            print(describe_growth(run_growth(count, choose(options))), flush=True)
        return
    learns = options.aligner != "neural"
    with tempfile.TemporaryDirectory() as folder:
        tasks = [(pair, *read_gold_set(pair, Path(folder))) for pair in PAIRS]
        for pair, corpus, gold in tasks:
            measure(options, pair, corpus, gold)
        if learns:
            extra = read_multi30k(Path(folder))
            _, corpus, gold = tasks[0]
            rows = [(corpus.source.words(row), corpus.target.words(row)) for row in range(len(corpus))]
            measure(options, "en-fr + Multi30k", build_corpus([*rows, *extra]), gold)
            best = time_aligner(choose(options), build_corpus(extra), rounds=options.rounds)
            for name, seconds in PEER_SECONDS.items():
                print(f"{seconds / best:.2f} times as fast as {name}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aligner", default="statistical")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", type=int, nargs="+", default=[], metavar="PAIRS")
    return parser.parse_args()


def run_growth(count: int, aligner: Any) -> dict[str, Any]:
    """What :func:`grow` finds in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(grow, count, aligner).result()


def grow(count: int, aligner: Any) -> dict[str, Any]:
    """Align a number of pairs, once everything is compiled: time, links, memory."""
    align_words(draw_corpus(100), aligner)
    corpus = draw_corpus(count)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on that of aligning alone
    before, started, work = measure_peak(), time.perf_counter(), time.process_time()
    links = align_words(corpus, aligner)
    return {
        "pairs": count,
        "words": [len(side.tokens.values) for side in (corpus.source, corpus.target)],
        "different": len(corpus.source.vocabulary),
        "links": len(links.pairs),
        "wall": time.perf_counter() - started,
        "work": time.process_time() - work,
        "grown": measure_peak() - before,
        "peak": measure_peak(),
    }


def describe_growth(found: dict[str, Any]) -> str:
    count, words, work = found["pairs"], found["words"], found["work"]
    return (
        f"{count:,} pairs, {words[0]:,} and {words[1]:,} words, {found['different']:,} different; "
        f"{found['links']:,} links; {found['wall']:.1f} s, {work:.1f} CPU seconds, {work / count * 1e6:.0f} us a pair, "
        f"{work / sum(words) * 1e6:.2f} us a word; {found['grown']:,} MB beyond the text, {found['peak']:,} MB in all; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def measure_growth(count: int) -> Row:
    """A row of the benchmark: many made-up pairs."""
    found = run_growth(count, parse_aligner({"kind": "statistical", "symmetrize": "grow-diag-final-and"}))
    return Row(
        "alignment, many pairs",
        f"{count:,} made-up pairs of 12 words a side, both directions; the process takes {found['peak']:,} MB at most",
        "s",
        found["wall"],
        better="lower",
        notes={
            "CPU time of a pair, µs": round(found["work"] / count * 1e6),
            "peak of the process, MB": found["peak"],
            "of that beyond the text, MB": found["grown"],
        },
    )


def measure_peak() -> int:
    """Megabytes of memory that this process had at most since the peak was reset."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) // 1024


def draw_corpus(count: int) -> Corpus:
    """Made-up sentence pairs, the same in every run."""
    generator = np.random.default_rng(0)
    shares = np.cumsum(1 / (np.arange(1_000_000) + 2.7) ** 1.07)
    lengths = generator.integers(4, 21, count)
    rows = np.repeat(np.arange(count), lengths)
    source, others = (np.searchsorted(shares, generator.random(len(rows)) * shares[-1]) for _ in range(2))
    target = np.where(generator.random(len(rows)) < 1 / 7, others, source)
    target = target[np.argsort(np.arange(len(rows)) + 4.0 * rows + generator.random(len(rows)) * 3)]
    return Corpus(make_side(source, lengths), make_side(target, lengths))


def make_side(tokens: Any, lengths: Any) -> Side:
    words, numbers = np.unique(tokens, return_inverse=True)
    return Side(tuple(map(str, words)), Ragged(numbers.astype(np.int32), to_offsets(lengths)))


def read_gold_set(pair: str, store: Path) -> tuple[Corpus, Gold]:
    sets = [
        list(open_data({"data": f"gold_alignments:{pair}", "links": links}, split="test", store=store))
        for links in ("sure", "all")
    ]
    sure, possible = ([frozenset(row.links) for row in rows] for rows in sets)
    corpus = build_corpus((row.source, row.target) for row in sets[0])
    return corpus, Gold(tuple(sure), tuple(possible), base=0)


def read_multi30k(store: Path) -> list[tuple[list[str], list[str]]]:
    cut = re.compile(r"\w+|[^\w\s]")
    rows = open_data("multi30k:en-fr", split="train", store=store)
    return [(cut.findall(row.source.lower()), cut.findall(row.target.lower())) for row in rows]


def measure(options: argparse.Namespace, name: str, corpus: Corpus, gold: Gold) -> None:
    """Score the gold pairs, which come first in the corpus."""
    ways = ("",) if any(item.startswith("method=itermax") for item in options.set) else WAYS
    for how in ways:
        taken, links = clock(partial(align_words, corpus, choose(options, how)))
        offsets = links.offsets[: len(gold) + 1]
        print_score(name, how, score_links(Links(links.pairs[: offsets[-1]], offsets), gold), taken)


def choose(options: argparse.Namespace, how: str = "") -> Any:
    table = {"kind": options.aligner} | ({"symmetrize": how} if how else {})
    return parse_aligner(apply_overrides(table, options.set))


def print_score(name: str, how: str, score: AlignmentScore, taken: float) -> None:
    figures = f"AER {score.aer:.4f}  precision {score.precision:.4f}  recall {score.recall:.4f}"
    print(f"{name:18} {how or 'as it is':20} {figures}  {taken:.1f} s", flush=True)


def time_aligner(aligner: Any, corpus: Corpus, *, rounds: int) -> float:
    """Seconds of the best round."""
    best = float("inf")
    for _ in range(rounds):
        work = time.process_time()
        wall, _ = clock(partial(align_words, corpus, aligner))
        work = time.process_time() - work
        best = min(best, wall)
        load = os.getloadavg()[0]
        print(f"{len(corpus):,} pairs: {wall:.1f} s, {work:.1f} CPU seconds; load {load:.1f}", flush=True)
    return best


if __name__ == "__main__":
    main()
