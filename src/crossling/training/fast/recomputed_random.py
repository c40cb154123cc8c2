"""Dropout masks under gradient checkpointing on a GPU: the same ones in both passes, inside a CUDA graph too.

Gradient checkpointing would store torch's random state and restore it before a layer is recomputed, which a CUDA graph
cannot hold. Here the n-th layer of a pass has two random states of its own that begin alike, one for its forward pass
and one for its recomputation; torch's generator uses one of them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

LARGEST_SEED = (1 << 63) - 1


def find_generator(device: torch.device) -> torch.Generator:
    """The generator that a GPU's operations draw from."""
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


class RecomputedRandom:
    """The random states of all layers of a pass."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generator = find_generator(device)
        self.states: list[tuple[torch.Generator, torch.Generator]] = []
        self._used = 0
        self._seed = 0

    def begin(self, number: int) -> None:
        """Before a pass, the n-th one of its step: seeds that depend on the step's own."""
        self._used, self._seed = 0, self.generator.initial_seed() * 1_009 + number
        for layer, states in enumerate(self.states):
            for state in states:
                state.manual_seed(self._choose_seed(layer))

    def contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """For the forward pass of the next layer, and for its recomputation."""
        layer, self._used = self._used, self._used + 1
        if layer == len(self.states):
            first, second = torch.Generator(self.device), torch.Generator(self.device)
            self.states.append((first, second))
            for state in (first, second):
                state.manual_seed(self._choose_seed(layer))
        forward, recomputed = self.states[layer]
        return self._use(forward), self._use(recomputed)

    def register(self, graph: torch.cuda.CUDAGraph) -> None:
        """Let a graph that is to be captured read the states anew at every replay."""
        for states in self.states:
            for state in states:
                graph.register_generator_state(state)

    def _choose_seed(self, layer: int) -> int:
        return (self._seed * 1_009 + layer) & LARGEST_SEED

    @contextmanager
    def _use(self, state: torch.Generator) -> Iterator[None]:
        before = self.generator.graphsafe_get_state()
        self.generator.graphsafe_set_state(state)
        try:
            yield
        finally:
            self.generator.graphsafe_set_state(before)
