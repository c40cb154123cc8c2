"""Identity: equal content has an equal hash."""

from __future__ import annotations

from crossling.recipe.identity import canonical_json, content_hash


def test_hashes_depend_on_content_not_on_order() -> None:
    assert content_hash({"a": 1, "b": [2, "é"]}) == content_hash({"b": [2, "é"], "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})
    assert canonical_json({"b": 1, "a": "ü"}) == '{"a":"ü","b":1}'
