"""The training step as CUDA graphs: all of its kernels are launched together.

With batches of 32, a GPU waits for Python most of the time. Here the forward and backward pass of every (objective,
shapes) is captured once and adds to gradients at fixed addresses. Clipping and the optimiser are one more graph for
each set of objectives, since a head that a step does not reach must not be moved by its momentum. A step replays one
graph for each of its batches, then that one, so objectives combine freely.

What is captured has run once as part of a step, launched operation by operation, so that libraries have allocated what
they need. It is captured when it is needed again: nothing is computed in vain, and a length that occurs once is never
captured.

Several processes replay graphs of their own. The graph that ends a step also adds up their gradients, in messages that
depend on the model and the step's objectives alone; a pass has messages of fixed sizes at most (statistics of a batch).
All processes launch, capture and give up together, so that their messages meet in the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from crossling.models.model import to_device
from crossling.training.fast.fused_adamw import FusedAdamW
from crossling.training.fast.recomputed_random import find_generator
from crossling.training.steps import Batches, PlainSteps, StepLosses, Weights

if TYPE_CHECKING:
    from crossling.objectives import Objective

SCARCE = 0.4
"""Of a GPU's memory, what is little to be left on a card that others may use, too."""

PRIORITY = -1
"""Of the stream that passes with fused kernels are captured in; the lower number goes first. What is done beside it,
products of weights' gradients, has 0."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Names = frozenset[str]
"""Of the objectives of a step."""
Finish = tuple[Names, bool]
"""The end of a step: its objectives, and whether gradients are those that its only pass wrote."""


class CaptureError(RuntimeError):
    """This process, or another one, failed to capture what all of them needed; nothing of it was computed."""


class _Captured:
    """A graph with the tensors that it reads and the loss that it writes."""

    def __init__(self, graph: torch.cuda.CUDAGraph, inputs: dict[str, Tensor], loss: Tensor) -> None:
        self.graph, self.inputs, self.loss = graph, inputs, loss

    def replay(self, batch: dict[str, Tensor]) -> Tensor:
        for name, tensor in batch.items():
            self.inputs[name].copy_(tensor, non_blocking=True)
        self.graph.replay()
        return self.loss.clone()  # the next replay writes over it


class CapturedSteps(PlainSteps):
    """Updates by replaying graphs; where capturing fails, all later steps are plain ones."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        priority = PRIORITY if self.kernels == "fused" else 0
        self.stream = torch.cuda.Stream(self.distributed.device, priority=priority)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.weights: dict[str, Tensor] = {}
        self.passes: dict[tuple[Any, ...], _Captured] = {}
        self.finishes: dict[Finish, torch.cuda.CUDAGraph] = {}
        """What ends a step."""
        self.can_capture = True
        self._ran: set[tuple[Any, ...]] = set()
        """The passes that ran once."""
        self._finished: set[Finish] = set()
        """The ends of steps that ran once."""
        self._fused_adamw: dict[Finish, FusedAdamW] = {}
        self._can_overwrite = (
            self.kernels == "fused"
            and self.distributed.size == 1
            and self.distributed.precision != torch.float32
            and not self.settings.gradient_checkpointing
            and FusedAdamW.suits(self.optimiser)
        )
        """Whether gradients of a step's only pass can stay in its precision."""

    def update(self, batches: Batches, *, weights: Weights, rate: float, alike: bool = True) -> StepLosses:
        if not self.can_capture:
            return super().update(batches, weights=weights, rate=rate)
        self._set_weights(weights)
        self._only = self._can_overwrite and len(batches) == 1
        try:
            losses: StepLosses = []
            for number, (objective, batch) in enumerate(batches):
                self.begin_pass(number)
                losses.append((objective, self._run_pass(objective, batch, alike)))
            self.set_rate(rate)
            self._run_finish((frozenset(objective.name for objective, _ in batches), self._only))
        except RuntimeError as error:
            if self.distributed.size > 1 and not isinstance(error, CaptureError):
                raise  # the other processes know nothing of it, and would not repeat the step
            self._stop_capturing()
            log.warning("training without CUDA graphs: capturing failed (%s)", str(error).splitlines()[0])
            return super().update(batches, weights=weights, rate=rate)
        return losses

    def _stop_capturing(self) -> None:
        self.can_capture = self._only = False
        self.finishes.clear()
        self.passes.clear()
        torch.cuda.synchronize()
        self._renew_random()

    def _renew_random(self) -> None:
        """Random states that no graph has: those of a capture that failed refuse to draw numbers outside of one."""
        generator = find_generator(self.distributed.device)
        generator.graphsafe_set_state(generator.clone_state())
        if self._random is not None:
            self._random.states.clear()

    def _set_weights(self, weights: Weights) -> None:
        """Put the weights of losses where graphs read them."""
        for name, values in weights.items():
            pinned = torch.tensor(values, pin_memory=True)
            if name in self.weights:
                self.weights[name].copy_(pinned, non_blocking=True)
            else:
                self.weights[name] = pinned.to(self.distributed.device)

    def _run_pass(self, objective: Objective, batch: dict[str, Tensor], alike: bool) -> Tensor:
        """Add a batch's gradients; gives the weighted terms of its loss."""
        if not alike:
            return self._launch_pass(objective, batch)
        shapes = ((name, tuple(tensor.shape)) for name, tensor in sorted(batch.items()))
        key = (objective.name, self._only, *shapes)
        if key not in self.passes:
            if key not in self._ran:
                self._ran.add(key)
                return self._launch_pass(objective, batch)
            self.passes[key] = self._capture_pass(objective, batch)
        return self.passes[key].replay(batch)

    def _launch_pass(self, objective: Objective, batch: dict[str, Tensor]) -> Tensor:
        """A pass without a graph. It creates the gradients, which then stay in place: graphs add to them, the last one
        clears them. A parameter that no objective reaches has none, and the optimiser skips it."""
        inputs = to_device(batch, self.distributed.device)
        before = self._count_gradients()
        loss = self._launch(lambda: self.backward(objective, inputs, self.weights[objective.name]))
        if self._count_gradients() != before:
            self._drop_finishes()
        return loss.clone()  # in the stream that reads it

    def _drop_finishes(self) -> None:
        """The ends of steps have to launch and be captured again, since there are more gradients."""
        self.finishes.clear()
        self._finished.clear()
        if not self.passes:  # torch captures nothing more into a pool whose last graph is gone
            self.pool = torch.cuda.graph_pool_handle()

    def _capture_pass(self, objective: Objective, batch: dict[str, Tensor]) -> _Captured:
        """Capture one forward and backward pass, which computes nothing yet."""
        inputs = to_device(batch, self.distributed.device)
        graph = torch.cuda.CUDAGraph()
        if self._random is not None:
            self._random.register(graph)
        with self._capturing(graph):
            loss = self.backward(objective, inputs, self.weights[objective.name])
        return _Captured(graph, inputs, loss)

    def _count_gradients(self) -> int:
        written = self._bf16.written.values() if self._bf16 is not None else ()
        return sum(parameter.grad is not None for parameter in self.model.parameters()) + sum(map(len, written))

    @contextmanager
    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Record into a graph; only this thread's calls, since another one fetches batches meanwhile.

        A graph has its own memory, as much as a launched pass: where less than that may be left, what launched passes
        took is given back first, since a capture cannot do so itself. ``torch.cuda.graph`` would do so always, and the
        next launched pass would have to ask for it again; it would also collect Python's garbage, which takes longer
        than capturing. Where one process fails, all do.
        """
        device = self.distributed.device
        torch.cuda.synchronize(device)
        free, total = torch.cuda.mem_get_info(device)
        if free < max(torch.cuda.memory_reserved(device), SCARCE * total):
            torch.cuda.empty_cache()
        failure: RuntimeError | None = None
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    yield
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            failure = error
        failures = int(failure is not None)
        if self.distributed.group is not None:
            failures = int(self.distributed.sum(torch.tensor(failures, device=self.distributed.device)))
        if failures:
            raise CaptureError(str(failure or "in another process")) from failure

    def _run_finish(self, finish: Finish) -> None:
        """Clip, step and clear the gradients."""
        if finish not in self.finishes and finish not in self._finished:
            self._finished.add(finish)
            self._launch(lambda: self._finish(finish))
            return
        if finish not in self.finishes:
            self.finishes[finish] = self._capture_finish(finish)
        self.finishes[finish].replay()

    def _capture_finish(self, finish: Finish) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with self._capturing(graph):
            self._finish(finish)
        return graph

    def _finish(self, finish: Finish) -> None:
        names, only = finish
        with self._without_other_heads(names):
            if self.kernels in ("optimiser", "fused") and FusedAdamW.suits(self.optimiser):
                if finish not in self._fused_adamw:
                    copies = self._bf16.copies if self._bf16 is not None else {}
                    self._fused_adamw[finish] = FusedAdamW(self.optimiser, clip=self.settings.clip, copies=copies)
                self.distributed.sum_gradients(self.model)
                written = self._bf16.written[next(iter(names))] if only and self._bf16 is not None else {}
                self._fused_adamw[finish].step(written)
                return
            self.apply()
            self.optimiser.zero_grad(set_to_none=False)

    @contextmanager
    def _without_other_heads(self, names: Names) -> Iterator[None]:
        """Take away the gradients, which are 0, of heads that the step does not reach: the optimiser skips them, as it
        does in a plain step, instead of moving them by their momentum."""
        hidden = {
            parameter: parameter.grad
            for name, head in self.model.heads.items()
            if name not in names
            for parameter in head.parameters()
        }
        for parameter in hidden:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in hidden.items():
                parameter.grad = gradient

    def _launch(self, work: Callable[[], T]) -> T:
        """Run something in the stream that it will be captured in."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            done = work()
        torch.cuda.current_stream().wait_stream(self.stream)
        return done
