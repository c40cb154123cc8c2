"""TOML in and out: files read, keys set by ``--set key=value``, resolved recipes written."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crossling.errors import RecipeError, nearest
from crossling.limits import DEEPEST_SETTINGS, find_nesting, read_regular

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; a file that is not there or not TOML is a :class:`RecipeError`."""
    try:
        tables = tomllib.loads(read_regular(path).decode("utf-8-sig").replace("\r\n", "\n"))
    except FileNotFoundError:
        beside = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise RecipeError(f"{path}: no such file.{nearest(path.name, beside)}") from None
    except IsADirectoryError:
        raise RecipeError(f"{path}: is a folder; name a recipe file in it") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = bytes(error.object).count(b"\n", 0, error.start) + 1
        raise RecipeError(f"{path}:{line}: not UTF-8 text (byte {error.start}); a recipe is a TOML file") from None
    except (ValueError, RecursionError) as error:  # of its syntax, numbers of thousands of digits, brackets without end
        raise RecipeError(f"{path}: not valid TOML: {error}") from None
    _check_nesting(tables, f"{path}: ")
    return tables


def apply_overrides(tables: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Set ``a.0.b=value`` in a copy of nested tables; list items are addressed by number."""
    result: dict[str, Any] = json.loads(json.dumps(tables, default=str))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise RecipeError(f"--set {override!r}: write key=value, such as stage.0.epochs=2")
        set_path(result, key.strip(), parse_value(text.strip()))
    return result


def _check_nesting(tables: Any, label: str) -> None:
    if (key := find_nesting(tables)) is not None:
        shown = key[:60]
        raise RecipeError(
            f"{label}{shown}…: tables inside each other, deeper than {DEEPEST_SETTINGS}; nothing is so deep"
        )


def parse_value(text: str) -> Any:
    """A TOML value; what is not one is taken as a plain string, so that quotes are rarely needed."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"--set {text[:60]!r}…: not a value of TOML: {error}") from None
    _check_nesting(value, "--set ")
    return value


def set_path(tables: dict[str, Any], path: str, value: Any, *, label: str = "--set ") -> None:
    """Set ``a.0.b`` in nested tables; ``label`` says in an error where the key comes from.

    The number after a list's last one adds an item, as a further stage.
    """
    *parents, last = path.split(".")
    node: Any = tables
    for depth, part in enumerate(parents):
        so_far = ".".join(parents[: depth + 1])
        if isinstance(node, list):
            node = node[_index(node, part, f"{label}{so_far}")]
        elif isinstance(node, dict):
            node = node.setdefault(part, {})
        else:
            raise _refuse_inside(label, path, depth, node, value)
    if isinstance(node, list) and last == str(len(node)):
        node.append(value)
    elif isinstance(node, list):
        node[_index(node, last, f"{label}{path}")] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise _refuse_inside(label, path, len(parents), node, value)


def _refuse_inside(label: str, path: str, depth: int, node: Any, value: Any) -> RecipeError:
    """The error of a key inside of what is no table; of a data set's name, the table that has the key."""
    parts = path.split(".")
    place, inside = ".".join(parts[:depth]), parts[depth:]
    message = f"{label}{path}: {place} is {node!r}, no table"
    if isinstance(node, str) and len(inside) == 1 and (":" in node or parts[depth - 1] == "on"):
        message += f"; write {place}={format_value({'data': node, inside[0]: value})}"
    return RecipeError(message)


def _index(items: list[Any], part: str, path: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise RecipeError(f"{path}: {part!r} is not one of the {len(items)} items, 0 to {len(items) - 1}")
    return int(part)


def to_toml(tables: Mapping[str, Any]) -> str:
    """A resolved recipe as TOML; keys without a value are left out, as TOML has no null."""
    plain = {k: v for k, v in tables.items() if not _is_tables(v)}
    lines = [f"{k} = {format_value(v)}" for k, v in plain.items() if v is not None]
    for name, value in tables.items():
        if not _is_tables(value):
            continue
        for table in value if isinstance(value, list | tuple) else [value]:
            header = f"[[{name}]]" if isinstance(value, list | tuple) else f"[{name}]"
            lines += ["", header, *(f"{k} = {format_value(v)}" for k, v in table.items() if v is not None)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _is_tables(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(v, Mapping) for v in value)
    )


def format_value(value: Any) -> str:
    """A value as TOML writes it, on one line."""
    if isinstance(value, Mapping):
        keys = {k: k if _BARE_KEY.fullmatch(k) else json.dumps(k, ensure_ascii=False) for k in value}
        inside = ", ".join(f"{keys[k]} = {format_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(format_value(v) for v in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else json.dumps(str(value), ensure_ascii=False)
