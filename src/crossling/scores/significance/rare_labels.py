"""Labels of a macro average that a test set hardly holds: single items move their F1, and with it the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossling.scores.predictions import Predictions
from crossling.scores.significance.counts import LEAST_SUPPORT, SUPPORTED, find_measure


def find_rare_labels(runs: Sequence[Predictions], score: str) -> dict[str, int]:
    """Labels that occur in any run and have few gold items, with their number; of other scores than macro F1 none."""
    if "macro_f1" not in score:
        return {}
    counted = [find_measure(run, score).count(run) for run in runs]
    return {label: number for one in counted for label, number in one.list_rare().items()}


def describe_rare_labels(data: str, score: str, rare: Mapping[str, Mapping[str, int]]) -> str:
    """One note on a data set, for labels by language; nothing where there are none."""
    listed = "; ".join(
        f"{language} {', '.join(f'{label} ({number})' for label, number in sorted(labels.items()))}"
        for language, labels in rare.items()
        if labels
    )
    few = f"labels with fewer than {LEAST_SUPPORT} gold items"
    if not listed:
        return ""
    if score.endswith(SUPPORTED):
        return f"{data}: {score} leaves out {few}: {listed}"
    return (
        f"{data}: {score} gives {few} the weight of the others, so that single items move it: {listed}; in a study, "
        f"crossling study compare --score {score}{SUPPORTED} leaves them out"
    )
