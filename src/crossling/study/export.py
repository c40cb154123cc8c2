"""Export: the trained model of a run as a folder to use elsewhere, with a README made from the run's record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, cast, get_args

import numpy as np

from crossling.data.ragged import IntArray
from crossling.encoders.trimming import collect_ids
from crossling.errors import ArtefactError, UserError, nearest
from crossling.files import check_new_folder, write_folder
from crossling.inference.onnx.dependencies import Precision, require_onnx
from crossling.models.counterparts import write_transformers
from crossling.models.model import Model, ModelCard, load_model
from crossling.models.standalone import write_standalone
from crossling.report.readme import describe_transformers, write_readme
from crossling.study.model_facts import describe_model
from crossling.study.precision_scores import describe_cost, measure_precisions, tabulate
from crossling.study.run_record import find_model

Vocabulary = Literal["whole", "used"]
Format = Literal["crossling", "onnx", "transformers"]


def export_model(
    run: Path,
    out: Path,
    *,
    to: str = "crossling",
    vocabulary: str = "whole",
    on: Sequence[str] = (),
    precision: str = "float32",
    measure: Sequence[str] = (),
    seed: int | None = None,
    store: Path,
) -> str:
    """Write a model that needs neither the store nor its base encoder; returns lines that say what was written.

    ``run`` is the folder of a run or of a saved model. ``on`` names data sets and text files whose subwords stay in a
    vocabulary of the subwords in use. ``measure`` names data sets on which a model in 8 bits is compared with float32.
    """
    _check_options(to, vocabulary, on, precision, measure)
    check_new_folder(out)
    folder = find_model(run, seed=seed)
    model, card = load_model(folder)
    if to == "transformers" and not card.tasks:
        raise ArtefactError(f"{folder}: has no task, so that transformers has nothing to predict; leave --to out")
    used = None if vocabulary == "whole" else _find_used(model, folder, on, store)
    limits = () if used is None else (_describe_vocabulary(model, used, on),)
    facts = describe_model(run, card, name=out.resolve().name, seed=seed, limits=limits)
    lines: list[str] = []

    def write(place: Path) -> None:
        known = facts
        if to == "crossling":
            write_standalone(model, card, place, used=used)
        elif to == "onnx":
            from crossling.inference.onnx.export import export_onnx

            export_onnx(*_trim(model, card, used), place, precision=cast(Precision, precision))
        else:
            reason = write_transformers(*_trim(model, card, used), place)
            known = describe_transformers(facts, own=bool(reason))
            if reason:
                lines.append(f"transformers has no class for {reason}: its users must import crossling first")
        if precision == "int8":
            found = measure_precisions(model, card, place, on=measure, store=store) if measure else []
            lines.append(describe_cost(found))
            known = replace(facts, limits=(lines[0], *facts.limits), sections=(tabulate(found),))
        (place / "README.md").write_text(write_readme(known), encoding="utf-8")

    write_folder(out, write)
    size = sum(path.stat().st_size for path in out.iterdir())
    kept = "all" if used is None else f"{len(used):,} of"
    return "\n".join([f"{out}: {kept} {model.encoder.vocabulary:,} subwords, {size / 1e6:.1f} MB", *lines])


def _check_options(to: str, vocabulary: str, on: Sequence[str], precision: str, measure: Sequence[str]) -> None:
    """Refuse options that are unknown or do not go together, before anything is loaded."""
    _check_choice("--to", to, get_args(Format))
    _check_choice("--precision", precision, get_args(Precision))
    _check_choice("--vocabulary", vocabulary, get_args(Vocabulary))
    if precision == "int8" and to != "onnx":
        raise UserError("--precision int8: only ONNX Runtime computes in 8 bits; add --to onnx")
    if measure and precision != "int8":
        raise UserError("--measure: compares 8 bits with float32; add --to onnx --precision int8")
    if to == "onnx":
        require_onnx()
    if on and vocabulary == "whole":
        raise UserError("--on: the whole vocabulary has the subwords of any text; add --vocabulary used to keep fewer")


def _check_choice(option: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise UserError(f"{option} {given}: unknown.{nearest(given, choices)}")


def _trim(model: Model, card: ModelCard, used: IntArray | None) -> tuple[Model, ModelCard]:
    """The model with a smaller vocabulary, where only some subwords are used."""
    if used is None:
        return model, card
    with TemporaryDirectory() as folder:
        write_standalone(model, card, Path(folder) / "model", used=used)
        return load_model(Path(folder) / "model")


def _find_used(model: Model, folder: Path, on: Sequence[str], store: Path) -> IntArray:
    """The subwords of a model's training text and of other text that is named."""
    trained = model.encoder.changed_rows
    if len(trained) in (0, model.encoder.vocabulary) and not on:
        raise ArtefactError(
            f"{folder}: does not say which subwords its training text has, for it was trained with the whole "
            "vocabulary. Name that text with --on, such as --on panx:en:train."
        )
    others = [collect_ids(model.encoder, source, store=store) for source in on]
    return np.unique(np.concatenate([*others, *([trained] if len(trained) < model.encoder.vocabulary else [])]))


def _describe_vocabulary(model: Model, used: IntArray, on: Sequence[str]) -> str:
    more = f" and of {', '.join(Path(source).name for source in on)}" if on else ""
    return (
        f"Its vocabulary was trimmed to {len(used):,} of {model.encoder.vocabulary:,} subwords, those of its training "
        f"text{more}. Other text, above all in other languages, is split into smaller subwords or unknown ones. The "
        "scores are those of the whole vocabulary."
    )
