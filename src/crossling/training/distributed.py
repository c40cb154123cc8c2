"""The processes that train together: one, or as many as torchrun or accelerate started."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from crossling.errors import UserError
from crossling.recipe.recipe import RunSettings

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""


@dataclass(frozen=True)
class Distributed:
    """This process among its peers, and the device and precision that it computes with."""

    rank: int
    size: int
    device: torch.device
    precision: torch.dtype

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up the gradients of all processes, in one message: losses are already divided by the global count."""
        if self.size == 1:
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        torch.distributed.all_reduce(flat)
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum_number(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return float(total)

    def broadcast(self, values: Tensor) -> Tensor:
        """Copy the first process's tensor to all processes."""
        if self.size > 1:
            torch.distributed.broadcast(values, src=0)
        return values

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            torch.distributed.barrier()


def setup_distributed(settings: RunSettings) -> Distributed:
    """Set device, precision and threads as a recipe says, and join the other processes, if any."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError("run.device = 'cuda': torch finds no CUDA device. Leave it at 'auto', or repair the driver.")
    on_gpu = settings.device != "cpu" and torch.cuda.is_available()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(settings.deterministic or not on_gpu, warn_only=True)
    # Filling uninitialised memory, a check for bugs, takes a hundredth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # cuDNN's attention plans for 0.1 to 0.2 s at every new length, and is then no faster.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if settings.deterministic and on_gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if not on_gpu:
        keep_freed_memory()
    rank, size = 0, 1
    device = torch.device("cuda" if on_gpu else "cpu")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        state = PartialState(cpu=not on_gpu)
        rank, size, device = state.process_index, state.num_processes, state.device
    return Distributed(rank, size, device, _choose_precision(settings, on_gpu))


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next step: the system clears every new page first, which takes a
    fiftieth of a step. A C library without this setting is left as it is."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    set_option(MMAP_THRESHOLD, 32 << 20)
    set_option(TRIM_THRESHOLD, 1 << 30)


def _choose_precision(settings: RunSettings, on_gpu: bool) -> torch.dtype:
    if settings.precision == "auto":
        return torch.bfloat16 if on_gpu and torch.cuda.is_bf16_supported() else torch.float32
    if settings.precision == "bfloat16" and not on_gpu and not has_bf16_products():
        raise UserError(
            "precision 'bfloat16': this CPU has no matrix products in bfloat16 (AVX-512 BF16 or AMX), and would be "
            "slower with it than in float32. Leave it at 'auto', which is float32 on a CPU."
        )
    return torch.bfloat16 if settings.precision == "bfloat16" else torch.float32


def has_bf16_products() -> bool:
    """Whether the CPU multiplies matrices in bfloat16: with AVX-512 or AMX, or on ARM."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
