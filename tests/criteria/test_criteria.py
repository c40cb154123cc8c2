"""Every criterion fulfils the protocol of its family."""

from __future__ import annotations

import inspect

import pytest

from crossling.criteria import Criterion, load_criterion
from crossling.registry import list_kinds


@pytest.mark.parametrize("kind", list_kinds("criteria"))
def test_criterion_names_its_labels_and_scores_cells(kind: str) -> None:
    criterion = load_criterion(kind)
    assert "label" in criterion.LABELS
    wanted = list(inspect.signature(Criterion.score).parameters)[1:]
    assert list(inspect.signature(criterion.score).parameters) == wanted
