"""Checks of a checkpoint's files before anything is loaded or allocated: an untrusted folder is data, not a program."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from crossling.encoders.structure import ADVICE, FAMILIES, find_family, list_text_models
from crossling.errors import EncoderError
from crossling.limits import check_inside, read_regular

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
OTHER_SIZES = {
    "type_vocab_size": (0, 65_536),
    "local_attention": (1, 1 << 24),
    "sliding_window": (1, 1 << 24),
    "global_attn_every_n_layers": (1, 1_024),
    "embedding_size": (1, 65_536),
    "input_embedding_size": (1, 65_536),
    "num_hidden_groups": (1, 1_024),
    "inner_group_num": (1, 1_024),
    "num_key_value_heads": (1, 1_024),
    "head_dim": (1, 65_536),
    "d_kv": (1, 65_536),
    "attention_head_size": (1, 65_536),
    "position_buckets": (-1, 1 << 24),
    "max_relative_positions": (-1, 1 << 24),
    "relative_attention_num_buckets": (1, 1 << 24),
    "conv_kernel_size": (0, 1_024),
}
"""Smallest and largest value of what only some families have."""
SHARES = ("dropout", "dropout_prob")
"""How the names of shares between 0 and 1 end."""
TOLERANCES = ("layer_norm_eps", "norm_eps", "rms_norm_eps", "layer_norm_epsilon")
ACTIVATIONS = ("hidden_act", "activation", "hidden_activation")
REFUSED = ("is_decoder", "add_cross_attention", "is_encoder_decoder", "quantization_config", "pruned_heads")
"""What would make another model of the weights than the encoder that they are of."""
FLOATING = {"F64", "F32", "F16", "BF16"}
"""Types that weights may be stored in."""
COUNTERS = ("position_ids", "token_type_ids", "num_batches_tracked")
"""How the names of what are whole numbers in a checkpoint end."""
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
            if path.suffix == ".json":
                read_table(path, where)
    for file in ("config.json", "tokenizer_config.json"):
        if (folder / file).exists() and "auto_map" in (table := read_table(folder / file, where)):
            raise EncoderError(
                f"{where}: {file} names code that comes with the model ({_first(table['auto_map'])}). Code of others "
                f"is never run.{_advise(table.get('model_type'))}"
            )
    _check_index(folder, where, patterns)
    _check_tokenizer_files(folder, where)
    config = read_table(folder / "config.json", where)
    if not isinstance(config.get("model_type"), str):
        raise EncoderError(
            f"{where}: config.json says model_type = {_show(config.get('model_type'))}; a name is needed."
        )
    family = find_family(config["model_type"], name)
    _check_sizes(config, folder, where)
    _check_values(config, where, allowed=("is_encoder_decoder",) if family.half else ())
    for path in sorted(folder.glob("model*.safetensors")):
        _check_types(path, where)


def read_table(path: Path, where: str) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        loaded = json.loads(read_regular(path, most=LARGEST_JSON).decode("utf-8"))
        if not isinstance(loaded, dict):
            raise ValueError("not an object")
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise EncoderError(f"{where}: {path.name} cannot be used: {what}. Fetch the folder again.") from None
    return loaded


def check_weights(model: torch.nn.Module, *, name: str) -> None:
    """Refuse weights that are not numbers: training would spread them, and scores would mean nothing."""
    for key, weight in model.state_dict().items():
        if not is_finite(weight):
            raise EncoderError(
                f"encoder {name!r}: {key} holds values that are infinite or not a number: the weights are damaged, or "
                "were stored in too small a type. Fetch them again, or convert them to float32."
            )


def is_finite(weight: torch.Tensor) -> bool:
    """Whether all values are numbers. What is infinite or none shows in the sum, which takes one pass instead of five;
    a sum may be infinite by itself, so that only then each value is looked at."""
    if not weight.is_floating_point() or bool(torch.isfinite(weight.detach().sum())):
        return True
    return bool(torch.isfinite(weight).all())


def _advise(model_type: Any) -> str:
    """What to use instead of a model that brings code."""
    if isinstance(model_type, str) and model_type in list_text_models():
        return (
            f" transformers has models of type {model_type!r} itself: look for this one's conversion (another "
            "revision, or a repository whose name ends in -hf). If its weights are already in that form, remove "
            "auto_map from a copy of the folder; weights of another form are noticed."
        )
    advice = ADVICE.get(str(model_type), "")
    return f" Use a model that transformers knows by itself, of the type {', '.join(sorted(FAMILIES))}.{advice}"


def _first(value: Any) -> str:
    """One value of a table, to show."""
    return repr(next(iter(value.values()), "") if isinstance(value, dict) else value)[:80]


def _check_place(path: Path, folder: Path, where: str) -> None:
    try:
        check_inside(path, folder)
    except IsADirectoryError:
        raise EncoderError(f"{where}: {path.name} is not a regular file but a folder. Fetch it again.") from None
    except OSError as error:
        raise EncoderError(f"{where}: {path.name} {error.strerror}. Fetch the folder again.") from None


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


def _check_tokenizer_files(folder: Path, where: str) -> None:
    """Files that the tokenizer's configuration chooses among are in this folder."""
    path = folder / "tokenizer_config.json"
    names = read_table(path, where).get("fast_tokenizer_files") if path.exists() else None
    for name in names if isinstance(names, list) else [] if names is None else [names]:
        if not isinstance(name, str) or Path(name).name != name or "\\" in name:
            raise EncoderError(f"{where}: {path.name} names {_show(name)}; a tokenizer is a file in the same folder.")


