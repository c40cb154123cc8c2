"""A study on a real Ray cluster of two nodes, one of which is killed in the middle of its work."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos import wait_until_gone
from crossling.progress import NoProgress
from crossling.store.artefacts import Store
from crossling.study.grid import load_study
from crossling.study.plan import plan_study, write_plan
from crossling.study.pool import Resources
from crossling.study.ray import RayPool
from crossling.study.ray_task import REPORT_SECONDS
from crossling.study.recipe_run import run_recipe
from crossling.study.status import find_schedulers, read_status
from crossling.study.worker import Assignment
from small_study import (
    events_of,
    finish,
    live_workers,
    predictions_of,
    redone,
    start,
    wait_for,
    weights_of,
    write_study,
)

pytestmark = pytest.mark.slow
LONG = 400.0
"""Seconds for a scheduler to start on a busy machine."""
STAGE_SECONDS = 4 * REPORT_SECONDS
"""Seconds of a stage, since that is how long it takes to see for sure that it learns, and to kill its machine then."""
MEMORY = 80 * 2**20
"""Of each node's object store: messages are all that goes through it."""
STUDY = """
seeds = [1, 2, 3]
baseline = "plain"
[systems.plain]
recipe = "ner.toml"
[systems.mean]
recipe = "ner.toml"
set = { "stage.0.fusion" = { kind = "mean", layer = 1 } }
"""


TOKEN = secrets.token_hex(32)
Begin = Callable[..., "subprocess.Popen[str]"]


@dataclass
class TwoNodes:
    """A cluster of two nodes with one CPU each; each has a separate folder for what it fetches from an address."""

    cluster: Any
    second: Any
    folder: Path

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def training_on_second(self, out: Path) -> list[int]:
        """Processes of the second node in the first half of a stage: the status is a few seconds old."""
        raylets = {info.process.pid for info in self.second.all_processes["raylet"]}
        return [
            job.process
            for scheduler in find_schedulers(out)
            for job in scheduler.working
            if job.process
            and job.stage is not None
            and 0 < job.progress.share < 0.5
            and _parent(job.process) in raylets
        ]

    def kill_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)


def _parent(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except OSError:
        return None


def _secure_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that only this test can join."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    pytest.importorskip("ray", reason="needs Ray: pip install 'crossling[distributed]'")


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoNodes]:
    _secure_ray(monkeypatch)
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "cache-scheduler"))
    common = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": MEMORY}
    caches = [{"CROSSLING_CACHE": str(tmp_path / f"cache-{number}")} for number in (1, 2)]
    cluster = Cluster(
        initialize_head=True, head_node_args={**common, "include_dashboard": False, "env_vars": caches[0]}
    )
    try:
        yield TwoNodes(cluster, cluster.add_node(**common, env_vars=caches[1]), tmp_path)
    finally:
        cluster.shutdown()


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts schedulers, none of which outlives its test."""
    begun = []

    def start_scheduler(*arguments: Any) -> subprocess.Popen[str]:
        begun.append(start(*arguments))
        return begun[-1]

    yield start_scheduler
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _write_long_study(folder: Path, encoder: Path) -> Path:
    """A study whose stages last so long on this machine that each is seen at work before it is over."""
    trial = load_study(write_study(folder / "trial", encoder, STUDY, epochs=16)).variants[0].recipe
    begun = time.monotonic()
    run_recipe(trial, store=Store(folder / "trial-store"), out=folder / "trial-out")
    seconds = (time.monotonic() - begun) / len(trial.seeds)
    return write_study(folder, encoder, STUDY, epochs=max(16, round(16 * STAGE_SECONDS / seconds)))


def _run_undisturbed(path: Path, folder: Path) -> tuple[dict[str, str], dict[str, list[Any]]]:
    for variant in load_study(path).variants:
        run_recipe(variant.recipe, store=Store(folder / "calm-store"), out=folder / "calm" / variant.folder)
    return weights_of(folder / "calm-store"), predictions_of(folder / "calm")


def _check_end(out: Path) -> None:
    assert read_status(out).count("done") == 6
    assert any(event["event"] == "died" for event in events_of(out)), "the lost node cost no job: killed too late"
    assert redone(out) == [], "finished work was done again"
    assert _count_ended(out) >= 2, "both nodes did some of the work"


def _count_ended(out: Path) -> int:
    """Processes that finished something."""
    return len({event["process"] for event in events_of(out) if event["event"] == "end"})


def test_results_survive_a_lost_node_in_a_shared_folder(
    tmp_path: Path, tiny_folder: Path, nodes: TwoNodes, begin: Begin
) -> None:
    path = _write_long_study(tmp_path, tiny_folder)
    expected = _run_undisturbed(path, tmp_path)
    out, store = tmp_path / "out", tmp_path / "store"
    process = begin(path, "--out", out, "--store", store, "--ray", nodes.address)
    assert wait_for(lambda: _count_ended(out) >= 2 and nodes.training_on_second(out), process, seconds=LONG)
    victims = nodes.training_on_second(out)
    nodes.kill_second()
    for victim in victims:  # a machine that stops takes all its processes with it
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    output = finish(process)
    assert "tried again" in output
    assert (weights_of(store), predictions_of(out)) == expected
    _check_end(out)
    assert not list((store / "leases").iterdir()), "finished work leaves no lease"
    assert not list(out.glob(".probe-*"))


def test_results_survive_a_lost_node_with_a_store_at_an_address(
    tmp_path: Path, tiny_folder: Path, nodes: TwoNodes, begin: Begin
) -> None:
    """No folder is shared: the scheduler and each node have separate mirrors. The node's worker outlives it a bit."""
    path = _write_long_study(tmp_path, tiny_folder)
    expected = _run_undisturbed(path, tmp_path)
    out, bucket = tmp_path / "out", tmp_path / "bucket"
    arguments = (path, "--out", out, "--store", f"file://{bucket}", "--ray", nodes.address)
    process = begin(*arguments)
    assert wait_for(lambda: _count_ended(out) >= 2 and nodes.training_on_second(out), process, seconds=LONG)
    nodes.kill_second()
    finish(process)
    assert (_weights_at(bucket), predictions_of(out)) == expected
    _check_end(out)
    assert not list((tmp_path / "cache-scheduler").rglob("*.safetensors")), "the scheduler needs no model"
    other = tmp_path / "elsewhere"
    finish(begin(path, "--out", other, "--store", f"file://{bucket}"))
    assert predictions_of(other) == expected[1], "whoever has the address gets the results"
    assert events_of(other) == []


