"""Experiment trackers, through accelerate: losses and scores also go to TensorBoard, Weights & Biases or MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from crossling.errors import RecipeError
from crossling.recipe.recipe import Recipe
from crossling.training.distributed import Distributed


def check_trackers(recipe: Recipe) -> None:
    """Refuse a tracker that is not installed, before anything is trained."""
    missing = [name for name in recipe.run.track if find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"run.track: {', '.join(missing)} not installed; pip install {' '.join(missing)}, or leave it out"
        )


@contextmanager
def open_trackers(
    recipe: Recipe, out: Path, distributed: Distributed
) -> Iterator[Callable[[dict[str, float], int, int], None]]:
    """A function that logs values at a step of a seed; it does nothing where no tracker is named."""
    check_trackers(recipe)
    if not recipe.run.track or not distributed.is_main:
        yield lambda values, step, seed: None
        return
    from accelerate import Accelerator

    accelerator = Accelerator(
        log_with=list(recipe.run.track), project_dir=str(out / "tracking"), cpu=distributed.device.type == "cpu"
    )
    accelerator.init_trackers("crossling", config={"encoder": recipe.encoder.name, "source": recipe.source})
    try:
        yield lambda values, step, seed: accelerator.log({f"seed-{seed}/{k}": v for k, v in values.items()}, step=step)
    finally:
        accelerator.end_training()
