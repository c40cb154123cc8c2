"""The cache of loaded encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.encoders import cache
from crossling.encoders.cache import EncoderCache
from crossling.recipe.recipe import EncoderSettings
from tiny import save_tiny


@pytest.mark.parametrize(("settings", "loads"), [({}, 3), ({"hand_over": True}, 2), ({"keep": True}, 1)])
def test_encoder_that_was_identified_is_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, bool], loads: int
) -> None:
    folder, loaded = save_tiny(tmp_path / "encoder"), []
    load_encoder = cache.load_encoder

    def load(*arguments: Any, **more: Any) -> Any:
        loaded.append(load_encoder(*arguments, **more))
        return loaded[-1]

    monkeypatch.setattr(cache, "load_encoder", load)
    encoders = EncoderCache(**settings)
    identity = encoders.identify(EncoderSettings(name=str(folder)))
    first, second = encoders.load(str(folder)), encoders.load(str(folder))
    assert first is not second and first.identity == second.identity == identity
    assert len(loaded) == loads


def test_encoder_that_is_handed_over_is_not_held_beside_another(tmp_path: Path) -> None:
    one, other = (str(save_tiny(tmp_path / name)) for name in ("one", "other"))
    encoders = EncoderCache(hand_over=True)
    encoders.identify(EncoderSettings(name=one))
    encoders.load(other)
    assert encoders._unused is None
