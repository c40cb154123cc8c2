"""Memory: rows are read from disk as they are asked for, however many there are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import json, resource, sys
from pathlib import Path
from crossling.data.catalogue import open_data

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

table = json.loads(sys.argv[1])
open_data({**table, "path": sys.argv[2] + ".small"}, store=Path(sys.argv[3]))
before = peak()
rows = open_data({**table, "path": sys.argv[2]}, store=Path(sys.argv[3]))
words = sum(len(chunk[name]) for chunk in rows.chunks(2000) for name in chunk)
labels = rows.labels()
part = rows.select(-1000)
print(json.dumps({"rows": len(rows), "seen": words, "labels": labels, "last": len(part), "grown": peak() - before,
                  "torch": "torch" in sys.modules}))
"""


def write_bio(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        for i in range(rows):
            out.write("".join(f"word{i}x{j}\tT{j % 5}\n" for j in range(12)) + "\n")


def write_tsv(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        for i in range(rows):
            out.write(f"sentence {i} {'and so on ' * 6}\tanother {i} {'of the kind ' * 5}\tL{i % 3}\n")


KINDS = {
    "bio": (write_bio, {"format": "bio", "language": "en"}),
    "tsv": (write_tsv, {"format": "tsv", "language": "en", "first": 1, "second": 2, "label": 3}),
}


def measure(kind: str, rows: int, folder: Path) -> None:
    write, table = KINDS[kind]
    write(folder / "rows", rows)
    write(folder / "rows.small", 100)
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(table), str(folder / "rows"), str(folder / "store")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == rows and told["last"] == 1000 and not told["torch"]
    stored = sum(path.stat().st_size for path in (folder / "store" / "data").glob("*.arrow")) // 2**20
    # pages of the mapped file count as resident once they are read; beyond them, only a chunk of rows at a time
    assert told["grown"] < stored + 150, f"{told['grown']} MB for a file of {stored} MB"


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_thousand_rows(kind: str, tmp_path: Path) -> None:
    measure(kind, 50_000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_rows(kind: str, tmp_path: Path) -> None:
    measure(kind, 1_000_000, tmp_path)
