"""What the settings of several fusions share: which layer, and the module's own learning rate."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from crossling.errors import RecipeError


def _parse_layer(value: Any) -> int:
    """Only the encoder knows the upper end of the range, so what can be said without one is said here."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"{value!r} is no layer to fuse: name it by number, from 1 (the encoder's first) to the one before its "
            "last (1 to 11 of an encoder with 12)"
        )
    return value


Layer = Annotated[int, BeforeValidator(_parse_layer)]
"""A hidden layer: 1 is the first, above the embeddings."""

Rate = Annotated[float, Field(gt=0)] | None
"""A learning rate of the fusion's own, or that of the stage."""


def check_layer(layer: int, *, layers: int) -> None:
    """The last layer passes, too: fused with itself it is a control, whose outcome is known."""
    if not 1 <= layer <= layers:
        raise RecipeError(
            f"fusion.layer = {layer}: the encoder has {layers} layers. Valid: 1 to {layers - 1} "
            f"({layers}, the last, fused with itself, stays as it is)."
        )


def check_reduction(r: int, *, width: int) -> None:
    """The narrow part of a branch has a whole number of channels."""
    if r < 1 or width % r:
        divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise RecipeError(f"fusion.r = {r}: does not divide the encoder's width, {width}. Valid: {divisors}.")
