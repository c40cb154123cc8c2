"""WikiMatrix: sentence pairs mined from Wikipedia, each after the margin score that it was found with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from crossling.data.languages import is_same_language
from crossling.data.readers.text_files import (
    BadRows,
    FilePath,
    LanguagePair,
    ReaderSettings,
    read_lines,
    report_fault,
    split_pair,
)
from crossling.data.records import ParallelPair
from crossling.limits import LARGEST_NUMBER

VERSION = 1
PAIR_IN_NAME = re.compile(r"WikiMatrix\.(v\d+\.)?(?P<left>\w+)-(?P<right>\w+)\.")
"""The corpus's own names for its files, with and without a version."""


class Settings(ReaderSettings):
    """One file of scored pairs."""

    path: FilePath
    """The file, plain or gzipped: score, sentence, sentence, with tabs between. Two more columns, as in WMT's copies,
    are the languages that the sentences were identified as; a pair in others is left out."""
    language: LanguagePair
    """The pair, source first, as in "en-hi"."""
    threshold: float = Field(default=1.04, ge=0, le=LARGEST_NUMBER)
    """The least margin score: the ratio of a pair's similarity to that of each side's neighbours. 1.04 is the value
    that the corpus's authors evaluated it with; 0 takes all pairs."""
    left: str = ""
    """The language of the first sentence. Where not given the file's name says it (WikiMatrix.en-hi.tsv.gz: the codes
    in alphabetical order), and if that says nothing it is the source."""

    @model_validator(mode="after")
    def _check_left(self) -> Self:
        source, target = split_pair(self.language)
        if self.left and self.left not in (source, target):
            raise ValueError(f"left = {self.left!r} is neither language of {self.language}")
        match = PAIR_IN_NAME.search(self.path.name)
        if match and not self.left and {match["left"], match["right"]} != {source, target}:
            raise ValueError(
                f"{self.path.name} is named for {match['left']} and {match['right']}, not for {self.language}; if its "
                f"sentences are in that pair all the same, say which language comes first, as in left = {source!r}"
            )
        return self


def record_kind(settings: Settings) -> type[ParallelPair]:
    """What the rows are."""
    return ParallelPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def stamp(settings: Settings) -> str:
    """The order of the columns may come from the file's name, which is no setting."""
    return f"{_find_left(settings)} first"


def read(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    """One row a line; pairs below the threshold are counted, and blank lines hold no pair."""
    turned = _find_left(settings) != split_pair(settings.language)[0]
    codes = split_pair(settings.language)[::-1] if turned else split_pair(settings.language)
    width = 0
    for line in read_lines(settings.path):
        place = f"{settings.path}:{line.number}"
        if report_fault(settings.path, (line,), bad=bad) or not line.text.strip():
            continue
        cells = line.text.split("\t")
        width = width or (len(cells) if len(cells) in (3, 5) else 3)
        score = _read_score(cells[0])
        if len(cells) != width:
            bad.add(place, f"{len(cells)} tab-separated fields instead of {width}")
        elif score is None:
            bad.add(place, f"{cells[0][:40]!r} is no margin score")
        elif not cells[1].strip() or not cells[2].strip():
            bad.add(place, f"the sentence in {codes[0] if not cells[1].strip() else codes[1]} is empty")
        elif score < settings.threshold:
            bad.drop(f"with a margin below {settings.threshold:g}")
        elif not all(is_same_language(found.strip(), code) for found, code in zip(cells[3:], codes, strict=False)):
            bad.drop("identified as another language")
        else:
            yield ParallelPair(cells[2], cells[1]) if turned else ParallelPair(cells[1], cells[2])


def _find_left(settings: Settings) -> str:
    """The language of the first sentence."""
    match = PAIR_IN_NAME.search(settings.path.name)
    return settings.left or (match["left"] if match else split_pair(settings.language)[0])


def _read_score(text: str) -> float | None:
    try:
        score = float(text)
    except ValueError:
        return None
    return score if math.isfinite(score) else None
