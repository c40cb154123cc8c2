"""The first use of a GPU's libraries, in a thread while an encoder is loaded.

A library makes its handle and loads a kernel when it is first asked for it, which takes about a second of a process
until each operation of a step has run once. Nothing of this needs the interpreter.
"""

from __future__ import annotations

import logging
from threading import Thread
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from crossling.training.distributed import Distributed

EXAMPLES, SUBWORDS, HEADS, WIDTH, INNER = 32, 64, 12, 768, 3072
"""Of a small batch and a small encoder: for such products the kernels are chosen."""

log = logging.getLogger(__name__)


def begin_first_use(distributed: Distributed) -> Thread:
    """Run the operations of a step once, in a stream of their own; to be joined before anything is trained."""
    thread = Thread(target=_use_once, args=(distributed.device, distributed.precision), name="first use", daemon=True)
    if distributed.device.type == "cuda":
        thread.start()
    return thread


def finish_first_use(thread: Thread) -> None:
    """Wait for it, if it was begun."""
    if thread.ident is not None:
        thread.join()


def _use_once(device: torch.device, precision: torch.dtype) -> None:
    try:
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            run_operations(device, precision)
            torch.cuda.current_stream().synchronize()
    except RuntimeError as error:  # the run itself has a message for a GPU that is full or out of order
        log.debug("first use of %s: %s", device, error)


def run_operations(device: torch.device, precision: torch.dtype) -> None:
    """One layer and one update; numbers mean nothing, and none is random that another operation could draw."""
    states = torch.ones(EXAMPLES, SUBWORDS, WIDTH, device=device, dtype=precision, requires_grad=True)
    shapes = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    weights = [torch.zeros(*shape, device=device, dtype=precision, requires_grad=True) for shape in shapes]
    joined, output, inner, outer = weights
    scale = torch.ones(WIDTH, device=device, dtype=precision, requires_grad=True)
    mask = torch.zeros(EXAMPLES, 1, 1, SUBWORDS, device=device, dtype=precision)
    parts = torch.split(functional.linear(states, joined, joined[:, 0]), WIDTH, -1)
    query, key, value = (part.view(EXAMPLES, SUBWORDS, HEADS, -1).transpose(1, 2) for part in parts)
    read = functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).reshape(states.shape)
    read = functional.layer_norm(functional.linear(read, output) + states, (WIDTH,), scale, scale)
    read = functional.linear(functional.gelu(functional.linear(read, inner, inner[:, 0])), outer)
    rows = torch.zeros(EXAMPLES, SUBWORDS, dtype=torch.int64, device=device)
    found = functional.layer_norm(functional.embedding(rows, outer.t()) + read, (WIDTH,), scale, scale)
    scores = functional.linear(found[:, 0].float(), outer.t()[:3].float())
    functional.cross_entropy(scores, rows[:, 0]).backward()  # type: ignore[no-untyped-call]
    table = torch.ones(WIDTH, device=device, requires_grad=True)
    table.grad = torch.zeros_like(table)
    rate = torch.zeros((), device=device) if device.type == "cuda" else 0.0
    torch.optim.AdamW([table], lr=rate, fused=True, capturable=device.type == "cuda").step()
