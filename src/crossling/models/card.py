"""The card of a saved model: what is needed besides the weights, and which files belong to it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from crossling.errors import ArtefactError
from crossling.files import hash_file
from crossling.registry import identify_plugins

CARD = "model.json"
HEADS = "heads.safetensors"
"""The file of a standalone model with the weights of its fusion and its heads."""
GRAPH = "model.onnx"
"""The file of a model for ONNX Runtime with its graph; the weights are in the file ``GRAPH_WEIGHTS``."""
GRAPH_WEIGHTS = "model.onnx.data"
_LOADED = (".json", ".safetensors", ".model", ".onnx", ".data", ".txt", ".jinja", ".bin", ".pt", ".py")
"""Endings of files that loading may look for in a standalone model's folder: all such files are on its card."""


class FileFacts(TypedDict):
    """What a card says of a file."""

    bytes: int
    sha256: str


class OnnxFacts(TypedDict):
    """What prediction with ONNX Runtime needs to know of an encoder and its tokenizer, so that neither is loaded."""

    precision: Literal["float32", "int8"]
    max_length: Annotated[int, Field(ge=1)]
    token_types: bool
    """Whether segments are an input."""
    padding: int
    unknown: int | None
    mask: int | None
    special: list[int]
    """All special tokens."""
    trimmed_from: str | None
    """The identity of the encoder whose vocabulary was trimmed."""


class HeadShape(TypedDict):
    """What it takes to build a head again, besides the width."""

    classes: Annotated[int, Field(ge=1, le=1_000_000)]
    dropout: Annotated[float, Field(ge=0, lt=1)]


class StoredTask(TypedDict):
    """A task with the label set that training fixed."""

    settings: dict[str, Any]
    labels: list[str]


@dataclass(frozen=True)
class ModelCard:
    """What is needed, besides the weights, to build a model again."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    encoder: str
    encoder_identity: str
    revision: str | None = None
    fusion: dict[str, Any] = field(default_factory=lambda: {"kind": "last"})
    tasks: dict[str, StoredTask] = field(default_factory=dict)
    """For each head: the task's settings and labels."""
    heads: dict[str, HeadShape] = field(default_factory=dict)
    """For each head: its number of classes and its dropout; filled in when the model is saved."""
    source: str = "en"
    notes: dict[str, Any] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    """Hashes of the custom kinds that it was trained with; filled in when the model is saved."""
    files: dict[str, FileFacts] = field(default_factory=dict)
    """Of a standalone model: all files that loading reads, by name. Without any, the encoder is loaded by its name."""
    onnx: OnnxFacts | None = None
    """Of a model that ONNX Runtime runs; None: torch runs it."""

    def custom_kinds(self) -> dict[str, str]:
        """Hashes of the custom kinds that it names, as they are now."""
        return identify_plugins(self.fusion, self.tasks)


def read_card(folder: Path) -> ModelCard:
    """The card of a saved model."""
    try:
        return TypeAdapter(ModelCard).validate_json((folder / CARD).read_bytes())
    except FileNotFoundError:
        raise ArtefactError(f"{folder}: holds no model ({CARD} is missing)") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ArtefactError(
            f"{folder / CARD}: not a model card: {where + ': ' if where else ''}{fault['msg']}. Delete the folder and "
            "export the model or run the recipe again."
        ) from None


def list_loaded(folder: Path) -> list[Path]:
    """The files of a standalone model's folder that loading may read, besides the card."""
    return sorted(path for path in folder.iterdir() if path.suffix in _LOADED and path.name != CARD)


def check_files(folder: Path, card: ModelCard) -> dict[str, str]:
    """The digests of a standalone model's files, each of which is as its card says.

    Files that loading would find and the card does not name are refused: a tokenizer that was left from another model
    would be read in silence.
    """
    needed = GRAPH if card.onnx else HEADS
    if needed not in card.files or any(Path(name).name != name for name in card.files):
        raise ArtefactError(f"{folder / CARD}: not a model card: files are names in its folder, {needed} among them.")
    for name, facts in card.files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != facts["bytes"]:
            found = "is missing" if size is None else f"has {size:,} bytes, not {facts['bytes']:,}"
            raise ArtefactError(
                f"{path}: {found}. Copy or download the whole folder again (of a git clone: git lfs pull)."
            )
    extra = [path for path in list_loaded(folder) if path.name not in card.files]
    if extra:
        raise ArtefactError(f"{extra[0]}: is no part of the model in this folder. Move it elsewhere.")
    digests = {name: hash_file(folder / name) for name in card.files}
    changed = [name for name, digest in digests.items() if digest != card.files[name]["sha256"]]
    if changed:
        raise ArtefactError(
            f"{folder / changed[0]}: was changed after the model was saved: its SHA-256 is not the one in {CARD}. Copy "
            "or download the folder again, or export the model again."
        )
    return digests
