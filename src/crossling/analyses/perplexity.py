"""Pseudo-perplexity: how well a fine-tuned encoder still knows a language (table 5 of multilingual knowledge).

Every subword of a text is guessed from all the others by the encoder's last layer and the head that its original came
with. The pseudo-perplexity of a language is ``exp(-1/N * sum of log P(subword | the rest))`` over all N subwords of all
of its texts, special ones not counted. Figures can be compared within one head and one vocabulary only, so that all
models of a call must come from one encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from crossling.data.catalogue import choose_split, open_data
from crossling.data.declarations import load_declaration
from crossling.data.rows import Rows
from crossling.data.spec import list_data, parse_spec
from crossling.errors import ArtefactError, DataError
from crossling.recipe.recipe import FrozenSettings
from crossling.training.settings import HeadSettings

if TYPE_CHECKING:
    from crossling.analyses._stored import Original
    from crossling.analyses._word_heads import KnownHead
    from crossling.analyses.context import AnalysisContext
    from crossling.models.model import Model, ModelCard

VERSION = 1
SCHEMA = pa.schema(
    {
        "language": pa.string(),
        "perplexity": pa.float64(),
        "loss": pa.float64(),
        "accuracy": pa.float64(),
        "subwords": pa.int64(),
        "texts": pa.int64(),
        "head": pa.string(),
        "head_accuracy": pa.float64(),
    }
)
SHOWN = ("perplexity", "accuracy", "subwords")


class HeadTraining(HeadSettings):
    """How a head is trained for an encoder that came without one: on the encoder as it was, which stays as it is."""

    train: tuple[str | dict[str, Any], ...] = ()
    """The text; default: the training split of ``on`` in all the languages."""
    rows: int = Field(default=5_000, ge=1)
    """Of each default set, the first rows."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of an example; longer texts are read in parts."""
    share: float = Field(default=0.15, gt=0, lt=1)
    """Of a text's subwords, those to guess."""
    held_out: float = Field(default=0.05, gt=0, le=0.5)
    """Share of every language's texts on which its accuracy is measured; not trained on."""
    seed: int = Field(default=1, ge=0)
    """Draws first weights, masks and order."""

    @field_validator("train", mode="before")
    @classmethod
    def _valid_train(cls, value: Any) -> Any:
        return list_data(value)


class Settings(FrozenSettings):
    """Which texts are scored, how, and with which head."""

    kind: Literal["perplexity"] = "perplexity"
    on: str | dict[str, Any]
    """A data set of any kind, or a table for a file of one's own."""
    languages: tuple[str, ...] = ()
    """Language codes; a table names its own."""
    split: str = ""
    """Default: test where there is one."""
    sentences: int = Field(default=1_000, ge=1)
    """Of each language, the first rows at most."""
    method: Literal["original", "within_word_l2r"] = "original"
    """What is hidden: the subword that is guessed, or also those that follow it in its word, which give it away."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of a text; longer ones are read in parts."""
    pairs: Literal["apart", "together"] = "apart"
    """Two texts of a row are scored apart, or read together."""
    table: Literal["original", "own"] = "original"
    """Subwords are chosen from the original encoder's table, which is part of its head, or from each model's own."""
    head: Literal["auto", "checkpoint", "trained"] = "auto"
    """The head that the encoder's checkpoint came with, or one trained for it; auto: the first, where there is one."""
    training: HeadTraining = HeadTraining()
    """How a head is trained."""

    @field_validator("languages")
    @classmethod
    def _different(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("every language once")
        return value

    @model_validator(mode="after")
    def _some_language(self) -> Settings:
        if isinstance(self.on, str) and not self.languages:
            raise ValueError('languages: missing; the codes of the texts to score, such as ["de", "hi"]')
        return self


@dataclass(frozen=True)
class Part:
    """The rows of one language; of translations, the side in that language."""

    language: str
    rows: Rows
    one_side: bool = False


@dataclass(frozen=True)
class Data:
    """The texts to score, and those that a head learns from."""

    parts: tuple[Part, ...]
    training: tuple[Rows, ...] = ()

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        scored = [f"{part.language} {part.rows.fingerprint}" for part in self.parts]
        return [*scored, *(f"head {rows.language} {rows.fingerprint}" for rows in self.training)]


def settle(settings: Settings, encoders: Sequence[Original]) -> Settings:
    """Which head it is, and what it is trained on; models of different encoders have no head in common."""
    from crossling.encoders.masked_word_head import has_head

    _refuse_different(encoders)
    head = settings.head
    if head == "auto":
        head = "checkpoint" if has_head(encoders[0].name, revision=encoders[0].revision) else "trained"
    training = settings.training
    if head == "trained" and not training.train:
        training = training.model_copy(update={"train": _default_training(settings)})
    return settings.model_copy(update={"head": head, "training": training})


def _refuse_different(encoders: Sequence[Original]) -> None:
    from crossling.encoders.loading import load_encoder
    from crossling.encoders.offline import OFFLINE_ALIASES

    names = {}
    for one in encoders:
        folder = Path(one.name).expanduser()
        name = str(folder.resolve()) if folder.is_dir() else one.name
        names[OFFLINE_ALIASES[0] if name in OFFLINE_ALIASES else name, one.revision] = one
    if len(names) == 1:
        return
    found = {load_encoder(one.name, revision=one.revision).identity: one.name for one in names.values()}
    if len(found) > 1:
        raise ArtefactError(
            f"models of different encoders ({', '.join(sorted(found.values()))}): perplexities can be compared within "
            "one head and one vocabulary only. Name models of one encoder at a time."
        )


def _default_training(settings: Settings) -> tuple[dict[str, Any], ...]:
    if isinstance(settings.on, dict):
        raise DataError(
            "the encoder came without a head for masked words, and a file of one's own has no training split: name "
            "the text to train one on: --set 'training.train=[\"ud:de\"]'"
        )
    limit = {"limit": settings.training.rows}
    return tuple({"data": f"{settings.on}:{code}:train", **limit} for code in settings.languages)


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the texts, and those for the head where one is to be trained."""
    if isinstance(settings.on, dict):
        rows = open_data(settings.on, split=settings.split, store=store)
        codes = [rows.language] if settings.pairs == "together" else _codes(rows)
        parts = [Part(code, rows.head(settings.sentences), one_side=True) for code in codes]
    else:
        parts = [_open_language(settings, settings.on, code, source, store) for code in settings.languages]
    training = settings.training.train if settings.head == "trained" else ()
    return Data(tuple(parts), tuple(_open_training(spec, store) for spec in training))


def _codes(rows: Rows) -> list[str]:
    from crossling.encoders.unlabelled import list_languages

    return list(dict.fromkeys(list_languages(rows)))


def _open_language(settings: Settings, on: str, code: str, source: str, store: Path) -> Part:
    """A language's rows; of translations the pair with the source, or, of the source itself, with another language."""
    spec, pairs = f"{on}:{code}", load_declaration(parse_spec(on).name, parse_spec(on).version).pairs
    if pairs:
        other = next((one for one in settings.languages if one != source), None)
        if code == source and other is None:
            raise DataError(f"{on}: a set of translations; name another language beside {code!r}")
        spec = f"{on}:{source}-{other if code == source else code}"
    rows = open_data(spec, split=settings.split or choose_split(spec), store=store)
    return Part(code, rows.head(settings.sentences), one_side=bool(pairs))


def _open_training(spec: str | dict[str, Any], store: Path) -> Rows:
    try:
        return open_data(spec, split="train", store=store)
    except DataError as error:
        raise DataError(
            f"text to train a head for masked words on: {error}\nName other text: --set 'training.train=[\"ud:de\"]'"
        ) from None


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """A row for each language."""
    from crossling.analyses._masked_copies import Words
    from crossling.analyses._word_heads import find_head

    training = settings.training if settings.head == "trained" else None
    known = find_head(card.encoder, card.revision, training=training, rows=data.training, context=context)
    device = context.distributed.device
    table = known.table if settings.table == "original" else model.encoder.model.get_input_embeddings().weight
    words = Words(known.head.to(device), table.detach().to(device))
    rows = [_score(part, model, words, known, settings=settings, context=context) for part in data.parts]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _score(
    part: Part, model: Model, words: Any, known: KnownHead, *, settings: Settings, context: AnalysisContext
) -> dict[str, Any]:
    from crossling.analyses._masked_copies import score_copies
    from crossling.data.batching import ExampleSubset
    from crossling.encoders.unlabelled import Chunking, encode_unlabelled

    texts = encode_unlabelled(
        [part.rows], model.encoder, Chunking(settings.length, settings.pairs, words=True), cache=context.encoded
    )
    examples = texts.examples
    if part.one_side and settings.pairs == "apart":
        own = examples.scalars("language") == texts.languages.index(part.language)
        examples = ExampleSubset(examples, np.flatnonzero(own))
    if not len(examples):
        raise DataError(f"{part.rows.name}: no text to score")
    whole_rest = settings.method == "within_word_l2r"
    found = score_copies(
        model, words, examples, whole_rest=whole_rest, distributed=context.distributed, progress=context.progress
    )
    loss = float(found.loss.mean())
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(np.float64(loss)))
    return {
        "language": part.language,
        "perplexity": perplexity,
        "loss": loss,
        "accuracy": float(found.right.mean()),
        "subwords": len(found.loss),
        "texts": len(examples),
        "head": known.label if settings.table == "original" else f"{known.label} own",
        "head_accuracy": known.accuracy.get(part.language.partition("_")[0]),
    }


def file_stem(settings: Settings) -> str:
    """Files are named by what was scored, and by how where it is not the default."""
    on = settings.on if isinstance(settings.on, str) else "own"
    return f"perplexity-{on}" + ("" if settings.method == "original" else "-l2r")


def remarks(table: pa.Table, *, settings: Settings) -> list[str]:
    """What head all figures are of; figures of different heads are refused."""
    heads = sorted(set(table.column("head").to_pylist()))
    if len(heads) > 1:
        raise ArtefactError(
            f"the models were scored with different heads ({', '.join(heads)}), whose perplexities cannot be compared. "
            "Score them in one store, or one at a time."
        )
    told = f"all figures are of one head ({heads[0]}) and are comparable with no others"
    accuracy = {row["language"]: row["head_accuracy"] for row in table.to_pylist() if row["head_accuracy"] is not None}
    if not accuracy:
        return [told]
    shares = ", ".join(f"{code} {100 * value:.1f}" for code, value in accuracy.items())
    return [
        told,
        f"the head was trained on the frozen original; of held-out masked subwords it guesses, in %: {shares}",
    ]


def draw(table: pa.Table, *, settings: Settings) -> dict[str, str]:
    """A dot for each model and language, on a scale of factors."""
    from crossling.report.dots import draw_dots

    title = f"pseudo-perplexity on {settings.on if isinstance(settings.on, str) else 'own text'}"
    return {"languages": draw_dots(table.to_pylist(), "perplexity", title=title, log=True)}
