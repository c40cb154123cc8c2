"""What stored examples are found by: all that encoding reads, and no more, so that other weights share them.

A key that lacks something would give the examples of other settings without a word. So encoding gets no more to read
than the key holds.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from crossling.errors import RecipeError
from crossling.recipe.identity import content_hash
from crossling.registry import identify_plugins, load_kind

if TYPE_CHECKING:
    from crossling.data.rows import Rows
    from crossling.encoders.encoder import Encoder
    from crossling.tasks import Task

LIMITS = ("max_length", "uses_token_types", "is_causal")
"""What encoding reads of an encoder besides its tokenizer."""
SPECIAL = ("bos", "cls", "eos", "mask", "pad", "sep", "unk")
TOKENIZING = Lock()
"""Held while a tokenizer is used: they are not thread-safe, and one in use may have other steps for a while."""
_tokenizers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


class _Restricted:
    """Some attributes of settings or of an encoder; any other is an error, also where a default is given for it."""

    def __init__(self, whole: Any, names: Sequence[str], where: str) -> None:
        self._whole, self._names, self._where = whole, frozenset(names), where

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            return getattr(self._whole, name)
        if name.startswith("__"):
            raise AttributeError(name)
        raise RecipeError(
            f"{self._where}.{name}, which does not count in the key of stored examples: name each setting that it "
            f"reads in ENCODING_SETTINGS, or leave that out if it reads more of the encoder than its tokenizer and "
            f"{', '.join(LIMITS)}"
        )


def restrict_encoding(task: Task, encoder: Encoder) -> tuple[Task, Encoder]:
    """A task and an encoder of which encoding can read what counts in the key alone."""
    names = _find_declared(task)
    if names is None:
        return task, encoder
    own, reads = copy.copy(task), f"task {task.settings.kind!r}: encode reads"
    object.__setattr__(own, "settings", _Restricted(task.settings, ("kind", *names), f"{reads} settings"))
    return own, cast("Encoder", _Restricted(encoder, ("tokenizer", *LIMITS), f"{reads} encoder"))


def identify_encoding(task: Task, rows: Sequence[Rows], encoder: Encoder, labels: Sequence[str]) -> str:
    """The key of encoded rows: equal for whatever encodes them alike.

    A kind that does not say which settings it reads may read all of them, and the weights.
    """
    names, settings = _find_declared(task), task.settings.model_dump(mode="json")
    facts = {
        "rows": [part.fingerprint for part in rows],
        "encoder": encoder.identity if names is None else _identify_reading(encoder),
        "task": {name: value for name, value in settings.items() if names is None or name in ("kind", *names)},
        "labels": [list(task.labels), list(labels)],
        "version": load_kind("tasks", task.settings.kind).VERSION,
    }
    if plugins := identify_plugins(settings):
        facts["plugins"] = plugins
    return content_hash(facts)


def _find_declared(task: Task) -> tuple[str, ...] | None:
    """The settings that the task's kind reads when it encodes, where its module says so."""
    names: tuple[str, ...] | None = getattr(load_kind("tasks", task.settings.kind), "ENCODING_SETTINGS", None)
    return names


def _identify_reading(encoder: Encoder) -> dict[str, Any]:
    tokenizer = encoder.tokenizer
    if tokenizer not in _tokenizers:
        with TOKENIZING:
            _tokenizers[tokenizer] = _hash_tokenizer(tokenizer)
    return {"tokenizer": _tokenizers[tokenizer], **{name: getattr(encoder, name) for name in LIMITS}}


def _hash_tokenizer(tokenizer: Any) -> str:
    """The content of a tokenizer: its subwords and steps, and which subwords are special."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    named = {name: getattr(tokenizer, f"{name}_token_id", None) for name in SPECIAL}
    special = [named, sorted(tokenizer.all_special_ids), backend.encode_special_tokens]
    return hashlib.sha256(f"{json.dumps(special)} {backend.to_str()}".encode()).hexdigest()
