"""Pseudo-perplexity: how well an encoder still knows a language (table 5 of multilingual knowledge).

Every subword of a text is masked in turn and predicted from all the others by the encoder's last layer and the head of
the pretrained encoder, or the head that was adapted with the model. The pseudo-perplexity of a language is ``exp(-1/N *
sum of log P(subword | the rest))`` over all N subwords of all of its texts, special ones not counted. Figures can be
compared within one vocabulary only, so that all models of a call must come from one encoder.

A copy of a text has one subword masked, or with ``within_word_l2r`` also those that follow it in its word. Batches of
copies are bounded by subwords read and by scores computed, which are those of the masked place only; a copy's score
does not depend on its batch. B copies, S subwords, D width, V subwords of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from crossling.analyses.intervals import drop_errors
from crossling.analyses.masked_word_head_choice import (
    KEYWORDS,
    HeadTraining,
    describe_heads,
    has_own_head,
    list_default_text,
    name_place,
    open_training_text,
    refuse_different_encoders,
)
from crossling.analyses.models import AnalysedModels
from crossling.analyses.perplexity_ratios import draw_ratios, estimate_ratios, exponentiate, tabulate_ratios
from crossling.analyses.settings import AnalysisSettings, Languages
from crossling.analyses.summary import group_values, summarise_models
from crossling.data.batching import Array, Batch, Examples, ExampleSubset, plan_prediction
from crossling.data.catalogue import choose_split, open_data
from crossling.data.declarations import load_declaration
from crossling.data.rows import Rows
from crossling.data.spec import parse_spec
from crossling.errors import ArtefactError, DataError
from crossling.limits import MOST_COUNTED
from crossling.report.figures import draw_dots
from crossling.report.table import Table
from crossling.scores.significance.counts import find_errors

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.analyses import AnalysisContext
    from crossling.analyses.masked_word_heads import KnownHead
    from crossling.analyses.result import AnalysisTable
    from crossling.encoders.masked_word_head import MaskedWordHead
    from crossling.models.model import Model, ModelCard
    from crossling.objectives import Arrays
    from crossling.progress import Progress
    from crossling.training.distributed import Distributed

VERSION = 2
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
        "errors": pa.list_(pa.float32()),
    }
)
TOKENS = 8_192
"""Subwords that a batch of copies has at most, unless one text alone has more."""
SCORES = 2**26
"""Scores of subwords that a batch computes at most: 256 MB of them."""


class Settings(AnalysisSettings):
    """Which texts are scored, how, and with which head."""

    kind: Literal["perplexity"] = "perplexity"
    on: str | dict[str, Any]
    """A data set of any kind, or a table for a custom file."""
    languages: Languages = ()
    """Language codes: en,de,hi; a table names its own."""
    split: str = ""
    """Default: test where there is one."""
    sentences: int = Field(default=1_000, ge=1, le=MOST_COUNTED)
    """The most rows of each language, the first ones."""
    method: Literal["original", "within_word_l2r"] = "original"
    """What is masked: the subword that is predicted, or also those that follow it in its word, which give it away."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of a text; longer ones are read in parts."""
    pairs: Literal["apart", "together"] = "apart"
    """Two texts of a row are scored apart, or read together."""
    table: Literal["original", "own"] = "original"
    """Subwords are chosen from the pretrained encoder's table, which is part of its head, or from each model's own."""
    head: str = "auto"
    """The masked-word head of all models: checkpoint, what the encoder's checkpoint came with; trained, one trained for
    it; auto, the first where there is one; or the model or encoder that has the head, such as runs/da@0, the encoder
    after a stage adapt. Models that were adapted with a head of their own are scored with it, see adapted_heads."""
    adapted_heads: bool = True
    """Score the encoder after a stage adapt with the head that was adapted with it, unless head names another."""
    against: str = Field(default="", exclude=True)
    """The model that others are compared with; default: the pretrained encoder, where it is among the models."""
    training: HeadTraining = HeadTraining()
    """How a head is trained."""

    @model_validator(mode="after")
    def _some_language(self) -> Settings:
        if isinstance(self.on, str) and not self.languages:
            raise ValueError('languages: missing; the codes of the texts to score, such as ["de", "hi"]')
        return self

    def name_models(self) -> dict[str, str]:
        """Models that settings name: what others are compared with, and what has the head."""
        return {**super().name_models(), **({} if self.head in KEYWORDS else {"head": self.head})}

    def file_stem(self) -> str:
        """The name of the files with its results, which says how texts were scored where it is not the default."""
        return super().file_stem() + ("" if self.method == "original" else "-l2r")


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
    named: KnownHead | None = None
    """The head that the settings name."""

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        scored = [f"{part.language} {part.rows.fingerprint}" for part in self.parts]
        named = [f"head {self.named.label}"] if self.named else []
        return [*scored, *(f"head {rows.language} {rows.fingerprint}" for rows in self.training), *named]


