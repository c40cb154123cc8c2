"""Two directions of links made into one: the source words of each target word, and the other way round."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numba import prange

from crossling.aligners.compiled import compiled, compiled_parallel
from crossling.aligners.corpus import Corpus
from crossling.aligners.links import Links
from crossling.data.ragged import IntArray, to_offsets
from crossling.errors import RecipeError, nearest

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
"""``intersection``: links that both directions have. ``union``: links of either. ``grow-diag``: from the intersection,
step by step, links of the union beside a link (diagonals too) whose source or target word has none yet.
``grow-diag-final``: then also those of either direction whose source or target word has none; ``-and``: whose source
and target word have none."""

WAYS: tuple[str, ...] = get_args(Symmetrization)

_FORWARD, _BACKWARD, _KEPT = 1, 2, 4


def symmetrize(
    forward: Links, backward: Links, corpus: Corpus, *, how: str = "grow-diag-final-and", left_to_right: bool = False
) -> Links:
    """Merge two sets of links, both as ``(source, target)``.

    ``forward`` has for every target word the source word that it comes from, ``backward`` for every source word its
    target word; the order matters to the final step, which takes the forward links first. ``left_to_right`` grows in
    the order of fast_align's atools, by the links that may be added; else by those that are there, as Moses does.
    """
    if how not in WAYS:
        raise RecipeError(f"unknown symmetrisation {how!r}.{nearest(how, WAYS)}")
    if not len(forward) == len(backward) == len(corpus):
        raise ValueError(f"{len(forward)} and {len(backward)} rows of links for {len(corpus)} sentence pairs")
    room = to_offsets(np.diff(forward.offsets) + np.diff(backward.offsets))
    pairs = np.empty((int(room[-1]), 2), np.int32)
    counts = np.zeros(len(corpus), np.int64)
    _merge_all(
        (forward.pairs, forward.offsets),
        (backward.pairs, backward.offsets),
        (corpus.source.tokens.lengths, corpus.target.tokens.lengths),
        (WAYS.index(how), left_to_right),
        (room, pairs),
        counts,
    )
    offsets = to_offsets(counts)
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    return Links(pairs[np.repeat(room[:-1], counts) + inside], offsets)


@compiled_parallel
def _merge_all(
    forward: tuple[IntArray, IntArray],
    backward: tuple[IntArray, IntArray],
    sizes: tuple[IntArray, IntArray],
    way: tuple[int, bool],
    out: tuple[IntArray, IntArray],
    counts: IntArray,
) -> None:
    room, pairs = out
    for row in prange(len(counts)):
        counts[row] = _merge(
            forward[0][forward[1][row] : forward[1][row + 1]],
            backward[0][backward[1][row] : backward[1][row + 1]],
            np.zeros((sizes[0][row], sizes[1][row]), np.uint8),
            way,
            pairs[room[row] : room[row + 1]],
        )


@compiled
def _merge(forward: IntArray, backward: IntArray, grid: IntArray, way: tuple[int, bool], pairs: IntArray) -> int:
    _mark(grid, forward, _FORWARD)
    _mark(grid, backward, _BACKWARD)
    _choose(grid, way[0], way[1])
    return _write(grid, pairs)


@compiled
def _write(grid: IntArray, pairs: IntArray) -> int:
    count = 0
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            if grid[i, j] & _KEPT:
                pairs[count, 0] = i
                pairs[count, 1] = j
                count += 1
    return count


@compiled
def _mark(grid: IntArray, links: IntArray, mark: int) -> None:
    for number in range(len(links)):
        grid[links[number, 0], links[number, 1]] |= mark


@compiled
def _choose(grid: IntArray, way: int, left_to_right: bool) -> None:
    """Set the mark of every link that is kept."""
    both = _FORWARD | _BACKWARD
    source_done = np.zeros(grid.shape[0], np.bool_)
    target_done = np.zeros(grid.shape[1], np.bool_)
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            if grid[i, j] == both or (way == 1 and grid[i, j]):
                grid[i, j] |= _KEPT
                source_done[i] = target_done[j] = True
    if way >= 2 and left_to_right:
        _grow_left_to_right(grid, source_done, target_done)
    elif way >= 2:
        _grow(grid, source_done, target_done)
    if way >= 3:
        _finish(grid, _FORWARD, way == 4, source_done, target_done)
        _finish(grid, _BACKWARD, way == 4, source_done, target_done)


@compiled
def _grow(grid: IntArray, source_done: IntArray, target_done: IntArray) -> None:
    """Add neighbours of kept links until a whole round adds none."""
    growing = True
    while growing:
        growing = False
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                if not grid[i, j] & _KEPT:
                    continue
                # Straight neighbours come before diagonal ones: the first to be added may shut out the others.
                for down, right in ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)):
                    a, b = i + down, j + right
                    if not (0 <= a < grid.shape[0] and 0 <= b < grid.shape[1]):
                        continue
                    if grid[a, b] and not grid[a, b] & _KEPT and not (source_done[a] and target_done[b]):
                        grid[a, b] |= _KEPT
                        source_done[a] = target_done[b] = True
                        growing = True


@compiled
def _grow_left_to_right(grid: IntArray, source_done: IntArray, target_done: IntArray) -> None:
    """Add links of either direction beside a kept one, in the order of their words, until a round adds none."""
    growing = True
    while growing:
        growing = False
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                if not grid[i, j] or grid[i, j] & _KEPT or (source_done[i] and target_done[j]):
                    continue
                beside = False
                for a in range(max(0, i - 1), min(grid.shape[0], i + 2)):
                    for b in range(max(0, j - 1), min(grid.shape[1], j + 2)):
                        beside = beside or bool(grid[a, b] & _KEPT)
                if beside:
                    grid[i, j] |= _KEPT
                    source_done[i] = target_done[j] = True
                    growing = True


@compiled
def _finish(grid: IntArray, mark: int, strict: bool, source_done: IntArray, target_done: IntArray) -> None:
    """Add links of one direction whose words, or one of whose words, have none yet."""
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            if not grid[i, j] & mark or grid[i, j] & _KEPT:
                continue
            taken = (source_done[i] or target_done[j]) if strict else (source_done[i] and target_done[j])
            if not taken:
                grid[i, j] |= _KEPT
                source_done[i] = target_done[j] = True
