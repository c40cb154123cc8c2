"""Artefacts of a store: what is read again, and what is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.store import artefacts
from crossling.store.artefacts import DamagedError, Store


def publish(store: Store, text: str) -> None:
    folder = store.work("one") / "model"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text, encoding="utf-8")
    store.publish("one", folder, {"machine": text})


def test_artefact_that_this_process_published_is_not_read_for_its_digest_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read = Store(tmp_path), []

    def hash_file(path: Path) -> str:
        read.append(path.name)
        return "digest"

    monkeypatch.setattr(artefacts, "hash_file", hash_file)
    publish(store, "mine")
    assert (store.fetch("one") / "weights").read_text(encoding="utf-8") == "mine"
    assert read == ["weights"]
    Store(tmp_path).fetch("one")
    assert read == ["weights", "weights"], "another process reads it"


def test_artefact_that_another_process_published_first_is_verified(tmp_path: Path) -> None:
    first, second = Store(tmp_path), Store(tmp_path)
    publish(first, "first")
    publish(second, "second")
    assert second.record("one")["machine"] == "first"
    (second.artefact("one") / "weights").write_text("damaged", encoding="utf-8")
    with pytest.raises(DamagedError, match="weights: is damaged"):
        second.fetch("one")
