"""What training did to the word vectors of the source language: how far they moved, shrank or turned.

N words, B sentences, W words of a sentence, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.data.batching import Array, Batch, Examples, ExampleSubset, plan_prediction
from crossling.errors import UserError
from crossling.progress import NoProgress

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import Arrays
    from crossling.objectives.aligned_words import Objective
    from crossling.training.distributed import Distributed

SENTENCES = 256
"""Source sentences that are measured at most, from all over the examples."""


@dataclass(frozen=True)
class SourceVectors:
    """The words of some source sentences, without dropout."""

    vectors: Array
    """N x D."""
    sentences: Array
    """The sentence of each word."""

    def center(self) -> Array:
        """Vectors less the mean of all."""
        return np.asarray(self.vectors - self.vectors.mean(0))

    def variance(self) -> float:
        """The mean squared distance from the mean of all."""
        return float(np.square(self.center()).sum() / len(self.vectors))

    def center_within(self) -> Array:
        """Vectors less the mean of their sentence."""
        _, place_N, count_B = np.unique(self.sentences, return_inverse=True, return_counts=True)
        sums_BD = np.zeros((len(count_B), self.vectors.shape[1]))
        np.add.at(sums_BD, place_N, self.vectors)
        return np.asarray(self.vectors - (sums_BD / count_B[:, None])[place_N])


@dataclass(frozen=True)
class _SourceReader:
    """Reads the vectors that an objective compares, of its source sentences."""

    objective: Objective
    encoder: Encoder

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        return self.objective.collate(examples, plan, size=size)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        from crossling.objectives.aligned_words import find_words

        size = len(batch["links"])
        source = {name: values[:size] for name, values in batch.items() if name != "links"}
        words_BWD = self.objective.encode(self.encoder, source).words
        return {"words": words_BWD, "real": find_words(source["words"], words_BWD.shape[1])}


def read_source(
    model: Model, objective: Objective, examples: Examples, distributed: Distributed, *, encoder: Encoder | None = None
) -> SourceVectors:
    """The words of some of an objective's source sentences, by the model's encoder or another with its vocabulary."""
    import torch

    from crossling.training.loop import predict_examples

    rows = np.unique(np.linspace(0, len(examples) - 1, min(SENTENCES, len(examples))).round().astype(np.int64))
    chosen = ExampleSubset(examples, rows)
    outputs = predict_examples(
        model.to(distributed.device),
        _SourceReader(objective, encoder if encoder is not None else model.encoder),
        chosen,
        distributed=replace(distributed, precision=torch.float32),
        plan=plan_prediction(chosen.lengths, 32),
        progress=NoProgress(),
    )
    vectors, sentences = [], []
    for batch, arrays in outputs:
        vectors.append(arrays["words"][arrays["real"]].astype(np.float64))
        sentences.append(np.repeat(batch.rows, arrays["real"].sum(1)))
    return SourceVectors(np.concatenate(vectors), np.concatenate(sentences))


def compare_source(before: SourceVectors, after: SourceVectors) -> dict[str, Any]:
    """Drift, shrinkage and correlation, for JSON; none where the words have no variance.

    With V the variance of vectors before, s the square root of ``variance`` and r the correlation,
    ``drift ** 2 = |mean after - mean before| ** 2 / V + 1 + s ** 2 - 2 * r * s``: vectors that shrink alone have drift
    1 - s about their mean, and correlation 1.
    """
    then_ND, now_ND = before.center(), after.center()
    moved = float(np.square(after.vectors - before.vectors).sum())
    squares = float(np.square(then_ND).sum()), float(np.square(now_ND).sum())
    within = [float(np.square(one.center_within()).sum()) for one in (before, after)]
    product = float((then_ND * now_ND).sum())
    return {
        "sentences": len(np.unique(before.sentences)),
        "words": len(before.vectors),
        "drift": _divide(moved**0.5, squares[0] ** 0.5),
        "variance": _divide(squares[1], squares[0]),
        "variance_within": _divide(within[1], within[0]),
        "correlation": _divide(product, (squares[0] * squares[1]) ** 0.5),
    }


def _divide(value: float, by: float) -> float | None:
    return round(value / by, 6) if by > 0 else None


def describe_change(facts: dict[str, Any], source: str) -> str:
    """What :func:`compare_source` found, as a line."""
    shown = {name: "–" if facts[name] is None else f"{facts[name]:.2f}" for name in ("drift", "correlation")}
    ratios = ["–" if facts[n] is None else f"{facts[n]:.2f} times" for n in ("variance", "variance_within")]
    return (
        f"{facts['words']:,} words of {source}, compared with before: drift {shown['drift']} standard deviations, "
        f"variance {ratios[0]} ({ratios[1]} within sentences), correlation {shown['correlation']}"
    )


def scale_source(
    encoder: Encoder, vectors: SourceVectors, read: Callable[[], SourceVectors], *, variance: float
) -> SourceVectors:
    """Let an encoder, which gives these vectors now, give them this variance about the same mean; gives the new ones.

    An encoder ends with a normalisation, ``weight * x + bias``, which can do so exactly.
    """
    import torch
    from torch import nn

    norm = next((one for one in reversed(list(encoder.model.modules())) if isinstance(one, nn.LayerNorm)), None)
    if norm is None or norm.bias is None or not vectors.variance():
        raise UserError(f"{encoder.name}: its last layer has no scale and bias, or words no variance; set keep = 'all'")
    factor, mean_D = (variance / vectors.variance()) ** 0.5, vectors.vectors.mean(0)
    with torch.no_grad():
        norm.weight.mul_(factor)
        norm.bias.mul_(factor).add_(torch.from_numpy(mean_D).to(norm.bias), alpha=1 - factor)
    found, expected_ND = read(), mean_D + factor * vectors.center()
    if np.abs(found.vectors - expected_ND).max() > 1e-3 * max(1.0, float(np.abs(expected_ND).max())):
        raise UserError(f"{encoder.name}: its last normalisation does not scale its last layer; set keep = 'all'")
    return found
