"""Smaller encoders on disk: only the subwords that some data uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crossling.data.catalogue import open_data
from crossling.encoder import Encoder, load_encoder
from crossling.errors import DataError
from crossling.tokenization import Subwords
from crossling.vocabulary import write_trimmed


def trim_on(name: str, sources: list[str], out: Path, *, blocks: bool, store: Path) -> str:
    """Write the trimmed encoder; tells how much is left."""
    encoder = load_encoder(name)
    used = np.unique(np.concatenate([collect_ids(encoder, source, store=store) for source in sources]))
    write_trimmed(encoder, used, out, blocks=blocks)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return f"{out}: {len(used):,} of {encoder.vocabulary:,} subwords in use, {size / 1e6:.1f} MB"


def collect_ids(encoder: Encoder, source: str, *, store: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The subwords of a text file or of all text columns of a data set."""
    subwords = Subwords(encoder.tokenizer)
    path = Path(source)
    if path.is_file():
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{source}: not UTF-8 text (byte {error.start})") from None
        return np.unique(subwords.encode_texts(lines).pieces.values).astype(np.int64)
    found = []
    for chunk in open_data(source, split="", store=store).chunks(2_000):
        for values in chunk.values():
            if values and isinstance(values[0], str):
                found.append(np.unique(subwords.encode_texts(values).pieces.values))
            elif values and isinstance(values[0], list) and any(v and isinstance(v[0], str) for v in values):
                found.append(np.unique(subwords.encode_words(values).pieces.values))
    return np.unique(np.concatenate(found)).astype(np.int64) if found else np.zeros(0, np.int64)
