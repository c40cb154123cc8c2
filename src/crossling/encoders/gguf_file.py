"""A file in the format GGUF: named values and tensors, of which quantised ones become float32; and a part of it.

Only numpy is needed. To read the 262,144 subwords of Gemma with the package ``gguf`` takes 17 seconds, and transformers
does so three times.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossling.encoders.four_bit_blocks import Cursor
from crossling.errors import EncoderError

_MAGIC, _VERSIONS, _ALIGNMENT = b"GGUF", (2, 3), 32
_NUMBERS = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?", "", "", "<u8", "<i8", "<f8")
"""numpy's types by the number that the format gives them; strings and arrays have none."""
_STRING, _ARRAY = 8, 9
_MOST_AXES = 4


class GgufFile:
    """The values and tensors of a file, given as its bytes; ``where`` names it in messages."""

    def __init__(self, data: np.ndarray, where: str) -> None:
        self.where = where
        self.values: dict[str, Any] = {}
        self._records: dict[str, bytes] = {}
        """The bytes of every value, after its name."""
        self._places: dict[str, tuple[tuple[int, ...], int, int]] = {}
        """Of every tensor its shape, the type of its numbers, and where it begins."""
        self._data = data
        if data[:4].tobytes() != _MAGIC:
            raise EncoderError(f"{where}: not in the format GGUF.")
        try:
            self._read_header(Cursor(data))
        except (EOFError, IndexError, TypeError, UnicodeDecodeError) as error:
            raise EncoderError(f"{where}: cut off or damaged. Install it again.") from error

    def _read_header(self, cursor: Cursor) -> None:
        cursor.take(4)
        version, tensors, values = cursor.numbers("IQQ")
        if version not in _VERSIONS:
            raise EncoderError(f"{self.where}: version {version} of the format GGUF, which is not known.")
        for _ in range(values):
            name = _read_string(cursor)
            start = cursor.at
            self.values[name] = _read_value(cursor, *cursor.numbers("I"))
            self._records[name] = cursor.data[start : cursor.at].tobytes()
        for _ in range(tensors):
            name = _read_string(cursor)
            (axes,) = cursor.numbers("I")
            if axes > _MOST_AXES:
                raise EOFError
            shape = cursor.numbers(f"{axes}Q")[::-1]  # the fastest axis stands first
            self._places[name] = (shape, *cursor.numbers("IQ"))
        self._step = int(self.values.get("general.alignment", _ALIGNMENT))
        self._begin = -(-cursor.at // self._step) * self._step

    @property
    def names(self) -> list[str]:
        """The names of its tensors."""
        return list(self._places)

    def value(self, name: str) -> Any:
        """A value that must be there."""
        if name not in self.values:
            raise EncoderError(f"{self.where}: states no {name}, so it is not Gemma's.")
        return self.values[name]

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32."""
        shape, kind, _ = self._places[name]
        values = _FORMATS[kind].read(self.raw(name).reshape(-1, _FORMATS[kind].bytes))
        return values.reshape(shape).astype(np.float32, copy=False)

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a tensor, a row for each of its own."""
        shape, kind, offset = self._places[name]
        known = _FORMATS.get(kind)
        if known is None or shape[-1] % known.elements:
            raise EncoderError(f"{self.where}: its tensor {name} is of a type that is not read ({kind}).")
        wide = shape[-1] // known.elements * known.bytes
        start, size = self._begin + offset, math.prod(shape[:-1]) * wide
        if start + size > len(self._data):
            raise EncoderError(f"{self.where}: its tensor {name} is damaged or cut off.")
        return self._data[start : start + size].reshape(-1, wide)

    def compose_part(
        self, values: Mapping[str, Any], names: Sequence[str], rows: Mapping[str, np.ndarray]
    ) -> list[bytes]:
        """The parts of a file with other values and some tensors, some with some rows alone, as they are stored."""
        records = self._records | {name: _write_value(value) for name, value in values.items()}
        head = [_MAGIC, struct.pack("<IQQ", _VERSIONS[-1], len(names), len(records))]
        head += [_write_string(name) + record for name, record in records.items()]
        bodies, offset = [], 0
        for name in names:
            body, (shape, kind, _) = self.raw(name), self._places[name]
            if name in rows:
                body, shape = body[rows[name]], (len(rows[name]), *shape[1:])
            head.append(_write_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset))
            bodies.append(body.tobytes() + bytes(-body.nbytes % self._step))
            offset += len(bodies[-1])
        return [*head, bytes(-sum(map(len, head)) % self._step), *bodies]


def _read_string(cursor: Cursor) -> str:
    return cursor.take(*cursor.numbers("Q")).decode("utf-8")


