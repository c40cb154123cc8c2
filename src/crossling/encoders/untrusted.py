"""Checks of a checkpoint's files before anything is loaded or allocated: a stranger's folder is data, not a program."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from crossling.errors import EncoderError

LARGEST_JSON = 64_000_000
"""Bytes of a configuration or an index; a larger one is refused unread."""
BOUNDS = {
    ("hidden_size", "dim", "d_model"): 65_536,
    ("num_hidden_layers", "n_layers", "num_layers"): 1_024,
    ("num_attention_heads", "n_heads", "num_heads"): 1_024,
    ("intermediate_size", "hidden_dim", "d_ff"): 1_048_576,
    ("vocab_size",): 16_777_216,
    ("max_position_embeddings",): 16_777_216,
}
"""The largest value of each size, under the names that families give it."""
SURPLUS = 32
"""How many times the weights in the files a configuration may ask for: models that share layers ask for a dozen."""


def check_checkpoint(folder: Path, *, name: str, patterns: tuple[str, ...]) -> None:
    """Refuse code, files that lead outside the folder, and sizes that no weights here could fill.

    ``patterns`` are the files that are read: their bytes make up the encoder's identity, so no other may be loaded.
    """
    where = f"encoder {name!r}: {folder}"
    for path in folder.iterdir():
        if any(fnmatch(path.name, pattern) for pattern in patterns):
            _check_place(path, folder, where)
    for file in ("config.json", "tokenizer_config.json"):
        if (folder / file).exists() and "auto_map" in (table := read_table(folder / file, where)):
            raise EncoderError(
                f"{where}: {file} names code that comes with the model ({_first(table['auto_map'])}). Code of others "
                "is never run. Use a model that transformers knows by itself; if this one is, remove auto_map there."
            )
    _check_index(folder, where, patterns)
    _check_sizes(read_table(folder / "config.json", where), folder, where)


def read_table(path: Path, where: str) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ValueError(f"larger than {LARGEST_JSON:,} bytes")
        loaded = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(loaded, dict):
            raise ValueError("not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise EncoderError(f"{where}: {path.name} cannot be used: {error}. Fetch the folder again.") from None
    return loaded


def check_weights(model: torch.nn.Module, *, name: str) -> None:
    """Refuse weights that are not numbers: training would spread them, and scores would mean nothing."""
    for key, weight in model.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise EncoderError(
                f"encoder {name!r}: {key} holds values that are infinite or not a number: the weights are damaged, or "
                "were stored in too small a type. Fetch them again, or convert them to float32."
            )


def _first(value: Any) -> str:
    """One value of a table, to show."""
    return repr(next(iter(value.values()), "") if isinstance(value, dict) else value)[:80]


def _check_place(path: Path, folder: Path, where: str) -> None:
    """A regular file in the folder; the hub's cache links to its own ``blobs``."""
    roots = [folder.resolve()]
    if folder.parent.name == "snapshots":
        roots.append((folder.parent.parent / "blobs").resolve())
    target = path.resolve()
    if not any(target.is_relative_to(root) for root in roots):
        raise EncoderError(f"{where}: {path.name} is a link that leads outside ({target}). Copy the file itself here.")
    if not target.is_file():
        raise EncoderError(f"{where}: {path.name} is not a regular file. Fetch the folder again.")


def _check_index(folder: Path, where: str, patterns: tuple[str, ...]) -> None:
    """The files that an index names are safetensors in this folder."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return
    named = read_table(index, where).get("weight_map")
    if not isinstance(named, dict) or not named:
        raise EncoderError(f"{where}: {index.name} has no weight_map. Fetch the folder again.")
    for file in sorted({str(value) for value in named.values()}):
        known = file.endswith(".safetensors") and any(fnmatch(file, pattern) for pattern in patterns)
        if not known or "/" in file or "\\" in file:
            raise EncoderError(
                f"{where}: {index.name} names {file!r}; weights are files model-….safetensors in the same folder. "
                "Save the model again with transformers' save_pretrained."
            )
        if not (folder / file).is_file():
            raise EncoderError(f"{where}: {index.name} names {file}, which is missing. Fetch the folder again.")


def _check_sizes(config: dict[str, Any], folder: Path, where: str) -> None:
    """Sizes within bounds, and no more weights than the files could hold."""
    found: list[int] = []
    for names, most in BOUNDS.items():
        key = next((key for key in names if key in config), None)
        size = config.get(key) if key else None
        if key and (type(size) is not int or not 1 <= size <= most):
            raise EncoderError(f"{where}: config.json says {key} = {size!r}; valid: 1 to {most:,}.")
        found.append(size or 1)
    width, layers, _, inner, rows, _ = found
    asked = rows * width + layers * (4 * width * width + 2 * width * inner)
    stored = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    if asked > SURPLUS * max(stored, 1):
        raise EncoderError(
            f"{where}: config.json asks for about {asked:,} weights, but its files have {stored:,} bytes: the "
            "configuration is of another model. Fetch the folder again."
        )
