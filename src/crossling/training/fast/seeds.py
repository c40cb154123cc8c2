"""Seeds of fused kernels, which draw dropout masks themselves."""

from __future__ import annotations

import torch
from torch import Tensor

TOGETHER = 64
"""Seeds drawn by one call, since each call launches a kernel of its own."""


class Seeds:
    """Seeds on a device for the kernels of one pass, another one for each call of a kernel."""

    def __init__(self) -> None:
        self._drawn: list[Tensor] = []

    def draw(self, device: torch.device) -> Tensor:
        """A seed, as a tensor of one number."""
        if not self._drawn:
            drawn = torch.empty(TOGETHER, dtype=torch.int64, device=device).random_()
            self._drawn = [drawn[place : place + 1] for place in range(TOGETHER)]
        return self._drawn.pop()

    def clear(self) -> None:
        """Forget the seeds that are left: a pass that is captured draws its own."""
        self._drawn = []
