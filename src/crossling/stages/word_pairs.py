"""Parallel text as aligned words: what adjustment learns from, and what fine-tuning replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from crossling.aligners.linked_text import Text, describe_text
from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.data.spec import list_data
from crossling.errors import DataError, UserError
from crossling.recipe.identity import content_hash
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    import numpy as np

    from crossling.aligners.linked_text import Linker, Sentences
    from crossling.aligners.links import Link
    from crossling.encoders.encoder import Encoder
    from crossling.objectives.aligned_words import Objective, PairedExamples
    from crossling.stages.context import StageContext

VERSION = 1
CHUNK = 2_000
"""Sentence pairs that are encoded at a time."""


class PairSettings(FrozenSettings):
    """Which translations, how their words are linked, and what of them is compared."""

    parallel: tuple[str | dict[str, Any], ...] = ()
    """Sentences with translations, the source language first: ntrex:en-hi, wikimatrix:en-es, opus:en-ru, or a table
    with format, path and languages. Several of them are adjusted to at once."""
    sentences: int | None = Field(default=30_000, ge=1)
    """At most so many pairs of each set, drawn at random by the run's seed; none: all."""
    words: int = Field(default=64, ge=1)
    """Longer sentences are left out."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of a sentence; what is beyond gets no vectors."""
    aligner: dict[str, Any] = Field(
        default_factory=lambda: {"kind": "neural"}, json_schema_extra={"family": "aligners"}
    )
    """What links words, where the text has no links itself: neural (the recipe's encoder, a middle layer), statistical,
    eflomal, with their settings."""
    links: str = ""
    """A file in Pharaoh format, a line for each pair of the set, words apart by white space; {language} in its name
    becomes the target language."""
    one_to_one: bool = True
    """Only links whose two words have no other link."""
    drop_identical: bool = True
    """Leave out links between equal strings: names and numbers."""
    pooling: Literal["mean", "first", "last", "subword"] = "mean"
    """A word's vector from its subwords; subword: no words at all, links are between subwords."""
    anchors: tuple[Literal["words", "cls", "sep"], ...] = ("words", "cls", "sep")
    """What is pulled together: linked words, the first and the last special token."""
    moving: Literal["both", "target"] = "both"
    """Which side the pull moves: both, or the target alone while the source is held fixed."""
    layer: int | None = Field(default=None, ge=0)
    """Whose vectors are compared; default: the last layer's."""
    reduction: Literal["mean", "sum"] = "mean"
    """Means over pairs and dimensions, as the published figures had it, or sums, as the equation is written."""
    dropout: bool = True
    """The encoder's own, while it is adjusted."""
    pull: float = Field(default=1.0, ge=0)
    """The weight of the distance between linked words."""
    stay: float = Field(default=1.0, ge=0)
    """The weight of the distance of every source word from what the reference encoder makes of it."""

    @field_validator("parallel", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return list_data(value)

    @field_validator("aligner", mode="before")
    @classmethod
    def _valid_aligner(cls, value: Any) -> Any:
        from crossling.aligners import parse_aligner

        table = {"kind": value} if isinstance(value, str) else dict(value)
        try:
            parse_aligner(table)
        except UserError as error:
            raise ValueError(str(error)) from None
        return table

    @field_validator("anchors")
    @classmethod
    def _some_anchor(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) < len(value):
            raise ValueError("one or more of words, cls and sep, each once")
        return value


class ReplaySettings(PairSettings):
    """Aligned words in every step. What is not named here is as in the adjust stage before."""

    pull: float = Field(default=0.01, ge=0)
    """The weight of the distance between linked words; with stay = 0 too, nothing is replayed."""
    batch: int = Field(default=16, ge=1)
    """Sentence pairs in every step, drawn with replacement."""
    reference: Literal["base", "start"] = "base"
    """What source words are held to: the recipe's encoder as it came, or as this stage found it."""


@dataclass(frozen=True)
class PairData:
    """Parallel text of one or more target languages."""

    texts: tuple[Text, ...]
    times: float | None = None
    """Pairs that are read in an epoch, where not all once."""
    sentences: int | None = None
    """Pairs of each text at most."""

    def efforts(self) -> list[tuple[Rows, float]]:
        """Each set, and how often it is read in an epoch."""
        shares = [min(1.0, (self.sentences or len(text.rows)) / max(1, len(text.rows))) for text in self.texts]
        once = sum(share * len(text.rows) for share, text in zip(shares, self.texts, strict=True))
        factor = 1.0 if self.times is None else self.times / max(1.0, once)
        return [(text.rows, factor * share) for share, text in zip(shares, self.texts, strict=True)]

    def fingerprints(self) -> list[list[str]]:
        """What of the data affects the result."""
        return [[text.rows.language, text.fingerprint()] for text in self.texts]

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role, for people."""
        return [("parallel", text.rows) for text in self.texts]


def open_pairs(settings: PairSettings, *, source: str, store: Path) -> PairData:
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
            raise DataError(f"{rows.name}: its links are between words; pooling = 'subword' makes links of its own")
        texts.append(text)
    return PairData(tuple(texts), sentences=settings.sentences)


def encode_pairs(settings: PairSettings, data: PairData, context: StageContext) -> PairedExamples:
    """Linked sentence pairs as examples, from the cache where they were made before."""
    from crossling.data.batching import write_examples
    from crossling.objectives.aligned_words import PairedExamples

    table = settings.model_dump(mode="json", include=_MADE_BY)
    base = (context.encoder_settings.name, context.encoder_settings.revision)
    facts = ["pairs", VERSION, table, data.fingerprints(), context.encoder.identity, base, context.seed]
    path = context.encoded / f"{content_hash(facts)}.arrow"
    if not path.exists():
        write_examples(path, _make_examples(settings, data, context))
    examples = PairedExamples(path)
    if not len(examples):
        raise DataError(f"{data.texts[0].rows.name}: no sentence pair has a link between words that differ")
    return examples


_MADE_BY = {"sentences", "words", "length", "aligner", "one_to_one", "drop_identical", "pooling"}
"""Settings that examples depend on."""


def _make_examples(settings: PairSettings, data: PairData, context: StageContext) -> Iterator[dict[str, Any]]:
    for text in data.texts:
        sentences, links = link_sentences(settings, text, context)
        yield from _encode(settings, sentences, links, context.encoder)


def link_sentences(
    settings: PairSettings, text: Text, context: StageContext
) -> tuple[Sentences, Sequence[Sequence[Link]]]:
    """The sentence pairs that a seed draws from a text, and the links between their words (or subwords)."""
    from crossling.aligners import align_words
    from crossling.aligners.corpus import build_corpus
    from crossling.aligners.linked_text import choose_sentences

    linker = _open_linker(settings, text, context)
    count = settings.sentences or len(text.rows)
    split = linker.split_by(text)
    sentences = choose_sentences(text.rows, split, count=count, longest=settings.words, seed=context.seed)
    context.progress.say(f"{text.rows.name}: {len(sentences.rows):,} sentence pairs of {len(text.rows):,}")
    if settings.pooling != "subword":
        return sentences, linker.link(text, sentences, device=context.distributed.device, progress=context.progress)
    pieces = [cut_pieces(side, context.encoder) for side in (sentences.source, sentences.target)]
    assert linker.aligner is not None
    links = align_words(build_corpus(zip(*pieces, strict=True)), linker.aligner, progress=context.progress)
    return sentences, list(links)


def _open_linker(settings: PairSettings, text: Text, context: StageContext) -> Linker:
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
    settings: PairSettings, sentences: Sentences, links: Sequence[Sequence[Link]], encoder: Encoder
) -> Iterator[dict[str, Any]]:
    """Examples of the pairs that have a link left."""
    import numpy as np

    from crossling.encoders.tokenization import SubwordTokenizer, assemble, shorten_words, special_layout

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


def _list_units(words: np.ndarray[Any, Any], pooling: str) -> np.ndarray[Any, Any]:
    """Which unit each subword belongs to: its word, or itself."""
    import numpy as np

    return np.arange(len(words), dtype=np.int32) if pooling == "subword" else np.asarray(words, np.int32)


def _sides(
    sentences: Sentences, start: int, settings: PairSettings, encoder: Encoder
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The units of both sides as strings."""
    sides = [side[start : start + CHUNK] for side in (sentences.source, sentences.target)]
    if settings.pooling == "subword":
        return zip(*(cut_pieces(side, encoder) for side in sides), strict=True)
    return zip(*sides, strict=True)


def filter_links(
    links: Sequence[Link],
    sides: tuple[Sequence[str], Sequence[str]],
    settings: PairSettings,
    *,
    seen: tuple[int, int],
) -> np.ndarray[Any, Any]:
    """The links to learn from, flat: 1-1 if asked for, between different strings, of words that the encoder sees."""
    import numpy as np

    if settings.one_to_one:
        counts: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for link in links:
            for count, word in zip(counts, link, strict=True):
                count[word] = count.get(word, 0) + 1
        links = [(i, j) for i, j in links if counts[0][i] == counts[1][j] == 1]
    if settings.drop_identical:
        links = [(i, j) for i, j in links if sides[0][i] != sides[1][j]]
    links = [(i, j) for i, j in links if i < seen[0] and j < seen[1]]
    return np.asarray(links, np.int32).reshape(-1)


def build_pair_objective(
    name: str, settings: PairSettings, encoder: Encoder, reference: Encoder | None, precision: Any
) -> Objective:
    """The loss on an encoder, with what its source language is held to."""
    from crossling.objectives.aligned_words import Objective, describe_pull

    if settings.layer is not None and settings.layer > encoder.layers:
        raise DataError(f"layer = {settings.layer}: {encoder.name} has 0 (embeddings) to {encoder.layers}")
    table = settings.model_dump()
    if settings.pooling == "subword":
        table["pooling"] = "mean"  # of one subword each
    if reference is not None:
        reference = reference.to(precision)
    return Objective(name, describe_pull(table), width=encoder.width, reference=reference)


def freeze_copy(encoder: Encoder) -> Encoder:
    """An encoder as it is now, which nothing will change."""
    import copy

    still = copy.deepcopy(encoder, {id(encoder.tokenizer): encoder.tokenizer})
    return still.eval().requires_grad_(False)
