"""From logits to predictions, for arrays of torch and of numpy: every engine that runs a model shares these lines.

Nothing here imports torch. What both libraries have under one name is called by that name. B rows, S subwords.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def library_of(array: Any) -> Any:
    """The library that an array belongs to: numpy, or torch, which is imported already where its tensors come from."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def top_class(logits: Any) -> tuple[Any, Any]:
    """The best class and its probability."""
    if isinstance(logits, np.ndarray):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        return logits.argmax(axis=-1), 1 / np.exp(shifted).sum(axis=-1)
    confidence, best = library_of(logits).softmax(logits.float(), dim=-1).max(dim=-1)
    return best, confidence


def softmax(logits: Any) -> Any:
    """The probabilities of all classes."""
    if isinstance(logits, np.ndarray):
        raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return raised / raised.sum(axis=-1, keepdims=True)
    return library_of(logits).softmax(logits.float(), dim=-1)


def log_softmax(logits_BS: Any) -> Any:
    """Logarithms of probabilities over the positions of each row."""
    if isinstance(logits_BS, np.ndarray):
        shifted = logits_BS - logits_BS.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return library_of(logits_BS).log_softmax(logits_BS, dim=-1)


def best_span(
    first_BS: Any, last_BS: Any, context_BS: Any, *, longest: int, nowhere: Any | None = None
) -> dict[str, Any]:
    """The best span within the context of each row, and by how much it beats having no answer there.

    ``first_BS`` and ``last_BS`` are the scores of being its first and last subword; the position ``nowhere`` of each
    row, 0 by default, stands for no answer.
    """
    library = library_of(first_BS)
    first_BS, last_BS = log_softmax(first_BS), log_softmax(last_BS)
    if nowhere is None:
        null_B = first_BS[:, 0] + last_BS[:, 0]
    else:
        row_B = library.arange(len(nowhere))
        null_B = first_BS[row_B, nowhere] + last_BS[row_B, nowhere]
    first_BS, last_BS = (library.where(context_BS == 0, -float("inf"), scores) for scores in (first_BS, last_BS))
    # Spans (i, i + k) for every k below the longest, without an S x S table.
    length = first_BS.shape[1]
    best_B = library.full_like(null_B, -float("inf"))
    start_B = library.zeros_like(library.argmax(first_BS, axis=1))
    end_B = start_B
    for extra in range(min(longest, length)):
        scores = first_BS[:, : length - extra] + last_BS[:, extra:]
        place_B, score_B = library.argmax(scores, axis=1), library.amax(scores, axis=1)
        better_B = score_B > best_B
        best_B = library.where(better_B, score_B, best_B)
        start_B = library.where(better_B, place_B, start_B)
        end_B = library.where(better_B, place_B + extra, end_B)
    return {"start": start_B, "end": end_B, "score": best_B - null_B, "confidence": library.exp(best_B)}
