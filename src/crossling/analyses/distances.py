"""Distances of related and unrelated words across languages (figure 1 and appendix B of cross-lingual adjustment).

Words of a sentence and of its translation that are linked mean the same; a good encoder has them nearer to each other
than words that have nothing to do with one another. How well the two kinds of pair can be distinguished is what numbers
and histograms show, for models side by side: the links are the same for all. Unrelated words of other sentences differ
from related ones in the sentence as well, which an encoder writes into every word; those of the same sentence do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from crossling.aligners.linked_text import (
    Linker,
    Sentences,
    Text,
    choose_sentences,
    describe_text,
    link_by_all,
    open_linker,
)
from crossling.aligners.links import Link
from crossling.analyses.distance_histograms import Array, draw_histograms, measure_overlap
from crossling.analyses.models import AnalysedModels, name_model
from crossling.analyses.settings import AnalysisSettings, Languages
from crossling.analyses.summary import summarise_models
from crossling.analyses.word_pairs import WordPairs, draw_pairs
from crossling.data.catalogue import choose_split, open_data
from crossling.data.languages import find_language
from crossling.errors import DataError
from crossling.limits import LARGEST_SEED, MOST_COUNTED, MOST_LAYERS
from crossling.report.table import Table

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext
    from crossling.analyses.result import AnalysisTable
    from crossling.models.model import Model, ModelCard

VERSION = 2
SCHEMA = pa.schema(
    {
        "language": pa.string(),
        "related": pa.float64(),
        "unrelated": pa.float64(),
        "overlap": pa.float64(),
        "auc": pa.float64(),
        "top10": pa.float64(),
        "top100": pa.float64(),
        "pairs": pa.int64(),
        "relative": pa.float64(),
        "same_sentence": pa.float64(),
        "same_sentence_relative": pa.float64(),
        "same_sentence_overlap": pa.float64(),
        "same_sentence_auc": pa.float64(),
        "same_sentence_pairs": pa.int64(),
        "related_distances": pa.list_(pa.float32()),
        "unrelated_distances": pa.list_(pa.float32()),
        "same_sentence_distances": pa.list_(pa.float32()),
    }
)
MEASURES = ("overlap", "auc", "same_sentence_auc")
BLOCK = 4_096
"""Pairs whose differences are held at a time."""
COLUMNS = {
    "other_sentences": ("overlap", "auc"),
    "same_sentence": ("same_sentence_overlap", "same_sentence_auc"),
    "both": ("overlap", "auc", "same_sentence_overlap", "same_sentence_auc"),
}
"""What is shown of each kind of negatives."""


def name_aligner(value: Any) -> Any:
    """An aligner's name as its table."""
    return {"kind": value} if isinstance(value, str) else value


class Settings(AnalysisSettings):
    """Which words are compared, and what of them."""

    kind: Literal["distances"] = "distances"
    on: str | dict[str, Any] = "ntrex"
    """A parallel set (ntrex, tatoeba, multi30k, phrasebook-parallel), or a table for a custom parallel file."""
    languages: Languages = ()
    """Codes of the languages that are compared with the source: es,hi."""
    split: str = ""
    """Default: test where there is one."""
    links: str = ""
    """A file of links in Pharaoh format for the whole set; {language} stands for the code. Words are then separated by
    white space. Default: the set's own links, where it has some, or those of an aligner."""
    aligner: Annotated[dict[str, Any] | None, BeforeValidator(name_aligner)] = None
    """An aligner's table, or its name: neural, statistical, eflomal. Default: neural, by the original encoder."""
    encoder: str = ""
    """Whose vectors link words, and whose tokenizer cuts scripts without spaces. Default: what the first model was
    before any training."""
    revision: str | None = None
    """The hub's branch, tag or commit of that encoder."""
    layer: Annotated[int, Field(ge=0, le=MOST_LAYERS)] | Literal["last", "fused"] = "last"
    """Whose vectors are compared: a layer's, 0 being the embeddings; the last; or what the model's heads read."""
    pooling: Literal["mean", "first", "last"] = "mean"
    """A word's vector from its subwords."""
    sentences: int = Field(default=2_000, ge=2, le=MOST_COUNTED)
    """The most sentence pairs, drawn at random, that are linked."""
    words: int = Field(default=100, ge=1, le=MOST_COUNTED)
    """Sentence pairs with more words on a side are left out."""
    pairs: int = Field(default=10_000, ge=1, le=MOST_COUNTED)
    """The most related pairs of words, drawn at random, and as many unrelated ones."""
    drop_identical: bool = True
    """Leave out linked words that are the same string: names and numbers are near in any encoder."""
    bins: int = Field(default=50, ge=2, le=1_000)
    """Bins of a histogram, which the overlap depends on."""
    seed: int = Field(default=1, ge=0, le=LARGEST_SEED)
    """Seed of random draws."""
    align_on: Literal["drawn", "all"] = Field(default="drawn", exclude=True)
    """What an aligner that learns (statistical, eflomal) learns from: the drawn sentence pairs, or all of the set."""
    negatives: Literal["both", "other_sentences", "same_sentence"] = Field(default="both", exclude=True)
    """Unrelated pairs that are shown: of words in other_sentences, as in the paper, of words in the same_sentence and
    its translation, or both."""
    distance: Literal["l2", "relative"] = Field(default="l2", exclude=True)
    """What is shown of a distance: l2, itself; relative, divided by the mean distance of unrelated words in other
    sentences, so that spaces of any scale can be compared."""

    @model_validator(mode="after")
    def _fitting(self) -> Settings:
        if isinstance(self.on, str) and not self.languages:
            raise ValueError('languages: missing; the codes to compare with the source, such as ["es", "hi"]')
        if self.links and self.aligner:
            raise ValueError("links and aligner: both say where links come from; leave one out")
        return self


