"""The one table type: every form of it shows the same cells."""

from __future__ import annotations

import json

from crossling.report.table import Table

TABLE = Table(
    "A | title", ("task", "system", "score"), (("", "a_b", "1.5 ± 0.1 ▲"), ("", "<c>", "–")), 2, ("A note.",), "t"
)


def test_json_reads_back_equal() -> None:
    assert Table.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE
