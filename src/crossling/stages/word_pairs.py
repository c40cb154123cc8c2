"""Parallel text as examples of aligned words: what adjustment learns from, and what fine-tuning replays."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.aligners.linked_text import Text, describe_text
from crossling.aligners.links import keep_one_to_one
from crossling.data.batching import Array, write_examples
from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.errors import DataError
from crossling.files import is_intact
from crossling.objectives.aligned_words import AdjustmentSettings, PairedExamples, identify_pairs
from crossling.recipe.identity import content_hash

if TYPE_CHECKING:
    from crossling.aligners.linked_text import Linker, Sentences
    from crossling.aligners.links import Link
    from crossling.encoders.encoder import Encoder
    from crossling.stages.context import StageContext
    from crossling.training.distributed import Distributed

VERSION = 1
CHUNK = 2_000
"""Sentence pairs that are encoded at a time."""


@dataclass(frozen=True)
class PairData:
    """Parallel text of one or more target languages."""

    texts: tuple[Text, ...]
    pairs_per_epoch: float | None = None
    """Pairs that are read in an epoch; None: all, once."""
    sentences: int | None = None
    """Pairs of each text at most."""

    def reads_per_epoch(self) -> list[tuple[Rows, float]]:
        """Each set, and how often it is read in an epoch."""
        shares = [min(1.0, (self.sentences or len(text.rows)) / max(1, len(text.rows))) for text in self.texts]
        once = sum(share * len(text.rows) for share, text in zip(shares, self.texts, strict=True))
        factor = 1.0 if self.pairs_per_epoch is None else self.pairs_per_epoch / max(1.0, once)
        return [(text.rows, factor * share) for share, text in zip(shares, self.texts, strict=True)]

    def fingerprints(self) -> list[list[str]]:
        """What of the data affects the result."""
        return [[text.rows.language, text.fingerprint()] for text in self.texts]

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role."""
        return [("parallel", text.rows) for text in self.texts]


def open_pairs(settings: AdjustmentSettings, *, source: str, store: Path) -> PairData:
    """Find and open parallel text; its first language is the one that stays."""
    texts = []
    for spec in settings.parallel:
        rows = open_data(spec, split="train", store=store)
        first, _, second = rows.language.partition("-")
        text = describe_text(rows, second, links=settings.links, aligner=None)
        if first != source or not second:
            raise DataError(
                f"{rows.name} goes from {first!r} to {second!r}, but the source language is {source!r}; name the text "
                f"as {source}-{second if second and second != source else first}"
            )
        if settings.pooling == "subword" and (text.links or not text.is_raw):
            raise DataError(f"{rows.name}: its links are between words; pooling = 'subword' links subwords")
        texts.append(text)
    return PairData(tuple(texts), sentences=settings.sentences)


def encode_pairs(settings: AdjustmentSettings, data: PairData, context: StageContext) -> PairedExamples:
    """Linked sentence pairs as examples, from the cache if they were made before."""
    table = {name: value for name, value in identify_pairs(settings).items() if name in _MADE_BY}
    base = (context.encoder_settings.name, context.encoder_settings.revision)
    facts = ["pairs", VERSION, table, data.fingerprints(), context.encoder.identity, base, context.seed]
    path = context.encoded / f"{content_hash(facts)}.arrow"
    if not is_intact(path):
        write_examples(path, _make_examples(settings, data, context))
    examples = PairedExamples(path)
    if not len(examples):
        raise DataError(f"{data.texts[0].rows.name}: no sentence pair has a link between words that differ")
    return examples


_MADE_BY = {"sentences", "words", "length", "aligner", "align_on", "one_to_one", "drop_identical", "pooling"}
"""Settings that examples depend on."""


def _make_examples(settings: AdjustmentSettings, data: PairData, context: StageContext) -> Iterator[dict[str, Any]]:
    for text in data.texts:
        sentences, links = link_sentences(settings, text, context)
        yield from _encode(settings, sentences, links, context.encoder)


def link_sentences(
    settings: AdjustmentSettings, text: Text, context: StageContext
) -> tuple[Sentences, Sequence[Sequence[Link]]]:
    """The sentence pairs that a seed draws from a text, and the links between their words (or subwords)."""
    from crossling.aligners.linked_text import link_by_all

    linker, drawn = draw_sentences(settings, text, context)

    def link(sentences: Sentences) -> Sequence[Sequence[Link]]:
        return _link(settings, text, linker, sentences, context)

    if settings.align_on == "drawn":
        return drawn, link(drawn)
    return drawn, link_by_all(linker, text, drawn, link, progress=context.progress)


def _link(
    settings: AdjustmentSettings, text: Text, linker: Linker, sentences: Sentences, context: StageContext
) -> Sequence[Sequence[Link]]:
    """Links between the words of sentences, or between their subwords."""
    from crossling.aligners import align_words
    from crossling.aligners.corpus import build_corpus

    if settings.pooling != "subword":
        return linker.link(text, sentences, device=context.distributed.device, progress=context.progress)
    pieces = [cut_pieces(side, context.encoder) for side in (sentences.source, sentences.target)]
    assert linker.aligner is not None
    return list(align_words(build_corpus(zip(*pieces, strict=True)), linker.aligner, progress=context.progress))


