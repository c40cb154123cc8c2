"""Attention-head updates: how much training changed each head's weights (figure 1 of multilingual knowledge).

The change is the mean absolute difference of a head's weights and biases: its rows of the query, key and value
projections and its columns of the output projection, each on its own and all together. L layers, H heads of a layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from crossling.analyses.head_maps import Array, build_map, correlate_ranks, page_map, plot_map
from crossling.analyses.head_overlap import pair_seeds
from crossling.analyses.models import AnalysedModels, Pretrained, name_model
from crossling.analyses.settings import AnalysisSettings, ModelPairs
from crossling.errors import DataError, EncoderError, UserError
from crossling.report.figures import HeatMap, draw_heat_maps
from crossling.report.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.analyses import AnalysisContext
    from crossling.analyses.result import AnalysisTable
    from crossling.encoders.encoder import Encoder
    from crossling.encoders.structure import Attention
    from crossling.models.model import Model, ModelCard

VERSION = 1
PARTS = ("query", "key", "value", "output")
"""A head's weights: rows of three projections, and columns of the fourth."""
COLUMNS = ("update", *PARTS, "weight")
SCHEMA = pa.schema({"layer": pa.int64(), "head": pa.int64(), **dict.fromkeys(COLUMNS, pa.float64())})
NORMALISE = {
    "mean": "divided by the mean over all heads: 1 is a head that changed as much as heads do",
    "max": "divided by the largest: 1 is the head that changed most",
    "range": "from 0, the head that changed least, to 1, the one that changed most",
    "weights": "divided by the mean absolute weight that the head had before",
    "none": "the mean absolute change itself",
}
"""The paper's maps are "normalised", which it does not explain; ranks, and so Spearman's rho, are the same in all but
one of these."""


class Settings(AnalysisSettings):
    """What a model's heads are compared with, and how maps are shown."""

    kind: Literal["head_updates"] = "head_updates"
    against: str = ""
    """An encoder, a saved model or a run of one seed; default: the encoder that a model was trained from."""
    compare: ModelPairs = Field(default=(), exclude=True)
    """FIRST:SECOND: draw the difference of two models' maps; of two models, this is the default."""
    part: Literal["update", "query", "key", "value", "output"] = Field(default="update", exclude=True)
    """Which weights of a head are shown: update (all of them), query, key, value or output."""
    normalise: Literal["mean", "max", "range", "weights", "none"] = Field(default="mean", exclude=True)
    """What maps are divided by: mean over heads, max, range, weights of the head, or none."""


@dataclass(frozen=True)
class Data:
    """What models are compared with, if it is the same for all."""

    before: Encoder | None
    identity: str = ""

    def fingerprints(self) -> list[str]:
        """What of it affects the result; a model's own encoder is known from the model."""
        return [self.identity] if self.before is not None else []


def prepare(settings: Settings, models: AnalysedModels) -> tuple[Settings, AnalysedModels]:
    """Replace ``against`` by the name of an encoder or the folder of a saved model."""
    models.check_names([name for pair in settings.compare for name in pair], setting="compare")
    if not models.against:
        untrained = [model.label for model in models.models if isinstance(model.location, Pretrained)]
        if untrained:
            raise UserError(
                f"{untrained[0]}: was not trained, so that none of its heads changed; name trained models, or what to "
                "compare it with: --against"
            )
        return settings, models
    if len(models.against) > 1:
        count = len(models.against)
        raise UserError(f"against {settings.against}: holds {count} models (seeds or systems); name one saved model")
    location = models.against[0].location
    if isinstance(location, Pretrained) and location.revision:
        raise UserError(f"against {settings.against}: a revision cannot be named here; name a folder")
    against = location.name if isinstance(location, Pretrained) else str(location)
    return settings.model_copy(update={"against": against}), models


