"""Layers that stages name, compared with those that their encoder has, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from crossling.encoders.gemma import GEMMA_ALIASES, GEMMA_SIZE
from crossling.encoders.offline import OFFLINE_ALIASES, OFFLINE_SIZE
from crossling.errors import DataError, Problems, RecipeError
from crossling.fusions import build_fusion
from crossling.limits import is_folder
from crossling.recipe.recipe import EncoderSettings, Recipe
from crossling.study.grid import Study

if TYPE_CHECKING:
    from crossling.analyses.settings import AnalysisSettings
    from crossling.stages import StageSettings

Size = tuple[int, int]
"""An encoder's number of layers and its width."""
PACKAGED: Mapping[str, Size] = {
    **dict.fromkeys(OFFLINE_ALIASES, OFFLINE_SIZE),
    **dict.fromkeys(GEMMA_ALIASES, GEMMA_SIZE),
}


@contextmanager
def explain_taken(recipe: Recipe, number: int) -> Iterator[None]:
    """Say of a refused setting that it may come from the stage before, whose models have another encoder."""
    try:
        yield
    except RecipeError as error:
        teacher = recipe.own_encoder(number - 1) if number else None
        if teacher is None:
            raise
        raise RecipeError(
            f"{error} What this stage does not name is as in the stage before, whose models have another encoder, "
            f"{teacher.name}: name it here."
        ) from None


def check_layers(settings: StageSettings, *, layers: int, width: int) -> None:
    """Refuse what an encoder with this number of layers and this width does not have."""
    if hasattr(settings, "fusion") and settings.fusion["kind"] != "last":  # every encoder has one, and it needs torch
        build_fusion(settings.fusion, layers=layers, width=width)
    if isinstance(settings.freeze, int) and settings.freeze > layers:
        raise RecipeError(f"freeze = {settings.freeze}: the encoder has {layers} layers.")
    for name, table in (("", settings), ("replay.", getattr(settings, "replay", None))):
        layer = getattr(table, "layer", None)
        if layer is not None and layer > layers:
            raise RecipeError(f"{name}layer = {layer}: the encoder has {layers} layers. Valid: 0 to {layers}.")
        aligner = getattr(table, "aligner", None) or {}
        if aligner.get("kind") == "neural" and "encoder" not in aligner and aligner.get("layer", 0) > layers:
            raise RecipeError(f"{name}aligner.layer = {aligner['layer']}: the encoder has {layers} layers.")


def check_recipe_layers(recipe: Recipe, measure: Callable[[EncoderSettings], Size | None], problems: Problems) -> None:
    """See that each stage's encoder has all layers that the stage names; nothing is said of one of unknown size."""
    for number, settings in enumerate(recipe.stage):
        size = measure(recipe.encoder_of(number))
        if size is not None:
            with problems.collect(f"stage.{number}"), explain_taken(recipe, number):
                check_layers(settings, layers=size[0], width=size[1])


def check_known_layers(study: Study, analyses: Mapping[str, AnalysisSettings] | None = None) -> list[str]:
    """Refuse layers that packaged encoders and those in folders lack, without any data; the encoders not checked.

    Encoders of the hub are not looked for. The sizes of packaged ones are known, so that no weights are read.
    ``analyses``: those of the study's models.
    """
    measure = cache(_find_size)
    faults: dict[str, list[str]] = {}
    unknown: dict[str, None] = {}
    for variant in study.variants:
        problems = Problems()
        check_recipe_layers(variant.recipe, measure, problems)
        for settings in variant.recipe.encoders:
            size = measure(settings)
            if size is None:
                unknown[settings.name] = None
            elif settings == variant.recipe.encoder:
                _check_analyses(analyses or {}, size[0], problems)
        for line in problems.lines():
            faults.setdefault(line, []).append(variant.folder)
    if faults:
        raise DataError(describe_faults(faults, len(study.variants)))
    return list(unknown)


def _check_analyses(analyses: Mapping[str, AnalysisSettings], layers: int, problems: Problems) -> None:
    for name, settings in analyses.items():
        layer = getattr(settings, "layer", None)
        if isinstance(layer, int) and layer > layers:
            with problems.collect(f"analysis {name}"):
                raise RecipeError(f"layer = {layer}: the encoder has {layers} layers. Valid: 0 to {layers}.")


def _find_size(settings: EncoderSettings) -> Size | None:
    if not is_folder(settings.name):
        return PACKAGED.get(settings.name)
    from crossling.encoders.cache import EncoderCache

    return EncoderCache().measure(settings)


def describe_faults(faults: Mapping[str, Sequence[str]], variants: int) -> str:
    """What is wrong, each fault once, with the variants that have it."""
    broken = {folder for folders in faults.values() for folder in folders}
    lines = [f"{', '.join(folders)}: {line}" for line, folders in faults.items()]
    return "\n  ".join([f"{len(broken)} of {variants} variants cannot be run", *lines])
