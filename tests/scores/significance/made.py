"""Made-up predictions of every kind, random but repeatable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crossling.scores.predictions import Predictions
from crossling.scores.significance import Comparison, Result
from crossling.scores.significance.counts import align, find_measure

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
Sentences = list[Any]
Cells = dict[tuple[str, str], list[Predictions]]
UPOS = ("NOUN", "VERB", "ADJ", "CCONJ", "SCONJ", "PUNCT")


def make_gold(seed: int, rows: int, *, labels: int = 5, longest: int = 6) -> list[np.ndarray[Any, Any]]:
    """Gold codes of sentences of 0 to `longest` words."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, labels, rng.integers(0, longest + 1)) for _ in range(rows)]


def make_predicted(gold: Sequence[np.ndarray[Any, Any]], *, wrong: float, seed: int, labels: int = 5) -> list[Any]:
    """Gold with a share of its codes replaced at random."""
    rng = np.random.default_rng([seed, 77])
    return [np.where(rng.random(len(g)) < wrong, rng.integers(0, labels, len(g)), g) for g in gold]


def make_tags(
    gold: Sequence[Any], predicted: Sequence[Any], *, language: str = "de", scheme: Any = "bio", **meta: Any
) -> Predictions:
    """Tagged sentences; entities for the scheme `bio`, else parts of speech."""
    return Predictions.from_tags(
        language,
        f"set:{language}",
        labels=BIO if scheme == "bio" else UPOS,
        gold=gold,
        predicted=predicted,
        confidence=[np.ones(len(g)) for g in gold],
        scheme=scheme,
        meta=meta,
    )


def make_classes(gold: Any, predicted: Any, *, language: str = "de", labels: Any = "abc", **meta: Any) -> Predictions:
    """Classified texts."""
    return Predictions.from_classes(
        language,
        f"set:{language}",
        labels=tuple(labels),
        gold=gold,
        predicted=predicted,
        confidence=np.ones(len(gold)),
        meta=meta,
    )


def make_answers(
    gold: Sequence[str], predicted: Sequence[str], *, language: str = "de", ids: Any = None, **meta: Any
) -> Predictions:
    """Answered questions."""
    return Predictions.from_answers(
        language,
        f"set:{language}",
        ids=ids or [str(number) for number in range(len(gold))],
        gold=[[text] for text in gold],
        predicted=predicted,
        starts=[0] * len(gold),
        confidence=np.ones(len(gold)),
        meta=meta,
    )


def make_runs(gold: Sentences, *, wrong: float, seeds: Sequence[int]) -> list[Sentences]:
    return [make_predicted(gold, wrong=wrong, seed=seed) for seed in seeds]


def as_predictions(gold: Sentences, predicted: Sentences, scheme: str) -> Predictions:
    if scheme == "classes":
        return make_classes([g[0] % 3 for g in gold], [g[0] % 3 for g in predicted])
    return make_tags(gold, predicted, scheme=scheme)


def count_runs(gold: Sentences, systems: Sequence[list[Sentences]], *, scheme: str, name: str) -> list[Any]:
    predictions = [[as_predictions(gold, run, scheme) for run in runs] for runs in systems]
    counts = align([find_measure(run, name).count(run) for runs in predictions for run in runs])
    ends = np.cumsum([len(runs) for runs in systems])
    return [np.stack(counts[end - len(runs) : end]) for runs, end in zip(systems, ends, strict=True)]


def tag_cells(languages: Mapping[str, int], *, wrong: float, seeds: Sequence[int], salt: int = 0, **more: Any) -> Cells:
    """Entities in languages with these numbers of rows; gold depends on the language alone."""
    cells = {}
    for number, (language, rows) in enumerate(languages.items()):
        gold = make_gold(number, rows)
        cells["panx", language] = [
            make_tags(
                gold,
                make_predicted(gold, wrong=wrong, seed=1000 * salt + 10 * number + seed),
                language=language,
                seed=seed,
                **more,
            )
            for seed in seeds
        ]
    return cells


def class_runs(
    right: float, *, seeds: Sequence[int], rows: int = 200, language: str = "de", salt: int = 0
) -> list[Predictions]:
    gold = np.arange(rows) % 3
    runs = []
    for seed in seeds:
        is_wrong = np.random.default_rng([seed, salt]).random(rows) > right
        runs.append(make_classes(gold, (gold + is_wrong) % 3, language=language, seed=seed))
    return runs


def pick(comparison: Comparison, language: str, system: str) -> Result:
    (found,) = (r for r in comparison.results if (r.language, r.system) == (language, system))
    return found


THREE = {"de": 60, "en": 60, "hi": 45}


def make_systems() -> dict[str, Cells]:
    return {
        "plain": tag_cells(THREE, wrong=0.4, seeds=(1, 2, 3)),
        "good": tag_cells(THREE, wrong=0.1, seeds=(1, 2, 3), salt=1),
        "bad": tag_cells(THREE, wrong=0.9, seeds=(1, 2, 3), salt=2),
        "alike": tag_cells(THREE, wrong=0.4, seeds=(1, 2, 3), salt=3),
    }


def copied_answers(right: float, *, salt: int, name_id: Callable[[str, int], str]) -> Cells:
    """Three languages in which a question is answered rightly in all or in none."""
    rng = np.random.default_rng(salt)
    gold = ["yes"] * 100
    predicted = np.where(rng.random(100) < right, "yes", "no").tolist()
    return {
        ("xquad", language): [
            make_answers(gold, predicted, language=language, ids=[name_id(language, row) for row in range(100)])
        ]
        for language in ("ar", "de", "hi")
    }
