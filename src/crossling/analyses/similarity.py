"""Sentence similarity: how alike a model represents sentences and their translations (table VI of layer fusion).

Cosine alone rewards collapse: an encoder that gives every sentence the same vector scores 1. So beside it stands the
margin: the similarity of translations less that of sentences that have nothing to do with each other.

N sentences, D width.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from crossling.analyses.settings import AnalysisSettings, Languages
from crossling.analyses.summary import summarise_models
from crossling.data.catalogue import choose_split, open_data
from crossling.data.declarations import load_declaration
from crossling.data.label_free import read_sides
from crossling.data.records import LabelledPair, LabelledText, LinkedPair, ParallelPair
from crossling.data.rows import SCHEMAS, Rows
from crossling.data.spec import parse_spec
from crossling.errors import DataError
from crossling.limits import LARGEST_SEED, MOST_COUNTED
from crossling.recipe.identity import content_hash

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext
    from crossling.analyses.result import AnalysisTable
    from crossling.inference.sentence_vectors import How
    from crossling.models.model import Model, ModelCard
    from crossling.report.table import Table

VERSION = 1
SCHEMA = pa.schema(
    {
        "language": pa.string(),
        "cosine": pa.float64(),
        "unrelated": pa.float64(),
        "margin": pa.float64(),
        "sentences": pa.int64(),
    }
)
MEASURES = ("cosine", "margin")
LINE_BY_LINE = {"xnli": ("first", "second"), "pawsx": ("first", "second"), "xquad": ("question", "context")}
"""Labelled sets whose rows are translations of each other, and their texts; labels are not read."""
PUBLISHED = {
    "on": "xnli",
    "split": "test",
    "sentences": 20,
    "seed": 0,
    "languages": ("ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"),
}
"""The paper's: 20 random sentences of XNLI's test set, in all of its languages. Which of a pair's two sentences, how
vectors were pooled and which 20 it does not say."""

Array = np.ndarray[Any, np.dtype[Any]]


class Settings(AnalysisSettings):
    """Which sentences are compared, and what of them."""

    kind: Literal["similarity"] = "similarity"
    on: str | dict[str, Any] = "ntrex"
    """A parallel set (ntrex, tatoeba, multi30k), one whose rows are the same in all languages (xnli, pawsx, xquad), or
    a table for a custom parallel file."""
    languages: Languages = ()
    """Codes of the languages that are compared with the source: de,hi,zh."""
    split: str = ""
    """Default: test where there is one."""
    text: Literal["first", "second", "pair"] = "first"
    """Of a set of pairs or questions: the first text, the second, or both, read together as the model reads them."""
    pool: Literal["mean", "cls", "task"] = "mean"
    """What stands for a sentence: the mean of its tokens, the first token, or what the task's head reads (taggers and
    answers: the mean)."""
    sentences: int = Field(default=2_000, ge=2, le=MOST_COUNTED)
    """The most sentences; one that occurs twice counts once."""
    seed: int | None = Field(default=None, ge=0, le=LARGEST_SEED)
    """Draw random sentences, the same in every language; default: the first ones."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of a text; the rest is cut off."""
    as_published: bool = False
    """The paper's: 20 random sentences of XNLI's test set (languages and seed can be named)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_published(cls, table: Any) -> Any:
        if not isinstance(table, Mapping) or table.get("as_published") is not True:
            return table
        if table.get("sentences", 20) != 20:
            raise ValueError(f"as_published takes 20 sentences, not {table['sentences']}; set one of the two")
        given = {key: value for key, value in table.items() if value not in (None, "", ())}
        return {**PUBLISHED, **given}

    @model_validator(mode="after")
    def _some_language(self) -> Settings:
        if isinstance(self.on, str) and not self.languages:
            raise ValueError('languages: missing; the codes to compare with the source, such as ["de", "hi"]')
        return self

    def file_stem(self) -> str:
        """The name of the files with its results, without an ending."""
        return "similarity-published" if self.as_published else super().file_stem()


@dataclass(frozen=True)
class Translations:
    """Row i of both is the same sentence."""

    language: str
    source: Rows
    target: Rows


@dataclass(frozen=True)
class Data:
    """The sentences of all languages."""

    pairs: tuple[Translations, ...]

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        return [f"{pair.source.fingerprint} {pair.target.fingerprint}" for pair in self.pairs]


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find, open and pair the sentences."""
    if source in settings.languages:
        raise DataError(f"languages: {source!r} is the source, which the others are compared with; leave it out")
    if isinstance(settings.on, dict):
        rows = open_data(settings.on, store=store)
        language = str(settings.on.get("language", rows.language)).removeprefix(f"{source}-")
        return Data((_pair_up(settings, language, *_read_sides(rows), name=rows.name),))
    return Data(tuple(_open_language(settings, settings.on, source, code, store=store) for code in settings.languages))


