"""Clipping, AdamW, the copy in bf16 and the clearing of gradients as one pass over all weights.

torch reads and writes them four times: for the norm, the update, the conversion and the clearing. Here the norm is one
pass over the gradients, and all the rest another. Weights, gradients and moments stay where they are: a table has the
addresses of chunks of them. The moments are those of torch's AdamW, or of ``Bfloat16AdamW``, so either can continue
what the other began.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crossling.training.bf16_states import DRAWN, Bfloat16AdamW

EVEN = 16
"""Bytes and numbers that addresses and sizes are multiples of, where several numbers are read by one instruction."""
NOTHING: Mapping[Tensor, Tensor] = MappingProxyType({})


class ChunkRange(NamedTuple):
    """Successive chunks that are alike."""

    begin: int
    end: int
    even: bool
    """Addresses and numbers are multiples of 16."""
    gradient: torch.dtype
    """That of a reduced precision is not cleared, since the next pass writes over it."""


@dataclass(frozen=True)
class ChunkTable:
    """What the kernels read: all chunks of all weights that have a gradient."""

    chunks: Tensor
    ranges: tuple[ChunkRange, ...]
    steps: Tensor
    """The address of each tensor's counter of steps."""
    weight_decays: Tensor
    """By tensor."""
    log_betas: Tensor
    """The logarithms of both betas, in float64."""
    betas: tuple[float, float]
    eps: float
    clip: float
    copied: torch.dtype
    sums: Tensor
    """Where the sum of each chunk's squared gradients goes."""
    grad_scale: Tensor
    """What clipping divides all gradients by: where it goes."""
    bias_corrections: Tensor
    """Where those of both moments go, by tensor."""
    rounded: bool
    """Whether moments are in bfloat16, rounded stochastically."""
    seed: Tensor
    """What that depends on, beside step and place."""


class FusedAdamW:
    """The end of a step for a model on a GPU: the state is that of ``optimiser``."""

    def __init__(self, optimiser: torch.optim.Optimizer, *, clip: float, copies: Mapping[Tensor, Tensor]) -> None:
        self.optimiser, self.clip, self.copies = optimiser, clip, copies
        self._known: list[tuple[Any, ...]] = []
        self._table: ChunkTable | None = None

    @staticmethod
    def suits(optimiser: torch.optim.Optimizer) -> bool:
        """Whether an optimiser is one whose work the kernels can do."""
        groups = optimiser.param_groups
        plain = all(p.dtype == torch.float32 and p.is_contiguous() for group in groups for p in group["params"])
        known = isinstance(optimiser, torch.optim.AdamW | Bfloat16AdamW)
        return plain and known and isinstance(groups[0]["lr"], Tensor)

    @torch.no_grad()
    def step(self, written: Mapping[Tensor, Tensor] = NOTHING) -> None:
        """Update every parameter that has a gradient, refresh its copy and clear the gradient.

        ``written``: gradients in a reduced precision, in the place of the parameters' own.
        """
        from crossling.training.fast.kernels import update_weights

        rows = [
            self._describe(group, p, written.get(p, p.grad))
            for group in self.optimiser.param_groups
            for p in group["params"]
        ]
        rows = [row for row in rows if row]
        if not rows:
            return
        if rows != self._known or self._table is None:
            self._known, self._table = rows, self._build_table(rows)
        update_weights(self._table)

    def _describe(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor | None) -> tuple[Any, ...]:
        """Addresses, size and decay of a parameter; nothing where it has no gradient."""
        if gradient is None:
            return ()
        state, draw = self._find_state(parameter)
        moments = [state["exp_avg"], state["exp_avg_sq"]]
        tensors = [parameter, gradient, *moments]
        copy = self.copies.get(parameter)
        assert all(tensor.is_contiguous() for tensor in tensors)
        assert parameter.dtype == torch.float32
        assert all(moment.dtype == self._moment_type for moment in moments)
        assert copy is None or copy.is_contiguous()
        addresses = [t.data_ptr() for t in tensors] + [0 if copy is None else copy.data_ptr()]
        more = (group["lr"].data_ptr(), state["step"].data_ptr(), parameter.numel(), float(group["weight_decay"]))
        return (*addresses, *more, draw, gradient.dtype)

    @property
    def _moment_type(self) -> torch.dtype:
        return torch.bfloat16 if isinstance(self.optimiser, Bfloat16AdamW) else torch.float32

    def _find_state(self, parameter: Tensor) -> tuple[dict[str, Tensor], int]:
        """A parameter's moments and step, and which call of the generator serves its first numbers."""
        if isinstance(self.optimiser, Bfloat16AdamW):
            return self.optimiser.find_state(parameter), self.optimiser.first_draws[parameter]
        state = self.optimiser.state[parameter]
        if not state:  # as torch's AdamW starts
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state, 0

    def _build_table(self, rows: list[tuple[Any, ...]]) -> ChunkTable:
        from crossling.training.fast.kernels import CHUNK

        groups = self.optimiser.param_groups
        first = groups[0]
        assert all((g["betas"], g["eps"]) == (first["betas"], first["eps"]) for g in groups)
        kinds = {copy.dtype for copy in self.copies.values()}
        assert len(kinds) <= 1
        copied = kinds.pop() if kinds else torch.bfloat16
        moment = self._moment_type
        alike: dict[tuple[bool, torch.dtype], list[list[int]]] = {}
        for number, (*addresses, rate, _, count, _, draw, gradient) in enumerate(rows):
            sizes = (4, gradient.itemsize, moment.itemsize, moment.itemsize, copied.itemsize)
            fits = not any(address % EVEN for address in addresses) and not count % EVEN
            for start in range(0, count, CHUNK):
                at = [a + start * size if a else 0 for a, size in zip(addresses, sizes, strict=True)]
                chunk = [*at, rate, min(CHUNK, count - start), number, draw + start // DRAWN, 0]
                alike.setdefault((fits, gradient), []).append(chunk)
        ends = list(itertools.accumulate(map(len, alike.values())))
        device = groups[0]["params"][0].device
        chunks = torch.tensor([chunk for some in alike.values() for chunk in some], dtype=torch.int64).to(device)
        beta1, beta2 = first["betas"]
        logs = [math.log(beta) if beta else -math.inf for beta in (beta1, beta2)]
        return ChunkTable(
            chunks=chunks,
            ranges=tuple(ChunkRange(end - len(alike[kind]), end, *kind) for kind, end in zip(alike, ends, strict=True)),
            steps=torch.tensor([row[6] for row in rows], dtype=torch.int64).to(device),
            weight_decays=torch.tensor([row[8] for row in rows], dtype=torch.float32).to(device),
            log_betas=torch.tensor(logs, dtype=torch.float64).to(device),
            betas=(float(beta1), float(beta2)),
            eps=float(first["eps"]),
            clip=float(self.clip),
            copied=copied,
            sums=torch.zeros(len(chunks), device=device),
            grad_scale=torch.ones(1, device=device),
            bias_corrections=torch.zeros(len(rows), 2, device=device),
            rounded=moment == torch.bfloat16,
            seed=torch.tensor([getattr(self.optimiser, "seed", 0)], dtype=torch.int64).to(device),
        )
