"""Files and data sets named on the command line of crossling start: what they hold, inferred from name and content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.data.catalogue import choose_split, list_sets, open_data
from crossling.data.languages import get_language, is_same_language
from crossling.data.records import LabelledPair, LabelledText, LinkedPair, ParallelPair, PlainText, count_broken
from crossling.data.rows import Rows
from crossling.data.sniffing import find_file_language, sniff_file, split_language
from crossling.data.spec import parse_data
from crossling.errors import DataError, UserError
from crossling.tasks import build_task, parse_task

Spec = str | dict[str, Any]
MOST_BROKEN = 0.05
"""A share of broken rows that is left out with a note; with more, the file is not what it was taken for."""


@dataclass(frozen=True)
class Found:
    """A data set: how a recipe names it, and its rows."""

    spec: Spec
    rows: Rows
    notes: tuple[str, ...] = ()
    given: bool = False
    """Whether the user named it."""

    @property
    def language(self) -> str:
        """Of what a task reads: of parallel text, the target side."""
        return self.rows.language.rpartition("-")[2] if self.rows.kind in PARALLEL else self.rows.language


PARALLEL = (ParallelPair, LinkedPair)


class FileReader:
    """Opens what a user names on the command line."""

    def __init__(self, task: str, store: Path) -> None:
        self.task, self.store = build_task(parse_task(task), ()), store

    def open(self, spec: Spec, *, split: str = "", given: bool = True) -> Found:
        """A set of the catalogue or a table of a file; a few broken rows are left out, with a note."""
        try:
            return Found(spec, open_data(spec, split=split, store=self.store), given=given)
        except DataError as error:
            if not isinstance(spec, dict) or "format" not in spec:
                raise
            lenient = {**spec, "on_error": "skip"}
            rows = open_data(lenient, split=split, store=self.store)
            if not rows.skipped or rows.skipped > MOST_BROKEN * (len(rows) + rows.skipped):
                raise
            first = str(error).partition(";")[0]
            note = f"{count_broken(rows.skipped)} left out; the first: {first}"
            return Found(lenient, rows, (note,), given=given)

    def read(self, text: str, *, record: type | None = None, language: str = "", split: str = "train") -> Found:
        """A table, a set of the catalogue, or a file: PATH, or LANGUAGE=PATH."""
        table = parse_data(text)
        if isinstance(table, dict):
            return self.open(table, split=split)
        code, path = split_language(text)
        if not code and is_catalogue_name(text):
            return self.open(text, split=split)
        code = name_language(code) if code else find_file_language(Path(path)) or language
        if not code:
            raise UserError(f"{text}: which language is it? Write its code before the name, as in sw={text}")
        return self.open(sniff_file(Path(path), record or self.task.record, language=code))

    def read_text(self, text: str) -> Found:
        """Unlabelled text: plain lines, or rows of the task's kind, whose labels are not read."""
        name = split_language(text)[1].lower().removesuffix(".gz")
        plain = not is_catalogue_name(text) and name.rpartition(".")[2] not in _STRUCTURED
        return self.read(text, record=PlainText if plain else None)

    def read_parallel(self, text: str, *, source: str) -> Found | tuple[Found, Found]:
        """A parallel set, or PAIR=PATH with one or two files; of two files with rows of the task, both sides."""
        table = parse_data(text)
        if isinstance(table, dict) or is_catalogue_name(text):
            return self.open(table, split=choose_split(table, ("train", "dev", "test")))
        pair, path = split_language(text)
        first, dash, second = pair.partition("-")
        if not dash:
            raise UserError(f"{text}: which languages? Write {source}-sw=FILE, or {source}-sw=FILE,FILE")
        if not is_same_language(first, source):
            raise UserError(f"{text}: the first language is the source, {source!r}; write {source}-{second or first}=…")
        sides = path.split(",")
        if len(sides) == 1:
            return self.open(self._sniff_parallel(Path(path), pair))
        if len(sides) > 2:
            raise UserError(f"{text}: {len(sides)} files; write {pair}=SOURCE,TARGET")
        if self.task.record in (LabelledPair, LabelledText) and sides[0].endswith((".tsv", ".jsonl")):
            found = [self.read(f"{code}={side}") for code, side in zip((first, second), sides, strict=True)]
            return found[0], found[1]
        return self.open({"format": "parallel", "source": sides[0], "target": sides[1], "language": pair})

    def _sniff_parallel(self, path: Path, pair: str) -> dict[str, Any]:
        sides = [path.with_name(f"{path.name}.{code}") for code in pair.split("-")]
        if not path.is_file() and all(side.is_file() for side in sides):
            return {"format": "moses", "path": str(path), "language": pair}
        return sniff_file(path, ParallelPair, language=pair)


_STRUCTURED = ("tsv", "tab", "csv", "bio", "iob", "conll", "conllu", "json", "jsonl", "ndjson", "parquet")


def is_catalogue_name(text: str) -> bool:
    """Whether a text names a set of the catalogue; a file of that name wins."""
    return ":" in text and text.partition(":")[0].partition("@")[0] in list_sets() and not Path(text).exists()


def name_language(code: str) -> str:
    """A code that is known; a name (swahili) or a longer code (swa) becomes the usual one."""
    language = get_language(code)
    return code if "-" in code or "_" in code else language.code
