"""Studies that are run: shared work, faults of every kind, and the same results as without faults."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from chaos import Chaos, start_study
from crossling.errors import DataError, UserError
from crossling.processes import is_running
from crossling.progress import NoProgress
from crossling.recipe.recipe import load_recipe
from crossling.store.artefacts import Store
from crossling.store.leases import LeaseLostError
from crossling.study import local
from crossling.study.folder import PlannedCell
from crossling.study.grid import load_study
from crossling.study.plan import JobGraph
from crossling.study.pool import Resources
from crossling.study.recipe_run import RecipeRun, run_recipe
from crossling.study.run_record import find_model
from crossling.study.run_report import summarise_run
from crossling.study.scheduling import refuse_other_study, run_study
from crossling.study.status import read_status, write_scheduler
from crossling.study.worker import Assignment, Message, Worker, WorkerPaths, end_after_kernels
from crossling.training.distributed import setup_distributed
from small_study import (
    TWO_SYSTEMS,
    events_of,
    live_workers,
    markers_of,
    predictions_of,
    redone,
    serve_a_broken_gpu,
    serve_a_full_gpu,
    serve_and_die,
    serve_and_warn,
    wait_for,
    weights_of,
    write_study,
)

SHARING = """
seeds = [1]
baseline = "slow"
[systems.slow]
recipe = "ner.toml"
[systems.fast]
recipe = "ner.toml"
set = { "stage.1.lr" = 1e-2 }
"""


def _plan(name: str, stages: tuple[str, ...]) -> PlannedCell:
    return PlannedCell(name, "x", "", "x", "x", 1, stages, "i")


def test_shared_stage_is_one_job_and_others_wait_for_it() -> None:
    cells = [_plan("a", ("first", "a2")), _plan("b", ("first", "b2")), _plan("c", ("other",))]
    graph = JobGraph.from_cells(cells, finished=(), is_trained=lambda identity: identity == "other")
    assert set(graph.jobs) == {"first", "a2", "b2", "a", "b", "c"}
    assert [job.key for job in graph.ready()] == ["c", "first"], "what finishes a cell comes first"
    graph.jobs["first"].state = "running"
    assert [job.key for job in graph.ready()] == ["c"]
    assert (graph.state_of("a"), graph.state_of("b"), graph.state_of("c")) == ("running", "running", "waiting")
    graph.jobs["first"].state = "done"
    assert [job.key for job in graph.ready()] == ["c", "a2", "b2"]
    assert graph.fail(graph.jobs["a2"]) == ["a"]
    assert graph.count() == {"done": 0, "running": 0, "waiting": 2, "failed": 1}


def test_finished_cells_and_trained_stages_need_no_job() -> None:
    cells = [_plan("a", ("first", "a2")), _plan("b", ("first", "b2"))]
    graph = JobGraph.from_cells(cells, finished={"a"}, is_trained=lambda identity: identity == "b2")
    assert set(graph.jobs) == {"b"}, "a trained last stage needs no stage before it"
    assert graph.state_of("a") == "done"


def test_worker_in_a_new_process_does_its_jobs(tmp_path: Path, flat_folder: Path) -> None:
    """As a study starts one; it imports everything itself, for which other tests do not wait."""
    text = 'seeds = [1]\nbaseline = "plain"\n[systems.plain]\nrecipe = "ner.toml"\n'
    study = load_study(write_study(tmp_path, flat_folder, text))
    outcome = run_study(study, out=tmp_path / "out", store=Store(tmp_path / "s"), workers=1)
    assert (outcome.done, outcome.failed) == (1, {})
    run_recipe(study.variants[0].recipe, store=Store(tmp_path / "t"), out=tmp_path / "one")
    assert weights_of(tmp_path / "s") == weights_of(tmp_path / "t") != {}
    assert not list((tmp_path / "out" / "runners").iterdir())


@pytest.mark.usefixtures("forked_workers")
def test_study_equals_single_runs_bit_by_bit_and_is_not_done_again(tmp_path: Path, flat_folder: Path) -> None:
    study = load_study(write_study(tmp_path, flat_folder))
    store, out = Store(tmp_path / "s"), tmp_path / "out"
    outcome = run_study(study, out=out, store=store, workers=1)
    assert (outcome.done, outcome.failed) == (4, {})
    for system in ("plain", "mean"):
        run_recipe(
            load_recipe(out / system / "recipe.toml"), store=Store(tmp_path / "t"), out=tmp_path / "one" / system
        )
        assert summarise_run(out / system, store=store.root).seeds == (1, 2)
        assert find_model(out / system, seed=2).is_dir()
    assert weights_of(tmp_path / "s") == weights_of(tmp_path / "t") != {}
    assert predictions_of(out) == predictions_of(tmp_path / "one") != {}
    assert not list((tmp_path / "s" / "leases").iterdir()), "finished work leaves no lease"
    before = markers_of(tmp_path / "s"), events_of(out)
    assert run_study(study, out=out, store=store, workers=1).done == 4
    assert (markers_of(tmp_path / "s"), events_of(out)) == before, "nothing is done again"


@pytest.mark.usefixtures("forked_workers")
def test_stage_that_cells_share_is_trained_once(tmp_path: Path, flat_folder: Path) -> None:
    path = write_study(tmp_path, flat_folder, SHARING)
    text = (tmp_path / "ner.toml").read_text(encoding="utf-8")
    stage = text[text.index("[[stage]]") : text.index("[[evaluate]]")]
    (tmp_path / "ner.toml").write_text(text.replace("[[evaluate]]", f"{stage}\n[[evaluate]]"), encoding="utf-8")
    outcome = run_study(load_study(path), out=tmp_path / "out", store=Store(tmp_path / "s"), workers=2)
    assert outcome.failed == {}
    assert len(markers_of(tmp_path / "s")) == 3
    begun = Counter(event["job"] for event in events_of(tmp_path / "out") if event["event"] == "begin")
    assert sorted(begun.values()) == [1] * 5


def test_failed_cell_does_not_stop_the_others(tmp_path: Path, flat_folder: Path) -> None:
    replay = '{ parallel = "phrasebook-parallel:en-hi", words = 1 }'  # no sentence is so short, which training finds
    text = TWO_SYSTEMS + f'[systems.wrong]\nrecipe = "ner.toml"\nset = {{ "stage.0.replay" = {replay} }}\n'
    path = write_study(tmp_path, flat_folder, text)
    arguments = (path, tmp_path / "out", tmp_path / "s", "--set", "seeds=[1]")
    output = start_study(*arguments).finish(code=1)
    assert "phrasebook-parallel:en-hi" in output
    status = read_status(tmp_path / "out")
    assert [cell.state for cell in status.cells] == ["done", "done", "failed"]
    assert "phrasebook-parallel:en-hi" in status.cells[2].error
    assert "Traceback" in (tmp_path / "out" / status.cells[2].log).read_text(encoding="utf-8")
    start_study(*arguments, "--set", "systems.wrong.set={}").finish()
    assert read_status(tmp_path / "out").count("failed") == 0


@pytest.mark.usefixtures("forked_workers")
def test_cell_whose_worker_always_dies_fails_after_three_attempts(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "serve_jobs", serve_and_die)
    study = load_study(write_study(tmp_path, flat_folder), ["seeds=[1]"])
    outcome = run_study(study, out=tmp_path / "out", store=Store(tmp_path / "s"), workers=1)
    assert set(outcome.failed) == {"mean/seed-1"}
    assert "SIGKILL" in outcome.failed["mean/seed-1"]
    assert "3 times" in outcome.failed["mean/seed-1"]
    assert sum(event["event"] == "died" for event in events_of(tmp_path / "out")) == 3
    assert outcome.done == 1


@pytest.mark.usefixtures("forked_workers")
def test_what_several_workers_warn_of_is_shown_once_by_the_scheduler(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "serve_jobs", serve_and_warn)
    study = load_study(write_study(tmp_path, flat_folder), ["seeds=[1]"])
    assert run_study(study, out=tmp_path / "out", store=Store(tmp_path / "s"), workers=2).done == 2
    shown = [record.getMessage() for record in caplog.records if record.getMessage().startswith("found")]
    assert sorted(shown) == ["found 7 rows", "found 8 rows"], "of four jobs"


@pytest.mark.usefixtures("forked_workers")
def test_full_gpu_memory_reduces_workers_and_fails_no_cell(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "serve_jobs", serve_a_full_gpu)
    said: list[str] = []
    progress = NoProgress()
    monkeypatch.setattr(progress, "say", said.append)
    study = load_study(write_study(tmp_path, flat_folder), ["seeds=[1]"])
    outcome = run_study(study, out=tmp_path / "out", store=Store(tmp_path / "s"), workers=2, progress=progress)
    assert (outcome.done, outcome.failed) == (2, {})
    assert any("memory was full; going on with 1 worker on" in line for line in said)
    assert sum(bool(re.fullmatch(r"done +\S+ \(predicted in [\d.]+ s\)", line)) for line in said) == 2


@pytest.mark.usefixtures("forked_workers")
def test_process_whose_gpu_failed_is_replaced_and_fails_no_cell(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "serve_jobs", serve_a_broken_gpu)
    study = load_study(write_study(tmp_path, flat_folder), ["seeds=[1]"])
    outcome = run_study(study, out=tmp_path / "out", store=Store(tmp_path / "s"), workers=1)
    assert (outcome.done, outcome.failed) == (2, {})
    assert sum(event["event"] == "died" for event in events_of(tmp_path / "out")) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), "device_lost"),
        (torch.AcceleratorError("CUDA error: out of memory"), "out_of_memory"),
        (torch.OutOfMemoryError("tried to allocate 2 GiB"), "out_of_memory"),
        (RuntimeError("shapes differ"), "failed"),
    ],
)
def test_worker_says_whether_its_gpu_can_still_be_used(
    error: Exception, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(worker: Worker, assignment: Assignment) -> None:
        raise error

    monkeypatch.setattr(Worker, "_run", fail)
    sent: list[Message] = []
    worker = Worker(WorkerPaths(tmp_path, tmp_path), sent.append, lambda event: None)
    worker.run(Assignment("job", "plain/seed-1", "plain", 1, None, "id", None, 1))
    assert [message.kind for message in sent] == [kind]


@pytest.mark.parametrize("capturing", [False, True])
def test_stopped_worker_waits_for_running_kernels(capturing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def synchronize() -> None:
        done.append("synchronize")
        if capturing:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(os, "_exit", done.append)
    end_after_kernels(signal.SIGTERM, None)
    assert done == ["synchronize", 128 + signal.SIGTERM]


@pytest.mark.parametrize(("device", "ended"), [("cuda", "terminate"), ("cpu", "kill")])
def test_busy_workers_are_ended_gently_on_a_gpu_alone(device: str, ended: str) -> None:
    calls: list[str] = []
    process = SimpleNamespace(
        terminate=lambda: calls.append("terminate"),
        kill=lambda: calls.append("kill"),
        join=lambda *_: None,
        is_alive=lambda: False,
    )
    end = SimpleNamespace(send=lambda _: None, close=lambda: None)
    pool = local.LocalPool(resources=Resources(device, workers=1, threads=1, cores=1))
    pool.processes.append(local.WorkerProcess(process, end, None, key="job"))  # type: ignore[arg-type]
    pool.close()
    assert calls == [ended] and not pool.processes


@pytest.mark.parametrize(
    ("visible", "names"), [(None, ["0", "1"]), ("4, 7", ["4", "7"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])]
)
def test_workers_are_spread_over_the_visible_gpus(
    visible: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def make_process(*, args: tuple[Any, ...], **rest: Any) -> Any:
        is_alive, join = (lambda: False), (lambda: None)
        return SimpleNamespace(start=lambda: started.append(args[-1]), is_alive=is_alive, join=join)

    end = SimpleNamespace(close=lambda: None)
    context = SimpleNamespace(Pipe=lambda: (end, end), Process=make_process)
    monkeypatch.setattr(local.multiprocessing, "get_context", lambda method: context)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible) if visible else monkeypatch.delenv(
        "CUDA_VISIBLE_DEVICES", False
    )
    pool = local.LocalPool(resources=Resources("cuda", workers=4, threads=1, cores=8, gpus=2))
    pool.scale(jobs=9)
    assert started == names * 2
    pool._kill(pool.processes[1])
    pool.scale(jobs=9)
    assert started[4:] == names[1:], "a new one takes the place of the one that ended"


def test_process_that_lost_its_lease_publishes_nothing(tmp_path: Path, flat_folder: Path) -> None:
    recipe = load_study(write_study(tmp_path, flat_folder, epochs=6)).variants[0].recipe
    store = Store(tmp_path / "s")
    run = RecipeRun(recipe, store, tmp_path / "out", setup_distributed(recipe.run))
    (identity,) = run.identify_stages(1)
    lease = store.leases.try_acquire(identity)
    assert lease is not None
    lease.path.with_name(f"{identity}.2").touch()  # another machine's
    with pytest.raises(LeaseLostError):
        run.train(0, 1, check_lease=lease.check)
    assert not store.is_complete(identity)
    assert not list(store.work(identity).glob("step-*")), "it wrote into the other's checkpoints"


def test_missing_data_is_reported_before_training(tmp_path: Path, flat_folder: Path) -> None:
    path = write_study(tmp_path, flat_folder)
    (tmp_path / "test.tsv").unlink()
    with pytest.raises(DataError) as caught:
        run_study(load_study(path), out=tmp_path / "out", store=Store(tmp_path / "s"))
    assert re.search(r"plain, mean: evaluate.0: .*test.tsv: there is no such file", str(caught.value))
    with pytest.raises(UserError, match="--workers 0"):
        run_study(load_study(path), out=tmp_path / "out", store=Store(tmp_path / "s"), workers=0)
    assert not (tmp_path / "s" / "artefacts").exists()


def test_folder_is_not_shared_with_another_study(tmp_path: Path, flat_folder: Path) -> None:
    study = load_study(write_study(tmp_path, flat_folder))
    other = subprocess.Popen(["sleep", "60"])
    try:
        write_scheduler(tmp_path, study.identity, workers=1, working=[])
        path = next((tmp_path / "runners").iterdir())
        path.write_text(path.read_text(encoding="utf-8").replace(str(os.getpid()), str(other.pid)), encoding="utf-8")
        refuse_other_study(study, tmp_path)
        with pytest.raises(UserError, match="another version of this study"):
            refuse_other_study(load_study(tmp_path / "study.toml", ["seeds=[8]"]), tmp_path)
    finally:
        other.kill()
        other.wait()
    refuse_other_study(load_study(tmp_path / "study.toml", ["seeds=[8]"]), tmp_path)


def test_two_schedulers_share_the_cells_of_one_store(tmp_path: Path, flat_folder: Path) -> None:
    """The second one writes to another folder: predictions are shared, too."""
    path = write_study(tmp_path, flat_folder, epochs=4)
    started = [start_study(path, tmp_path / out, tmp_path / "s", "--set", "seeds=[1,2,3]") for out in "ab"]
    for one in started:
        one.finish()
    assert predictions_of(tmp_path / "a") == predictions_of(tmp_path / "b") != {}
    assert len(markers_of(tmp_path / "s")) == 6
    jobs = [event["job"] for out in "ab" for event in events_of(tmp_path / out) if event["event"] == "begin"]
    trained = Counter(job for job in jobs if job.startswith("finetune"))
    assert sorted(trained.values()) == [1] * 6, "no stage was trained by both"


def test_ctrl_c_stops_the_workers_too(tmp_path: Path, flat_folder: Path) -> None:
    path = write_study(tmp_path, flat_folder, epochs=300)
    process = start_study(path, tmp_path / "out", tmp_path / "s")
    assert wait_for(lambda: live_workers(tmp_path / "out"), process)
    workers = live_workers(tmp_path / "out")
    os.kill(process.process.pid, signal.SIGINT)
    process.finish(code=130)
    assert not any(is_running(worker) for worker in workers)
    assert not list((tmp_path / "out" / "runners").iterdir())


def _survive(folder: Path, encoder: Path, *, workers: int, schedulers: int, seed: int) -> None:
    path = write_study(folder, encoder, epochs=6)
    for variant in load_study(path).variants:
        run_recipe(variant.recipe, store=Store(folder / "calm-store"), out=folder / "calm" / variant.folder)
    chaos = Chaos(path, folder / "out", folder / "store", random.Random(seed))
    chaos.run(workers=workers, schedulers=schedulers)
    assert chaos.workers_killed + chaos.schedulers_killed >= 1
    assert weights_of(folder / "store") == weights_of(folder / "calm-store") != {}
    assert predictions_of(folder / "out") == predictions_of(folder / "calm") != {}
    assert redone(folder / "out") == []
    assert read_status(folder / "out").count("done") == 4


def test_results_survive_killed_workers_and_schedulers(tmp_path: Path, flat_folder: Path) -> None:
    _survive(tmp_path, flat_folder, workers=2, schedulers=1, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_results_survive_many_more_kills(tmp_path: Path, flat_folder: Path, seed: int) -> None:
    _survive(tmp_path, flat_folder, workers=5, schedulers=5, seed=seed)
