"""Gates: how much of its first layer a fusion of two layers mixes into each channel, language by language.

Of ``L1 * A + L2 * (1 - A)`` (equation 4 of layer fusion) the table has the mean of ``A`` over a language's tokens, its
deviation, and how far the mix is from the second layer. A gate that learnt something differs between channels, tokens
or languages; one that did not is near a half everywhere. B texts, S subwords, D channels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from crossling.analyses.models import name_model
from crossling.analyses.settings import AnalysisSettings, Languages
from crossling.analyses.summary import group_values, summarise_models
from crossling.data.batching import Array, Batch, Examples, ExampleSubset, plan_prediction
from crossling.data.catalogue import choose_split, open_data
from crossling.data.declarations import load_declaration
from crossling.data.rows import Rows
from crossling.data.spec import parse_spec
from crossling.errors import ArtefactError, DataError
from crossling.limits import MOST_COUNTED
from crossling.report.figures import HeatMap, draw_dots, draw_heat_maps
from crossling.report.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.analyses import AnalysisContext
    from crossling.analyses.result import AnalysisTable
    from crossling.models.model import Model, ModelCard
    from crossling.objectives import Arrays

VERSION = 1
SCHEMA = pa.schema(
    {
        "language": pa.string(),
        "channel": pa.int64(),
        "gate": pa.float64(),
        "deviation": pa.float64(),
        "moved": pa.float64(),
        "tokens": pa.int64(),
    }
)
SHOWN = 24
"""Channels in the heat map: those whose gates differ most between languages."""


class Settings(AnalysisSettings):
    """Which texts the gates are read on."""

    kind: Literal["gates"] = "gates"
    on: str | dict[str, Any] = "ntrex"
    """A data set of any kind, or a table for a custom file."""
    languages: Languages = ()
    """Language codes, the one that others are compared with first: en,de,hi; a table names its own."""
    split: str = ""
    """Default: test where there is one."""
    sentences: int = Field(default=500, ge=1, le=MOST_COUNTED)
    """The most rows of each language, the first ones."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of a text; longer ones are read in parts."""
    pairs: Literal["apart", "together"] = "apart"
    """Two texts of a row are read apart, or together."""

    @model_validator(mode="after")
    def _some_language(self) -> Settings:
        if isinstance(self.on, str) and not self.languages:
            raise ValueError('languages: missing; the codes of the texts to read, such as ["en", "de", "hi"]')
        return self


@dataclass(frozen=True)
class Data:
    """The rows of each language; of translations, the side in that language is read."""

    parts: tuple[tuple[str, Rows], ...]
    left_out: set[str] = field(default_factory=set)
    """Kinds of fusions without a gate that models have."""

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        return [f"{language} {rows.fingerprint}" for language, rows in self.parts]


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open the texts."""
    if isinstance(settings.on, dict):
        rows = open_data(settings.on, split=settings.split, store=store).head(settings.sentences)
        return Data(((rows.language.partition("-")[2] or rows.language, rows),))
    parts = []
    for code in settings.languages:
        spec = f"{settings.on}:{_name_pair(settings, settings.on, code, source)}"
        rows = open_data(spec, split=settings.split or choose_split(spec), store=store)
        parts.append((code, rows.head(settings.sentences)))
    return Data(tuple(parts))


def _name_pair(settings: Settings, on: str, code: str, source: str) -> str:
    """A language, or of translations its pair with the source; of the source itself, that with another language."""
    spec = parse_spec(on)
    if not load_declaration(spec.name, spec.version).pairs:
        return code
    other = code if code != source else next((one for one in settings.languages if one != source), None)
    if other is None:
        raise DataError(f"{on}: a set of translations; name another language beside {code!r}")
    return f"{source}-{other}"


@dataclass(frozen=True)
class _GateReader:
    """Sums over the tokens of a batch, for each channel."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        from crossling.objectives.inputs import collate_inputs

        return collate_inputs(examples, plan, size=size)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        fusion: Any = model.fusion
        hidden = model.encoder(batch["ids"], batch["mask"], batch.get("types"), layers=fusion.reads)
        second_BSD = hidden[fusion.second].double()
        gate_BSD = fusion.weigh(hidden, batch["mask"]).double().expand_as(second_BSD)
        moved_BSD = fusion(hidden, batch["mask"]).double() - second_BSD
        real_BS1 = batch["mask"].bool()[:, :, None]
        values = {"gate": gate_BSD, "square": gate_BSD**2, "moved": moved_BSD**2, "second": second_BSD**2}
        sums = {name: value.masked_fill(~real_BS1, 0.0).sum((0, 1)) for name, value in values.items()}
        return {**sums, "tokens": real_BS1.sum()}


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """A row for each language and channel; none of a model that does not mix two layers by shares."""
    if not hasattr(model.fusion, "weigh"):
        kind = str(card.fusion.get("kind"))
        if kind not in data.left_out:  # once, and not for every seed
            data.left_out.add(kind)
            context.progress.say(f"fusion {kind!r} mixes no two layers by a gate: models with it are left out")
        return pa.Table.from_pylist([], schema=SCHEMA)
    parts = [_measure(language, rows, model, settings=settings, context=context) for language, rows in data.parts]
    return pa.concat_tables(parts)


