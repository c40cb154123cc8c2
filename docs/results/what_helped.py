"""The README's table of what helped, from the archived scores of every seed: python docs/results/what_helped.py

python docs/results/what_helped.py --write    # into the README, between the markers

A cell is a system less plain fine-tuning, on the mean of the languages without labels (where text was taught: of those
without text), with all seeds that are archived. Two marks follow from the figures: † and ‡, see ``mark``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import adjustment
import knowledge
import layer_fusion
import seed_tables
import teaching
from seed_tables import FOLDER, Gain

README = FOLDER.parents[1] / "README.md"
USUAL, FEW = 5, 10
"""Seeds of a cell that names no number, and what a difference under one point should have."""
COLUMNS = ("parts of speech", "entities", "NLI", "mixed NLI", "questions", "sentiment", "paraphrase")
GATE = "dlfa-1e-3 layer=11"

Tried = Mapping[str, Gain | None]
"""Differences that are corrected together, by system."""
Cell = tuple[str, str]
"""What was tried together (``measure_all``), and the system in it."""


@dataclass(frozen=True)
class Row:
    method: str
    page: str
    cells: Mapping[str, Cell]
    """By column."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Numbers of the notes below the table, by column."""


def list_cells(what: str, system: str, columns: Mapping[str, str]) -> dict[str, Cell]:
    """One system in several tasks: what was tried in each is named after the task."""
    return {column: (f"{what} {task}", system) for column, task in columns.items()}


TASKS = {"parts of speech": "pos", "entities": "ner", "sentiment": "sentiment", "paraphrase": "paraphrase"}
FUSED = {"parts of speech": "pos", "entities": "ner", "NLI": "nli", "paraphrase": "paraphrase"}
ADJUSTED = {"parts of speech": "pos", "entities": "ner", "NLI": "nli", "mixed NLI": "mixed", "questions": "qa"}
ROWS = (
    Row(
        "text that trained models label (`teach`)",
        "teaching.md",
        {
            "parts of speech": ("teaching", "pos taught"),
            "entities": ("teaching", "ner taught"),
            "NLI": ("teaching", "nli soft"),
            "sentiment": ("teaching", "best-sentiment best"),
            "paraphrase": ("teaching", "best-paraphrase soft"),
        },
        {"NLI": "¹", "sentiment": "²", "paraphrase": "¹"},
    ),
    Row(
        "words replaced by translations, same answer (`consistency`)",
        "teaching.md",
        {
            "parts of speech": ("teaching", "best-pos switch"),
            "entities": ("teaching", "ner switch"),
            "NLI": ("teaching", "best-nli switch"),
            "questions": ("teaching", "best-qa switch"),
            "sentiment": ("teaching", "best-sentiment switch"),
            "paraphrase": ("teaching", "best-paraphrase switch"),
        },
    ),
    Row(
        "weights of three seeds averaged (`average`)",
        "teaching.md",
        {
            "parts of speech": ("teaching", "best-pos average"),
            "entities": ("teaching", "ner average"),
            "NLI": ("teaching", "best-nli average"),
            "sentiment": ("teaching", "best-sentiment average-plain"),
            "paraphrase": ("teaching", "best-paraphrase average"),
        },
    ),
    Row("labels in those languages, for scale", "knowledge.md", list_cells("knowledge", "multi", TASKS)),
    Row("their unlabelled text, first (`adapt`)", "knowledge.md", list_cells("knowledge", "+DA", TASKS)),
    Row("other tasks beside (`auxiliary`)", "knowledge.md", list_cells("knowledge", "+FA", TASKS)),
    Row(
        "fusing layer 11 with 12 (`dlfa`)",
        "layer-fusion.md#layers-8-and-11-with-every-seed",
        list_cells("fusion", "dlfa layer=11", FUSED),
    ),
    Row(
        "the same, its gate at a learning rate of 1e-3",
        "layer-fusion.md#the-gate-at-a-rate-of-its-own-with-new-seeds",
        {**list_cells("fusion", GATE, FUSED), "parts of speech": ("gate", "pos"), "NLI": ("gate", "nli")},
        {"parts of speech": "³", "NLI": "³"},
    ),
    Row("2,000 translations, first (`adjust`)", "adjustment.md", list_cells("adjustment", "adjusted", ADJUSTED)),
    Row(
        "and replayed in every step (`replay`)",
        "adjustment.md",
        list_cells("adjustment", "continual", ADJUSTED),
        {"parts of speech": "⁴"},
    ),
    Row(
        "everyday translations replayed alone",
        "adjustment.md#parts-of-speech-under-replay",
        {"parts of speech": ("replay", "everyday")},
        {"parts of speech": "⁵"},
    ),
    Row(
        "translated news replayed alone, vectors of layer 8",
        "adjustment.md#parts-of-speech-under-replay",
        {"parts of speech": ("replay", "layer")},
        {"parts of speech": "⁵"},
    ),
)


