"""Credentials in addresses: masked wherever an address is shown or stored; addresses without any are as they were."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from crossling.addresses import mask_credentials
from crossling.cli.main import main
from crossling.errors import ArtefactError, StorageError
from crossling.store import archive as archive_module
from crossling.store.artefacts import Store, find_store
from small_study import write_study

SECRET = "hunter2/Zx+9"
ADDRESS = f"safe://key:{SECRET}@bucket/models"
SHOWN = "safe://***@bucket/models"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://AKIA:abc/def+gh@bucket/x@y", "s3://***@bucket/x@y"),
        ("s3://key:secret@bucket", "s3://***@bucket"),
        ("https://user:p@ss@host:8080/a?b=1", "https://***@host:8080/a?b=1"),
        ("https://ghp_token@host/x", "https://***@host/x"),
        ("https://host/x?token=abc&part=1&X-Amz-Signature=12ff", "https://host/x?token=***&part=1&X-Amz-Signature=***"),
        ("https://host/x?sv=1&sig=a%2Bb#end", "https://host/x?sv=1&sig=***#end"),
        ("simplecache::s3://key:secret@bucket/x", "simplecache::s3://***@bucket/x"),
        ("a 's3://k:s@b/x', then \"https://u:p@h/y\"", "a 's3://***@b/x', then \"https://***@h/y\""),
        (str(Path("https://user:pass@host/x")), "https:/***@host/x"),
        ("--store=sftp://me:pw@host/x --out y", "--store=sftp://***@host/x --out y"),
    ],
)
def test_credentials_are_masked(address: str, shown: str) -> None:
    assert mask_credentials(address) == shown
    assert mask_credentials(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/models",
        "gs://bucket/a@b",
        "https://host:8080/a@b",
        "abfs://container@account.dfs.core.windows.net/x",
        "sftp://me@host/x",
        "github://org:repo@main/x",
        "file:///home/me@work/store",
        "memory://x",
        "https://host/x?page=2&part=a",
        "/home/a:b@c/store",
        "me:pw@host without a scheme",
    ],
)
def test_addresses_without_credentials_are_as_they_were(text: str) -> None:
    assert mask_credentials(text) == text


class SafeFiles(LocalFileSystem):  # type: ignore[misc]
    """An address that needs credentials and leads to a local folder."""

    protocol = "safe"
    root = Path()
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        text = str(path)
        if not text.startswith("safe://"):
            return text
        if f"key:{SECRET}@" not in text:
            raise PermissionError(f"not allowed: {text}")
        return str(cls.root / text.rpartition("@")[2])


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder behind the address."""
    fsspec.register_implementation("safe", SafeFiles, clobber=True)
    monkeypatch.setattr(SafeFiles, "root", tmp_path / "remote")
    monkeypatch.setattr(archive_module, "PAUSES", ())
    monkeypatch.setenv("CROSSLING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return tmp_path


def _find_secret(folder: Path) -> list[str]:
    """Names and contents of files that have the secret, or a part of it."""
    parts = ("hunter2", "Zx+9", "Zx-9")
    found = [str(path) for path in folder.rglob("*") if any(part in str(path) for part in parts)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return found + [str(path) for path in files if any(part.encode() in path.read_bytes() for part in parts)]


def test_mirror_does_not_hold_credentials_and_workers_still_reach_the_store(place: Path) -> None:
    mirror = find_store(ADDRESS)
    assert (mirror / "address").read_text() == SHOWN and not _find_secret(place / "cache")
    archive = Store(mirror).archive
    assert archive is not None and archive.address == ADDRESS and archive.shown == SHOWN
    assert "hunter2" not in repr(archive)
    assert not Store(mirror).is_complete("a")
    assert find_store(ADDRESS.replace(SECRET, SECRET)) == find_store(f"{ADDRESS}/") == mirror


def test_mirror_of_an_address_without_credentials_keeps_its_name(place: Path) -> None:
    assert find_store("memory://bucket/x").name == "bucket-x-655ffbe6b773"


def test_store_whose_credentials_are_not_known_says_so(place: Path) -> None:
    mirror = find_store(ADDRESS)
    for name in [name for name in os.environ if name.startswith("CROSSLING_STORE")]:
        del os.environ[name]
    with pytest.raises((ArtefactError, PermissionError)) as caught:
        Store(mirror).is_complete("a")
    assert "hunter2" not in str(caught.value)
    os.environ["CROSSLING_STORE"] = f"{ADDRESS}/"
    assert not Store(mirror).is_complete("a")


def test_errors_of_an_address_have_no_credentials(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Store(find_store(ADDRESS)).archive
    assert archive is not None

    def fail(error: Exception) -> None:
        def ls(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(SafeFiles, "ls", ls)

    fail(RuntimeError(f"403 for {ADDRESS}?token=hunter2"))
    with pytest.raises(ArtefactError, match=r"safe://\*\*\*@bucket.*403 for safe://\*\*\*@") as caught:
        archive.is_complete("a")
    assert "hunter2" not in str(caught.value)
    fail(OSError(errno.ENOSPC, "full", ADDRESS))
    with pytest.raises(StorageError, match=r"safe://\*\*\*@bucket/models: the disk is full"):
        archive.is_complete("a")


def test_run_leaves_no_credentials_in_any_file_or_message(
    place: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(place / "in", tiny_folder)

    def crossling(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["crossling", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    out = place / "out"
    assert crossling("run", place / "in" / "ner.toml", "--out", out, "--store", ADDRESS) == 0
    assert "safe://***@bucket" in json.loads((out / "run.json").read_text())["command"]
    assert list((place / "remote").rglob("complete/*.json")), "the model is at the address"
    assert crossling("run", place / "in" / "ner.toml", "--store", "https://me:hunter2@host/x") == 2
    assert crossling("predict", "https://me:hunter2@host/x") == 2
    assert crossling("run", place / "in" / "ner.toml", "--set", "encoder.name=https://me:hunter2@host/x") == 2
    shown = capsys.readouterr()
    assert "hunter2" not in shown.out + shown.err
    assert not _find_secret(place)