def draw_sentences(settings: AdjustmentSettings, text: Text, context: StageContext) -> tuple[Linker, Sentences]:
    """The sentence pairs that a seed draws from a text, as words, and what links them."""
    from crossling.aligners.linked_text import choose_sentences

    linker = _open_linker(settings, text, context)
    count = settings.sentences or len(text.rows)
    split = linker.split_by(text)
    sentences = choose_sentences(text.rows, split, count=count, longest=settings.words, seed=context.seed)
    context.progress.say(f"{text.rows.name}: {len(sentences.rows):,} sentence pairs of {len(text.rows):,}")
    return linker, sentences


def _open_linker(settings: AdjustmentSettings, text: Text, context: StageContext) -> Linker:
    from crossling.aligners.linked_text import open_linker

    if settings.pooling == "subword" and settings.aligner["kind"] == "neural":
        raise DataError("pooling = 'subword': the neural aligner links words; set aligner = 'statistical'")
    base = context.encoder_settings
    return open_linker([text], aligner=settings.aligner, encoder=base.name, revision=base.revision)


def cut_pieces(sentences: Sequence[Sequence[str]], encoder: Encoder) -> list[tuple[str, ...]]:
    """Sentences as the names of their subwords."""
    from crossling.encoders.tokenization import encode_words

    encoded = encode_words(encoder.tokenizer, sentences)
    return [tuple(encoder.tokenizer.convert_ids_to_tokens(encoded.pieces[row].tolist())) for row in range(len(encoded))]


def _encode(
    settings: AdjustmentSettings, sentences: Sentences, links: Sequence[Sequence[Link]], encoder: Encoder
) -> Iterator[dict[str, Any]]:
    """Examples of the pairs that have a link left."""
    from crossling.encoders.special_tokens import assemble, shorten_words, special_layout
    from crossling.encoders.tokenization import SubwordTokenizer

    subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
    room = min(settings.length, encoder.max_length) - layout.single_extra
    around = [np.full(len(part), -1, np.int32) for part in (layout.prefix, layout.single_suffix)]
    for start in range(0, len(links), CHUNK):
        chunk: dict[str, Any] = {}
        seen: list[list[int]] = []
        for prefix, side in (("", sentences.source), ("target_", sentences.target)):
            encoded = shorten_words(subwords.encode_words(side[start : start + CHUNK]), room=room)
            ids, types = assemble(layout, encoded.pieces)
            units = [_list_units(encoded.words[row], settings.pooling) for row in range(len(encoded))]
            seen.append([int(unit.max()) + 1 for unit in units])
            chunk[f"{prefix}ids"] = [ids[row] for row in range(len(encoded))]
            chunk[f"{prefix}words"] = [np.concatenate([around[0], unit, around[1]]) for unit in units]
            if encoder.uses_token_types:
                chunk[f"{prefix}types"] = [types[row] for row in range(len(encoded))]
        chunk["links"] = [
            filter_links(found, sides, settings, seen=(seen[0][place], seen[1][place]))
            for place, (found, sides) in enumerate(
                zip(links[start : start + CHUNK], _sides(sentences, start, settings, encoder), strict=False)
            )
        ]
        kept = [place for place, found in enumerate(chunk["links"]) if len(found)]
        if kept:
            yield {name: [values[place] for place in kept] for name, values in chunk.items()}


def _list_units(words: Array, pooling: str) -> Array:
    """Which unit each subword belongs to: its word, or itself."""
    return np.arange(len(words), dtype=np.int32) if pooling == "subword" else np.asarray(words, np.int32)


def _sides(
    sentences: Sentences, start: int, settings: AdjustmentSettings, encoder: Encoder
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The units of both sides as strings."""
    sides = [side[start : start + CHUNK] for side in (sentences.source, sentences.target)]
    if settings.pooling == "subword":
        return zip(*(cut_pieces(side, encoder) for side in sides), strict=True)
    return zip(*sides, strict=True)


def filter_links(
    links: Sequence[Link],
    sides: tuple[Sequence[str], Sequence[str]],
    settings: AdjustmentSettings,
    *,
    seen: tuple[int, int],
) -> Array:
    """The links to learn from, flat: filtered as the settings say, and only of words that the encoder reads."""
    if settings.one_to_one:
        links = keep_one_to_one(links)
    if settings.drop_identical:
        links = [(i, j) for i, j in links if sides[0][i] != sides[1][j]]
    links = [(i, j) for i, j in links if i < seen[0] and j < seen[1]]
    return np.asarray(links, np.int32).reshape(-1)


def copy_encoder(encoder: Encoder) -> Encoder:
    """A copy with its own weights; the tokenizer is shared."""
    return copy.deepcopy(encoder, {id(encoder.tokenizer): encoder.tokenizer})


def freeze_reference(encoder: Encoder, distributed: Distributed) -> Encoder:
    """An encoder that does not learn, without dropout, in the precision of the run.

    Its weights, that is: frequencies of rotary positions are no weights, and bf16 would shift the positions.
    """
    encoder.eval().requires_grad_(False).to(distributed.device)
    for weight in encoder.parameters():
        weight.data = weight.data.to(distributed.precision)
    return encoder
