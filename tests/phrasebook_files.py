"""Files as a user has them, with rows of the phrasebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.phrasebook import generate

ENDINGS = {"pos": "tsv", "ner": "tsv", "nli": "tsv", "paraphrase": "tsv", "sentiment": "tsv", "qa": "json"}


def write_rows(folder: Path, task: str, language: str, split: str, rows: int) -> Path:
    """A labelled file, ``train.de.tsv`` say, in the format that is usual for the task."""
    path = folder / f"{split}.{language}.{ENDINGS[task]}"
    records = list(generate(task, language, split, rows=rows))
    path.write_text(_write(records), encoding="utf-8")
    return path


def _write(records: list[Any]) -> str:
    first = records[0]
    if isinstance(first, TaggedSentence):
        return "\n".join("".join(f"{w}\t{t}\n" for w, t in zip(r.words, r.tags, strict=True)) for r in records)
    if isinstance(first, LabelledText):
        return "".join(f"{r.label}\t{r.text}\n" for r in records)
    if isinstance(first, LabelledPair):
        return "".join(f"{r.first}\t{r.second}\t{r.label}\n" for r in records)
    assert isinstance(first, Question)
    questions = [
        {
            "context": r.context,
            "qas": [{"id": r.id, "question": r.question, "answers": _answers(r)}],
        }
        for r in records
    ]
    return json.dumps({"data": [{"paragraphs": questions}]}, ensure_ascii=False)


def _answers(record: Question) -> list[dict[str, Any]]:
    pairs = zip(record.answers, record.starts, strict=True)
    return [{"text": text, "answer_start": start} for text, start in pairs]


def write_text(folder: Path, language: str, rows: int) -> Path:
    """Plain sentences, one a line: ``text.de.txt``."""
    path = folder / f"text.{language}.txt"
    sentences = [" ".join(r.words) for r in generate("pos", language, "train", rows=rows)]  # type: ignore[union-attr]
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path