def prepare(settings: Settings, models: AnalysedModels) -> tuple[Settings, AnalysedModels]:
    """Links are made by what the first model was before any training, unless another encoder is named."""
    if not settings.encoder:
        first = models.encoders[0]
        settings = settings.model_copy(update={"encoder": first.name, "revision": first.revision})
    return settings, models


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the texts, and what links their words."""
    if source in settings.languages:
        raise DataError(f"languages: {source!r} is the source, which the others are compared with; leave it out")
    if isinstance(settings.on, Mapping):
        rows = open_data(settings.on, store=store)
        opened = {str(settings.on.get("language", rows.language)).removeprefix(f"{source}-"): rows}
    else:
        specs = {code: f"{settings.on}:{source}-{code}" for code in settings.languages}
        opened = {
            code: open_data(spec, split=settings.split or choose_split(spec), store=store)
            for code, spec in specs.items()
        }
    texts = [describe_text(rows, code, links=settings.links, aligner=settings.aligner) for code, rows in opened.items()]
    linker = open_linker(texts, aligner=settings.aligner, encoder=settings.encoder, revision=settings.revision)
    return Data(tuple(texts), linker, learns_from_all=settings.align_on == "all" and linker.learns)


@dataclass
class Data:
    """The texts of all languages; words are linked and drawn when the first model is analysed."""

    texts: tuple[Text, ...]
    linker: Linker
    learns_from_all: bool = False
    """Whether the aligner learns from whole texts, whatever sentences are drawn."""
    drawn: list[WordPairs] = field(default_factory=list)

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        learnt = ["aligned on all, of any length"] if self.learns_from_all else []
        return [*(text.fingerprint() for text in self.texts), self.linker.fingerprint, *learnt]

    def draw(self, settings: Settings, context: AnalysisContext) -> list[WordPairs]:
        """Related and unrelated words of every language."""
        if not self.drawn:
            self.drawn = [self._draw(text, settings, context) for text in self.texts]
            self.linker.encoder = None  # its work is done, and it is as large as a model
        return self.drawn

    def _draw(self, text: Text, settings: Settings, context: AnalysisContext) -> WordPairs:
        sentences = choose_sentences(
            text.rows,
            self.linker.split_by(text),
            count=settings.sentences,
            longest=settings.words,
            seed=settings.seed,
            least=2,  # unrelated words stand in different pairs
        )

        def link(chosen: Sentences) -> Sequence[Sequence[Link]]:
            return self.linker.link(text, chosen, device=context.distributed.device, progress=context.progress)

        return draw_pairs(
            sentences,
            link_by_all(self.linker, text, sentences, link, progress=context.progress)
            if self.learns_from_all
            else link(sentences),
            count=settings.pairs,
            drop_identical=settings.drop_identical,
            seed=settings.seed,
            name=text.rows.name,
        )


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """A row for each language: distances of related and of unrelated words, and how well they are distinguished."""
    from crossling.analyses.word_vectors import embed_words

    rows = []
    for text, words in zip(data.texts, data.draw(settings, context), strict=True):
        sides = [
            embed_words(
                model,
                sentences,
                places,
                layer=settings.layer,
                pooling=settings.pooling,
                name=f"{text.rows.name} ({side})",
                context=context,
            )
            for side, sentences, places in (
                ("source", words.sentences.source, words.source),
                ("target", words.sentences.target, words.target),
            )
        ]
        (source_ND, source_seen), (target_ND, target_seen) = sides
        related = np.flatnonzero(source_seen & target_seen)
        unrelated, inside = (
            drawn[source_seen[drawn[:, 0]] & target_seen[drawn[:, 1]]]
            for drawn in (words.unrelated, words.same_sentence)
        )
        if not len(related) or not len(unrelated):
            raise DataError(
                f"{text.rows.name}: {model.encoder.name} reads none of the words; its sentences are too long"
            )
        pairs = np.stack([related, related], 1), unrelated, inside
        rows.append({"language": text.language, **compare_words(source_ND, target_ND, *pairs, bins=settings.bins)})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def compare_words(
    source_ND: Array, target_ND: Array, related: Array, unrelated: Array, same_sentence: Array, *, bins: int
) -> dict[str, Any]:
    """All figures of one language; pairs are numbers of a source and a target vector.

    A relative distance is one divided by the mean of ``unrelated``: 1 for words that have nothing in common.
    """
    near, near_D = measure_distances(source_ND, target_ND, related)
    far, far_D = measure_distances(source_ND, target_ND, unrelated)
    inside, _ = measure_distances(source_ND, target_ND, same_sentence)
    shares, unit = share_dimensions(near_D + far_D), float(far.mean()) or 1.0
    some = len(inside) > 0
    return {
        "related": float(near.mean()),
        "unrelated": float(far.mean()),
        "overlap": measure_overlap(near, far, bins=bins),
        "auc": measure_auc(near, far),
        "top10": shares[10],
        "top100": shares[100],
        "pairs": len(near),
        "relative": float(near.mean()) / unit,
        "same_sentence": float(inside.mean()) if some else None,
        "same_sentence_relative": float(inside.mean()) / unit if some else None,
        "same_sentence_overlap": measure_overlap(near, inside, bins=bins) if some else None,
        "same_sentence_auc": measure_auc(near, inside) if some else None,
        "same_sentence_pairs": len(inside),
        "related_distances": near.astype(np.float32),
        "unrelated_distances": far.astype(np.float32),
        "same_sentence_distances": inside.astype(np.float32),
    }


def measure_distances(source_ND: Array, target_ND: Array, pairs: Array) -> tuple[Array, Array]:
    """The L2 distance of every pair, and for each dimension the sum of its squared differences."""
    found, sums_D = np.zeros(len(pairs)), np.zeros(source_ND.shape[1])
    for start in range(0, len(pairs), BLOCK):
        part = pairs[start : start + BLOCK]
        squares_ND = (source_ND[part[:, 0]].astype(np.float64) - target_ND[part[:, 1]]) ** 2
        found[start : start + BLOCK] = np.sqrt(squares_ND.sum(1))
        sums_D += squares_ND.sum(0)
    return found, sums_D


def measure_auc(related: Array, unrelated: Array) -> float:
    """How often an unrelated pair is farther apart than a related one, ties counting half: exact, by ranks."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([related, unrelated]))
    count, others = len(unrelated), len(related)
    return float((ranks[others:].sum() - count * (count + 1) / 2) / (count * others))


