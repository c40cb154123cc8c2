"""What adaptation and pseudo-perplexity share: held-out text, a head for a frozen encoder, how well it score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossling.data.batching import Array, Batch, Examples, ExampleSubset, plan_prediction
from crossling.data.draws import draw_uniform
from crossling.encoders.encoder import Encoder
from crossling.encoders.unlabelled import TextExamples
from crossling.models.model import MASKED_WORDS, Model
from crossling.objectives.masked_words import MaskingSettings, Objective
from crossling.progress import Progress
from crossling.training.checkpoint import Position
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit, predict_examples
from crossling.training.mixture import Stream
from crossling.training.settings import HeadSettings

NAME = MASKED_WORDS
"""The head's name among a model's."""
HELD_OUT_SEED = 0
"""Held-out texts and their masks are the same for every seed, so that runs can be compared."""
SCORES = 2**26
"""Numbers in a batch of subword scores at most: 256 MB."""


@dataclass(frozen=True)
class MaskedScore:
    """How well masked subwords are predicted."""

    right: int = 0
    loss: float = 0.0
    """The sum over all of them."""
    count: int = 0

    def add(self, right: Array, loss: Array) -> MaskedScore:
        """With those of another batch."""
        total = self.loss + float(loss.sum(dtype=np.float64))
        return MaskedScore(self.right + int(right.sum()), total, self.count + len(right))

    def describe(self) -> dict[str, float]:
        """For a record: accuracy, mean loss, how many."""
        count = max(self.count, 1)
        return {"accuracy": round(self.right / count, 6), "loss": round(self.loss / count, 6), "masked": self.count}


def hold_out(texts: TextExamples, share: float) -> tuple[Examples, Examples]:
    """Texts to learn from, and a share of every language's that are not: at least one, if there are two."""
    examples = texts.examples
    codes, rows = examples.scalars("language"), np.arange(len(examples))
    chance = draw_uniform(HELD_OUT_SEED, 0, 3, rows, 1)[:, 0]
    held = [np.zeros(0, np.int64)]
    for code in np.unique(codes) if share else ():
        own = rows[codes == code]
        count = min(max(1, round(share * len(own))), len(own) - 1)
        held.append(own[np.argsort(chance[own], kind="stable")][:count])
    chosen = np.sort(np.concatenate(held))
    return ExampleSubset(examples, np.setdiff1d(rows, chosen)), ExampleSubset(examples, chosen)


def repeat_rows(codes: Array, temperature: float, seed: int) -> Array:
    """Rows in which each language's share is as its size to the power of 1 / temperature.

    The largest language's texts are there once, those of others as often as it takes: none is left out.
    """
    rows = np.arange(len(codes))
    sizes = {int(code): int((codes == code).sum()) for code in np.unique(codes)}
    chance = draw_uniform(seed, 0, 4, rows, 1)[:, 0]
    parts = []
    for code, size in sizes.items():
        own = rows[codes == code]
        times = (max(sizes.values()) / size) ** (1 - 1 / temperature)
        whole, rest = divmod(round(times * size), size)
        parts += [own] * whole + [own[np.argsort(chance[own], kind="stable")][:rest]]
    return np.concatenate(parts)


def count_words(texts: Examples, encoder: Encoder) -> Array:
    """How often each subword of the vocabulary can be predicted."""
    counts = np.zeros(encoder.vocabulary, np.int64)
    for row in range(len(texts)):
        np.add.at(counts, texts.get("ids", row), 1)
    counts[encoder.tokenizer.all_special_ids] = 0
    return counts


def train_head(
    model: Model, objective: Objective, texts: Examples, settings: HeadSettings, execution: Execution
) -> Position:
    """Train the head alone; no bit of the encoder changes."""
    parameters = [p for part in (model.encoder, model.fusion) for p in part.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        return fit(model, Stream(objective, texts), settings, execution)
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def score_masked_words(
    model: Model, objective: Objective, texts: Examples, *, distributed: Distributed, progress: Progress
) -> dict[int, MaskedScore]:
    """How well held-out texts' masked subwords are predicted, by language; the masks are always the same."""
    fixed = Objective(objective.name, objective.settings, model.encoder, seed=HELD_OUT_SEED, to_rows=objective.to_rows)
    rows = len(model.encoder.model.get_input_embeddings().weight)
    codes = texts.scalars("language")
    found: dict[int, MaskedScore] = {}
    progress.begin("predicting held-out words", len(texts))
    plan = _plan(texts.lengths, objective.settings, rows)
    for batch, arrays in predict_examples(model, fixed, texts, distributed=distributed, plan=plan, progress=progress):
        real = arrays["text"] >= 0
        own = codes[batch.rows[arrays["text"][real]]]
        for code in np.unique(own):
            right, loss = (arrays[name][real][own == code] for name in ("right", "loss"))
            found[int(code)] = found.get(int(code), MaskedScore()).add(right, loss)
    progress.end()
    return found


def _plan(lengths: Array, settings: MaskingSettings, rows: int) -> list[Batch]:
    """Batches whose scores of all subwords at all masked places fit into memory."""
    longest = int(lengths.max(initial=1))
    return plan_prediction(lengths, max(1, SCORES // (rows * settings.count_at_most(longest))))


def describe_scores(found: dict[int, MaskedScore], languages: Sequence[str]) -> dict[str, Any]:
    """For a record: all languages together, and each."""
    values = found.values()
    whole = MaskedScore(sum(g.right for g in values), sum(g.loss for g in values), sum(g.count for g in values))
    by_language = {languages[code]: score.describe() for code, score in sorted(found.items())}
    return {**whole.describe(), "languages": by_language}