def test_stopped_or_killed_scheduler_leaves_no_worker_and_continues(
    tmp_path: Path, tiny_folder: Path, nodes: TwoNodes, begin: Begin
) -> None:
    path = _write_long_study(tmp_path, tiny_folder)
    expected = _run_undisturbed(path, tmp_path)
    out, store = tmp_path / "out", tmp_path / "store"
    for blow, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = begin(path, "--out", out, "--store", store, "--ray", nodes.address)
        assert wait_for(lambda: nodes.training_on_second(out), process, seconds=LONG)
        workers = live_workers(out)
        process.send_signal(blow)
        finish(process, code=code)
        wait_until_gone(workers)
    finish(begin(path, "--out", out, "--store", store, "--ray", nodes.address))
    assert (weights_of(store), predictions_of(out)) == expected
    assert redone(out) == []
    assert read_status(out).count("done") == 6


def test_tasks_share_a_gpu_in_fresh_processes(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks with half of a GPU each run side by side. The GPU is one by name only: recipes train on the CPU."""
    _secure_ray(monkeypatch)
    from ray.cluster_utils import Cluster

    store, out = Store(tmp_path / "store"), tmp_path / "out"
    study = load_study(write_study(tmp_path, tiny_folder, STUDY))
    cells, runs = plan_study(study, store, out)
    write_plan(study, cells, out, store=store, runs=runs)
    jobs = [Assignment(c.stages[0], c.name, c.folder, c.seed, 0, c.stages[0], None, 1) for c in cells[:4]]
    head = {"num_cpus": 4, "num_gpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        with RayPool.connect(cluster.address) as pool:
            pool.resources = Resources("cuda", 2, 1, 2, 1).divide(threads=1)
            pool.open(study, out, store, progress=NoProgress())
            processes, running, most = set(), set(), 0
            while jobs or pool.tasks:
                for _ in range(min(len(jobs), pool.scale(len(jobs)))):
                    pool.start(jobs.pop())
                for message in pool.poll(0.2):
                    if message.kind == "started":
                        processes.add(message.process)
                        running.add(message.key)
                    elif message.kind == "done":
                        running.discard(message.key)
                    assert message.kind in ("started", "progress", "event", "done"), message.error
                    most = max(most, len(running))
            pool.close()
    finally:
        cluster.shutdown()
    assert all(store.is_complete(cell.stages[0]) for cell in cells[:4])
    assert len(processes) == 4, "a process that used a GPU is not used again"
    assert most == 2


def _weights_at(bucket: Path) -> dict[str, str]:
    files = sorted(bucket.glob("artefacts/*/*/model.safetensors"))
    assert len({path.parent.parent for path in files}) == len(files), "one writer's files for each artefact"
    return {path.parent.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
