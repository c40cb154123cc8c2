"""The training step as CUDA graphs: all of its kernels are launched together.

With batches of 32, a GPU waits for Python most of the time. Here the forward and backward pass of every (objective,
shapes) is captured once and adds to gradients at fixed addresses; clipping and the optimiser are one more graph. A step
replays one graph for each of its batches, then that one, so objectives combine freely.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crossling.training.steps import Batches, PlainSteps, StepLosses, Weights

if TYPE_CHECKING:
    from crossling.objectives import Objective

log = logging.getLogger(__name__)


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
        self.stream = torch.cuda.Stream(self.distributed.device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.weights: dict[str, Tensor] = {}
        self.passes: dict[tuple[Any, ...], _Captured] = {}
        self.finish: torch.cuda.CUDAGraph | None = None
        self.can_capture = True

    def update(self, batches: Batches, *, weights: Weights, rate: float) -> StepLosses:
        if not self.can_capture:
            return super().update(batches, weights=weights, rate=rate)
        self._set_weights(weights)
        try:
            captured = [self._find(objective, batch) for objective, batch in batches]
            finish = self.finish or self._capture_finish()
        except RuntimeError as error:
            self.can_capture = False
            self.passes.clear()
            torch.cuda.synchronize()
            log.warning("training without CUDA graphs: capturing failed (%s)", str(error).splitlines()[0])
            return super().update(batches, weights=weights, rate=rate)
        self.set_rate(rate)
        losses: StepLosses = [
            (objective, one.replay(batch)) for one, (objective, batch) in zip(captured, batches, strict=True)
        ]
        finish.replay()
        return losses

    def _set_weights(self, weights: Weights) -> None:
        """Put the weights of losses where graphs read them."""
        for name, values in weights.items():
            pinned = torch.tensor(values, pin_memory=True)
            if name in self.weights:
                self.weights[name].copy_(pinned, non_blocking=True)
            else:
                self.weights[name] = pinned.to(self.distributed.device)

    def _find(self, objective: Objective, batch: dict[str, Tensor]) -> _Captured:
        key = (objective.name, *((name, tuple(tensor.shape)) for name, tensor in sorted(batch.items())))
        if key not in self.passes:
            self.passes[key] = self._capture_pass(objective, batch)
        return self.passes[key]

    def _capture_pass(self, objective: Objective, batch: dict[str, Tensor]) -> _Captured:
        """Capture one forward and backward pass; batch statistics, gradients and the random state are restored."""
        inputs = {name: tensor.to(self.distributed.device) for name, tensor in batch.items()}
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        random_state = torch.cuda.get_rng_state(self.distributed.device)
        before = self._count_gradients()
        # The warm-up creates the gradients, which then stay in place: graphs add to them, the last one clears them.
        # A parameter that no objective reaches has none, and the optimiser skips it.
        self._warm_up(lambda: self._pass(objective, inputs))
        if self._count_gradients() != before:
            self.finish = None
        graph = torch.cuda.CUDAGraph()
        with self._capturing(graph):
            loss = self._pass(objective, inputs)
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        for buffer, saved in buffers:
            buffer.copy_(saved)
        torch.cuda.set_rng_state(random_state, self.distributed.device)
        return _Captured(graph, inputs, loss)

    def _count_gradients(self) -> int:
        return sum(parameter.grad is not None for parameter in self.model.parameters())

    def _capturing(self, graph: torch.cuda.CUDAGraph) -> Any:
        """Record into a graph; only this thread's calls, since another one fetches batches meanwhile."""
        return torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local")

    def _pass(self, objective: Objective, inputs: dict[str, Tensor]) -> Tensor:
        return self.backward(objective, inputs, self.weights[objective.name])

    def _capture_finish(self) -> torch.cuda.CUDAGraph:
        """Capture clipping, the optimiser's step and the clearing of gradients; all weights are restored."""
        kept = self._snapshot()
        self._warm_up(self._finish)
        known = {id(tensor) for tensor, _ in kept[1]}
        for state in self.optimiser.state.values():
            for value in state.values():
                if id(value) not in known:  # made by this step, for parameters that have a gradient for the first time
                    value.zero_()
        self._restore(kept)
        graph = torch.cuda.CUDAGraph()
        with self._capturing(graph):
            self._finish()
        self.finish = graph
        return graph

    def _finish(self) -> None:
        self.apply()
        self.optimiser.zero_grad(set_to_none=False)

    def _snapshot(self) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        weights = [(p.data, p.data.clone()) for p in self.model.parameters() if p.requires_grad]
        states = [(v, v.clone()) for state in self.optimiser.state.values() for v in state.values()]
        return weights, states

    def _restore(self, kept: tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]) -> None:
        for tensors in kept:
            for tensor, saved in tensors:
                tensor.copy_(saved)
        if self._bf16 is not None:
            self._bf16.refresh()

    def _warm_up(self, work: Any) -> None:
        """Run what is to be captured, so that libraries allocate what they need; the caller undoes its effects."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            work()
        torch.cuda.current_stream().wait_stream(self.stream)
