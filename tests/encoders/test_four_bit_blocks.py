"""The file of 4-bit blocks: numbers read back, and parts written."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from crossling.encoders.four_bit_blocks import BLOCKS_DESCRIPTION, BLOCKS_FILE, BlockFile, expand_blocks, write_blocks
from crossling.errors import EncoderError
from tiny_blocks import PIECES, SIZES, write_tiny_blocks


def expand_slowly(raw: bytes) -> list[float]:
    values = []
    for start in range(0, len(raw), 18):
        (scale,) = struct.unpack("<e", raw[start : start + 2])
        packed = raw[start + 2 : start + 18]
        values += [((byte & 15) - 8) * scale for byte in packed]
        values += [((byte >> 4) - 8) * scale for byte in packed]
    return values


@pytest.mark.parametrize("blocks", [1, 7, 4096, 5000])
def test_blocks_expand_to_expected_values(blocks: int) -> None:
    random = np.random.default_rng(blocks)
    raw = random.integers(0, 256, (blocks, 18), dtype=np.uint8)
    raw[:, :2] = random.normal(size=blocks).astype("<f2").view(np.uint8).reshape(-1, 2)
    flat = raw.reshape(-1)
    assert expand_blocks(flat).tolist() == pytest.approx(expand_slowly(flat.tobytes()), abs=0)


def test_file_round_trips(tmp_path: Path) -> None:
    values = write_tiny_blocks(tmp_path / "tiny.bin")
    file = BlockFile(tmp_path / "tiny.bin")
    assert file.pieces == PIECES
    assert (file.sizes.width, file.sizes.layers, file.sizes.rows) == (
        SIZES["width"],
        SIZES["layers"],
        SIZES["rows"],
    )
    for name, expected in values.items():
        assert np.array_equal(file.tensor(name, *expected.shape), expected), name


def test_trimmed_file_keeps_rows_bit_for_bit(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    whole = BlockFile(tmp_path / "tiny.bin")
    write_blocks(tmp_path / "tiny.bin", np.asarray([9, 6, 9]), tmp_path / "part", name="tiny")
    part = BlockFile(tmp_path / "part" / BLOCKS_FILE)
    kept = json.loads((tmp_path / "part" / BLOCKS_DESCRIPTION).read_text())["kept"]
    assert {0, 1, 2, 3, 6, 9, len(PIECES) - 1} <= set(kept) and len(kept) < len(PIECES)
    assert part.pieces == [PIECES[index] for index in kept]
    assert part.scores.tolist() == whole.scores[kept].tolist()
    assert part.scores.min() == whole.scores.min()
    rows = whole.raw("emb.word").reshape(whole.sizes.rows, -1)
    assert part.raw("emb.word").tobytes() == rows[kept].tobytes()
    for name in whole.tensors:
        if name != "emb.word":
            assert part.raw(name).tobytes() == whole.raw(name).tobytes(), name
    assert part.identity != whole.identity


def test_trimmed_file_can_be_trimmed_again(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    everything = np.arange(len(PIECES))
    write_blocks(tmp_path / "tiny.bin", everything, tmp_path / "all", name="tiny")
    again = write_blocks(tmp_path / "all" / BLOCKS_FILE, everything, tmp_path / "again", name="tiny")
    assert (again / BLOCKS_FILE).read_bytes() == (tmp_path / "all" / BLOCKS_FILE).read_bytes()


def test_unknown_subwords_cannot_be_kept(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    with pytest.raises(EncoderError, match="pieces 0 to"):
        write_blocks(tmp_path / "tiny.bin", np.asarray([len(PIECES)]), tmp_path / "part", name="tiny")


def test_damaged_file_is_a_user_error(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    whole = (tmp_path / "tiny.bin").read_bytes()
    bad = tmp_path / "bad.bin"
    for length in range(0, len(whole) - 64, 97):
        bad.write_bytes(whole[:length])
        with pytest.raises(EncoderError, match=r"bad\.bin"):
            BlockFile(bad)
    bad.write_bytes(b"GGUF" + whole[4:])
    with pytest.raises(EncoderError, match="E5S1"):
        BlockFile(bad)
    with pytest.raises(EncoderError, match="no such file"):
        BlockFile(tmp_path / "nothing.bin")
