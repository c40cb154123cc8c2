"""Two directions made into one, on cases worked out by hand and by the definitions on random ones."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from crossling.aligners.corpus import build_corpus
from crossling.aligners.links import build_links
from crossling.aligners.symmetrize import WAYS, symmetrize
from crossling.errors import RecipeError

Grid = set[tuple[int, int]]


def merge(forward: Grid, backward: Grid, how: str, sizes: tuple[int, int]) -> Grid:
    corpus = build_corpus([(["a"] * sizes[0], ["b"] * sizes[1])])
    return set(symmetrize(build_links([forward]), build_links([backward]), corpus, how=how)[0])


FORWARD = {(0, 0), (1, 1), (1, 2), (4, 4), (2, 3)}
BACKWARD = {(0, 0), (1, 1), (2, 2), (3, 4), (4, 0)}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("intersection", {(0, 0), (1, 1)}),
        ("union", FORWARD | BACKWARD),
        # (1, 2) is beside (1, 1) and target word 2 is free; then (2, 2) is beside it and source word 2 is free; then
        # (2, 3), whose target word is free, and (3, 4) beside that, which leaves (4, 4) a free source word.
        ("grow-diag", {(0, 0), (1, 1), (1, 2), (2, 2), (2, 3), (3, 4), (4, 4)}),
        ("grow-diag-final", {(0, 0), (1, 1), (1, 2), (2, 2), (2, 3), (3, 4), (4, 4)}),
        ("grow-diag-final-and", {(0, 0), (1, 1), (1, 2), (2, 2), (2, 3), (3, 4), (4, 4)}),
    ],
)
def test_symmetrizations_match_hand_example(how: str, expected: Grid) -> None:
    assert merge(FORWARD, BACKWARD, how, (5, 5)) == expected


def test_final_adds_isolated_links() -> None:
    # (3, 0) shares its target word with (0, 0), and its source word is free; of (2, 3) both words are free.
    forward, backward = {(0, 0), (2, 3)}, {(0, 0), (3, 0)}
    assert merge(forward, backward, "grow-diag", (4, 4)) == {(0, 0)}
    assert merge(forward, backward, "grow-diag-final-and", (4, 4)) == {(0, 0), (2, 3)}
    assert merge(forward, backward, "grow-diag-final", (4, 4)) == {(0, 0), (2, 3), (3, 0)}


def test_final_takes_forward_links_first() -> None:
    # Once one of them is in, the other has no free word left.
    assert merge({(0, 1)}, {(0, 0)}, "grow-diag-final-and", (1, 2)) == {(0, 1)}
    assert merge({(0, 0)}, {(0, 1)}, "grow-diag-final-and", (1, 2)) == {(0, 0)}


@pytest.mark.parametrize("seed", range(5))
def test_symmetrizations_are_nested(seed: int) -> None:
    dice = random.Random(seed)
    sizes = 7, 9
    forward = {(dice.randrange(7), j) for j in range(9)}
    backward = {(i, dice.randrange(9)) for i in range(7)}
    found = {how: merge(forward, backward, how, sizes) for how in WAYS}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    chain = ["intersection", "grow-diag", "grow-diag-final-and", "grow-diag-final", "union"]
    for less, more in pairwise(chain):
        assert found[less] <= found[more]


def test_pairs_are_symmetrized_independently() -> None:
    rows = [[(0, 0)], [], [(0, 1), (1, 0)]]
    corpus = build_corpus([(["a"] * 2, ["b"] * 2)] * 3)
    assert list(symmetrize(build_links(rows), build_links(rows), corpus, how="intersection")) == rows


def test_unknown_symmetrization_is_refused() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'grow-diag-final-and'"):
        merge(set(), set(), "grow-diag-final-an", (1, 1))


def grow_by_definition(forward: Grid, backward: Grid) -> Grid:
    """grow-diag-final-and as atools does it: whoever may be added, by source and target word, in rounds."""
    kept = forward & backward
    growing = True
    while growing:
        growing = False
        for link in sorted((forward | backward) - kept):
            sources, targets = ({pair[side] for pair in kept} for side in (0, 1))
            beside = any(max(abs(link[0] - i), abs(link[1] - j)) == 1 for i, j in kept)
            if beside and not (link[0] in sources and link[1] in targets):
                kept = kept | {link}
                growing = True
    for link in [*sorted(forward), *sorted(backward)]:
        if link[0] not in {i for i, _ in kept} and link[1] not in {j for _, j in kept}:
            kept = kept | {link}
    return kept


def test_growing_from_left_to_right_equals_its_definition() -> None:
    differs = 0
    for seed in range(40):
        dice = random.Random(seed)
        forward = {(dice.randrange(7), j) for j in range(8)}
        backward = {(i, dice.randrange(8)) for i in range(7)} | set(dice.sample(sorted(forward), 3))
        corpus = build_corpus([(["a"] * 7, ["b"] * 8)])
        both = build_links([forward]), build_links([backward])
        found = set(symmetrize(*both, corpus, left_to_right=True)[0])
        assert found == grow_by_definition(forward, backward)
        differs += found != set(symmetrize(*both, corpus)[0])
    assert differs, "the order of growing matters"