def _show(value: Any) -> str:
    return repr(value)[:80]


def _check_values(config: Mapping[str, Any], where: str, *, allowed: tuple[str, ...]) -> None:
    """Shares, tolerances and names that layers are built from; what turns an encoder into another model is refused."""
    from transformers.activations import ACT2FN

    def refuse(key: str, valid: str) -> EncoderError:
        return EncoderError(f"{where}: config.json says {key} = {_show(config[key])}; {valid}.")

    for key, value in config.items():
        if key.endswith(SHARES) and value is not None and not _is_between(value, 0, 1):
            raise refuse(key, "valid: a share from 0 to 1")
        if key in TOLERANCES and (not _is_between(value, 0, 0.1) or not value):
            raise refuse(key, "valid: a number above 0, such as 1e-12")
        if key in ACTIVATIONS and (not isinstance(value, str) or value not in ACT2FN):
            raise refuse(key, "no activation that transformers knows")
        if key in REFUSED and key not in allowed and value:
            raise refuse(key, "only plain encoders are read. Save the model again without it")
    for key, (least, most) in OTHER_SIZES.items():
        if config.get(key) is not None and (type(config[key]) is not int or not least <= config[key] <= most):
            raise refuse(key, f"valid: {least} to {most:,}")
    padding, rows = config.get("pad_token_id"), config.get("vocab_size", 1)
    if padding is not None and (type(padding) is not int or not 0 <= padding < rows):
        raise refuse("pad_token_id", f"valid: 0 to {rows - 1}")


def _is_between(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and least <= value <= most


def _check_types(path: Path, where: str) -> None:
    """Refuse weights that are whole numbers: converted silently, they would be other weights."""
    try:
        with safe_open(path, framework="numpy") as file:
            for key in file.keys():  # noqa: SIM118 (not a dict)
                kind = file.get_slice(key).get_dtype()
                if kind not in FLOATING and not key.endswith(COUNTERS):
                    raise EncoderError(
                        f"{where}: {path.name} holds {_show(key)} as {kind}; weights are of a floating type. Save the "
                        "model again in float32."
                    )
    except (SafetensorError, OSError, ValueError) as error:
        raise EncoderError(f"{where}: {path.name} cannot be loaded: {error}. Fetch the folder again.") from None


def _check_sizes(config: dict[str, Any], folder: Path, where: str) -> None:
    """Sizes within bounds, and no more weights than the files could hold."""
    found: list[int] = []
    for names, most in BOUNDS.items():
        key = next((key for key in names if key in config), None)
        size = config.get(key) if key else None
        if key and (type(size) is not int or not 1 <= size <= most):
            raise EncoderError(f"{where}: config.json says {key} = {_show(size)}; valid: 1 to {most:,}.")
        found.append(size or 1)
    width, layers, heads, inner, rows, _ = found
    if width % heads and not any(config.get(key) for key in ("head_dim", "d_kv")):
        raise EncoderError(f"{where}: config.json says {heads} heads, which do not divide the width {width}.")
    asked = rows * width + layers * (4 * width * width + 2 * width * inner)
    stored = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    if asked > SURPLUS * max(stored, 1):
        raise EncoderError(
            f"{where}: config.json asks for about {asked:,} weights, but its files have {stored:,} bytes: the "
            "configuration is of another model. Fetch the folder again."
        )
