"""The parts of a Ray pool that need no Ray: how many workers fit, and what a task does on its machine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossling.errors import UserError
from crossling.files import read_json
from crossling.store.artefacts import Store, find_store
from crossling.study import ray, ray_task
from crossling.study.grid import load_study
from crossling.study.memory import fit_gpu_memory
from crossling.study.plan import plan_study, write_plan
from crossling.study.pool import Machine, Resources
from crossling.study.ray import RayPool, Task
from crossling.study.ray_task import ProbedMachine, RemotePaths, TaskStart, stream_job
from crossling.study.scheduling import open_pool
from crossling.study.worker import Assignment, Message
from crossling.training.distributed import Distributed
from small_study import write_study


def _shares(resources: Resources) -> tuple[float, float]:
    return resources.worker_cores, round(resources.worker_gpus, 4)


def test_workers_take_what_they_need_and_as_many_as_fit() -> None:
    small, large, without = Machine(8, 1), Machine(64, 8), Machine(16, 0)
    resources = Resources("cpu", 2, 4, 24).divide(threads=4)
    assert _shares(resources) == (4, 0)
    assert resources.count_fitting([small, large, without]) == 2 + 16 + 4
    resources = Resources("cuda", 27, 2, 72, 9).divide(threads=2)  # three on each of nine GPUs
    assert _shares(resources) == (2, 0.3333)
    assert resources.count_fitting([small, large, without]) == 3 + 24
    assert resources.count_fitting([Machine(4, 8)]) == 2, "cores run out first"
    assert resources.enlarge_gpu_share().worker_gpus == 0.5
    assert resources.enlarge_gpu_share().enlarge_gpu_share().enlarge_gpu_share().worker_gpus == 1.0
    few_cores = Resources("cuda", 8, 1, 4, 8).divide(threads=1)
    assert _shares(few_cores) == (0.5, 1.0)
    assert few_cores.count_fitting([Machine(4, 8)]) == 8


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_resources_of_a_cluster_are_those_of_its_machines(
    device: str, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's own machine has no GPU: what a run finds is asked of those that will do the work."""
    machines = [Machine(64, 8), Machine(32, 8), Machine(4, 0)]
    monkeypatch.setattr(ray, "list_machines", lambda: machines)
    distributed = Distributed(0, 1, torch.device(device), torch.bfloat16 if device == "cuda" else torch.float32)
    probed = ProbedMachine({("cpu", "auto"): distributed}, 141e9)
    monkeypatch.setattr(RayPool, "_probe", lambda *_, **__: probed)
    study, pool = load_study(write_study(tmp_path, tiny_folder)), RayPool("head:6379")
    pool.measure(study, tmp_path, workers=None)
    cells, runs = plan_study(study, Store(tmp_path / "s"), tmp_path / "out", setup=pool.setup_distributed)
    here, _ = plan_study(study, Store(tmp_path / "s"), tmp_path / "out")
    assert ([cell.stages for cell in cells] == [cell.stages for cell in here]) == (device == "cpu")
    pool.resources = fit_gpu_memory(pool.resources, runs)
    resources = pool.resources
    shared = resources.divide(threads=resources.threads)
    if device == "cuda":
        assert (resources.gpus, resources.workers, resources.cores) == (16, 48, 96), "half as many workers as cores"
        assert _shares(shared) == (2, 0.3333)
        assert resources.describe().startswith("48 workers on 3 machines of a Ray cluster: 16 GPUs: ")
        assert pool.scale(100) == 24 + 16
        pool.reduce()
        assert (pool.resources.worker_gpus, pool.scale(100)) == (0.5, 16 + 16), "a larger share of a GPU, fewer workers"
    else:
        found = (resources.workers, resources.threads, resources.cores)
        assert found == (3, 4, 100), "one for each machine, as the smallest allows"
        assert shared.count_fitting(machines) == 16 + 8 + 1
        pool.measure(study, tmp_path, workers=50)
        assert pool.resources.threads == 2
    with pytest.raises(UserError, match="--workers 0"):
        pool.measure(study, tmp_path, workers=0)