def _open_language(settings: Settings, on: str, source: str, language: str, *, store: Path) -> Translations:
    spec = parse_spec(on)
    if load_declaration(spec.name, spec.version).pairs:
        rows = _open(settings, f"{on}:{source}-{language}", store)
        return _pair_up(settings, language, *_read_sides(rows), name=rows.name)
    fields = LINE_BY_LINE.get(spec.name)
    if fields is None:
        raise DataError(
            f"{on}: its rows are not known to be translations of each other. Name a parallel set (ntrex, tatoeba, "
            f"multi30k, …) or one of {', '.join(LINE_BY_LINE)}."
        )
    sides = [_open(settings, f"{on}:{code}", store) for code in (source, language)]
    if len(sides[0]) != len(sides[1]):
        listed = " and ".join(f"{len(rows):,} rows of {rows.name}" for rows in sides)
        raise DataError(f"{listed} cannot be translations of each other, row by row")
    chosen = fields if settings.text == "pair" else (fields[settings.text == "second"],)
    texts = [list(zip(*(rows.column(name).to_pylist() for name in chosen), strict=True)) for rows in sides]
    return _pair_up(settings, language, *texts, name=sides[1].name)


def _open(settings: Settings, spec: str, store: Path) -> Rows:
    return open_data(spec, split=settings.split or choose_split(spec), store=store)


def _read_sides(rows: Rows) -> list[list[tuple[str, ...]]]:
    """The sentences of both sides, as running text."""
    if rows.kind not in (ParallelPair, LinkedPair):
        raise DataError(f"{rows.name} holds {rows.kind.__name__} rows; similarity needs sentences with translations")
    return [[(text,) for text in side] for side in read_sides(rows)]


def _pair_up(
    settings: Settings,
    language: str,
    sources: Sequence[tuple[str, ...]],
    targets: Sequence[tuple[str, ...]],
    *,
    name: str,
) -> Translations:
    """The sentences to compare: each once, for two that are the same are no unrelated ones; none that is empty.

    They are drawn by their source alone, so that languages have the same ones. In place of an empty translation the
    next one drawn is taken in that language.
    """
    places: dict[tuple[str, ...], int] = {}
    for place, texts in enumerate(sources):
        places.setdefault(texts, place)
    order = list(places.values())
    if settings.seed is not None:
        random.Random(settings.seed).shuffle(order)
    whole = (place for place in order if all(text.strip() for text in (*sources[place], *targets[place])))
    chosen = list(islice(whole, settings.sentences))
    if len(chosen) < 2:
        raise DataError(f"{name}: has {len(chosen)} sentences to compare; a margin takes two or more")
    sides = [_to_rows([side[place] for place in chosen], language, name) for side in (sources, targets)]
    return Translations(language, *sides)


def _to_rows(texts: Sequence[tuple[str, ...]], language: str, name: str) -> Rows:
    """Texts as rows that a classifier reads."""
    kind = LabelledPair if len(texts[0]) == 2 else LabelledText
    names = [field for field in SCHEMAS[kind].names if field != "label"]
    columns = {field: [text[place] for text in texts] for place, field in enumerate(names)}
    table = pa.table({**columns, "label": [""] * len(texts)}, schema=SCHEMAS[kind])
    return Rows(table, kind, language=language, name=name, fingerprint=content_hash(columns))


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """A row for each language: mean cosine of translations, of unrelated sentences, and the difference."""
    how = choose_pooling(card, settings.pool)
    sources: dict[str, Array] = {}
    rows = []
    for pair in data.pairs:
        if pair.source.fingerprint not in sources:  # the same sentences serve many languages
            sources = {
                pair.source.fingerprint: embed_rows(
                    model, pair.source, how=how, length=settings.length, context=context
                )
            }
        target = embed_rows(model, pair.target, how=how, length=settings.length, context=context)
        found = compare_vectors(sources[pair.source.fingerprint], target)
        rows.append({"language": pair.language, **found, "sentences": len(target)})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def embed_rows(model: Model, rows: Rows, *, how: How, length: int, context: AnalysisContext) -> Array:
    """One vector for each row of texts or of pairs, in their order, in single precision whatever the device."""
    from crossling.inference.sentence_vectors import embed_texts

    return embed_texts(
        model,
        rows,
        how=how,
        length=length,
        distributed=context.distributed,
        cache=context.encoded,
        batch=context.batch,
        progress=context.progress,
    )


def choose_pooling(card: ModelCard, pool: str) -> How:
    """What ``pool`` means for a model; ``task``: as its task pools, and where heads read single tokens, their mean."""
    if pool == "cls":
        return "first"
    if pool == "mean":
        return "mean"
    settings: dict[str, Any] = next((stored["settings"] for stored in card.tasks.values()), {})
    how: How = settings.get("pooling", "mean")
    return how


def compare_vectors(source_ND: Array, target_ND: Array) -> dict[str, float]:
    """Mean cosine of row i with row i, of row i with every other row, and the margin between the two.

    All N * (N - 1) unrelated pairs take part without being formed: their sum is the product of the two sums of unit
    vectors less the pairs that belong together.
    """
    count = len(source_ND)
    source_ND, target_ND = _to_unit(source_ND), _to_unit(target_ND)
    together = float(np.einsum("nd,nd->", source_ND, target_ND))
    everything = float(source_ND.sum(0) @ target_ND.sum(0))
    cosine, unrelated = together / count, (everything - together) / (count * (count - 1))
    return {"cosine": cosine, "unrelated": unrelated, "margin": cosine - unrelated}


def _to_unit(vectors_ND: Array) -> Array:
    wide_ND = vectors_ND.astype(np.float64)
    unit: Array = wide_ND / np.maximum(np.linalg.norm(wide_ND, axis=1, keepdims=True), 1e-12)
    return unit


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """Table VI: the similarity of translations, beside that of unrelated sentences."""
    return [summarise_models(found, ("cosine", "unrelated", "margin"), title="Similarity of translations")]