def measure_all() -> dict[str, Tried]:
    """Everything that was tried, as it is corrected on the pages."""
    means = teaching.read_means(teaching.SCORES)
    tried = teaching.measure_tried(means, teaching.find_plain)
    found: dict[str, Tried] = {"teaching": {" ".join(key): gain for key, gain in tried.items()}}
    known = seed_tables.read_scores(knowledge.SCORES)
    for task in knowledge.TASKS:
        [data, *_] = known.list_sets(task)
        systems = [(task, system, data) for system in known.list_systems(task) if system != "cross"]
        found[f"knowledge {task}"] = {key[1]: measure(known, key, "cross") for key in systems}
    fused, gates = layer_fusion.read_all_seeds(), seed_tables.read_scores(layer_fusion.GATE_SCORES)
    for task in layer_fusion.TASKS:
        pairs = [(system, "plain") for system in layer_fusion.TRIED]
        found[f"fusion {task}"] = {pair[0]: layer_fusion.compare(fused, task, pair) for pair in pairs}
    found["gate"] = {task: layer_fusion.compare(gates, task, (GATE, "plain")) for task in ("pos", "nli")}
    adjusted, strong = seed_tables.read_scores(adjustment.SCORES), seed_tables.read_scores(adjustment.STRONG)
    places = [(adjusted, column) for column in adjustment.COLUMNS[:4]] + [(strong, adjustment.STRONG_XQUAD[0])]
    for task, (scores, column) in zip(ADJUSTED.values(), places, strict=True):
        found[f"adjustment {task}"] = {
            system: measure(scores, (column.task, system, column.data), adjustment.ORIGINAL)
            for system in scores.list_systems(column.task)
            if system != adjustment.ORIGINAL
        }
    news = seed_tables.read_scores(adjustment.NEWS)
    found["replay"] = {
        name: measure(news, ("pos", name, "ud"), plain) for name, plain in adjustment.LONG_REPLAYS.items()
    }
    return found


def measure(scores: seed_tables.SeedScores, key: tuple[str, str, str], baseline: str) -> Gain | None:
    """A task's system less another one, on the mean of all languages but English."""
    task, system, data = key
    means = (scores.average(task, name, data, seed_tables.is_zero_shot) for name in (system, baseline))
    return seed_tables.measure_gain(*means)


def mark(gain: Gain, p: float) -> str:
    """Of an interval without 0. †: under one point, fewer than ten seeds; ‡: not significant after the correction."""
    if gain.low <= 0 <= gain.high:
        return ""
    return "†" * (abs(gain.mean) < 1 and gain.seeds < FEW) + "‡" * (p >= 0.05)


def build_table() -> list[str]:
    """A line for each method."""
    found = measure_all()
    corrected = {
        what: dict(zip(tried, seed_tables.correct(list(tried.values())), strict=True)) for what, tried in found.items()
    }
    rows = []
    for row in ROWS:
        cells = [row.method]
        for column in COLUMNS:
            what, system = row.cells.get(column, ("", ""))
            gain, p = found.get(what, {}).get(system), corrected.get(what, {}).get(system)
            if gain is None or p is None:  # not run
                cells.append("")
                continue
            seeds = "" if gain.seeds == USUAL else f"({gain.seeds})"
            notes = f"{mark(gain, p)}{row.notes.get(column, '')}"
            cells.append(" ".join(filter(None, (teaching.show_gain(gain), seeds, notes))))
        rows.append((*cells, f"[results](docs/results/{row.page})"))
    head, _, *lines = seed_tables.format_table(("method", *COLUMNS, ""), rows)
    return [head, "| --- |" + " --: |" * len(COLUMNS) + " --- |", *lines]


def list_pages() -> seed_tables.Pages:
    return {README: {"what-helped": build_table}}


if __name__ == "__main__":
    seed_tables.main(list_pages)