def prepare(settings: Settings, models: AnalysedModels) -> tuple[Settings, AnalysedModels]:
    """Which head it is, and what it is trained on; models of different encoders have no head in common."""
    from crossling.encoders.masked_word_head import has_head

    compared = models.with_bases(add=bool(models.against))
    encoders = compared.encoders
    refuse_different_encoders(encoders)
    if models.heads:
        return settings.model_copy(update={"head": name_place(settings.head, models.heads)}), compared
    head = settings.head
    if head == "auto":
        head = "checkpoint" if has_head(encoders[0].name, revision=encoders[0].revision) else "trained"
    training = settings.training
    adapted = settings.adapted_heads and all(has_own_head(model.location) for model in compared.models)
    if head == "trained" and not training.train and not adapted:
        text = list_default_text(settings.on, settings.languages, rows=training.rows)
        training = training.model_copy(update={"train": text})
    return settings.model_copy(update={"head": head, "training": training}), compared


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the texts, and those for the head where one is to be trained."""
    if isinstance(settings.on, dict):
        rows = open_data(settings.on, split=settings.split, store=store)
        codes = [rows.language] if settings.pairs == "together" else _codes(rows)
        parts = [Part(code, rows.head(settings.sentences), one_side=True) for code in codes]
    else:
        parts = [_open_language(settings, settings.on, code, source, store) for code in settings.languages]
    training = settings.training.train if settings.head == "trained" else ()
    named = None
    if settings.head not in KEYWORDS:
        from crossling.analyses.masked_word_heads import read_named_head

        named = read_named_head(settings.head)
    return Data(tuple(parts), tuple(open_training_text(spec, store=store) for spec in training), named)


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


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """A row for each language."""
    from crossling.encoders.masked_word_head import check_masking

    check_masking(model.encoder)
    known = _choose_head(model, card, data, settings, context)
    device = context.distributed.device
    table = known.table if settings.table == "original" else model.encoder.model.get_input_embeddings().weight
    predictor = SubwordPredictor(known.head.to(device), table.detach().to(device))
    rows = [_score(part, model, predictor, known, settings=settings, context=context) for part in data.parts]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _choose_head(model: Model, card: ModelCard, data: Data, settings: Settings, context: AnalysisContext) -> KnownHead:
    """The head that is named, the one that was adapted with the model, or that of its pretrained encoder."""
    from crossling.analyses.masked_word_heads import find_head, find_own_head

    if data.named is not None:
        if data.named.table.shape != model.encoder.model.get_input_embeddings().weight.shape:
            raise ArtefactError(f"head = {settings.head!r}: is of an encoder with another vocabulary or width")
        return data.named
    if settings.adapted_heads and (own := find_own_head(model)) is not None:
        return own
    training = settings.training if settings.head == "trained" else None
    return find_head(card.encoder, card.revision, training=training, rows=data.training, context=context)


def _score(
    part: Part,
    model: Model,
    predictor: SubwordPredictor,
    known: KnownHead,
    *,
    settings: Settings,
    context: AnalysisContext,
) -> dict[str, Any]:
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
    found = score_copies(
        model,
        predictor,
        examples,
        rest_of_word=settings.method == "within_word_l2r",
        distributed=context.distributed,
        progress=context.progress,
    )
    loss = float(found.loss.mean())
    sums = [np.bincount(found.text, weights, minlength=len(examples)) for weights in (found.loss, None)]
    return {
        "language": part.language,
        "perplexity": exponentiate(loss),
        "loss": loss,
        "accuracy": float(found.right.mean()),
        "subwords": len(found.loss),
        "texts": len(examples),
        "head": known.label if settings.table == "original" else f"{known.label} own",
        "head_accuracy": known.accuracy.get(part.language.partition("_")[0]),
        "errors": find_errors(np.stack(sums, axis=-1)[:, None]).astype(np.float32),
    }


@dataclass(frozen=True)
class SubwordPredictor:
    """What predicts subwords: a head and the table of subword vectors that it chooses from."""

    head: MaskedWordHead
    table: Tensor


@dataclass(frozen=True)
class Scored:
    """For every subword of some texts: its text, its loss, and whether it was predicted."""

    text: Array
    loss: Array
    """Negative log-likelihood, natural."""
    right: Array


class MaskedCopies(Examples):
    """A copy for each subword of each text; special ones, which have no word, are always there to be read."""

    def __init__(self, texts: Examples) -> None:
        self.path, self.columns, self.texts = texts.path, texts.columns, texts
        inside = [np.flatnonzero(texts.get("words", row) >= 0) for row in range(len(texts))]
        self.owners = np.repeat(np.arange(len(texts)), [len(places) for places in inside])
        self.places = np.concatenate([np.zeros(0, np.int64), *inside]).astype(np.int64)
        self.lengths = texts.lengths[self.owners]

    def get(self, column: str, row: int) -> Array:
        """A column of the text that a copy is of."""
        return self.texts.get(column, int(self.owners[row]))


@dataclass
class MaskedSubword:
    """The likelihood of each copy's masked subword."""

    predictor: SubwordPredictor
    mask_id: int
    rest_of_word: bool = False
    """Mask the rest of the word as well."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Copies of one text stand together in a plan, and are filled in together."""
        assert isinstance(examples, MaskedCopies)
        owners, places = examples.owners[plan.rows], examples.places[plan.rows]
        ids = np.full((size, plan.length), -1, np.int64)
        types = np.zeros_like(ids)
        targets = np.zeros(size, np.int64)
        edges = [*np.flatnonzero(np.diff(owners, prepend=-1)), len(owners)]
        for first, last in pairwise(edges):
            text = examples.texts.get("ids", int(owners[first]))
            block, own = ids[first:last, : len(text)], places[first:last]
            block[:] = text
            targets[first:last] = text[own]
            block[np.arange(last - first), own] = self.mask_id
            if self.rest_of_word:
                word_S = examples.texts.get("words", int(owners[first]))
                later = np.arange(len(text)) >= own[:, None]
                block[(word_S == word_S[own][:, None]) & later] = self.mask_id
            if "types" in examples.columns:
                types[first:last, : len(text)] = examples.texts.get("types", int(owners[first]))
        batch = {"ids": ids, "mask": (ids >= 0).astype(np.int64), "place": places, "target": targets}
        return {**batch, "types": types} if "types" in examples.columns else batch

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The last layer is read, whatever the fusion: it is what the head was made for."""
        from torch.nn import functional

        encoder = model.encoder
        hidden_BSD = encoder(batch["ids"], batch["mask"], batch.get("types"), layers=[encoder.layers])[encoder.layers]
        place_B1D = batch["place"][:, None, None].expand(-1, 1, hidden_BSD.shape[-1])
        scores_BV = self.predictor.head(hidden_BSD.gather(1, place_B1D)[:, 0], self.predictor.table).float()
        loss_B = functional.cross_entropy(scores_BV, batch["target"], reduction="none")
        return {"loss": loss_B, "right": scores_BV.argmax(dim=-1) == batch["target"]}


def score_copies(
    model: Model,
    predictor: SubwordPredictor,
    texts: Examples,
    *,
    rest_of_word: bool,
    distributed: Distributed,
    progress: Progress,
    tokens: int = TOKENS,
    scores: int = SCORES,
) -> Scored:
    """Every subword of every text predicted, in single precision whatever the device."""
    import torch

    from crossling.training.loop import predict_examples

    copies = MaskedCopies(texts)
    objective = MaskedSubword(predictor, int(model.encoder.tokenizer.mask_token_id), rest_of_word)
    plan = plan_prediction(copies.lengths, max(1, scores // len(predictor.table)), tokens)
    loss, right = np.zeros(len(copies)), np.zeros(len(copies), bool)
    exact = replace(distributed, precision=torch.float32)
    progress.begin("masking subwords", len(copies))
    for batch, arrays in predict_examples(model, objective, copies, distributed=exact, plan=plan, progress=progress):
        loss[batch.rows], right[batch.rows] = arrays["loss"], arrays["right"]
    progress.end()
    return Scored(copies.owners, loss, right)


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """Table 5, with the head that figures are of, and how many times the perplexity of the base a model has."""
    notes = describe_heads(drop_errors(found.table))
    columns = ("perplexity", "accuracy", "subwords")
    title = "Pseudo-perplexity of languages"
    tables = [summarise_models(found, columns, title=title, notes=notes, geometric=("perplexity",))]
    estimates = estimate_ratios(found)
    return [*tables, tabulate_ratios(estimates, found.bases)] if estimates else tables


def draw(found: AnalysisTable[Settings]) -> dict[str, str]:
    """A dot for each model and language, on a logarithmic scale; and times the base's perplexity, with intervals."""
    on = found.settings.on
    title = f"pseudo-perplexity on {on if isinstance(on, str) else 'own text'}"
    values = group_values(drop_errors(found.table), "perplexity")
    figures = {"languages": draw_dots(values, axis="perplexity", title=title, logarithmic=True)}
    if estimates := estimate_ratios(found):
        figures["compared"] = draw_ratios(estimates, title=title)
    return figures
