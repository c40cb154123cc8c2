"""Puts the folder of all tests on the path, for the helpers that tests of several parts share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
