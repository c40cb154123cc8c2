"""A file in the format GGUF: named values and tensors, of which quantised ones become float32.

The package ``gguf`` only dequantises here: to read the 262,144 subwords of Gemma with it takes 17 seconds, and
transformers does so three times.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crossling.encoders.four_bit_blocks import Cursor
from crossling.errors import EncoderError

_MAGIC, _VERSIONS, _ALIGNMENT = b"GGUF", (2, 3), 32
_NUMBERS = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?", "", "", "<u8", "<i8", "<f8")
"""numpy's types by the number that the format gives them; strings and arrays have none."""
_STRING, _ARRAY = 8, 9
_PLAIN = {0: "<f4", 1: "<f2"}
"""Types of tensors that are not quantised."""
_MOST_AXES = 4


class GgufFile:
    """The values and tensors of a file, given as its bytes; ``where`` names it in messages."""

    def __init__(self, data: np.ndarray, where: str) -> None:
        self.where = where
        self.values: dict[str, Any] = {}
        self._places: dict[str, tuple[tuple[int, ...], int, int]] = {}
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
            self.values[name] = _read_value(cursor, *cursor.numbers("I"))
        for _ in range(tensors):
            name = _read_string(cursor)
            (axes,) = cursor.numbers("I")
            if axes > _MOST_AXES:
                raise EOFError
            shape = cursor.numbers(f"{axes}Q")[::-1]  # the fastest axis stands first
            self._places[name] = (shape, *cursor.numbers("IQ"))
        step = int(self.values.get("general.alignment", _ALIGNMENT))
        self._begin = -(-cursor.at // step) * step

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
        shape, kind, offset = self._places[name]
        cursor = Cursor(self._data)
        cursor.at = self._begin + offset
        try:
            if kind in _PLAIN:
                return cursor.array(_PLAIN[kind], math.prod(shape)).reshape(shape).astype(np.float32)
            return _dequantise(cursor, shape, kind)
        except (EOFError, ValueError, NotImplementedError) as error:
            raise EncoderError(f"{self.where}: its tensor {name} is damaged, or of a type that is not read.") from error


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


def _dequantise(cursor: Cursor, shape: tuple[int, ...], kind: int) -> np.ndarray:
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
    except ImportError as error:
        raise EncoderError(
            "quantised weights are read with the package gguf, which is not installed. Install it with: "
            "pip install 'crossling[gemma]'"
        ) from error
    named = GGMLQuantizationType(kind)
    elements, size = GGML_QUANT_SIZES[named]
    wide, rest = divmod(shape[-1], elements)
    if rest:
        raise ValueError
    blocks = cursor.array("u1", math.prod(shape[:-1]) * wide * size).reshape(*shape[:-1], wide * size)
    floats: np.ndarray = dequantize(blocks, named)
    return floats
