"""Tasks: what is read, which head, which scores. One file per kind; the named tasks are presets of them."""

from __future__ import annotations

from typing import Any

from crossling.errors import RecipeError, nearest
from crossling.registry import list_kinds, load_kind

PRESETS: dict[str, dict[str, Any]] = {
    "pos": {"kind": "tag", "scheme": "none", "score": "accuracy"},
    "ner": {"kind": "tag", "scheme": "bio", "score": "span_f1"},
    "nli": {"kind": "classify_pair", "score": "accuracy"},
    "paraphrase": {"kind": "classify_pair", "score": "accuracy"},
    "sentiment": {"kind": "classify", "score": "macro_f1"},
    "qa": {"kind": "answer", "score": "qa_f1"},
}
"""The six named tasks."""


def resolve_task(task: str | dict[str, Any]) -> dict[str, Any]:
    """The settings table of a task given by name, or by a table that may start from a preset."""
    if isinstance(task, str):
        task = {"preset": task}
    table = dict(task)
    if "preset" in table:
        name = table.pop("preset")
        if name in PRESETS:
            return {**PRESETS[name], **table}
        if name in list_kinds("tasks"):
            return {"kind": name, **table}
        raise RecipeError(f"unknown task {name!r}.{nearest(name, [*PRESETS, *list_kinds('tasks')])}")
    return table


def parse_task(task: str | dict[str, Any]) -> Any:
    """A task's validated settings."""
    table = resolve_task(task)
    return load_kind("tasks", str(table.get("kind"))).Settings.model_validate(table)


def build_task(settings: Any, labels: tuple[str, ...]) -> Any:
    """A task: settings and the label set that training fixed."""
    return load_kind("tasks", settings.kind).Task(settings, labels)


def restore_task(stored: dict[str, Any]) -> Any:
    """A task from what a model card holds of it."""
    return build_task(parse_task(stored["settings"]), tuple(stored["labels"]))
