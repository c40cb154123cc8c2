"""Attention-head updates: how much training changed each head's weights (figure 1 of multilingual knowledge).

The change is the mean absolute difference of a head's weights and biases: its rows of the query, key and value
projections and its columns of the output projection, each on its own and all together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from crossling.analyses.context import AnalysisContext
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model, ModelCard

VERSION = 1
SCHEMA = pa.schema(
    {
        "layer": pa.int64(),
        "head": pa.int64(),
        **dict.fromkeys(("update", "query", "key", "value", "output", "weight"), pa.float64()),
    }
)
SHOWN = ("update", "query", "key", "value", "output")
APART = ("layer",)


class Settings(FrozenSettings):
    """What a model's heads are compared with."""

    kind: Literal["heads"] = "heads"
    against: str = ""
    """An encoder by name, or the folder of a saved model; default: the encoder that a model was trained from."""


@dataclass(frozen=True)
class Data:
    """What models are compared with, if it is the same for all."""

    before: Encoder | None
    identity: str = ""

    def fingerprints(self) -> list[str]:
        """What of it affects the result; a model's own encoder is known from the model."""
        return [self.identity] if self.before is not None else []


def file_stem(settings: Settings) -> str:
    """What the files of this analysis are called."""
    return "heads-updates"


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
    from crossling.analyses._heads import measure_updates
    from crossling.encoders.loading import load_encoder

    before = data.before or load_encoder(card.encoder, revision=card.revision)
    rows: list[dict[str, Any]] = []
    for layer, measures in enumerate(measure_updates(before, model.encoder), 1):
        columns = {("update" if name == "all" else name): values.tolist() for name, values in measures.items()}
        for head in range(model.encoder.heads):
            rows.append({"layer": layer, "head": head + 1, **{name: some[head] for name, some in columns.items()}})
    return pa.Table.from_pylist(rows, schema=SCHEMA)
