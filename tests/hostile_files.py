"""Bad data files and bad recipes, made by a seed: each is read right or refused with a message.

See ``hostile.py`` for how they are used.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.data.catalogue import open_data
from crossling.errors import UserError
from crossling.recipe.overrides import to_toml

sys.path.insert(0, str(Path(__file__).parent / "data"))
from reader_examples import EXAMPLES

TOKENS = (
    b"\0 \xff \xed\xa0\x80 \xef\xbb\xbf \r \n \n\n \t \t\t _ 1-2\t 1.1\t 0\t < > & &a; &#0; &lt; <!-- ]]> <tu> "
    b'</tu> <seg> { } [ ] " , : null true 1e999 -1 \\ud800 \\u0000 {"a":{"a": PK\x05\x06 \x1f\x8b <range> '
    b"-DOCSTART- # en: \xe2\x80\xa8 \xc2\x85 \x0b \x1c"
).split(b" ")
"""What upsets parsers: bytes that are not UTF-8, other line ends, markup, escapes, the formats' own marks."""
KINDS = ("cut", "delete", "insert", "repeat", "replace", "swap lines", "drop line", "join lines")
KINDS += ("junk value", "drop value", "double value")
VALUES: tuple[Any, ...] = (None, True, -1, 10**30, 1.5, "", "x", "\ud800", [], ["x"], {}, {"id": 1}, [[0, 9]])


def edit(content: bytes, code: bytes) -> bytes:
    """A file with a few faults: cut short, with parts lost, doubled or replaced, with bytes that do not belong.

    ``code`` says which, five bytes for each.
    """
    for step in range(0, len(code) - 4, 5):
        kind = KINDS[code[step] % len(KINDS)]
        where, length = int.from_bytes(code[step + 1 : step + 3], "big"), code[step + 3] % 41
        extra = pick_bytes(code[step + 4])
        at = where % (len(content) + 1)
        if kind.endswith("value"):
            content = edit_values(content, kind, where, length)
        elif kind.endswith(("line", "lines")):
            content = edit_lines(content, kind, where, length)
        elif kind == "cut":
            content = content[:at]
        elif kind == "delete":
            content = content[:at] + content[at + length :]
        elif kind == "repeat":
            content = content[: at + length] + content[at:]
        elif kind == "replace":
            content = content[:at] + extra + content[at + len(extra) :]
        else:
            content = content[:at] + extra + content[at:]
    return content


def pick_bytes(number: int) -> bytes:
    """One of the tokens, or a byte as it is."""
    return TOKENS[number % len(TOKENS)] if number < 200 else bytes([number])


def edit_lines(content: bytes, kind: str, where: int, length: int) -> bytes:
    """Lines swapped, lost or joined."""
    lines = content.split(b"\n")
    first, second = where % len(lines), (where + length) % len(lines)
    if kind == "swap lines":
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == "drop line":
        del lines[first]
    else:
        lines[first : first + 2] = [b"".join(lines[first : first + 2])]
    return b"\n".join(lines)


def edit_values(content: bytes, kind: str, where: int, length: int) -> bytes:
    """A JSON document, or one line of JSON lines, with a value that is lost, doubled or something else."""
    lines = [content] if content.startswith(b"{\n") else content.split(b"\n")
    line = where % len(lines)
    try:
        document = json.loads(lines[line])
    except (ValueError, RecursionError):
        return content
    places = list(walk(document))
    if not places:
        return content
    container, key = places[where % len(places)]
    if kind == "junk value":
        container[key] = VALUES[length % len(VALUES)]
    elif kind == "drop value":
        del container[key]
    elif isinstance(container, list):
        container.insert(key, container[key])
    lines[line] = json.dumps(document, indent=1 if len(lines) == 1 else None).encode()
    return b"\n".join(lines)


