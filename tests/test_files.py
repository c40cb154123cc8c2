"""Files: flushed before they are named, absent where a power cut left them empty, cleaned up after killed writers."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from crossling import files
from crossling.errors import Problems, StorageError
from crossling.files import (
    append_line,
    explain_failures,
    is_filled,
    is_intact,
    make_folder,
    read_json,
    read_lines,
    replacing,
    reserve,
    temporary_folder,
    write_atomic,
    write_folder,
    write_many,
    write_once,
)
from crossling.models.model import Model, build_model
from crossling.scores.predictions import Predictions, read_predictions, write_predictions
from crossling.store.artefacts import Store
from crossling.store.leases import Leases
from crossling.study.folder import CellMarker, mark_finished
from crossling.study.run_record import RunRecord, find_run_record
from crossling.training.checkpoint import Checkpoints, Position
from tiny import tiny_encoder


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is flushed and what gets its name, in order."""
    found: list[tuple[str, str]] = []
    flush, replace, link = os.fsync, Path.replace, os.link

    def trace_flush(handle: int) -> None:
        found.append(("flush", str(Path(f"/proc/self/fd/{handle}").readlink())))
        flush(handle)

    def trace_replace(self: Path, target: Path) -> Path:
        found.append(("name", str(target)))
        return replace(self, target)

    def trace_link(source: Path, target: Path) -> None:
        found.append(("name", str(target)))
        link(source, target)

    monkeypatch.setattr(os, "fsync", trace_flush)
    monkeypatch.setattr(Path, "replace", trace_replace)
    monkeypatch.setattr(os, "link", trace_link)
    return found


def _write_predictions(folder: Path) -> Path:
    path = folder / "x.parquet"
    found = Predictions.from_classes("de", "x:de", labels=["a"], gold=[0], predicted=[0], confidence=[1.0])
    write_predictions(path, found)
    return path


def _publish(folder: Path) -> Path:
    store = Store(folder)
    made = folder / "made"
    made.mkdir()
    (made / "model.json").write_text("{}")
    store.publish("a", made, {})
    return folder / "artefacts" / "a" / "complete.json"


def _acquire(folder: Path) -> Path:
    lease = Leases(folder).try_acquire("a")
    assert lease is not None
    return lease.path


def _mark(folder: Path) -> Path:
    mark_finished(folder, CellMarker("a"))
    return folder / "complete.json"


def _write_record(folder: Path) -> Path:
    RunRecord(folder, {"1": ("a",)}).write(folder)
    return folder / "run.json"


def _write_seal(folder: Path) -> Path:
    with replacing(folder / "x", seal=True) as partial:
        partial.write_text("x")
    return folder / "x"


def _write_many(folder: Path) -> Path:
    write_many({folder / "a" / "x": "x", folder / "b" / "y": "y"}, folder)
    assert (folder / "a" / "x").read_text() == "x" and (folder / "b" / "y").read_text() == "y"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
    return folder / "a" / "x"


WRITERS: dict[str, Callable[[Path], Path]] = {
    "lease": _acquire,
    "marker of a cell": _mark,
    "marker of an artefact": _publish,
    "predictions": _write_predictions,
    "record of a run": _write_record,
    "sealed file": _write_seal,
    "several files": _write_many,
}


@pytest.mark.parametrize("what", WRITERS)
def test_file_is_flushed_before_it_gets_its_name_and_its_folder_after(
    what: str, calls: list[tuple[str, str]], tmp_path: Path
) -> None:
    path = WRITERS[what](tmp_path)
    named = calls.index(("name", str(path)))
    assert any(kind == "flush" and ".partial" in place for kind, place in calls[:named])
    assert ("flush", str(path.parent)) in calls[named:]


def test_files_of_an_artefact_are_flushed_before_its_marker(calls: list[tuple[str, str]], tmp_path: Path) -> None:
    marker = _publish(tmp_path)
    before = calls[: calls.index(("name", str(marker)))]
    assert ("flush", str(tmp_path / "made" / "model.json")) in before
    assert before.index(("name", str(marker.parent / "model.json"))) < before.index(("flush", str(marker.parent)))


@pytest.fixture
def model() -> Model:
    return build_model(tiny_encoder(), {"kind": "last"})


def _save_checkpoint(model: Model, folder: Path, step: int) -> Path:
    optimiser = torch.optim.SGD(model.parameters())
    assert Checkpoints(folder).save(model, optimiser, Position(step), best={"a": torch.zeros(1)})
    return folder / f"step-{step:08d}" / "complete"


def test_files_of_a_checkpoint_are_flushed_before_its_marker(
    model: Model, calls: list[tuple[str, str]], tmp_path: Path
) -> None:
    marker = _save_checkpoint(model, tmp_path, 1)
    before = calls[: calls.index(("name", str(marker)))]
    flushed = {Path(place).name for kind, place in before if kind == "flush" and "partial" not in place}
    assert flushed >= {"model.safetensors", "optimiser.safetensors", "position.json", marker.parent.name}
    assert ("name", str(tmp_path / "best-00000000.safetensors")) in before
    assert calls[-1] == ("flush", str(marker.parent))


