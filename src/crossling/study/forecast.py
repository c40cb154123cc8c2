"""Before a run: what it would read, and what it would need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.encoder import Encoder, load_encoder
from crossling.errors import DataError, UserError
from crossling.evaluation import check_kind
from crossling.recipe import Recipe, to_toml
from crossling.registry import load_kind
from crossling.tasks import build_task

MEGABYTE = 1e6
OVERHEAD = 750 * MEGABYTE
"""Resident before any weight: Python, torch, transformers and pyarrow (measured on Linux)."""
ACTIVATION_FACTOR = 34
"""Floats that a layer keeps for its backward pass, for each subword and unit of width; without attention's scores."""


@dataclass(frozen=True)
class Inspection:
    """What ``crossling check`` shows."""

    recipe: str
    data: list[tuple[str, Rows]]
    forecast: dict[str, str]


def inspect_recipe(recipe: Recipe, *, store: Path) -> Inspection:
    """Open everything that a recipe names, without training; all that is missing is told at once."""
    data: list[tuple[str, Rows]] = []
    problems: list[str] = []
    for number, settings in enumerate(recipe.stage):
        try:
            task = build_task(settings.task, ())
            opened = load_kind("stages", settings.kind).open_stage_data(settings, source=recipe.source, store=store)
            data += [(f"stage.{number}: {role}", check_kind(task, rows)) for role, rows in opened.described()]
        except UserError as error:
            problems.append(f"stage.{number}: {error}")
    for number, entry in enumerate(recipe.evaluate):
        for _, spec in entry.specs():
            try:
                rows = open_data(spec, split=entry.split, store=store)
                data.append((f"evaluate.{number}", check_kind(task, rows) if recipe.stage else rows))
            except UserError as error:
                problems.append(f"evaluate.{number}: {error}")
    if problems:
        raise DataError("\n  ".join([f"{len(problems)} problems with the data", *problems]))
    encoder = load_encoder(recipe.encoder.name, revision=recipe.encoder.revision)
    return Inspection(to_toml(recipe.model_dump(mode="json")), data, forecast_memory(recipe, encoder))


def forecast_memory(recipe: Recipe, encoder: Encoder) -> dict[str, str]:
    """Memory that training takes: weights, gradients and AdamW's two moments, and one batch's activations."""
    table = encoder.model.get_input_embeddings().weight.numel()
    body = sum(p.numel() for p in encoder.parameters()) - table
    facts = {"encoder": f"{encoder.name}: {(body + table) / 1e6:.1f} million parameters"}
    for number, settings in enumerate(recipe.stage):
        trims = recipe.encoder.trim if recipe.encoder.trim != "auto" else settings.weight_decay == 0
        most = 16.0 * (body + table)
        activations = _activation_bytes(settings, encoder)
        least = 16.0 * body
        total = OVERHEAD + most + activations
        text = (
            f"at most {total / 1e9:.1f} GB: {most / 1e9:.1f} weights and optimiser, {activations / 1e9:.1f} activations"
        )
        if trims:
            text += f"; trimming leaves {(OVERHEAD + least + activations) / 1e9:.1f} GB and the subwords in use"
        facts[f"stage.{number}"] = text
    return facts


def _activation_bytes(settings: Any, encoder: Encoder) -> float:
    length = min(settings.task.length, encoder.max_length)
    subwords = settings.batch * length
    per_layer = subwords * encoder.width * ACTIVATION_FACTOR + settings.batch * encoder.heads * length * length * 2
    layers = 2 if settings.gradient_checkpointing else encoder.layers
    return float(4 * per_layer * layers)
