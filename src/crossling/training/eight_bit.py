"""AdamW whose two moments are stored in 8 bits: a quarter of the memory of float32.

Block-wise dynamic quantisation (Dettmers et al. 2021): a block of 256 numbers is divided by its largest magnitude, and
each number becomes the nearest of 256 values that lie closer together towards 0, over seven decades. Of the mean of
squared gradients the square root is stored, which is what the step is divided by: its small values then last as long as
those of the gradient's mean do, and none of them becomes 0 under a mean that does not. An update is computed in float32
from what was stored, so the first one equals AdamW's; rounding only affects what the next ones start from.

Nothing here waits for the device, so that a CUDA graph can hold it; tensors are read in chunks, so that the float32
copies take little room.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)
BLOCK = 256
"""Numbers that are divided by the same scale."""
DECADES = 7
SMALLEST = 4096
"""Parameters with fewer numbers (biases, normalisation) keep their moments in float32: they take no room."""
CHUNK = 1 << 20
"""Numbers that are updated at once; a multiple of the block."""


def list_levels(*, signed: bool) -> Tensor:
    """The 256 values that a code stands for, ascending: 0, 1 and the middles of equal parts of each decade below 1,
    half as many parts in each decade as in the one above."""
    most = 64 if signed else 128
    levels = [0.0, 1.0]
    for decade in range(DECADES):
        parts = most >> decade
        middles = [10.0**-decade * (0.1 + 0.9 * (part + 0.5) / parts) for part in range(parts)]
        levels += middles + [-middle for middle in middles if signed]
    return torch.tensor(sorted(levels))


@cache
def find_levels(signed: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """The values, and the limits between them."""
    levels = list_levels(signed=signed).to(device)
    return levels, (levels[1:] + levels[:-1]) / 2


def quantise(values: Tensor, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Codes of numbers, a byte each, and the scale of each block; the last block may be shorter."""
    _, limits = find_levels(signed, values.device)
    flat = values.reshape(-1)
    blocks = _to_blocks(flat)
    scales = blocks.abs().amax(1)
    divided = blocks / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    codes = torch.bucketize(divided, limits, out_int32=True).to(torch.uint8)
    return codes.view(-1)[: flat.numel()], scales


def dequantise(codes: Tensor, scales: Tensor, *, signed: bool) -> Tensor:
    """The numbers that codes stand for."""
    levels, _ = find_levels(signed, codes.device)
    values = levels.index_select(0, codes.int())
    return (_to_blocks(values) * scales[:, None]).view(-1)[: codes.numel()]


def _to_blocks(flat: Tensor) -> Tensor:
    missing = -flat.numel() % BLOCK
    padded = torch.nn.functional.pad(flat, (0, missing)) if missing else flat
    return padded.view(-1, BLOCK)


Update = Callable[[Tensor, Tensor, dict[str, Tensor], dict[str, Any], Tensor | None], None]
"""See :func:`update_parameter`."""


class EightBitAdamW(torch.optim.Optimizer):
    """AdamW with moments in 8 bits. Each group has an ``lr``, a number or a tensor, and a ``weight_decay``."""

    grad_scale: Tensor | None = None
    """What gradients are divided by as they are read."""

    def __init__(self, groups: Iterable[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"betas": betas, "eps": eps, "weight_decay": 0.0, "capturable": True})
        self._update: Update | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        update = self._choose_update()
        for group in self.param_groups:
            learning = [(p, p.grad, self._find_state(p)) for p in group["params"] if p.grad is not None]
            if learning:
                torch._foreach_add_([state["step"] for *_, state in learning], 1)
            for parameter, gradient, state in learning:
                update(parameter, gradient, state, group, self.grad_scale)

    def _find_state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state.update(_start_state(parameter))
        return state

    def _choose_update(self) -> Update:
        """One kernel for each parameter where Triton runs, else torch's operations."""
        if self._update is None:
            parameters = [p for group in self.param_groups for p in group["params"]]
            suits = parameters[0].device.type == "cuda" and all(p.is_contiguous() for p in parameters)
            self._update = (find_kernel(parameters[0].device) if suits else None) or update_parameter
        return self._update


@cache
def find_kernel(device: torch.device) -> Update | None:
    """The kernel, if Triton is there and can compile it: it needs a C compiler, too."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        from crossling.training.fast.eight_bit_kernel import update

        tried = torch.zeros(SMALLEST, device=device)
        group = {"lr": torch.zeros((), device=device), "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
        update(tried, tried, _start_state(tried), group, None)
    except Exception as error:  # whatever a compiler, a driver or a version of Triton may raise
        log.warning("Triton cannot compile a kernel: %s", str(error).partition("\n")[0] or type(error).__name__)
        return None
    return update


def update_parameter(
    parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any], grad_scale: Tensor | None
) -> None:
    """Update a parameter and its moments; ``state["step"]`` is this update's number already. Gradients are divided by
    ``grad_scale`` as they are read."""
    first, second = group["betas"]
    corrections = (1 - first ** state["step"], (1 - second ** state["step"]).sqrt())
    flat, flat_gradient = parameter.view(-1), gradient.reshape(-1)
    for start in range(0, flat.numel(), CHUNK):
        rows = slice(start, start + CHUNK)
        g = flat_gradient[rows] if grad_scale is None else flat_gradient[rows] / grad_scale
        moments = _Moments(state, start)
        mean, root = moments.read()
        mean = mean.lerp_(g, 1 - first)
        root = root.square_().mul_(second).addcmul_(g, g, value=1 - second).sqrt_()
        moments.write(mean, root)
        if group["weight_decay"]:
            flat[rows].mul_(1 - group["lr"] * group["weight_decay"])
        flat[rows].sub_(group["lr"] / corrections[0] * mean / (root / corrections[1] + group["eps"]))


class _Moments:
    """Both moments of one chunk of a parameter."""

    def __init__(self, state: dict[str, Tensor], start: int) -> None:
        self.state, self.rows = state, slice(start, start + CHUNK)
        self.blocks = slice(start // BLOCK, (start + CHUNK) // BLOCK)

    def read(self) -> tuple[Tensor, Tensor]:
        """The mean of the gradient, and the root of the mean of its square, in float32."""
        if "mean_scales" not in self.state:
            return self.state["mean"].clone(), self.state["root"].clone()
        return (
            dequantise(self.state["mean"][self.rows], self.state["mean_scales"][self.blocks], signed=True),
            dequantise(self.state["root"][self.rows], self.state["root_scales"][self.blocks], signed=False),
        )

    def write(self, mean: Tensor, root: Tensor) -> None:
        """Store both in place: a captured step finds them where they were."""
        if "mean_scales" not in self.state:
            self.state["mean"].copy_(mean)
            self.state["root"].copy_(root)
            return
        for name, values in (("mean", mean), ("root", root)):
            codes, scales = quantise(values, signed=name == "mean")
            self.state[name][self.rows].copy_(codes)
            self.state[f"{name}_scales"][self.blocks].copy_(scales)


def _start_state(parameter: Tensor) -> dict[str, Tensor]:
    """All zero, which is what both moments are before the first update."""
    count, device = parameter.numel(), parameter.device
    small = count < SMALLEST
    kind = torch.float32 if small else torch.uint8
    state = {"step": torch.zeros((), device=device)}
    state |= {name: torch.zeros(count, dtype=kind, device=device) for name in ("mean", "root")}
    if not small:
        state |= {f"{name}_scales": torch.zeros(-(-count // BLOCK), device=device) for name in ("mean", "root")}
    return state
