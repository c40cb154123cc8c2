"""Identity: equal content has an equal hash, so that equal work is done once."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON that is equal for equal content: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any) -> str:
    """A short stable hash of a JSON value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:20]