def walk(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document that holds a value: its container and its key or number."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from walk(value[key])


@dataclass(frozen=True)
class BadData:
    """A table that names a bad file, as it stands in a recipe."""

    fault: str
    table: dict[str, Any]

    def read(self, store: Path) -> int | str:
        """The number of rows read, or the message with which the file is refused."""
        try:
            return len(open_data(self.table, store=store))
        except UserError as error:
            return str(error)


FAULTS = ("edited", "edited", "edited", "noise", "utf-16", "utf-16-be", "utf-16 without mark", "utf-8 mark", "only cr")
FAULTS += ("nul", "latin-1", "deep", "long line", "packed", "empty", "other format")


def make_bad_data(folder: Path, seed: int) -> BadData:
    """Write a good file of some format into a new folder, with a fault; the seed decides which."""
    dice = random.Random(f"bad data {seed}")
    formats = sorted(name for name, examples in EXAMPLES.items() if examples)
    name = formats[seed % len(formats)]
    example = dice.choice(EXAMPLES[name])
    files = dict(example.files)
    fault = dice.choice(FAULTS)
    if files:
        corrupted = dice.choice(sorted(files))
        files[corrupted] = corrupt_file(files[corrupted], fault, dice)
    folder.mkdir(parents=True)
    values = {
        key: str(value) if isinstance(value, Path) else value for key, value in example.write(folder, files).items()
    }
    language = {"language": "en-hi" if "language" in str(example.settings) else "en"}
    table = {"format": name, **language, **values, "on_error": dice.choice(("raise", "skip"))}
    return BadData(f"{name}: {fault}", table)


def corrupt_file(content: bytes, fault: str, dice: random.Random) -> bytes:
    """A file's bytes with a fault in them."""
    if fault == "noise":
        return b"".join(pick_bytes(dice.randrange(256)) for _ in range(dice.randrange(30)))
    if fault in ("utf-16", "utf-16-be", "utf-16 without mark", "latin-1"):
        text = edit(content, dice.randbytes(5)).decode("utf-8", "replace")
        kind = {"utf-16-be": "utf-16-be", "utf-16 without mark": "utf-16-le"}.get(fault, fault)
        mark = b"\xfe\xff" if fault == "utf-16-be" else b""
        return mark + text.encode(kind, "replace")
    if fault == "utf-8 mark":
        return b"\xef\xbb\xbf" * dice.randint(1, 3) + edit(content, dice.randbytes(5))
    if fault == "only cr":
        return edit(content, dice.randbytes(5)).replace(b"\r", b"").replace(b"\n", b"\r")
    if fault == "nul":
        at = dice.randrange(len(content) + 1)
        return content[:at] + b"\0" * dice.randint(1, 50) + content[at:]
    if fault == "deep":
        depth = dice.randint(2_000, 50_000)
        start, end = dice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<a>", b"</a>")))
        return start * depth + dice.choice((content, b"1")) + end * dice.choice((depth, 0))
    if fault == "long line":
        at = dice.randrange(len(content) + 1)
        return (
            content[:at]
            + dice.choice((b"x", b" ", b"\xe0\xa4\x95", b"\t", b'"')) * dice.randint(10**5, 10**6)
            + content[at:]
        )
    if fault == "packed":
        packed = gzip.compress(content * dice.randint(1, 50), mtime=0)
        return packed[: dice.randrange(1, len(packed) + 1)]
    if fault == "empty":
        return b"\n" * dice.randrange(3) + b" " * dice.randrange(3)
    if fault == "other format":
        others = [file for examples in EXAMPLES.values() for one in examples for file in one.files.values()]
        return edit(dice.choice(others), dice.randbytes(5))
    return edit(content, dice.randbytes(5 * dice.randint(1, 4)))


HOSTILE_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e308),
    *(math.inf, -math.inf, math.nan, True, False, "", " ", "auto", "none", "\x1b[31m", "\u202e", "a\0b", "x" * 5_000),
    *("../../etc/passwd", "/dev/zero", "/dev/stdin", "/", "~", "en", "xx", "en-hi", "\ud83d\ude00", "panx:en", "ner:"),
    *([], [[]], [0], [-1, 2.0], [0.9, 1.0], ["en", "en"], {}, {"kind": "evil"}, {"kind": 7}, {"format": "bio"}),
    *(
        {"data": 7},
        {"a": {"a": {"a": {}}}},
        [None] and ["en", 7],
        [1, 2, 3],
        [1e400, 0.5],
        {"kind": "dlfa", "layer": 99},
    ),
)
"""Values that settings may be given by mistake or with intent."""