def _measure(language: str, rows: Rows, model: Model, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    import torch

    from crossling.encoders.unlabelled import Chunking, encode_unlabelled
    from crossling.training.loop import predict_examples

    texts = encode_unlabelled(
        [rows], model.encoder, Chunking(settings.length, settings.pairs, words=True), cache=context.encoded
    )
    examples = texts.examples
    if language in texts.languages and settings.pairs == "apart":
        own = np.flatnonzero(examples.scalars("language") == texts.languages.index(language))
        examples = ExampleSubset(examples, own)
    if not len(examples):
        raise DataError(f"{rows.name}: no text to read")
    outputs = predict_examples(
        model,
        _GateReader(),
        examples,
        distributed=replace(context.distributed, precision=torch.float32),
        plan=plan_prediction(examples.lengths, context.batch),
        progress=context.progress,
    )
    sums: dict[str, Array] = {}
    context.progress.begin(f"reading {rows.name}", len(examples))
    for batch, arrays in outputs:
        sums = {name: sums.get(name, 0) + value for name, value in arrays.items()}
        context.progress.advance(len(batch.rows))
    context.progress.end()
    tokens = int(sums["tokens"])
    gate_D = sums["gate"] / tokens
    columns = {
        "language": [language] * len(gate_D),
        "channel": np.arange(len(gate_D)),
        "gate": gate_D,
        "deviation": np.sqrt(np.maximum(sums["square"] / tokens - gate_D**2, 0.0)),
        "moved": np.sqrt(sums["moved"] / np.maximum(sums["second"], 1e-30)),
        "tokens": [tokens] * len(gate_D),
    }
    return pa.table(columns, schema=SCHEMA)


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """For each language: gates over all channels, how they vary, and how like the first language's they are."""
    profiles = _group_profiles(found)
    rows = []
    for (task, model, seed), languages in profiles.items():
        first = next(iter(languages.values()))
        for language, columns in languages.items():
            gate_D = columns["gate"]
            rows.append(
                {
                    "task": task,
                    "model": model,
                    "seed": seed,
                    "language": language,
                    "gate": float(gate_D.mean()),
                    "over channels": float(gate_D.std()),
                    "over tokens": float(columns["deviation"].mean()),
                    "moved": float(columns["moved"].mean()),
                    "correlation": _correlate(gate_D, first["gate"]),
                }
            )
    shown = ("gate", "over channels", "over tokens", "moved", "correlation")
    notes = (
        "gate: the share of the first layer, averaged over channels and tokens, with its deviations. moved: how far "
        "the mix is from the second layer, as a share of that layer's size. correlation: of the channels' gates with "
        "those of the first language.",
    )
    table = pa.Table.from_pylist(rows)
    return [summarise_models(replace(found, table=table), shown, title="Gates of fused layers", notes=notes)]


def draw(found: AnalysisTable[Settings]) -> dict[str, str]:
    """Gates by language, with their deviation over channels; and the channels whose gates differ most."""
    values = group_values(found.rows(), "gate")
    title = "Gates: mean and deviation over channels"
    maps: dict[str, list[dict[str, Array]]] = {}
    for (task, model, _), languages in _group_profiles(found).items():
        gates = {language: columns["gate"] for language, columns in languages.items()}
        maps.setdefault(name_model({"task": task, "model": model}), []).append(gates)
    panels = [_map_channels(name, seeds) for name, seeds in maps.items()]
    drawn = draw_heat_maps(panels, title="Channels whose gates differ most between languages", columns=1)
    return {"": draw_dots(values, axis="share of the first layer", title=title), "channels": drawn}


def _map_channels(name: str, seeds: list[dict[str, Array]]) -> HeatMap:
    """The means over seeds; of one language, the channels farthest from the mean of all."""
    languages = list(seeds[0])
    gate_LD = np.array([np.mean([one[language] for one in seeds], axis=0) for language in languages])
    spread_D = np.ptp(gate_LD, axis=0) if len(languages) > 1 else np.abs(gate_LD[0] - gate_LD[0].mean())
    chosen = np.sort(np.argsort(-spread_D, kind="stable")[:SHOWN])
    values = tuple(tuple(float(value) for value in row) for row in gate_LD[:, chosen])
    return HeatMap(name, values, tuple(languages), tuple(map(str, chosen)), axes=("language", "channel"))


def _group_profiles(found: AnalysisTable[Settings]) -> dict[tuple[str, str, Any], dict[str, dict[str, Array]]]:
    """The columns of each model, seed and language, in the order of channels."""
    groups: dict[tuple[str, str, Any], dict[str, list[dict[str, Any]]]] = {}
    for row in found.rows():
        model = groups.setdefault((row["task"], row["model"], row["seed"]), {})
        model.setdefault(row["language"], []).append(row)
    if not groups:
        raise ArtefactError("none of the models mixes two layers by a gate; name some with the fusion dlfa or mean")
    return {
        key: {
            code: {name: np.array([row[name] for row in rows]) for name in ("gate", "deviation", "moved")}
            for code, rows in languages.items()
        }
        for key, languages in groups.items()
    }


def _correlate(one: Array, other: Array) -> float | None:
    """Pearson's correlation; none where all channels have the same gate."""
    if one.std() < 1e-9 or other.std() < 1e-9:
        return None
    return float(np.corrcoef(one, other)[0, 1])
