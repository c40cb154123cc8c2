"""What ``crossling encoder`` says of an encoder before hours are spent on it, from its small files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.analyses.attention_heads import find_attention
from crossling.data.catalogue import describe, open_data
from crossling.data.languages import get_language
from crossling.data.records import ParallelPair, TaggedSentence
from crossling.data.rows import Rows
from crossling.data.words import split_words
from crossling.encoders.coverage import count_subwords
from crossling.encoders.encoder import Encoder
from crossling.encoders.four_bit_blocks import BlockFile
from crossling.encoders.masked_word_head import check_masking
from crossling.encoders.offline import build_tokenizer, find_offline_file
from crossling.encoders.structure import UNLIMITED
from crossling.encoders.without_weights import Checkpoint, open_checkpoint
from crossling.errors import EncoderError
from crossling.phrasebook import LANGUAGES, generate
from crossling.recipe.recipe import parse_recipe
from crossling.study.memory import Load, forecast_gpu_bytes, forecast_prediction, forecast_stage

BATCH, LENGTH = 32, 128
"""What memory is forecast for: sentences of a batch, and subwords of each."""
SENTENCES = 1_000
"""Sentences of each language that are tokenized."""
LIMITED: dict[str, Callable[[Encoder], object]] = {
    "adapt stages and analyse perplexity": check_masking,
    'pooling = "cls"': Encoder.check_cls,
    "analyse head_updates and head_probe": find_attention,
}
"""What some encoders cannot do, and what refuses it."""
SETS = ("panx", "ud", "flores", "ntrex")
"""Data sets at hand whose text is tokenized, for languages that the embedded corpus does not have."""


@dataclass(frozen=True, slots=True)
class LanguageTokenization:
    """How an encoder tokenizes a language, beside the offline encoder."""

    language: str
    text: str
    """The data set that was tokenized; empty where no text is at hand."""
    fertility: float = 0.0
    """Subwords per word."""
    unknown: float = 0.0
    """The share of words with an unknown subword."""
    offline: tuple[float, float] | None = None
    """The same two of the offline encoder; none where it is not installed."""


@dataclass(frozen=True, slots=True)
class EncoderReport:
    """All that is said of an encoder."""

    checkpoint: Checkpoint
    tokenizations: tuple[LanguageTokenization, ...]

    def facts(self) -> dict[str, str]:
        """For showing: names and values in words."""
        facts = {"encoder": self.checkpoint.name}
        if self.checkpoint.encoder is not None:
            facts |= _describe_encoder(self.checkpoint.encoder, self.checkpoint)
        size = self.checkpoint.bytes_to_fetch
        facts |= {"to download": f"{size / 1e6:,.0f} MB"} if size is not None else {}
        return facts | {"licence": self.checkpoint.licence or "not stated"}

    def limits(self) -> list[str]:
        """What will not work with a usable encoder, and why."""
        encoder = self.checkpoint.encoder
        if encoder is None:
            return []
        found = []
        for what, check in LIMITED.items():
            try:
                check(encoder)
            except EncoderError as error:
                found.append(f"{what}: {error}")
        return found


def inspect_encoder(
    name: str, languages: Sequence[str] = (), *, revision: str | None = None, store: Path
) -> EncoderReport:
    """Check an encoder and tokenize text with it; nothing but small files is downloaded."""
    texts = {language: _find_text(language, store) for language in languages or LANGUAGES}
    checkpoint = open_checkpoint(name, revision=revision)
    tokenizations = _tokenize_languages(checkpoint.encoder, texts) if checkpoint.encoder is not None else ()
    return EncoderReport(checkpoint, tuple(tokenizations))


def _describe_encoder(encoder: Encoder, checkpoint: Checkpoint) -> dict[str, str]:
    can_mask = encoder.tokenizer.mask_token_id is not None and not encoder.is_causal
    heads = {True: "yes", False: "no; an adapt stage trains one" if can_mask else "no", None: "not known"}
    read = "their last token, which alone has seen all" if encoder.is_causal else "the mean of their tokens"
    poolers = {True: "yes", False: f"no: sentences are read by {read}", None: "not known"}
    parameters = sum(parameter.numel() for parameter in encoder.parameters())
    recipe = parse_recipe(
        {
            "encoder": {"name": checkpoint.name, "trim": False},
            "stage": [
                {
                    "kind": "finetune",
                    "task": {"kind": "tag", "length": LENGTH},
                    "train": "phrasebook-ner:en",
                    "batch": BATCH,
                }
            ],
        }
    )
    length = min(LENGTH, encoder.max_length)
    need = forecast_stage(recipe, 0, encoder, Load(BATCH, length, encoder.vocabulary))
    predicting = forecast_prediction(encoder, batch=BATCH, length=length)
    named = {key: getattr(encoder.tokenizer, f"{key}_token") for key in ("pad", "mask", "cls", "unk")}
    return {
        "family": encoder.model.config.model_type,
        "attention": encoder.attention,
        "layers": str(encoder.layers),
        "heads": f"{encoder.heads} a layer, {encoder.layers * encoder.heads} in all",
        "width": str(encoder.width),
        "vocabulary": f"{encoder.vocabulary:,} subwords",
        "longest input": "no limit" if encoder.max_length == UNLIMITED else f"{encoder.max_length} subwords",
        "special tokens": ", ".join(f"{key} {token or 'none'}" for key, token in named.items()),
        "pooler": poolers[checkpoint.pooler],
        "masked-word head": heads[checkpoint.head],
        "segments": "yes" if encoder.uses_token_types else "no",
        "parameters": f"{parameters / 1e6:.1f} million",
        "memory to train": f"about {need.total / 1e9:.1f} GB on a CPU, "
        f"{forecast_gpu_bytes(recipe, encoder) / 1e9:.1f} on a GPU, at {BATCH} x {length} subwords; less where the "
        "vocabulary is trimmed",
        "memory to predict": f"about {predicting / 1e9:.1f} GB",
    }


def _tokenize_languages(
    encoder: Encoder, texts: dict[str, tuple[str, list[Sequence[str]]]]
) -> Iterable[LanguageTokenization]:
    try:
        offline = build_tokenizer(BlockFile(find_offline_file()))
    except EncoderError:  # it is not installed
        offline = None
    for language, (name, sentences) in texts.items():
        if not sentences:
            yield LanguageTokenization(language, "")
            continue
        other = None if offline is None else count_subwords(offline, sentences)
        yield LanguageTokenization(language, name, *count_subwords(encoder.tokenizer, sentences), other)


def _find_text(language: str, store: Path) -> tuple[str, list[Sequence[str]]]:
    """Sentences of words: of the embedded corpus, else of a data set that is at hand; none if there is no text."""
    get_language(language)
    if language in LANGUAGES:
        rows = generate("pos", language, "train", rows=SENTENCES)
        return "phrasebook", [row.words for row in rows if isinstance(row, TaggedSentence)]
    for name in SETS:
        for spec in describe(name, "").available:
            codes = [code.partition("_")[0] for code in spec.split(":")[1].split("-")]
            if language in codes:
                found = open_data(spec, store=store).head(SENTENCES)
                return name, list(_read_words(found, language, is_target=codes[-1] == language))
    return "", []


def _read_words(rows: Rows, language: str, *, is_target: bool) -> Iterable[Sequence[str]]:
    for row in rows:
        if isinstance(row, TaggedSentence):
            yield row.words
        elif isinstance(row, ParallelPair):
            yield [word.text for word in split_words(row.target if is_target else row.source, language)]
