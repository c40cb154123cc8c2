"""Model probing of a list of models, each held against the encoder that it began as; tables, files and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.analyses._stored import Original
from crossling.errors import DataError, UserError, nearest
from crossling.files import write_atomic
from crossling.progress import Progress
from crossling.report.probing import (
    Result,
    TaskChoice,
    choose_from_results,
    draw_results,
    subtract_bases,
    tabulate_languages,
    tabulate_results,
    to_csv,
)
from crossling.report.table import Table
from crossling.report.terminal import out, print_message
from crossling.study.analysing import Analysis, analyse, describe_settings
from crossling.study.show_analysis import FOLDER, name_files
from crossling.study.subjects import Subject, find_subjects


@dataclass(frozen=True)
class Compared:
    """An analysis of models and of what they are held against."""

    analysis: Analysis
    bases: dict[str, str]
    """For each model that is held against another: the other's name."""
    home: Path | None
    """Where results go unless told otherwise."""

    def find_path(self, path: Path | None) -> Path:
        """The CSV file to write."""
        path = path or (self.home or FOLDER) / f"{name_files(self.analysis)}.csv"
        return path if path.suffix == ".csv" else path.with_name(f"{path.name}.csv")


def analyse_with_bases(
    models: Sequence[str], settings: Any, *, against: str | None, source: str | None, progress: Progress
) -> Compared:
    """Analyse models and the encoders that they were before training, or what ``against`` names."""
    found = find_subjects(models)
    arguments, bases = list(models), {}
    if against:
        (other, *more) = find_subjects([against]).subjects
        if {name_subject(one) for one in more} - {name_subject(other)}:
            raise UserError(f"--against {against}: holds several models; name one of them")
        if name_subject(other) not in {name_subject(one) for one in found.subjects}:
            arguments.append(against)
        bases = {name: name_subject(other) for name in map(name_subject, found.subjects)}
        bases.pop(name_subject(other), None)
    else:
        known = {one.model: name_subject(one) for one in found.subjects if isinstance(one.model, Original)}
        for subject in found.subjects:
            if isinstance(subject.model, Original):
                continue
            if subject.encoder not in known:
                added = "@".join(filter(None, (subject.encoder.name, subject.encoder.revision)))
                arguments.append(added)
                known[subject.encoder] = name_subject(find_subjects([added]).subjects[0])
            bases[name_subject(subject)] = known[subject.encoder]
    return Compared(analyse(arguments, settings, source=source, progress=progress), bases, found.home())


def name_subject(subject: Subject) -> str:
    """A model's name in tables."""
    return f"{subject.task}: {subject.label}" if subject.task else subject.label


def parse_pairs(texts: Sequence[str], *, option: str) -> list[tuple[str, str]]:
    """``A:B`` as pairs of names; a name with a colon of its own stands between spaces: ``ner: plain : ner: multi``."""
    pairs = []
    for text in texts:
        first, sign, second = text.partition(" : ") if " : " in text else text.partition(":")
        if not sign or not first.strip() or not second.strip():
            raise DataError(f"{option} {text!r}: write two models' names with a colon between, such as ner:ner-multi")
        pairs.append((first.strip(), second.strip()))
    return pairs


def check_names(models: Sequence[str], names: Sequence[str], *, option: str) -> None:
    """Refuse names of models that are not in the list, before anything is computed."""
    known = list(dict.fromkeys(map(name_subject, find_subjects(models).subjects)))
    for name in names:
        if name not in known:
            raise DataError(f"{option} {name!r}: no such model.{nearest(name, known)}")


def find_results(compared: Compared) -> list[Result]:
    """The probing results of all models that are held against another."""
    return subtract_bases(compared.analysis.table.to_pylist(), compared.bases)


def present_probing(
    compared: Compared, *, score: str, pairs: Sequence[tuple[str, str]], min_gain: float, path: Path | None
) -> list[TaskChoice]:
    """Show table 3, write it with all figures behind it, and say which tasks it speaks for."""
    results = find_results(compared)
    main, languages = tabulate_results(results, score=score), tabulate_languages(results, score=score)
    choices = [
        choose_from_results(results, cross=cross, multi=multi, score=score, min_gain=min_gain) for cross, multi in pairs
    ]
    lines = [*(choice.describe() for choice in choices), *(f"Note: {note}." for note in compared.analysis.notes)]
    csv = compared.find_path(path)
    files = {
        csv: to_csv(results),
        csv.with_suffix(".md"): write_markdown(compared.analysis, [main, languages], lines),
        csv.with_suffix(".svg"): draw_results(results, score=score),
    }
    show_sheets([main], lines)
    write_files(files)
    return choices


def write_markdown(analysis: Analysis, sheets: Sequence[Table], lines: Sequence[str]) -> str:
    """Sheets below each other, what must not be missed after the first."""
    told = "".join(f"- {line}\n" for line in lines)
    first, *others = (sheet.to_markdown() for sheet in sheets)
    head = f"# {analysis.settings.kind}: {analysis.title}\n\nSettings: `{describe_settings(analysis.settings)}`.\n"
    return "\n".join([head, first, *([told] if told else []), *others])


def show_sheets(sheets: Sequence[Table], lines: Sequence[str]) -> None:
    """Sheets on the terminal with their notes."""
    for sheet in sheets:
        print_message(sheet.title)
        out.print(sheet.to_rich())
        for note in sheet.notes:
            print_message(note)
    for line in lines:
        print_message(line)


def write_files(files: dict[Path, str]) -> None:
    """Write files and say where they are."""
    for place, text in files.items():
        write_atomic(place, text)
        print_message(f"written: {place}")
