"""The cache of loaded encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.encoders import cache
from crossling.encoders.cache import EncoderCache
from crossling.encoders.loading import hash_folder
from crossling.recipe.recipe import EncoderSettings
from tiny import save_tiny


@pytest.mark.parametrize(("keep", "loads"), [(False, 3), (True, 1)])
def test_encoder_that_is_kept_is_loaded_once_and_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool, loads: int
) -> None:
    folder, loaded = save_tiny(tmp_path / "encoder"), []
    load_encoder = cache.load_encoder

    def load(*arguments: Any, **more: Any) -> Any:
        loaded.append(load_encoder(*arguments, **more))
        return loaded[-1]

    monkeypatch.setattr(cache, "load_encoder", load)
    encoders = EncoderCache(keep=keep)
    identity = encoders.identify(EncoderSettings(name=str(folder)))
    first = encoders.load(str(folder))
    with torch.no_grad():
        for weight in first.parameters():
            weight.fill_(1.0)
    second = encoders.load_last(str(folder))
    assert first is not second and first.identity == second.identity == identity == hash_folder(folder)
    assert not any((weight == 1).all() for weight in second.parameters() if weight.ndim > 1)
    assert len(loaded) == loads


def test_encoder_is_not_kept_beside_another_nor_after_its_last_use(tmp_path: Path) -> None:
    one, other = (str(save_tiny(tmp_path / name)) for name in ("one", "other"))
    encoders = EncoderCache(keep=True)
    encoders.identify(EncoderSettings(name=one))
    encoders.load(other)
    assert encoders._kept is not None and encoders._kept[0][0] == other
    kept = encoders._kept[1]
    assert encoders.load_last(other) is kept and encoders._kept is None
