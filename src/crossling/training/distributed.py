"""The processes that train together: one, or as many as torchrun or accelerate started."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import torch
from torch import Tensor, nn

from crossling.errors import UserError
from crossling.recipe.recipe import RunSettings

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
BUCKET = 25 << 20
"""Bytes of gradients that are summed in one message. Larger gradients are summed where they are."""
TIMEOUT = timedelta(hours=1)
"""How long a process waits for the others: longer than one of them evaluates or labels text alone."""
ALWAYS_REDUCE = "CROSSLING_ALWAYS_REDUCE"
"""Set to 1, a single GPU process that torchrun started sums gradients as several do, to try that on one GPU."""


@dataclass(frozen=True)
class Distributed:
    """This process among its peers, and the device and precision that it computes with."""

    rank: int
    size: int
    device: torch.device
    precision: torch.dtype
    group: torch.distributed.ProcessGroup | None = None
    """The processes, for numbers in main memory. None: this process trains alone."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def sum_gradients(self, model: nn.Module) -> None:
        """All-reduce: add up the gradients of all processes; losses are already divided by the global count.

        The messages depend on what a step trains, never on a batch, and nothing here is read by the CPU. So a CUDA
        graph can capture it, and what other processes do at the same step, in a graph or not, fits to it.
        """
        if self.group is None:
            return
        for bucket in fill_buckets(p.grad for p in model.parameters() if p.grad is not None):
            if len(bucket) == 1 and bucket[0].is_contiguous():
                self.sum(bucket[0])
                continue
            flat = self.sum(torch.cat([gradient.flatten() for gradient in bucket]))
            parts = torch.split(flat, [gradient.numel() for gradient in bucket])
            torch._foreach_copy_(bucket, [part.view_as(g) for part, g in zip(parts, bucket, strict=True)])

    def sum_numbers(self, values: Sequence[float]) -> list[float]:
        """Add up numbers of all processes in main memory: no GPU is waited for, and a thread may do it."""
        summed: list[float] = self.sum(torch.tensor(values, dtype=torch.float64), group=self.group).tolist()
        return summed

    def sum(self, values: Tensor, *, group: torch.distributed.ProcessGroup | None = None) -> Tensor:
        """Add up a tensor of all processes, in place and where it is."""
        if self.group is None:
            return values
        try:
            torch.distributed.all_reduce(values, group=group)
        except RuntimeError as error:
            if values.device.type == "cuda":
                raise  # it may be that this cannot be captured; for processes that are gone, NCCL has its own messages
            raise UserError(
                f"process {self.rank} of {self.size}: another one ended, or did not answer within "
                f"{TIMEOUT.seconds // 60} minutes. Its own message says why. ({str(error).partition(chr(10))[0]})"
            ) from error
        return values

    def broadcast(self, values: Tensor) -> Tensor:
        """Copy the first process's tensor to all processes."""
        if self.group is not None:
            torch.distributed.broadcast(values, src=0)
        return values

    def wait(self) -> None:
        """Wait for all processes, as a barrier does."""
        if self.group is not None:
            torch.distributed.barrier()


def fill_buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients in their order, in lists of one type and of at most ``BUCKET`` bytes each; a larger one is alone."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and (gradient.dtype != bucket[0].dtype or sum(g.nbytes for g in bucket) + gradient.nbytes > BUCKET):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


def setup_distributed(settings: RunSettings) -> Distributed:
    """Set device, precision and threads as a recipe says, and join the other processes, if any."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError("run.device = 'cuda': torch finds no CUDA device. Leave it at 'auto', or repair the driver.")
    on_gpu = settings.device != "cpu" and torch.cuda.is_available()
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if on_gpu and several and int(os.environ.get("LOCAL_RANK", "0")) >= torch.cuda.device_count():
        raise UserError(
            f"more processes than GPUs: torch finds {torch.cuda.device_count()} here, and each process needs its own. "
            f"Start as many (torchrun --nproc_per_node {torch.cuda.device_count()}), or set run.device to 'cpu'."
        )
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
    precision = _choose_precision(settings, on_gpu)
    if not several and not (on_gpu and os.environ.get(ALWAYS_REDUCE) == "1"):
        return Distributed(0, 1, torch.device("cuda" if on_gpu else "cpu"), precision)
    from accelerate import PartialState

    state = PartialState(cpu=not on_gpu, timeout=TIMEOUT)
    return Distributed(state.process_index, state.num_processes, state.device, precision, _join_processes())


@cache
def _join_processes() -> torch.distributed.ProcessGroup:
    """A group of all processes for numbers in main memory, beside the one that sums gradients."""
    group: torch.distributed.ProcessGroup = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)
    return group


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
