"""Smaller encoders on disk: only the subwords that some data uses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.catalogue import open_data
from crossling.data.ragged import IntArray
from crossling.data.words import cut_by_tokenizer, split_words
from crossling.encoders.coverage import read_lines
from crossling.encoders.encoder import Encoder, load_encoder
from crossling.encoders.tokenization import Subwords
from crossling.encoders.vocabulary import write_trimmed
from crossling.errors import ArtefactError, DataError

CHUNK = 2_000
NOT_TEXT = ("id", "label", "tags")
"""Columns of data sets that no encoder reads."""


def trim_on(name: str, sources: Sequence[str], out: Path, *, blocks: bool, store: Path) -> str:
    """Write the trimmed encoder, all of it or nothing; tells how much is left."""
    check_place(out)
    encoder = load_encoder(name)
    used = np.unique(np.concatenate([collect_ids(encoder, source, store=store) for source in sources]))
    write_whole(out, lambda folder: write_trimmed(encoder, used, folder, blocks=blocks))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return f"{out}: {len(used):,} of {encoder.vocabulary:,} subwords in use, {size / 1e6:.1f} MB"


def write_whole(out: Path, write: Callable[[Path], Any]) -> None:
    """A folder, all of it or nothing: ``write`` gets one beside it, which takes the name once it is complete."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
            write(Path(folder) / "whole")
            (Path(folder) / "whole").replace(out)
    except OSError as error:
        raise ArtefactError(f"{out}: cannot be written: {error.strerror or error}. Name another with --out.") from None


def check_place(out: Path) -> None:
    """What is there is not written over: it may be the very encoder that another is to be made of."""
    if out.is_dir() and any(out.iterdir()):
        raise ArtefactError(f"{out}: is not empty. Name another folder with --out, or delete this one.")
    if out.exists() and not out.is_dir():
        raise ArtefactError(f"{out}: is a file. Name another folder with --out.")


def collect_ids(encoder: Encoder, source: str, *, store: Path) -> IntArray:
    """The subwords of a text file, or of all that an encoder would read of a data set."""
    subwords = Subwords(encoder.tokenizer)
    if Path(source).is_file():
        found = list(_cut_lines(subwords, read_lines(Path(source)), encoder))
    elif ":" not in source:
        raise DataError(f"{source}: no such file; and a data set is named with its language, such as panx:de:dev")
    else:
        chunks = open_data(source, split="", store=store).chunks(CHUNK)
        found = [ids for chunk in chunks for ids in _cut_columns(subwords, chunk)]
    if not found:
        raise DataError(f"{source}: holds no text to trim on")
    return np.unique(np.concatenate(found)).astype(np.int64)


def _cut_lines(subwords: Subwords, lines: Iterable[str], encoder: Encoder) -> Iterator[IntArray]:
    """Running text as a classifier reads it, and word by word as a tagger does."""
    pieces = cut_by_tokenizer(encoder.tokenizer)
    rest = iter(lines)
    while chunk := list(islice(rest, CHUNK)):
        yield np.unique(subwords.encode_pieces(chunk).values)
        words = [[word.text for word in split_words(line, pieces=pieces)] for line in chunk]
        yield np.unique(subwords.encode_words(words).pieces.values)


def _cut_columns(subwords: Subwords, chunk: dict[str, list[Any]]) -> Iterator[IntArray]:
    for name, values in chunk.items():
        if name in NOT_TEXT:
            continue
        if isinstance(values[0], str):
            yield np.unique(subwords.encode_pieces(values).values)
        elif any(value and isinstance(value[0], str) for value in values):
            yield np.unique(subwords.encode_words(values).pieces.values)