def test_checkpoint_with_an_empty_marker_is_absent(
    model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    optimiser = torch.optim.SGD(model.parameters())
    for step in (1, 2):
        marker = _save_checkpoint(model, tmp_path, step)
    marker.write_bytes(b"")
    assert Checkpoints(tmp_path).restore(model, optimiser).step == 1
    assert caplog.text == "", "the one before is whole, and nothing is damaged"
    assert _save_checkpoint(model, tmp_path, 2) == marker and is_filled(marker), "it is written again"
    assert Checkpoints(tmp_path).restore(model, optimiser).step == 2


def test_several_files_are_all_flushed_before_the_first_gets_its_name(
    calls: list[tuple[str, str]], tmp_path: Path
) -> None:
    _write_many(tmp_path)
    kinds = [kind for kind, place in calls if ".partial" in place or place in map(str, tmp_path.glob("*/*"))]
    assert kinds == ["flush", "flush", "name", "name"]
    assert ("flush", str(tmp_path)) in calls, "new folders are flushed into the one above"


def test_new_folders_are_flushed_into_those_above(calls: list[tuple[str, str]], tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    assert {place for _, place in calls} == {str(tmp_path), str(tmp_path / "a")}


@pytest.mark.parametrize("content", [b"", b"\0\0\0"])
def test_lease_without_an_owner_is_free(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.3").write_bytes(content)
    lease = Leases(tmp_path).try_acquire("a")
    assert lease is not None and lease.generation == 4


def test_empty_marker_is_replaced(tmp_path: Path) -> None:
    marker = tmp_path / "artefacts" / "a" / "complete.json"
    marker.parent.mkdir(parents=True)
    marker.touch()
    store = Store(tmp_path)
    assert not store.is_complete("a")
    store.complete("a", {"made": "again"})
    assert store.is_complete("a") and store.record("a") == {"made": "again"}
    assert not write_once(marker, {"made": "twice"}) and store.record("a") == {"made": "again"}
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "complete.json").touch()
    mark_finished(tmp_path / "cell", CellMarker("a"))
    assert read_json(tmp_path / "cell" / "complete.json")["identity"] == "a"


def test_empty_files_count_as_absent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("run.json", "x.arrow", "x.arrow.sha256", "y", "log"):
        (tmp_path / name).touch()
    assert read_json(tmp_path / "y") is None and not is_filled(tmp_path / "y") and not is_filled(tmp_path)
    assert find_run_record(tmp_path) is None and read_lines(tmp_path / "log") == []
    assert not is_intact(tmp_path / "x.arrow") and not is_intact(tmp_path / "x.arrow", needs_seal=False)
    assert caplog.text == "", "nothing is damaged"
    path = _write_seal(tmp_path)
    (tmp_path / "x.sha256").write_text("")
    assert not is_intact(path)


def test_file_of_an_earlier_version_has_no_seal(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("x")
    assert is_intact(path, needs_seal=False) and not is_intact(path)
    _write_seal(tmp_path)
    path.write_text("other")
    assert not is_intact(path, needs_seal=False)


def test_what_killed_writers_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys\n"
        "from crossling.files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 1
    write_atomic(tmp_path / "b", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_what_living_writers_write_is_left_alone(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "from crossling.files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('whole')\n    print('writing', flush=True)\n    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"writing\n"
        with temporary_folder(tmp_path / "own"):
            files._cleaned.clear()
            write_atomic(tmp_path / "b", "whole")
            assert len(list(tmp_path.glob(".*.partial"))) == 2
        other.communicate()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
    assert (tmp_path / "a").read_text() == "whole"


def test_partial_files_of_other_machines_are_deleted_after_a_day(tmp_path: Path) -> None:
    now = time.time()
    for name, age in (("old", 2 * files.ABANDONED_SECONDS), ("young", 0), ("filled", 2 * files.ABANDONED_SECONDS)):
        folder = tmp_path / f".{name}.00000000-1-1-abcdef123456.partial"
        folder.mkdir()
        if name == "filled":
            (folder / "partial").touch()  # still written to
        os.utime(folder, (now - age, now - age))
    earlier = tmp_path / f".x.{'0' * 32}.partial"  # as earlier versions called them
    earlier.touch()
    os.utime(earlier, (now - 1e6, now - 1e6))
    write_atomic(tmp_path / "b", "whole")
    assert {path.name.split(".")[1] for path in tmp_path.glob(".*")} == {"young", "filled"}


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full (7,000 bytes are needed). Free some space"),
        (errno.EDQUOT, "the disk quota is used up (7,000 bytes are needed). Free some space"),
        (errno.EIO, "the disk reports an input/output error. Repair that"),
        (errno.EROFS, "the file system is read-only. Repair that"),
    ],
)
def test_failing_disk_is_a_message_with_file_and_remedy(number: int, message: str, tmp_path: Path) -> None:
    for error in (OSError(number, "x"), RuntimeError(f"while serializing: x (os error {number})")):
        with pytest.raises(StorageError) as caught, replacing(tmp_path / "a", needed=7_000):
            raise error
        assert str(caught.value).startswith(f"{tmp_path / 'a'}: {message}") and "again" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_room_that_is_left_is_named_where_it_is_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "x")
    facts = {"f_bavail": 3, "f_frsize": 100, "f_files": 9, "f_favail": 5}

    def show(needed: int, **changed: int) -> str | None:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**facts | changed))
        return files.describe_failure(full, tmp_path / "a", needed=needed)

    assert "full (500 bytes are needed, 300 bytes are free)." in (show(500) or "")
    assert "full (300 bytes are free)." in (show(0) or "")
    assert "full. " in (show(0, f_bavail=10**9) or "")
    assert "full (it can hold no more files, of any size)." in (show(0, f_bavail=10**9, f_favail=0) or "")


