"""Stores at an address: files first, the marker last, whoever else writes and whatever fails in between."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import ArtefactError, UserError
from crossling.store import archive as archive_module
from crossling.store.archive import Archive
from crossling.store.artefacts import Store, find_store
from crossling.study.grid import load_study
from crossling.study.run_record import find_model
from crossling.study.scheduling import run_study
from inline_pool import InlinePool
from small_study import events_of, markers_of, predictions_of, write_study


@pytest.fixture(params=["memory", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid.uuid4().hex}/x" if request.param == "memory" else f"file://{tmp_path}/bucket/x"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(archive_module, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "cache"))


def _write(folder: Path, **texts: str) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {f"below/{name}": folder / name for name in texts}


def _fetch(address: str, folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    record = Archive(address).fetch("a-1", folder)
    return {path.name: path.read_text(encoding="utf-8") for path in (folder / "below").iterdir()}, record


def test_published_artefact_is_fetched_whole(address: str, tmp_path: Path) -> None:
    sender, other = Archive(address), Archive(address)
    assert not other.is_complete("a-1")
    assert other.read_marker("a-1") is None
    with pytest.raises(ArtefactError, match="has no a-1"):
        other.fetch("a-1", tmp_path / "there")
    assert sender.publish("a-1", _write(tmp_path / "from", x="1", y="2"), {"score": 0.5})
    other.refresh()
    assert other.is_complete("a-1")
    assert not other.is_complete("a")
    assert _fetch(address, tmp_path / "there") == ({"x": "1", "y": "2"}, {"score": 0.5})


def test_files_without_a_marker_do_not_count(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Archive(address)
    monkeypatch.setattr(killed, "_mark", _raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        killed.publish("a-1", _write(tmp_path / "from", x="half", y="done"), {})
    assert not Archive(address).is_complete("a-1")
    assert Archive(address).publish("a-1", _write(tmp_path / "again", x="whole"), {})
    assert _fetch(address, tmp_path / "there")[0] == {"x": "whole"}, "nothing of the killed writer's is read"


def test_first_of_two_writers_wins_and_their_files_do_not_mix(address: str, tmp_path: Path) -> None:
    slow, fast = Archive(address), Archive(address)
    assert not slow.is_complete("a-1")  # it begins, and finds nothing
    assert fast.publish("a-1", _write(tmp_path / "fast", x="fast"), {"by": "fast"})
    assert not slow.publish("a-1", _write(tmp_path / "slow", x="slow", z="slow"), {"by": "slow"})
    assert _fetch(address, tmp_path / "there") == ({"x": "fast"}, {"by": "fast"})
    assert len(slow._files.ls(f"{slow._path}/artefacts/a-1")) == 1, "the second takes its files away"


def test_failing_network_is_retried(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(address)
    send, failures = archive._send, [OSError("reset"), TimeoutError("late")]

    def fail_twice(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        send(*arguments)

    monkeypatch.setattr(archive, "_send", fail_twice)
    assert archive.publish("a-1", _write(tmp_path / "from", x="1"), {})
    assert not failures
    monkeypatch.setattr(archive, "_send", _raise(PermissionError("no credentials")))
    with pytest.raises(ArtefactError, match="no credentials") as caught:
        archive.publish("a-2", _write(tmp_path / "from", x="1"), {})
    assert address in str(caught.value)


def _raise(error: BaseException) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_unknown_kind_of_address_is_refused() -> None:
    with pytest.raises(ArtefactError, match="nosuch://x"):
        find_store("nosuch://x")
    with pytest.raises(ArtefactError, match=r"s3fs|gcsfs|adlfs"):
        find_store(next(a for a in ("s3://x/y", "gs://x/y", "abfs://x/y") if not _is_usable(a)))


def _is_usable(address: str) -> bool:
    try:
        Archive(address)
    except ArtefactError:
        return False
    return True


def test_each_machine_has_a_mirror_that_knows_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"file://{tmp_path}/bucket"
    first = Store(find_store(address))
    assert find_store(address) == find_store(f"{address}/") == first.root != find_store(f"file://{tmp_path}/other")
    _write(first.work("a-1") / "made", x="1")
    first.publish("a-1", first.work("a-1") / "made", {"score": 1})
    assert not first.work("a-1").exists()
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "another machine's"))
    monkeypatch.setenv("CROSSLING_STORE", address)
    second = Store(find_store())
    assert second.root != first.root
    assert second.is_complete("a-1")
    assert second.record("a-1")["score"] == 1
    assert not second.artefact("a-1").exists(), "a question brings no files"
    assert (second.fetch("a-1") / "x").read_text(encoding="utf-8") == "1"
    assert list(markers_of(second.root)) == ["a-1"]


def test_other_machines_fetch_a_study_from_its_address(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"file://{tmp_path}/bucket"
    study = load_study(write_study(tmp_path, flat_folder), ["seeds=[1]"])
    assert run_study(study, out=tmp_path / "a", store=Store(find_store(address)), pool=InlinePool()).done == 2
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "another machine's"))
    store = Store(find_store(address))
    assert run_study(study, out=tmp_path / "b", store=store, pool=InlinePool()).done == 2
    assert events_of(tmp_path / "b") == [], "nothing is done again"
    assert predictions_of(tmp_path / "a") == predictions_of(tmp_path / "b") != {}
    assert markers_of(store.root) == {}, "results need no model"
    assert (find_model(tmp_path / "b" / "mean") / "model.safetensors").is_file()
    assert len(markers_of(store.root)) == 1


def test_store_that_workers_cannot_see_is_refused(tmp_path: Path, flat_folder: Path) -> None:
    study = load_study(write_study(tmp_path, flat_folder))
    with pytest.raises(UserError, match="one process alone"):
        run_study(study, out=tmp_path / "out", store=Store(find_store("memory://x")))


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil", "a\0b", "", 7])
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: Any) -> None:
    address = f"file://{tmp_path}/bucket/x"
    Archive(address).publish("a-1", _write(tmp_path / "from", x="1"), {})
    marker = tmp_path / "bucket/x/complete/a-1.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "files": [name]}))
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ArtefactError, match="leads outside"):
        Archive(address).fetch("a-1", tmp_path / "there")
    assert set(tmp_path.rglob("*")) == before
