"""What a Ray cluster's workers do by themselves, and how many of them fit; no Ray is needed for that."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossling.errors import UserError
from crossling.files import read_json
from crossling.store.artefacts import Store, find_store
from crossling.study import ray_cluster
from crossling.study.grid import load_study
from crossling.study.plan import plan_study, write_plan
from crossling.study.ray_cluster import Found, RayCluster
from crossling.study.ray_crew import Machine, Shape
from crossling.study.ray_seat import FarPlace, Seat
from crossling.study.sites import open_site
from crossling.study.sizing import Size
from crossling.study.worker import Order
from crossling.training.distributed import Distributed
from small_study import write_study


def test_workers_take_what_they_need_and_as_many_as_fit() -> None:
    small, large, without = Machine(8, 1), Machine(64, 8), Machine(16, 0)
    shape = Shape.share(Size("cpu", 2, 4, 24), threads=4)
    assert shape.resources == {"num_cpus": 4, "num_gpus": 0}
    assert shape.count_room([small, large, without]) == 2 + 16 + 4
    shape = Shape.share(Size("cuda", 27, 2, 72, 9), threads=2)  # three on each of nine GPUs
    assert shape.resources == {"num_cpus": 2, "num_gpus": 0.3333}
    assert shape.count_room([small, large, without]) == 3 + 24
    assert shape.count_room([Machine(4, 8)]) == 2, "cores run out first"
    assert shape.with_one_fewer().resources["num_gpus"] == 0.5
    assert shape.with_one_fewer().with_one_fewer().with_one_fewer().resources["num_gpus"] == 1.0
    few_cores = Shape.share(Size("cuda", 8, 1, 4, 8), threads=1)
    assert few_cores.resources == {"num_cpus": 0.5, "num_gpus": 1.0}
    assert few_cores.count_room([Machine(4, 8)]) == 8


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_cluster_is_sized_by_what_its_machines_have(
    device: str, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner's own machine has no GPU: what a run finds is asked of those that will do the work."""
    machines = [Machine(64, 8), Machine(32, 8), Machine(4, 0)]
    monkeypatch.setattr(ray_cluster, "list_machines", lambda: machines)
    distributed = Distributed(0, 1, torch.device(device), torch.bfloat16 if device == "cuda" else torch.float32)
    found = Found({("cpu", "auto"): distributed}, 141e9)
    monkeypatch.setattr(RayCluster, "_look", lambda *_, **__: found)
    study, site = load_study(write_study(tmp_path, tiny_folder)), RayCluster("head:6379")
    size = site.choose_size(study, tmp_path, workers=None)
    cells, runs = plan_study(study, Store(tmp_path / "s"), tmp_path / "out", join=site.join)
    here, _ = plan_study(study, Store(tmp_path / "s"), tmp_path / "out")
    assert ([cell.stages for cell in cells] == [cell.stages for cell in here]) == (device == "cpu")
    size = size.fit(runs)
    shape = Shape.share(size, threads=size.threads)
    if device == "cuda":
        assert (size.gpus, size.workers, size.cores) == (16, 48, 96), "half as many workers as cores"
        assert shape.resources == {"num_cpus": 2, "num_gpus": 0.3333}
        assert shape.count_room(machines) == 24 + 16
        assert size.describe().startswith("48 workers on 3 machines of a Ray cluster: 16 GPUs: ")
    else:
        assert (size.workers, size.threads, size.cores) == (3, 4, 100), "one for each machine, as the smallest allows"
        assert shape.count_room(machines) == 16 + 8 + 1
        assert site.choose_size(study, tmp_path, workers=50).threads == 2
    with pytest.raises(UserError, match="--workers 0"):
        site.choose_size(study, tmp_path, workers=0)


def test_an_address_without_a_cluster_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'crossling\[distributed\]'"), open_site("auto"):
        pass
    monkeypatch.setitem(sys.modules, "ray", sys)  # anything: it is not asked
    for address, told in (("ray://head:10001", "machine of the cluster"), ("127.0.0.1:9", "HOST:PORT"), ("x", "HOST")):
        with pytest.raises(UserError, match=told), open_site(address):
            pass


def _order(folder: Path, encoder: Path, store: Store) -> tuple[Order, str, str]:
    """The only stage of a study's first cell, and its predictions' identity."""
    study = load_study(write_study(folder, encoder), ["seeds=[1]"])
    cells, runs = plan_study(study, store, folder / "out")
    write_plan(study, cells, folder / "out", store=store, command="", runs=runs)
    cell, recipe = cells[0], (folder / "out" / cells[0].folder / "recipe.toml").read_text(encoding="utf-8")
    order = Order(cell.stages[0], cell.name, cell.folder, cell.seed, 0, cell.stages[0], None, 1)
    return order, recipe, cell.identity


def test_a_seat_works_without_the_runners_folders(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"file://{tmp_path}/bucket"
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "runner's"))
    store = Store(find_store(address))
    order, recipe, identity = _order(tmp_path, tiny_folder, store)
    place = FarPlace.of_runner(tmp_path / "out", store.root, address)
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "worker's"))
    seat = Seat(replace(place, out=Path("/nowhere")))
    assert seat.greet()["problem"] == ""
    for number in (1, 2):
        outcomes = [message["outcome"] for message in seat.do(order, recipe)]
        assert outcomes[-1] == "done", f"the {number}. time"
    assert store.is_complete(order.key)
    assert not (store.root / "artefacts").exists()
    *_, last = seat.do(replace(order, key=order.cell, stage=None, identity=identity), recipe)
    assert last["outcome"] == "done"
    assert read_json(tmp_path / "bucket" / "complete" / f"predict-{identity}.json")["record"]["identity"] == identity
    *_, last = seat.do(replace(order, identity="other"), recipe)
    assert (last["outcome"], "changed since" in last["error"]) == ("failed", True)


def test_a_machine_that_does_not_belong_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossling.study.ray_seat.SIGHT_SECONDS", 0.1)
    place = FarPlace.of_runner(tmp_path / "out", tmp_path / "store", None)
    assert Seat(place)._find_problem() == ""
    assert "install the same" in Seat(replace(place, version="0.0.0"))._find_problem()
    place.withdraw_signs()
    assert "does not see" in Seat(place).greet()["problem"]
    assert not list((tmp_path / "out").iterdir())