def test_full_disk_is_known_from_what_each_library_raises(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: another number, the same ways to raise it."""
    code = (
        "import pathlib, resource, signal, sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq, torch\n"
        "from safetensors.torch import save_file\n"
        "from crossling.errors import StorageError\n"
        "from crossling.files import replacing, reserve\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "values = np.random.default_rng(0).random(100_000)\n"
        "table = pa.table({'a': values})\n"
        "def stream(path):\n"
        "    with pa.OSFile(str(path), 'wb') as sink, pa.ipc.new_file(sink, table.schema) as writer:\n"
        "        writer.write_table(table)\n"
        "def allocate(path):\n"
        "    with path.open('wb') as file:\n        reserve(file, 100_000)\n"
        "def save(path):\n"
        "    with path.open('wb') as file:\n        np.save(file, values)\n"
        "ways = [lambda p: p.write_bytes(values), lambda p: pq.write_table(table, p), stream, allocate, save,\n"
        "        lambda p: save_file({'a': torch.from_numpy(values)}, p)]\n"
        "for number, way in enumerate(ways):\n"
        "    try:\n"
        "        with replacing(pathlib.Path(sys.argv[1]) / 'a') as partial:\n            way(partial)\n"
        "    except StorageError as error:\n        assert '/a: the ' in str(error)\n"
        "    else:\n        raise AssertionError(number)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_error_that_names_another_file_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="read from there") as caught, replacing(tmp_path / "a"):
        raise OSError(errno.EIO, "read from there", "/elsewhere/b")
    assert not isinstance(caught.value, StorageError)


def test_full_disk_is_one_message_not_one_for_every_set() -> None:
    problems = Problems()
    with pytest.raises(StorageError), problems.collect("stage.0"):
        raise StorageError("full")
    assert not problems


def test_reserved_file_has_its_room_at_once(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        reserve(file, 1 << 20)
    facts = (tmp_path / "a").stat()
    assert facts.st_size == 1 << 20 and 512 * facts.st_blocks >= 1 << 20


def test_folder_that_cannot_be_filled_is_absent(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        folder.mkdir()
        save_file({"a": torch.zeros(2)}, folder / "a")
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(StorageError, match="new: the disk is full"):
        write_folder(tmp_path / "new", fill)
    assert not list(tmp_path.iterdir())


def test_folder_whose_name_cannot_be_flushed_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = files.fsync

    def fail(path: Path) -> None:
        if path == tmp_path:
            raise OSError(errno.ENOSPC, "full")
        flush(path)

    monkeypatch.setattr(files, "fsync", fail)
    with pytest.raises(StorageError, match="new: the disk is full"):
        write_folder(tmp_path / "new", Path.mkdir)
    assert not list(tmp_path.iterdir())


def test_line_that_does_not_fit_is_an_error_and_damages_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_line(tmp_path / "log", {"a": 1})
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:4]))
    with pytest.raises(StorageError, match="log: the disk is full"):
        append_line(tmp_path / "log", {"b": 2})
    monkeypatch.undo()
    append_line(tmp_path / "log", {"c": 3})
    assert read_lines(tmp_path / "log") == [{"a": 1}, {"c": 3}]


def test_predictions_are_read_only_where_they_have_content(tmp_path: Path) -> None:
    path = _write_predictions(tmp_path)
    assert np.array_equal(read_predictions(path).column("gold"), [0])
    path.write_bytes(b"")
    with pytest.raises(Exception, match="there are no predictions"):
        read_predictions(path)


def test_mistakes_of_the_program_are_not_explained_away(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a mistake"), explain_failures(tmp_path / "a"):
        raise ValueError("a mistake")
