"""The vocabulary in an encoder's folder: as large as its authors made it, and as large as its table of subwords."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import safe_open

from crossling.errors import EncoderError

_TABLES = ("word_embeddings.weight", "tok_embeddings.weight")
"""How the names of subword tables end."""


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a checkpoint.

    Of a vocabulary file that comes alone, as with BERTs whose authors added pieces to it, nothing says whether text is
    lower-cased first, and transformers would do so: it is not where pieces have capital letters.
    """
    from transformers import AutoTokenizer

    alone = folder / "vocab.txt"
    choice = {}
    if alone.is_file() and not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        pieces = alone.read_text(encoding="utf-8").split("\n")
        cased = any(piece != piece.lower() for piece in pieces if not piece.startswith(("[", "<")))
        choice = {"do_lower_case": not cased}
    return AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True, **choice)


def check_sizes(folder: Path, *, name: str, config: Any, tokenizer: Any) -> None:
    """That settings, weights and tokenizer are of one vocabulary: a folder may have got the files of two."""
    rows = _count_rows(folder)
    if rows is None:
        return
    if rows != config.vocab_size:
        raise EncoderError(
            f"encoder {name!r}: {folder / 'config.json'} says vocab_size = {config.vocab_size}, but its weights have "
            f"{rows} rows of subwords. If the weights are the right ones, write vocab_size = {rows} there."
        )
    last = max(tokenizer.get_vocab().values())
    if last >= rows:
        raise EncoderError(
            f"encoder {name!r}: its tokenizer has subwords up to {last}, but its weights only {rows} rows (0 to "
            f"{rows - 1}): {folder} holds the tokenizer of another encoder. Put the right one there."
        )


def _count_rows(folder: Path) -> int | None:
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for key in file.keys():  # noqa: SIM118 (not a dict)
                if key.endswith(_TABLES):
                    return int(file.get_slice(key).get_shape()[0])
    return None