def test_address_without_a_cluster_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'crossling\[distributed\]'"), open_pool("auto"):
        pass
    monkeypatch.setitem(sys.modules, "ray", sys)  # anything: it is not asked
    for address, hint in (("ray://head:10001", "machine of the cluster"), ("127.0.0.1:9", "HOST:PORT"), ("x", "HOST")):
        with pytest.raises(UserError, match=hint), open_pool(address):
            pass


def _assign(folder: Path, encoder: Path, store: Store) -> tuple[Assignment, str, str]:
    """The only stage of a study's first cell, its recipe, and the identity of its predictions."""
    study = load_study(write_study(folder, encoder), ["seeds=[1]"])
    cells, runs = plan_study(study, store, folder / "out")
    write_plan(study, cells, folder / "out", store=store, runs=runs)
    cell, recipe = cells[0], (folder / "out" / cells[0].folder / "recipe.toml").read_text(encoding="utf-8")
    assignment = Assignment(cell.stages[0], cell.name, cell.folder, cell.seed, 0, cell.stages[0], None, 1)
    return assignment, recipe, cell.identity


def test_task_runs_without_the_schedulers_folders(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"file://{tmp_path}/bucket"
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "scheduler's"))
    store = Store(find_store(address))
    assignment, recipe, identity = _assign(tmp_path, tiny_folder, store)
    paths = replace(RemotePaths.create(tmp_path / "out", store.root, address), out=Path("/nowhere"))
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "worker's"))

    def run(one: Assignment) -> Message:
        start, *messages = stream_job(paths, one, recipe, node="n")
        assert isinstance(start, TaskStart) and start.problem == ""
        last = messages[-1]
        assert isinstance(last, Message)
        assert {message.kind for message in messages[:-1]} <= {"progress", "event"}
        return last

    for attempt in (1, 2):
        assert run(assignment).kind == "done", f"attempt {attempt}"
    assert store.is_complete(assignment.key)
    assert not (store.root / "artefacts").exists()
    assert run(replace(assignment, key=assignment.cell, stage=None, identity=identity)).kind == "done"
    assert read_json(tmp_path / "bucket" / "complete" / f"predict-{identity}.json")["record"]["identity"] == identity
    last = run(replace(assignment, identity="other"))
    assert (last.kind, "changed since" in last.error) == ("failed", True)


def test_unsuitable_machine_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_task, "VISIBLE_TIMEOUT", 0.1)
    paths = RemotePaths.create(tmp_path / "out", tmp_path / "store", None)
    assert paths.find_problem() == ""
    assert "install the same" in replace(paths, version="0.0.0").find_problem()
    paths.remove_probes()
    (start,) = stream_job(paths, Assignment("k", "c", "f", 1, 0, "i", None, 1), "", node="n")
    assert isinstance(start, TaskStart) and "does not see" in start.problem
    assert not list((tmp_path / "out").iterdir())


def test_unsuitable_machine_is_left_out_unless_it_is_the_first() -> None:
    pool, task = RayPool("head:6379"), Task("k", None)
    unsuitable = TaskStart("host", "node", 1, problem="does not see /x")
    with pytest.raises(UserError, match="machine host of the cluster: does not see /x"):
        pool._handle_start(task, unsuitable)
    assert pool._handle_start(task, TaskStart("other", "fine", 2)) == Message("started", "k", process=2)
    assert pool._handle_start(Task("l", None), unsuitable).kind == "not_started", "it costs the job no attempt"
    assert pool.excluded == {"node"}


def test_lost_task_is_reported_and_three_failed_starts_end_the_study() -> None:
    pool = RayPool("head:6379")
    for _ in range(2):
        assert pool._handle_lost_task(Task("k", None), "no module").kind == "not_started"
    with pytest.raises(UserError, match="no worker can start on the cluster: no module"):
        pool._handle_lost_task(Task("k", None), "no module")
    lost = pool._handle_lost_task(Task("k", None, is_started=True), "node died")
    assert (lost.kind, "node died" in lost.error) == ("died", True)
