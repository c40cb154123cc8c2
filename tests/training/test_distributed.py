"""Several processes train as one does: sums of gradients, captured steps that agree, and a process that is gone."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import pytest
import torch
from torch import Tensor

from crossling.data.batching import plan_epoch
from crossling.errors import UserError
from crossling.objectives import label_words
from crossling.recipe.recipe import RunSettings
from crossling.training import distributed as reduction
from crossling.training import loop
from crossling.training.distributed import Distributed, fill_buckets, setup_distributed
from crossling.training.fast.cuda_graph import CapturedSteps, _Captured
from crossling.training.loop import Execution, fit
from crossling.training.mixture import AuxiliaryStream, Mixture, Stream
from crossling.training.settings import TrainingSettings
from crossling.training.steps import PlainSteps, build_optimiser
from learner import make_learner
from two_processes import run_in_two_processes

CPU = torch.device("cpu")
SETTINGS = TrainingSettings(epochs=2, batch=8, accumulate=2, clip=0.05, eps=1.0, lr=0.5)
"""With an eps as large as this an update grows with the gradient, so that clipping shows."""


class RepeatedGraph:
    """In place of a CUDA graph: a replay runs again what would have been captured. As with torch, nothing more is
    captured into a pool whose last graph is gone."""

    work: Any = None
    pools: ClassVar[dict[tuple[int, int], WeakSet[RepeatedGraph]]] = {}

    def capture_begin(self, *, pool: tuple[int, int], **settings: Any) -> None:
        if pool in self.pools and not self.pools[pool]:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.pools.setdefault(pool, WeakSet()).add(self)

    def capture_end(self) -> None: ...

    def replay(self) -> None:
        self.work()


class RepeatedSteps(CapturedSteps):
    """Captured steps on a CPU: all but the graphs is that of a GPU."""

    fails_at = 0
    """The number of a capture that fails, from 1."""
    captures = 0
    last: CapturedSteps | None = None

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        RepeatedSteps.last, self.shapes_alike = self, set[bool]()

    def update(self, *batches: Any, alike: bool = True, **how: Any) -> Any:
        self.shapes_alike.add(alike)
        return super().update(*batches, alike=alike, **how)

    def _renew_random(self) -> None: ...

    def _set_weights(self, weights: Any) -> None:
        self.weights = {name: torch.tensor(values) for name, values in weights.items()}

    def _capture_pass(self, objective: Any, batch: dict[str, Tensor]) -> _Captured:
        graph: Any = self._record()
        captured = _Captured(graph, {name: tensor.clone() for name, tensor in batch.items()}, torch.zeros(4))

        def work() -> None:
            captured.loss = self.backward(objective, captured.inputs, self.weights[objective.name])

        graph.work = work
        return captured

    def _capture_finish(self, names: frozenset[str]) -> Any:
        graph = self._record()
        graph.work = lambda: self._finish(names)
        return graph

    def _record(self) -> Any:
        graph: Any = RepeatedGraph()
        with self._capturing(graph):
            self.captures += 1
            if self.captures == self.fails_at:
                raise RuntimeError("not permitted when stream is capturing")
        return graph


class NoStream:
    def wait_stream(self, other: Any) -> None: ...


def _pretend_cuda(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    numbers = itertools.count()
    made: dict[str, Any] = {"Stream": lambda device, priority=0: NoStream(), "stream": lambda stream: nullcontext()}
    made |= {"current_stream": NoStream, "graph_pool_handle": lambda: (0, next(numbers))}
    made |= {"synchronize": lambda device=None: None, "empty_cache": lambda: None}
    made |= {"mem_get_info": lambda device: (0, 1), "memory_reserved": lambda device: 0}
    for name, function in made.items():
        replace(torch.cuda, name, function)
    replace(RepeatedGraph, "pools", {})


def _train(folder: Path, distributed: Distributed) -> dict[str, Any]:
    """Losses and weights of a task and an auxiliary one, whose head gets gradients later. The last batch of an epoch
    has one row, so that the second process has none."""
    model, stream = make_learner(
        folder / str(distributed.rank), count=41, dropout=False, fusion={"kind": "dlfa", "layer": 1}
    )
    other = label_words.Objective("other", classes=model.heads["main"].linear.out_features, dropout=0.0)
    torch.manual_seed(1)
    model.heads["other"] = other.build_head(model.encoder.width)
    mixture = Mixture(stream, (AuxiliaryStream(Stream(other, stream.examples), share=0.5),))
    position = fit(model, mixture, SETTINGS, Execution(distributed, 1, folder / f"work-{distributed.rank}"))
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return {
        "losses": [row[name] for row in position.history for name in ("loss", "main", "other")],
        "weights": weights.tolist(),
    }


def _work(rank: int, folder: Path) -> None:
    reduction.BUCKET = 4000  # so that there are several buckets, and gradients that are larger
    group = torch.distributed.new_group(backend="gloo")
    distributed = Distributed(rank, 2, CPU, torch.float32, group)
    _pretend_cuda()
    found = {"plain": _train(folder, distributed)}
    loop.Trainer._choose_steps = _choose_repeated  # type: ignore[method-assign]
    trimmed = loop.trim_padding
    for name in ("captured", "one process cannot capture", "shapes differ"):
        RepeatedSteps.fails_at = 2 * rank if name == "one process cannot capture" else 0
        loop.trim_padding = trimmed if name == "shapes differ" else lambda batch, *_: batch
        found[name] = _train(folder / name, distributed)
        steps: Any = RepeatedSteps.last
        found[name] |= {"can": steps.can_capture, "captures": steps.captures, "alike": sorted(steps.shapes_alike)}
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    torch.distributed.barrier()
    if rank == 1:
        os._exit(0)
    with pytest.raises(UserError, match=r"process 0 of 2: another one ended") as raised:
        distributed.sum_numbers([1.0])
    (folder / "message").write_text(str(raised.value), encoding="utf-8")
    os._exit(0)


def _choose_repeated(trainer: loop.Trainer) -> PlainSteps:
    return RepeatedSteps(trainer.model, trainer.optimiser, trainer.settings, trainer.distributed)


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """Plain and captured steps, where one process cannot capture, and where shapes differ; then one process ends."""
    whole = _train(tmp_path, Distributed(0, 1, CPU, torch.float32))
    run_in_two_processes(_work, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1))
    for name, result in first.items():
        # A step that is launched again moves running statistics again, which a batch of one row is normalised with.
        again = name == "one process cannot capture"
        assert result["losses"] == pytest.approx(whole["losses"], abs=1e-4 if again else 2e-6), name
        assert result["weights"] == pytest.approx(whole["weights"], abs=1e-3 if again else 2e-6), name
        assert result == second[name], f"{name}: both have the same weights and did the same"
    assert first["captured"]["can"] and first["captured"]["captures"] > 1
    assert not first["one process cannot capture"]["can"] and first["one process cannot capture"]["captures"] == 2
    assert first["shapes differ"]["can"] and first["shapes differ"]["alike"] == [False, True]
    assert (tmp_path / "message").exists()


def test_a_head_is_reached_after_the_only_graph_was_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass has been captured when the graph that ends a step has to be captured anew."""
    _pretend_cuda(monkeypatch.setattr)
    model, stream = make_learner(tmp_path, count=8, dropout=False)
    later = label_words.Objective("later", classes=model.heads["main"].linear.out_features)
    model.heads["later"] = later.build_head(model.encoder.width)
    model.train()
    steps = RepeatedSteps(model, build_optimiser(model, SETTINGS, CPU), SETTINGS, Distributed(0, 1, CPU, torch.float32))
    plan = plan_epoch(stream.examples.lengths, 4, seed=1, epoch=0)[0]
    held = []
    for objective, size in ((stream.objective, 4), (stream.objective, 5), (later, 4), (stream.objective, 4)):
        batch = model.prepare(objective.collate(stream.examples, plan, size=size), CPU)
        steps.update([(objective, batch)], weights={objective.name: (1.0, 0.0, 0.0, 0.0)}, rate=1e-3)
        held.append((len(steps.passes), len(steps.finishes)))
    assert steps.can_capture and held == [(0, 0), (0, 1), (0, 0), (1, 0)]


