"""A tiny file of 4-bit blocks, written from its description, independently of the code that reads it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁the", "▁cat", "s", "c", "a", "t", "猫", "<mask>"]
SCORES = [0.0, 0.0, 0.0, 0.0, -3.0, -4.0, -5.0, -6.0, -7.0, -7.5, -8.0, -9.0, 0.0]
SIZES = {"width": 32, "layers": 2, "heads": 4, "inner": 64, "rows": 15, "positions": 16, "types": 2}


def write_tiny_blocks(path: Path) -> dict[str, np.ndarray]:
    """Write the file; gives back the numbers that must be read from it."""
    random = np.random.default_rng(0)
    width, inner = SIZES["width"], SIZES["inner"]
    shapes: dict[str, tuple[int, ...]] = {"emb.word": (SIZES["rows"], width)}
    shapes |= {
        "emb.pos": (SIZES["positions"], width),
        "emb.type": (2, width),
        "emb.ln.w": (width,),
        "emb.ln.b": (width,),
    }
    for layer in range(SIZES["layers"]):
        for short in ("q", "k", "v", "ao"):
            shapes |= {f"l{layer}.{short}.w": (width, width), f"l{layer}.{short}.b": (width,)}
        shapes |= {f"l{layer}.fi.w": (inner, width), f"l{layer}.fi.b": (inner,)}
        shapes |= {f"l{layer}.fo.w": (width, inner), f"l{layer}.fo.b": (width,)}
        for short in ("aln", "oln"):
            shapes |= {f"l{layer}.{short}.w": (width,), f"l{layer}.{short}.b": (width,)}
    bodies, values = {}, {}
    for name, shape in shapes.items():
        packed = len(shape) == 2 and name not in ("emb.pos", "emb.type")
        bodies[name], values[name] = (_pack if packed else _plain)(random, shape)
    text = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, text)]).astype("<u4")
    head = b"E5S1" + struct.pack("<i7i", 1, *SIZES.values()) + struct.pack("<fi", 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1])) + ends.tobytes()
    head += np.asarray(SCORES, "<f4").tobytes() + b"".join(text)
    table = struct.pack("<IBI", 0xFF21, 1, 0x41)
    head += struct.pack("<iI", 1, len(table)) + table + struct.pack("<i", len(bodies))
    start = len(head) + sum(2 + len(name) + 21 for name in bodies)
    for name, body in bodies.items():
        size = values[name].size
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", int(len(body) != 4 * size), size, start, len(body))
        start += len(body)
    path.write_bytes(head + b"".join(bodies.values()))
    return values


def _plain(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[bytes, np.ndarray]:
    values = random.normal(size=shape).astype("<f4")
    return values.tobytes(), values


def _pack(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[bytes, np.ndarray]:
    count = int(np.prod(shape)) // 32
    body, values = b"", []
    for _ in range(count):
        scale = np.float16(random.uniform(0.02, 0.1))
        codes = random.integers(0, 16, 32)
        body += scale.tobytes() + bytes(int(codes[i] | codes[16 + i] << 4) for i in range(16))
        values += [np.float32(int(code) - 8) * np.float32(scale) for code in codes]
    return body, np.asarray(values, np.float32).reshape(shape)