def share_dimensions(sums_D: Array) -> dict[int, float]:
    """The share of all squared distances that lies in the 10 and the 100 dimensions with the largest share."""
    largest, whole = np.sort(sums_D)[::-1], sums_D.sum()
    return {count: float(largest[:count].sum() / whole) if whole else 0.0 for count in (10, 100)}


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """Distances and how well they separate related words from others."""
    settings = found.settings
    columns = ["relative"] if settings.distance == "relative" else ["related", "unrelated"]
    if settings.negatives != "other_sentences":
        columns.append("same_sentence_relative" if settings.distance == "relative" else "same_sentence")
    columns += [*COLUMNS[settings.negatives], "top10", "top100"]
    notes = [
        "overlap: of the histograms of related and unrelated distances, 0 is best. auc: how often an unrelated pair is "
        "farther apart than a related one, 1 is best. top10, top100: the share of distances in 10 and 100 dimensions."
    ]
    if settings.distance == "relative":
        notes.append("relative: divided by the mean distance of unrelated words in other sentences, which is 1.")
    if settings.negatives == "other_sentences":
        notes.append(
            "Unrelated words stand in other sentences: overlap and auc distinguish sentences as well as words."
        )
    else:
        notes.append("same_sentence: unrelated words of a sentence and its own translation, which share the sentence.")
    return [summarise_models(found, columns, title="Distances of related and unrelated words", notes=notes)]


def draw(found: AnalysisTable[Settings]) -> dict[str, str]:
    """Figure 1: for each language a panel for each model; the seeds of a run are one."""
    settings = found.settings
    layer = {"last": "last layer", "fused": "fused layers"}.get(str(settings.layer), f"layer {settings.layer}")
    figures = {}
    rows = found.rows()
    for code in dict.fromkeys(row["language"] for row in rows):
        models: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["language"] == code:
                models.setdefault(name_model(row), []).append(row)
        language = find_language(code)
        title = f"{language.name if language else code}: distances of words"
        relative = settings.distance == "relative"
        figures[code] = draw_histograms(
            models,
            title=title,
            axis=f"{'relative' if relative else 'L2'} distance, {layer}",
            bins=settings.bins,
            negatives=settings.negatives,
            relative=relative,
        )
    return figures
