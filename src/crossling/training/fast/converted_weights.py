"""Prediction with an encoder's weights converted to a lower precision once, not in every batch.

Autocast converts every weight anew in each batch, and normalisation gives float32, which is converted again for the
next product. With converted weights the encoder computes in their precision throughout, as it does in training
(``bf16_weights.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch import nn

_exchanging = Lock()


class ConvertedWeights:
    """Copies of a module's weights in another precision, to take their place for the time of a pass."""

    def __init__(self, module: nn.Module, precision: torch.dtype) -> None:
        with _exchanging, torch.inference_mode(False), torch.no_grad():
            weights = [parameter for parameter in module.parameters() if parameter.is_floating_point()]
            self._exchanged = [(weight, weight.data, weight.data.to(precision)) for weight in weights]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the module computes with the copies; in other threads no pass begins meanwhile."""
        with _exchanging:
            for weight, _, copy in self._exchanged:
                weight.data = copy
            try:
                yield
            finally:
                for weight, own, _ in self._exchanged:
                    weight.data = own
