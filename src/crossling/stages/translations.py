"""Parallel text to teach on: sentences, pairs made of its lines, and words with links between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from crossling.data.batching import Array
from crossling.data.label_free import build_rows, list_keys, read_sides
from crossling.data.records import LabelledPair, LabelledText
from crossling.data.rows import Rows
from crossling.errors import DataError
from crossling.recipe.identity import content_hash
from crossling.stages.labelling import Unit, build_untagged_rows
from crossling.stages.word_pairs import copy_encoder, draw_sentences, filter_links, link_sentences

if TYPE_CHECKING:
    from crossling.aligners.linked_text import Text
    from crossling.objectives.aligned_words import AdjustmentSettings
    from crossling.stages.context import StageContext

Read = Literal["source", "target", "both"]
VERSION = 1
LENGTH, BATCH = 128, 128
"""Subwords that count in a sentence's vector, and sentences that are read at a time."""


def read_sides_by(language: str, first: Rows, second: Rows, read: Read) -> Unit:
    """Rows that say the same: which side teachers read, and the second, which the student learns."""
    return Unit(language, second if read == "target" else first, second, both=read == "both")


def list_sentences(text: Text, *, count: int | None, read: Read, context: StageContext) -> Unit:
    """Sentences and their translations, as rows of single texts."""
    rows = draw_lines(text.rows, count, context.seed)
    return read_sides_by(text.language, *_build_texts(rows), read)


def list_pairs(
    text: Text, *, count: int | None, neighbours: int, both_orders: bool, read: Read, context: StageContext
) -> Unit:
    """Pairs of lines that are close to each other in the source, as rows of two texts."""
    sides = _build_texts(drop_duplicates(draw_lines(text.rows, count, context.seed)))
    if len(sides[0]) < 2:
        raise DataError(f"{text.rows.name}: a pair takes two different sentences, but it has {len(sides[0])}")
    pairs_P2 = pair_neighbours(_find_nearest(sides[0], neighbours, context), both_orders=both_orders)
    context.progress.say(f"{text.rows.name}: {len(pairs_P2):,} pairs of {len(sides[0]):,} sentences")
    made = []
    for side in sides:
        texts = np.array(side.column("text").to_pylist(), object)
        columns = {"first": texts[pairs_P2[:, 0]], "second": texts[pairs_P2[:, 1]], "label": [""] * len(pairs_P2)}
        made.append(build_rows(LabelledPair, columns, language=side.language, name=side.name))
    return read_sides_by(text.language, made[0], made[1], read)


def list_linked(text: Text, linking: AdjustmentSettings, *, read: Read, context: StageContext) -> Unit:
    """Sentences as words, with the links between them where tags go from one side to the other."""
    if read == "target":
        _, sentences = draw_sentences(linking, text, context)
        words = build_untagged_rows(sentences.target, language=text.language, name=text.rows.name)
        return Unit(text.language, words, words)
    sentences, links = link_sentences(linking, text, context)
    sides = [
        build_untagged_rows(words, language=language, name=text.rows.name)
        for words, language in zip((sentences.source, sentences.target), text.rows.language.split("-"), strict=True)
    ]
    both = list(zip(sentences.source, sentences.target, strict=True))
    kept = [
        filter_links(found, pair, linking, seen=(len(pair[0]), len(pair[1]))).reshape(-1, 2)
        for found, pair in zip(links, both, strict=True)
    ]
    pairs = [[(i, j) for i, j in found.tolist()] for found in kept]
    return Unit(text.language, sides[0], sides[1], pairs, both=read == "both")


def draw_lines(rows: Rows, count: int | None, seed: int) -> Rows:
    """At most ``count`` random rows, in their order."""
    if count is None or count >= len(rows):
        return rows
    return rows.take(np.sort(np.random.default_rng([seed, 0]).permutation(len(rows))[:count]))


def drop_duplicates(rows: Rows) -> Rows:
    """The rows of which neither sentence nor translation is that of a row before, white space aside."""
    seen: set[tuple[str, str]] = set()
    kept = []
    sides = ("source", "target")
    for row, keys in enumerate(zip(*(list_keys(rows, (side,)).to_pylist() for side in sides), strict=True)):
        named = set(zip(sides, keys, strict=True))
        if not named & seen:
            kept.append(row)
            seen |= named
    return rows.take(kept)


def pair_neighbours(nearest_NK: Array, *, both_orders: bool) -> Array:
    """Pairs of each line with its neighbours, each pair once whichever line it is a neighbour of, P x 2.

    The lower number first; with both orders, each pair is followed by its reverse.
    """
    count, number = nearest_NK.shape
    lines_P2 = np.column_stack([np.repeat(np.arange(count), number), nearest_NK.reshape(-1)])
    pairs_P2 = np.unique(np.sort(lines_P2, axis=1), axis=0)
    if not both_orders:
        return pairs_P2
    return np.stack([pairs_P2, pairs_P2[:, ::-1]], axis=1).reshape(-1, 2)


def _build_texts(rows: Rows) -> tuple[Rows, Rows]:
    """The two sides as rows of single texts."""
    languages = rows.language.partition("-")[::2]
    first, second = (
        build_rows(LabelledText, {"text": side, "label": [""] * len(side)}, language=language, name=rows.name)
        for side, language in zip(read_sides(rows), languages, strict=True)
    )
    return first, second


def _find_nearest(rows: Rows, count: int, context: StageContext) -> Array:
    """The nearest other lines of each, by the vectors of the recipe's encoder; kept for later seeds and rounds."""
    from crossling.files import is_intact, replacing
    from crossling.inference.sentence_vectors import embed_texts, find_neighbours
    from crossling.models.model import build_model

    device = context.distributed.device
    encoder = context.base() if context.base is not None else context.encoder
    facts = ["neighbours", VERSION, rows.fingerprint, count, encoder.identity, LENGTH, device.type]
    path = context.encoded / f"{content_hash(facts)}.npy"
    if not is_intact(path):
        vectors_ND = embed_texts(
            build_model(copy_encoder(encoder), {"kind": "last"}).to(device),
            rows,
            how="mean",
            length=LENGTH,
            distributed=context.distributed,
            cache=context.encoded,
            batch=BATCH,
            progress=context.progress,
        )
        with replacing(path, seal=True) as partial, partial.open("wb") as stream:
            np.save(stream, find_neighbours(vectors_ND, count, device))
    found: Array = np.load(path, allow_pickle=False)
    return found
