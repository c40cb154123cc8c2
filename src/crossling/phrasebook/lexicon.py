"""The word lists: ``lexicons/concepts.tsv`` says what there is, ``lexicons/<code>.tsv`` how a language says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from crossling.errors import DataError


@dataclass(frozen=True, slots=True)
class Concept:
    """A meaning shared by all languages; tags say where it may be used (classes, splits, valency)."""

    id: str
    category: str
    tags: frozenset[str]
    objects: frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one language says a concept. ``_`` in a form is a space inside one word."""

    concept: str
    form: str
    features: Mapping[str, str]

    def __contains__(self, feature: str) -> bool:
        return feature in self.features

    def get(self, feature: str, default: str = "") -> str:
        """The value of a feature, or the default."""
        return self.features.get(feature, default)

    @property
    def gender(self) -> str:
        """The grammatical gender, where the language has one: m, f or n."""
        return next((gender for gender in ("m", "f", "n") if self.features.get(gender) == ""), "")


def read_rows(name: str) -> list[tuple[str, str, str]]:
    """The rows of a lexicon file below its header, each of three cells."""
    text = files("crossling.phrasebook").joinpath("lexicons").joinpath(name).read_text(encoding="utf-8")
    rows = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        cells = line.split("\t")
        if len(cells) != 3:
            raise DataError(f"phrasebook/lexicons/{name}:{number}: {len(cells)} cells, expected 3: {line!r}")
        rows.append((cells[0], cells[1], cells[2]))
    return rows


@cache
def load_concepts() -> Mapping[str, Concept]:
    """All concepts by id, in the order of the file."""
    concepts = {}
    for id, category, tags in read_rows("concepts.tsv"):
        words = tags.split()
        objects = next((word[2:].split(",") for word in words if word.startswith("o:")), [])
        concepts[id] = Concept(id, category, frozenset(words), frozenset(objects))
    return MappingProxyType(concepts)


@cache
def select(category: str, *tags: str) -> tuple[str, ...]:
    """Ids of the concepts of a category that carry all the tags, in the order of the file."""
    concepts = load_concepts().values()
    return tuple(c.id for c in concepts if c.category == category and c.tags.issuperset(tags))


@cache
def load_lexicon(language: str) -> Mapping[str, Entry]:
    """A language's entries by concept; every concept has one."""
    entries = {}
    for id, form, cell in read_rows(f"{language}.tsv"):
        pairs = (feature.strip().partition("=") for feature in cell.split(";") if feature.strip())
        entries[id] = Entry(id, form, MappingProxyType({key: value for key, _, value in pairs}))
    missing = [id for id in load_concepts() if id not in entries]
    if missing:
        raise DataError(f"phrasebook/lexicons/{language}.tsv: no entry for {', '.join(missing[:10])}")
    return MappingProxyType(entries)
