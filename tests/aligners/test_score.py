"""Scores worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.aligners.links import build_links
from crossling.aligners.score import read_gold, score_links
from crossling.errors import DataError


def gold_file(folder: Path, text: str) -> Path:
    (folder / "gold").write_text(text)
    return folder / "gold"


def test_scores_match_hand_example(tmp_path: Path) -> None:
    gold = read_gold(gold_file(tmp_path, "1-1 2-2 2p3\n1-2\n"))
    assert gold.base == 1
    # Proposed 4: (0,0) sure, (1,2) possible, (1,0) wrong; and (0,1) sure. Sure are 3, of which (1,1) is missed.
    score = score_links(build_links([[(0, 0), (1, 2), (1, 0)], [(0, 1)]]), gold)
    assert (score.proposed, score.sure, score.right, score.found) == (4, 3, 3, 2)
    assert score.precision == pytest.approx(3 / 4)
    assert score.recall == pytest.approx(2 / 3)
    assert score.f1 == pytest.approx(12 / 17)
    assert score.aer == pytest.approx(1 - (2 + 3) / (4 + 3))


def test_gold_links_score_perfectly(tmp_path: Path) -> None:
    gold = read_gold(gold_file(tmp_path, "1-1 2p2\n\n"))
    assert score_links(build_links([[(0, 0)], []]), gold).aer == 0
    assert score_links(build_links([[(0, 0), (1, 1)], []]), gold).aer == 0
    nothing = score_links(build_links([[], []]), gold)
    assert (nothing.precision, nothing.recall, nothing.f1, nothing.aer) == (1, 0, 0, 1)


def test_base_is_detected(tmp_path: Path) -> None:
    assert read_gold(gold_file(tmp_path, "1-1\n2-2\n")).sure == ({(0, 0)}, {(1, 1)})
    assert read_gold(gold_file(tmp_path, "1-1\n0-2\n")).sure == ({(1, 1)}, {(0, 2)})
    assert read_gold(gold_file(tmp_path, "1-1\n2-2\n"), base=0).sure == ({(1, 1)}, {(2, 2)})
    with pytest.raises(DataError, match="gold:2: a link names word 0"):
        read_gold(gold_file(tmp_path, "1-1\n0-2\n"), base=1)


def test_wrong_gold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gold:2: '1=1' is no link such as 3-4"):
        read_gold(gold_file(tmp_path, "1-1\n1=1\n"))
    with pytest.raises(DataError, match="1 lines of links, but 2 lines of gold"):
        score_links(build_links([[]]), read_gold(gold_file(tmp_path, "1-1\n1-1\n")))
