"""What a report shows of a run, gathered from stored predictions; no model and no torch needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crossling.errors import ArtefactError
from crossling.scores.metrics import Confusion, confusion, score
from crossling.scores.predictions import Predictions


@dataclass(frozen=True)
class TagSample:
    """A sentence to show: its words, with the tag that is right and the tag predicted for each."""

    words: tuple[str, ...]
    gold: tuple[str, ...]
    predicted: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.words) == len(self.gold) == len(self.predicted), "a tag for every word"


@dataclass(frozen=True)
class TextSample:
    """A text, or a pair of texts, with its class and the predicted one."""

    texts: tuple[str, ...]
    gold: str
    predicted: str
    confidence: float | None = None


@dataclass(frozen=True)
class AnswerSample:
    """A question about a context, with the answers that are right and the one predicted."""

    question: str
    context: str
    gold: tuple[str, ...]
    predicted: str
    confidence: float | None = None
    question_language: str = ""
    """Where it is not the context's."""


Sample = TagSample | TextSample | AnswerSample


@dataclass(frozen=True, eq=False)
class LanguageResult:
    """Scores of a run on one data set in one language."""

    data: str
    """Data set without the language, such as `panx`: results of one set stand in one table."""
    language: str
    scores: Mapping[str, tuple[float, ...]]
    """Score name to fractions, one for each seed."""
    examples: int
    """Sentences, texts or questions in the set."""
    confusion: Confusion | None = None
    """Summed over seeds; none for answers."""
    samples: tuple[Sample, ...] = ()
    variant: str = ""
    """What tells two results in one language apart, such as `question=en`."""

    def mean(self, name: str) -> float:
        """Mean of a score over seeds; not a number where the score was not taken."""
        values = self.scores.get(name, ())
        return float(np.mean(values)) if values else float("nan")

    def spread(self, name: str) -> float | None:
        """Sample standard deviation over seeds; none with fewer than two."""
        values = self.scores.get(name, ())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True, eq=False)
class RunSummary:
    """Everything that a page or a table of one run shows."""

    title: str
    encoder: str
    task: str
    """Name of the preset or kind, such as `ner`."""
    source: str
    """Code of the language trained on (the first, where there are several)."""
    main_score: str
    """The score that the bars show and that comes first in tables."""
    results: tuple[LanguageResult, ...]
    recipe: str = ""
    """The resolved recipe as TOML."""
    seeds: tuple[int, ...] = ()
    command: str = ""
    """What to type to get this run again."""
    next_command: str = ""
    """What to try next."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Hardware, versions, times: shown in this order at the page's end."""
    notes: tuple[str, ...] = ()
    """Sentences that a reader must not miss, such as rows that were skipped."""
    sources: tuple[str, ...] = ()
    """All languages trained on; empty means `source` alone."""

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Languages whose scores are not zero-shot."""
        return self.sources or (self.source,)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Data sets in the order of their first result."""
        return tuple(dict.fromkeys(result.data for result in self.results))


def gather_result(
    data: str,
    runs: Sequence[Predictions],
    *,
    samples: Sequence[Sample] = (),
    variant: str = "",
) -> LanguageResult:
    """Score the predictions of one data set in one language, one `Predictions` for each seed."""
    if not runs:
        raise ArtefactError(f"no predictions for {data}; run the recipe first")
    scored = [score(run) for run in runs]
    if any(
        one.keys() != scored[0].keys() or run.language != runs[0].language
        for one, run in zip(scored, runs, strict=True)
    ):
        raise ArtefactError(f"predictions for {data} in {runs[0].language} are of different kinds")
    return LanguageResult(
        data=data,
        language=runs[0].language,
        scores={name: tuple(one[name] for one in scored) for name in scored[0]},
        examples=runs[0].n_rows,
        confusion=None if runs[0].kind == "answers" else sum_confusions([confusion(run) for run in runs]),
        samples=tuple(samples),
        variant=variant,
    )


def sum_confusions(parts: Sequence[Confusion]) -> Confusion:
    """Add confusions over seeds, by label name, for seeds may have met their labels in another order."""
    gold = tuple(dict.fromkeys(name for part in parts for name in part.gold))
    predicted = tuple(dict.fromkeys(name for part in parts for name in part.predicted))
    counts = np.zeros((len(gold), len(predicted)), dtype=np.int64)
    for part in parts:
        rows = [gold.index(name) for name in part.gold]
        columns = [predicted.index(name) for name in part.predicted]
        counts[np.ix_(rows, columns)] += part.counts
    return Confusion(gold, predicted, counts)