def test_passes_with_fused_kernels_go_before_products_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_cuda(monkeypatch.setattr)
    priorities: list[int] = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority=0: priorities.append(priority) or NoStream())
    monkeypatch.setattr("crossling.training.steps.choose_kernels", lambda wanted, device: wanted)
    model, _ = make_learner(tmp_path, count=8)
    for kernels in ("fused", "torch"):
        settings = SETTINGS.model_copy(update={"kernels": kernels})
        CapturedSteps(model, build_optimiser(model, settings, CPU), settings, Distributed(0, 1, CPU, torch.float32))
    assert priorities == [-1, 0]


def test_head_that_a_step_does_not_reach_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its momentum would move it, as its gradient of 0 stays in place for graphs to add to."""
    _pretend_cuda(monkeypatch.setattr)
    model, stream = make_learner(tmp_path, count=8, dropout=False)
    other = label_words.Objective("other", classes=model.heads["main"].linear.out_features)
    model.heads["other"] = other.build_head(model.encoder.width)
    steps = RepeatedSteps(model, build_optimiser(model, SETTINGS, CPU), SETTINGS, Distributed(0, 1, CPU, torch.float32))
    plan = plan_epoch(stream.examples.lengths, 4, seed=1, epoch=0)[0]
    moved = []
    for objective in (other, other, *[stream.objective] * 3, other, other):
        before = {name: head.linear.weight.detach().clone() for name, head in model.heads.items()}
        batch = model.prepare(objective.collate(stream.examples, plan, size=4), CPU)
        steps.update([(objective, batch)], weights={objective.name: (1.0, 0.0, 0.0, 0.0)}, rate=1e-3)
        moved.append({name for name, head in model.heads.items() if not head.linear.weight.equal(before[name])})
    assert moved == [{"other"}] * 2 + [{"main"}] * 3 + [{"other"}] * 2
    assert steps.can_capture and len(steps.finishes) == 2


@pytest.mark.parametrize(("free", "reserved", "emptied"), [(50, 30, False), (50, 60, True), (39, 10, True)])
def test_cache_is_given_back_before_a_capture_where_memory_may_not_suffice(
    free: int, reserved: int, emptied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph needs as much as a launched pass holds, and of 100 bytes 40 are little."""
    calls: list[str] = []
    _pretend_cuda(monkeypatch.setattr)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
    model, _ = make_learner(tmp_path, count=8)
    steps = RepeatedSteps(model, build_optimiser(model, SETTINGS, CPU), SETTINGS, Distributed(0, 1, CPU, torch.float32))
    steps._record()
    assert calls == ["emptied"] * emptied


def test_buckets_hold_all_gradients_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "BUCKET", 40)
    sizes = [(4, torch.float32), (6, torch.float32), (1, torch.float32), (30, torch.float32), (2, torch.bfloat16)]
    gradients = [torch.zeros(size, dtype=kind) for size, kind in sizes]
    buckets = [[len(one) for one in bucket] for bucket in fill_buckets(gradients)]
    assert buckets == [[4, 6], [1], [30], [2]]
    assert list(fill_buckets([])) == []


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"WORLD_SIZE": "4", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="torchrun --nproc_per_node 2"):
        setup_distributed(RunSettings())