def open_analysis_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Load what all models are compared with, where there is such a thing."""
    if not settings.against:
        return Data(None)
    from crossling.encoders.encoder import hash_weights
    from crossling.encoders.loading import load_encoder
    from crossling.models.model import load_model

    folder = Path(settings.against).expanduser()
    is_model = (folder / "model.json").is_file()
    before = load_model(folder)[0].encoder if is_model else load_encoder(settings.against)
    return Data(before, hash_weights(before))


def analyse(model: Model, card: ModelCard, data: Data, *, settings: Settings, context: AnalysisContext) -> pa.Table:
    """How much each head changed; layers and heads are counted from 1."""
    from crossling.encoders.loading import load_encoder

    before = data.before or load_encoder(card.encoder, revision=card.revision)
    rows: list[dict[str, Any]] = []
    for layer, measures in enumerate(measure_updates(before, model.encoder), 1):
        columns = {name: values.tolist() for name, values in measures.items()}
        for head in range(model.encoder.heads):
            rows.append({"layer": layer, "head": head + 1, **{name: some[head] for name, some in columns.items()}})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def measure_updates(before: Encoder, after: Encoder) -> list[dict[str, Tensor]]:
    """For each layer, the mean absolute change of each head's weights by part, H numbers each.

    ``update`` is that of all parts, ``weight`` the mean absolute weight before.
    """
    import torch

    shapes = [(e.layers, e.heads, e.width) for e in (before, after)]
    if shapes[0] != shapes[1]:
        sizes = " and ".join(f"{layers} layers of {heads} heads, width {width}" for layers, heads, width in shapes)
        raise EncoderError(f"{before.name} and {after.name}: {sizes}; heads are compared within one kind of encoder")
    found = []
    for old, new in zip(list_head_weights(before), list_head_weights(after), strict=True):
        changes = {part: (new[part] - old[part]).abs() for part in PARTS}
        measures = {part: change.mean(1) for part, change in changes.items()}
        measures["update"] = torch.cat(list(changes.values()), dim=1).mean(1)
        measures["weight"] = torch.cat([old[part].abs() for part in PARTS], dim=1).mean(1)
        found.append(measures)
    return found


def list_head_weights(encoder: Encoder) -> list[dict[str, Tensor]]:
    """For each layer and part, the weights of its heads, H x (weights and biases of one head), on the CPU.

    The output's bias belongs to no head.
    """
    from crossling.analyses.attention_heads import find_attention

    return [_list_in_layer(attention, encoder.heads) for attention in find_attention(encoder)]


def _list_in_layer(attention: Attention, heads: int) -> dict[str, Tensor]:
    import torch

    rows = [projection.weight.detach().cpu().float() for projection in attention.projections]
    biases = [projection.bias for projection in attention.projections if projection.bias is not None]
    weights = torch.cat(rows).view(3, heads, -1)
    if biases:
        bias = torch.cat([bias.detach().cpu().float() for bias in biases]).view(3, heads, -1)
        weights = torch.cat([weights, bias], dim=2)
    output = attention.output.weight.detach().cpu().float()
    slices = output.view(len(output), heads, -1).transpose(0, 1).flatten(1)
    return dict(zip(PARTS, (*weights.unbind(0), slices), strict=True))


def normalise_map(changes_LH: Array, weights_LH: Array, how: str) -> Array:
    """Changes of heads on a scale on which models that trained for longer or shorter can be compared."""
    if how == "none":
        return changes_LH
    if how == "weights":
        return _divide(changes_LH, weights_LH)
    least = changes_LH.min() if how == "range" else 0.0
    most = {"mean": changes_LH.mean(), "max": changes_LH.max(), "range": changes_LH.max() - least}[how]
    return _divide(changes_LH - least, np.full_like(changes_LH, most))


def _divide(above: Array, below: Array) -> Array:
    quotient: Array = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient


def collect_maps(found: AnalysisTable[Settings], *, part: str, normalise: str) -> dict[str, dict[Any, Array]]:
    """Each model's maps of layers by heads, one for each seed, on the common scale."""
    seeds: dict[str, dict[Any, list[Mapping[str, Any]]]] = {}
    for row in found.rows():
        seeds.setdefault(name_model(row), {}).setdefault(row["seed"], []).append(row)
    maps = {
        name: {
            seed: normalise_map(build_map(some, part), build_map(some, "weight"), normalise)
            for seed, some in by_seed.items()
        }
        for name, by_seed in seeds.items()
    }
    shapes = {values.shape for by_seed in maps.values() for values in by_seed.values()}
    if len(shapes) > 1:
        raise DataError(f"encoders of {len(shapes)} sizes; heads are compared within one kind of encoder")
    return maps


def average_maps(found: AnalysisTable[Settings], *, part: str, normalise: str) -> dict[str, Array]:
    """Each model's mean map over seeds."""
    maps = collect_maps(found, part=part, normalise=normalise)
    return {name: np.mean(list(by_seed.values()), axis=0) for name, by_seed in maps.items()}


def summarise(found: AnalysisTable[Settings]) -> list[Table]:
    """How alike models' updates are, and the mean update of each layer."""
    settings = found.settings
    seeds = collect_maps(found, part=settings.part, normalise=settings.normalise)
    maps = average_maps(found, part=settings.part, normalise=settings.normalise)
    tables = [tabulate_layers(maps, settings.normalise)]
    several = len(maps) > 1 or any(len(some) > 1 for some in seeds.values())
    return [tabulate_ranks(seeds), *tables] if several else tables


