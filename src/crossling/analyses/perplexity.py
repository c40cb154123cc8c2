"""Pseudo-perplexity: how well an encoder still knows a language (table 5 of multilingual knowledge).

Every subword of a text is masked in turn and predicted from all the others by the encoder's last layer and the head of
the pretrained encoder. The pseudo-perplexity of a language is ``exp(-1/N * sum of log P(subword | the rest))`` over all
N subwords of all of its texts, special ones not counted. Figures can be compared within one head and one vocabulary
only, so that all models of a call must come from one encoder.

A copy of a text has one subword masked, or with ``within_word_l2r`` also those that follow it in its word. Batches of
copies are bounded by subwords read and by scores computed, which are those of the masked place only; a copy's score
does not depend on its batch. B copies, S subwords, D width, V subwords of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from crossling.analyses.models import AnalysedModels, Pretrained
from crossling.analyses.settings import AnalysisSettings, Languages
from crossling.analyses.summary import group_values, summarise_models
from crossling.data.batching import Array, Batch, Examples, plan_prediction
from crossling.data.catalogue import choose_split, open_data
from crossling.data.declarations import load_declaration
from crossling.data.rows import Rows
from crossling.data.spec import list_data, parse_spec
from crossling.errors import ArtefactError, DataError
from crossling.limits import LARGEST_SEED, MOST_COUNTED
from crossling.report.figures import draw_dots
from crossling.report.table import Table
from crossling.training.settings import HeadSettings

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


TOKENS = 8_192
"""Subwords that a batch of copies has at most, unless one text alone has more."""
SCORES = 2**26
"""Scores of subwords that a batch computes at most: 256 MB of them."""


class HeadTraining(HeadSettings):
    """How a head is trained for an encoder that came without one: on the frozen pretrained encoder."""

    train: tuple[str | dict[str, Any], ...] = ()
    """The text; default: the training split of ``on`` in all the languages."""
    rows: int = Field(default=5_000, ge=1, le=MOST_COUNTED)
    """Of each default set, the first rows."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of an example; longer texts are read in parts."""
    share: float = Field(default=0.15, gt=0, lt=1)
    """Share of a text's subwords that are masked."""
    held_out: float = Field(default=0.05, gt=0, le=0.5)
    """Share of every language's texts on which its accuracy is measured; not trained on."""
    seed: int = Field(default=1, ge=0, le=LARGEST_SEED)
    """Draws first weights, masks and order."""

    @field_validator("train", mode="before")
    @classmethod
    def _valid_train(cls, value: Any) -> Any:
        return list_data(value)


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
    head: Literal["auto", "checkpoint", "trained"] = "auto"
    """The head that the encoder's checkpoint came with, or one trained for it; auto: the first, where there is one."""
    training: HeadTraining = HeadTraining()
    """How a head is trained."""

    @model_validator(mode="after")
    def _some_language(self) -> Settings:
        if isinstance(self.on, str) and not self.languages:
            raise ValueError('languages: missing; the codes of the texts to score, such as ["de", "hi"]')
        return self

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

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        scored = [f"{part.language} {part.rows.fingerprint}" for part in self.parts]
        return [*scored, *(f"head {rows.language} {rows.fingerprint}" for rows in self.training)]


def prepare(settings: Settings, models: AnalysedModels) -> tuple[Settings, AnalysedModels]:
    """Which head it is, and what it is trained on; models of different encoders have no head in common."""
    from crossling.encoders.masked_word_head import has_head

    encoders = models.encoders
    _refuse_different(encoders)
    head = settings.head
    if head == "auto":
        head = "checkpoint" if has_head(encoders[0].name, revision=encoders[0].revision) else "trained"
    training = settings.training
    if head == "trained" and not training.train:
        training = training.model_copy(update={"train": _default_training(settings)})
    return settings.model_copy(update={"head": head, "training": training}), models


def _refuse_different(encoders: Sequence[Pretrained]) -> None:
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
            "the encoder came without a head for masked words, and a custom file has no training split: name "
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
    from crossling.analyses.masked_word_heads import find_head

    training = settings.training if settings.head == "trained" else None
    known = find_head(card.encoder, card.revision, training=training, rows=data.training, context=context)
    device = context.distributed.device
    table = known.table if settings.table == "original" else model.encoder.model.get_input_embeddings().weight
    predictor = SubwordPredictor(known.head.to(device), table.detach().to(device))
    rows = [_score(part, model, predictor, known, settings=settings, context=context) for part in data.parts]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _score(
    part: Part,
    model: Model,
    predictor: SubwordPredictor,
    known: KnownHead,
    *,
    settings: Settings,
    context: AnalysisContext,
) -> dict[str, Any]:
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
    rest_of_word = settings.method == "within_word_l2r"
    found = score_copies(
        model,
        predictor,
        examples,
        rest_of_word=rest_of_word,
        distributed=context.distributed,
        progress=context.progress,
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
    """Table 5, with the head that all figures are of; figures of different heads are refused."""
    rows = found.rows()
    heads = sorted({row["head"] for row in rows})
    if len(heads) > 1:
        raise ArtefactError(
            f"the models were scored with different heads ({', '.join(heads)}), whose perplexities cannot be compared. "
            "Score them in one store, or one at a time."
        )
    notes = [f"All figures are of one head ({heads[0]}) and are comparable with no others."]
    accuracy = {row["language"]: row["head_accuracy"] for row in rows if row["head_accuracy"] is not None}
    if accuracy:
        shares = ", ".join(f"{code} {100 * value:.1f}" for code, value in accuracy.items())
        notes.append(f"The head was trained on the frozen encoder; of held-out subwords it predicts, in %: {shares}.")
    columns = ("perplexity", "accuracy", "subwords")
    return [summarise_models(found, columns, title="Pseudo-perplexity of languages", notes=notes)]


def draw(found: AnalysisTable[Settings]) -> dict[str, str]:
    """A dot for each model and language, on a logarithmic scale."""
    on = found.settings.on
    title = f"pseudo-perplexity on {on if isinstance(on, str) else 'own text'}"
    values = group_values(found.rows(), "perplexity")
    return {"languages": draw_dots(values, axis="perplexity", title=title, logarithmic=True)}