def _read_value(cursor: Cursor, kind: int) -> Any:
    if kind == _STRING:
        return _read_string(cursor)
    if kind == _ARRAY:
        inner, count = cursor.numbers("IQ")
        if inner == _STRING:
            return [_read_string(cursor) for _ in range(count)]
        return cursor.array(_NUMBERS[inner], count)
    return cursor.array(_NUMBERS[kind], 1)[0].item()


def _write_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _write_value(value: Any) -> bytes:
    """A text, a list of texts, a number or an array of numbers, after its type."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _write_string(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_write_string, value))
    if isinstance(value, np.ndarray):
        kind = _NUMBERS.index(value.dtype.newbyteorder("<").str.lstrip("|"))
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + value.tobytes()
    return struct.pack("<II", _NUMBERS.index("<u4"), value)


@dataclass(frozen=True, slots=True)
class _Format:
    """How the numbers of a tensor are stored: in blocks, or each for itself."""

    elements: int
    """Numbers in a block."""
    bytes: int
    read: Callable[[np.ndarray], np.ndarray]
    """Blocks x bytes as blocks x numbers."""


def _view(blocks: np.ndarray, start: int, end: int, dtype: str) -> np.ndarray:
    """Some bytes of every block as numbers of a type."""
    return np.ascontiguousarray(blocks[:, start:end]).view(dtype)


def _scale(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = codes.astype(np.float32) * scales.astype(np.float32)
    return scaled


def _read_eight_bits(blocks: np.ndarray) -> np.ndarray:
    """``Q8_0``: a float16 scale, then 32 signed bytes."""
    return _scale(_view(blocks, 2, 34, "i1"), _view(blocks, 0, 2, "<f2"))


def _read_five_bits(blocks: np.ndarray) -> np.ndarray:
    """``Q5_0``: a float16 scale, 32 highest bits, then the others as nibbles: of numbers 0 to 15, of 16 to 31."""
    high = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    low = np.concatenate([blocks[:, 6:] & 15, blocks[:, 6:] >> 4], 1)
    return _scale((low | high << 4).astype(np.int8) - np.int8(16), _view(blocks, 0, 2, "<f2"))


def _read_four_bits(blocks: np.ndarray) -> np.ndarray:
    """``Q4_K``: 8 parts of 32 unsigned nibbles, each with a scale and an offset of 6 bits.

    A float16 for all scales, one for all offsets; 12 bytes: of parts 0 to 3 the scales, then the offsets, in 6 bits;
    then of parts 4 to 7 the lower 4 bits of both in one byte, whose upper 2 bits stand above those 6.
    """
    packed = blocks[:, 4:16].reshape(-1, 3, 4)
    first, last = packed[:, :2] & 63, packed[:, :2] >> 6 << 4
    rest = np.stack([packed[:, 2] & 15, packed[:, 2] >> 4], 1) | last
    scales, offsets = np.concatenate([first, rest], 2).transpose(1, 0, 2)
    pairs = blocks[:, 16:].reshape(-1, 4, 1, 32)
    codes = np.concatenate([pairs & 15, pairs >> 4], 2).reshape(-1, 8, 32)
    scales = _scale(scales, _view(blocks, 0, 2, "<f2"))
    offsets = _scale(offsets, _view(blocks, 2, 4, "<f2"))
    numbers: np.ndarray = _scale(codes, scales[:, :, None]) - offsets[:, :, None]
    return numbers.reshape(-1, 256)


def _read_six_bits(blocks: np.ndarray) -> np.ndarray:
    """``Q6_K``: 16 parts of 16 numbers, each with a scale of a signed byte, and a float16 for all scales at the end.

    Each half of 128 numbers has 64 bytes of nibbles, the lower ones first, and 32 bytes with the two highest bits of
    the numbers that are 32 apart.
    """
    nibbles = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([nibbles & 15, nibbles >> 4], 2).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
    codes = (low | high << 4).astype(np.int8).reshape(-1, 16, 16) - np.int8(32)
    scales = _scale(_view(blocks, 192, 208, "i1"), _view(blocks, 208, 210, "<f2"))
    return _scale(codes, scales[:, :, None]).reshape(-1, 256)


_FORMATS = {
    0: _Format(1, 4, lambda blocks: _view(blocks, 0, 4, "<f4").copy()),
    1: _Format(1, 2, lambda blocks: _view(blocks, 0, 2, "<f2")),
    6: _Format(32, 22, _read_five_bits),
    8: _Format(32, 34, _read_eight_bits),
    12: _Format(256, 144, _read_four_bits),
    14: _Format(256, 210, _read_six_bits),
}
"""By the number that the format gives a type of tensors."""