def tabulate_ranks(seeds: Mapping[str, Mapping[Any, Array]]) -> Table:
    """Spearman's rho between every two models' mean updates and between their seeds; the ceiling is a model's own."""
    lines = []
    for first, second in combinations(seeds, 2):
        means = [np.mean(list(seeds[name].values()), axis=0) for name in (first, second)]
        ranks = correlate_ranks(means[0], means[1])
        between = correlate_seeds(seeds[first], seeds[second])
        lines.append((first, second, f"{ranks.rho:.3f}", f"{ranks.p:.2g}", between, str(ranks.count)))
    for name, own in seeds.items():
        if len(own) > 1:
            heads = str(next(iter(own.values())).size)
            lines.append((name, "its other seeds", "–", "–", correlate_seeds(own, own), heads))
    head = ("model", "and", "Spearman's rho", "p", "rho of seeds", "heads")
    notes = (
        "rho of the mean maps, with the two-sided p of heads that rank independently; rho of seeds: the mean over "
        "pairs of different seeds. How alike a model's own seeds rank is the ceiling of that.",
    )
    return Table("How alike attention heads rank by their updates", head, tuple(lines), names=2, notes=notes)


def correlate_seeds(first: Mapping[Any, Array], second: Mapping[Any, Array]) -> str:
    """The mean of Spearman's rho over pairs of different seeds."""
    ours, theirs = list(first.values()), list(second.values())
    found = [correlate_ranks(ours[i], theirs[j]).rho for i, j in pair_seeds(list(first), list(second))]
    return f"{np.mean(found):.3f}"


def tabulate_layers(maps: Mapping[str, Array], normalise: str) -> Table:
    """The mean update of each layer's heads."""
    layers = max(len(values) for values in maps.values())
    lines = tuple(
        (str(layer + 1), *(f"{values[layer].mean():.4g}" for values in maps.values())) for layer in range(layers)
    )
    notes = (f"Mean over a layer's heads of the absolute change of their weights, {NORMALISE[normalise]}.",)
    return Table("Updates by layer", ("layer", *maps), lines, notes=notes)


def to_csv(found: AnalysisTable[Settings]) -> dict[str, str]:
    """Every head of every model and seed, with the mean map's value beside it."""
    settings = found.settings
    maps = average_maps(found, part=settings.part, normalise=settings.normalise)
    head = ("model", "seed", "layer", "head", *COLUMNS, "normalised")
    lines = []
    for row in found.rows():
        name, seed = name_model(row), "" if row["seed"] is None else str(row["seed"])
        value = maps[name][row["layer"] - 1, row["head"] - 1]
        numbers = [f"{number:.6g}" for number in (*(row[column] for column in COLUMNS), value)]
        lines.append((name, seed, str(row["layer"]), str(row["head"]), *numbers))
    return {"": Table("", head, tuple(lines)).to_csv()}


def draw(found: AnalysisTable[Settings]) -> dict[str, str | HeatMap]:
    """Figure 1, and a map of each model for the report."""
    settings = found.settings
    maps = average_maps(found, part=settings.part, normalise=settings.normalise)
    figures: dict[str, str | HeatMap] = {"": draw_updates(maps, settings)}
    for name, values in average_maps(found, part="update", normalise="none").items():
        figures[f"map {name}"] = page_map(f"update of heads: {name}", values)
    return figures


def draw_updates(maps: Mapping[str, Array], settings: Settings) -> str:
    """For each pair both maps and their difference; models of no pair below."""
    panels = []
    pairs: Sequence[tuple[str, ...]] = settings.compare or ([tuple(maps)] if len(maps) == 2 else [])
    for first, second in pairs:
        ranks = correlate_ranks(maps[first], maps[second])
        note = f"blue: {second} more, red: {first}; rho {ranks.rho:.2f}, p {ranks.p:.1g}"
        panels += [
            plot_map(first, maps[first]),
            plot_map(second, maps[second]),
            plot_map("difference", maps[second] - maps[first], colours="diverging", note=note),
        ]
    paired = {name for pair in pairs for name in pair}
    panels += [plot_map(name, values) for name, values in maps.items() if name not in paired]
    what = "of attention heads" if settings.part == "update" else f"of attention heads, {settings.part}"
    scale = {"none": "not normalised", "weights": "by the weights before"}.get(
        settings.normalise, f"normalised by their {settings.normalise}"
    )
    return draw_heat_maps(panels, title=f"Updates {what}, {scale}", columns=min(3, len(panels)), shared=True)
