"""Which engine runs a model that is loaded from a folder: torch, or ONNX Runtime, which starts in a second."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from crossling.errors import UserError, nearest
from crossling.inference.evaluate import Engine, TorchEngine
from crossling.models.card import ModelCard, read_card

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.training.distributed import Distributed

EngineName = Literal["auto", "torch", "onnx"]


def load_engine(
    folder: Path, name: str = "auto", *, threads: int | None = None, precision: str = "auto"
) -> tuple[Engine, ModelCard]:
    """A saved model in the engine that it was made for; another one that is asked for is an error.

    ``precision`` is that of torch's matrix products, as in a recipe's ``[run]``.
    """
    if name not in get_args(EngineName):
        raise UserError(f"--engine {name}: unknown.{nearest(name, get_args(EngineName))}")
    if threads is not None and threads < 1:
        raise UserError(f"--threads {threads}: at least 1")
    card = read_card(folder)
    if name == "torch" and card.onnx is not None:
        raise UserError(f"{folder}: has no weights for torch, for it was exported to ONNX. Leave --engine out.")
    if name == "onnx" or (name == "auto" and card.onnx is not None):
        from crossling.inference.onnx.engine import OnnxEngine

        if card.onnx is not None and precision not in ("auto", card.onnx["precision"]):
            raise UserError(
                f"--precision {precision}: {folder} was exported to ONNX in {card.onnx['precision']}. Leave it out, or "
                "name the folder of the run."
            )
        return OnnxEngine(folder, card, threads=threads), card

    from crossling.recipe.recipe import Precision, RunSettings

    if precision not in get_args(Precision):
        raise UserError(f"--precision {precision}: unknown.{nearest(precision, get_args(Precision))}")

    from crossling.models.model import load_model
    from crossling.training.distributed import setup_distributed

    distributed = setup_distributed(RunSettings(threads=threads, precision=cast("Precision", precision)))
    model, card = load_model(folder)
    return run_by_torch(model, distributed), card


def run_by_torch(model: Model, distributed: Distributed | None = None) -> TorchEngine:
    """The engine of a model in memory, which is moved to the device; by default as torch finds it."""
    if distributed is None:
        from crossling.recipe.recipe import RunSettings
        from crossling.training.distributed import setup_distributed

        distributed = setup_distributed(RunSettings())
    return TorchEngine(model.to(distributed.device).eval(), distributed)
