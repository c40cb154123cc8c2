"""The card of a saved model: what is needed besides the weights, and which files belong to it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from crossling.errors import ArtefactError, UserError
from crossling.files import hash_file
from crossling.limits import MOST_LABELS, check_inside, read_regular
from crossling.registry import identify_plugins, list_kinds, load_kind

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


Subword = Annotated[int, Field(ge=0, lt=1 << 24)]


class OnnxFacts(TypedDict):
    """What prediction with ONNX Runtime needs to know of an encoder and its tokenizer, so that neither is loaded."""

    precision: Literal["float32", "int8"]
    max_length: Annotated[int, Field(ge=1, le=1 << 24)]
    token_types: bool
    """Whether segments are an input."""
    padding: Subword
    unknown: Subword | None
    mask: Subword | None
    special: list[Subword]
    """All special tokens."""
    trimmed_from: str | None
    """The identity of the encoder whose vocabulary was trimmed."""


class HeadShape(TypedDict):
    """What it takes to build a head again, besides the width."""

    classes: Annotated[int, Field(ge=1, le=MOST_LABELS)]
    dropout: Annotated[float, Field(ge=0, lt=1)]


class StoredTask(TypedDict):
    """A task with the label set that training fixed."""

    settings: dict[str, Any]
    labels: Annotated[list[Annotated[str, Field(min_length=1, max_length=10_000)]], Field(max_length=MOST_LABELS)]


@dataclass(frozen=True)
class ModelCard:
    """What is needed, besides the weights, to build a model again."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

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
    attention: Literal["bidirectional", "causal"] | None = None
    """Which way the encoder's subwords see each other; None: as it was trained."""

    def custom_kinds(self) -> dict[str, str]:
        """Hashes of the custom kinds that it names, as they are now."""
        return identify_plugins(self.fusion, self.tasks)


def read_card(folder: Path) -> ModelCard:
    """The card of a saved model, validated whole before anything is built from it."""
    try:
        card = TypeAdapter(ModelCard).validate_json(read_regular(folder / CARD))
        check_inside(folder / CARD, folder)
        _check_parts(card)
    except FileNotFoundError:
        raise ArtefactError(f"{folder}: holds no model ({CARD} is missing)") from None
    except OSError as error:
        raise ArtefactError(f"{folder / CARD}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise _refuse_card(folder, f"{where + ': ' if where else ''}{fault['msg']}") from None
    except (UserError, ValueError) as error:
        raise _refuse_card(folder, str(error)) from None
    return card


def _refuse_card(folder: Path, what: str) -> ArtefactError:
    return ArtefactError(
        f"{folder / CARD}: not a model card: {what}. Delete the folder and export the model or run the recipe again."
    )


def _find_kind(family: str, table: dict[str, Any]) -> ModuleType | None:
    """The kind that a table names; none where a plugin is missing, which building it will say."""
    kind = table.get("kind")
    return load_kind(family, kind) if isinstance(kind, str) and kind in list_kinds(family) else None


def _check_parts(card: ModelCard) -> None:
    """Refuse a fusion or tasks that cannot be built, and heads that are not those of the tasks' labels."""
    if module := _find_kind("fusions", card.fusion):
        module.Settings.model_validate(card.fusion)
    for name, stored in card.tasks.items():
        module, labels = _find_kind("tasks", stored["settings"]), tuple(stored["labels"])
        if module is None:
            continue
        task = module.Task(module.Settings.model_validate(stored["settings"]), labels)
        needs_labels = bool({"label", "tags"} & set(task.record.__dataclass_fields__))
        if bool(labels) != needs_labels or len(set(labels)) != len(labels):
            raise ValueError(f"tasks.{name}.labels: {len(labels)} labels, {len(set(labels))} of them different")
        if name not in card.heads:
            raise ValueError(f"heads.{name}: missing, though the task has this name")
        if labels and card.heads[name]["classes"] != len(labels):
            raise ValueError(f"heads.{name}: {card.heads[name]['classes']} classes for {len(labels)} labels")


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a file is there; one that is not regular, or a link that leads outside, is an error."""
    try:
        check_inside(path, folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ArtefactError(f"{path}: {error.strerror}. Copy or download the whole folder again.") from None
    return True


def list_loaded(folder: Path) -> list[Path]:
    """The files of a standalone model's folder that loading may read, besides the card."""
    return sorted(path for path in folder.iterdir() if path.suffix in _LOADED and path.name != CARD)


def check_files(folder: Path, card: ModelCard) -> dict[str, str]:
    """The digests of a standalone model's files, each of which is as its card says.

    Files that loading would find and the card does not name are refused: a tokenizer that was left from another model
    would be read silently.
    """
    needed = GRAPH if card.onnx else HEADS
    if needed not in card.files or any(Path(name).name != name for name in card.files):
        raise ArtefactError(f"{folder / CARD}: not a model card: files are names in its folder, {needed} among them.")
    for name, facts in card.files.items():
        path = folder / name
        size = path.stat().st_size if _is_inside(path, folder) else None
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