def load_good_recipes(encoder: str, data: Path) -> list[dict[str, Any]]:
    """Recipes that work offline with an encoder's folder and files, written into ``data``: all kinds of stages."""
    data.mkdir(parents=True, exist_ok=True)
    tagged = "".join(f"{word}\t{tag}\n" for word, tag in (("Asha", "B-PER"), ("sees", "O"), ("Berlin", "B-LOC")))
    (data / "ner.tsv").write_text(f"{tagged}\n" * 6, encoding="utf-8")
    (data / "text.txt").write_text("the cat sleeps\nthe dog eats fish in London\n" * 6, encoding="utf-8")
    (data / "labels.txt").write_text("good\nbad\n" * 6, encoding="utf-8")
    (data / "pairs.en").write_text("the cat sleeps\nthe red house\n" * 6, encoding="utf-8")
    (data / "pairs.ru").write_text("кошка спит\nкрасный дом\n" * 6, encoding="utf-8")
    (data / "links.txt").write_text("0-0 1-0 2-1\n1-0 2-1\n" * 6, encoding="utf-8")
    ner = {"format": "bio", "path": str(data / "ner.tsv"), "language": "en"}
    text = {"format": "text", "path": str(data / "text.txt"), "language": "en"}
    classes = {"format": "lines", "path": str(data / "text.txt"), "labels_path": str(data / "labels.txt")}
    pairs = {"format": "moses", "path": str(data / "pairs"), "language": "en-ru"}
    common: dict[str, Any] = {"seeds": [1, 2], "source": "en", "encoder": {"name": encoder}}
    training = {"epochs": 2, "batch": 4, "lr": 1e-4, "weight_decay": 0.01, "betas": [0.9, 0.99], "warmup": 0.1}
    fine: dict[str, Any] = {"kind": "finetune", "task": "ner", "train": ner, "dev": ner, **training}
    adjust = {"kind": "adjust", "parallel": [pairs], "links": str(data / "links.txt"), "epochs": 1, "batch": 4}
    scored = [{"on": ner, "batch": 8}]
    run = {"device": "cpu", "threads": 1, "checkpoint_seconds": 60.0}
    return [
        {**common, "stage": [fine], "evaluate": scored, "run": run},
        {**common, "stage": [{**fine, "fusion": {"kind": "dlfa", "layer": 1, "r": 2}}], "evaluate": scored},
        {**common, "stage": [{**fine, "fusion": {"kind": "mean", "layer": 1}, "clip": 1.0}], "evaluate": scored},
        {**common, "stage": [adjust, {**fine, "replay": {"pull": 0.01, "batch": 2}}], "evaluate": scored},
        {**common, "stage": [{"kind": "adapt", "train": [text], "epochs": 1, "share": 0.15, "held_out": 0.1}]},
        {
            **common,
            "stage": [
                {
                    "kind": "finetune",
                    "task": {"preset": "sentiment", "length": 64, "dropout": 0.1},
                    "train": {**classes, "language": "en", "limit": 8, "sample_seed": 3},
                    "select": "last",
                    "accumulate": 2,
                    "consistency": {"subwords": 0.1, "weight": 0.5},
                }
            ],
        },
        {
            **common,
            "stage": [
                fine,
                {
                    "kind": "teach",
                    "text": [text],
                    "teachers": 1,
                    "threshold": 0.5,
                    "epochs": 1,
                    "soft_temperature": 2.0,
                },
            ],
        },
        {**common, "stage": [{**fine, "initial_head": "shared"}, {"kind": "average", "models": 2, "dev": ner}]},
    ]


@dataclass(frozen=True)
class BadRecipe:
    """A recipe file with a fault, or with a value that may be one."""

    fault: str
    path: Path

    def check(self, store: Path) -> str:
        """What ``crossling check`` does; the message with which the recipe is refused, or nothing."""
        from crossling.cli.paths import check_recipes
        from crossling.recipe.recipe import load_recipe
        from crossling.study.memory import inspect_recipe

        try:
            recipe = load_recipe(self.path)
            check_recipes([recipe])
            inspect_recipe(recipe, store=store)
        except UserError as error:
            return str(error)
        return ""


def make_bad_recipe(good: list[dict[str, Any]], path: Path, seed: int) -> BadRecipe:
    """Write a recipe with a fault; the seed decides which."""
    dice = random.Random(f"bad recipe {seed}")
    tables = json.loads(json.dumps(good[seed % len(good)]))
    kind = dice.choice(("value", "value", "value", "value", "text", "text", "bytes", "key"))
    if kind == "bytes":
        content = corrupt_file(to_toml(tables).encode(), dice.choice(FAULTS), dice)
        path.write_bytes(content)
        return BadRecipe("bytes", path)
    fault = kind
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        container, key = dice.choice(list(walk(tables)))
        if kind == "value":
            fault = f"{key} = {(value := dice.choice(HOSTILE_VALUES))!r:.60}"
            container[key] = json.loads(json.dumps(value)) if isinstance(value, list | dict) else value
        elif kind == "key" and isinstance(container, dict):
            container[dice.choice((f"{key}s", "batch", "kind", "layer", "on", "links", "\x1b", ""))] = container.pop(
                key
            )
    text = to_toml(tables)
    if kind == "text":
        text = edit(text.encode(), dice.randbytes(5 * dice.randint(1, 3))).decode("utf-8", "replace")
    path.write_text(re.sub("[\ud800-\udfff]", "?", text), encoding="utf-8")
    return BadRecipe(fault, path)


def is_toml(path: Path) -> bool:
    """Whether a recipe file can be parsed at all."""
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False
    return True
