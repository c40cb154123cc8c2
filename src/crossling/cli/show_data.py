"""Data sets and encoders on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crossling.data.languages import name_of
from crossling.data.records import TaggedSentence
from crossling.errors import UserError
from crossling.report.table import Table
from crossling.report.terminal import out, print_facts, print_message

if TYPE_CHECKING:
    from pathlib import Path

    from crossling.aligners.lexicon import Lexicon, LinkedWords
    from crossling.aligners.score import Gold
    from crossling.data.catalogue import SetDescription
    from crossling.data.records import Record
    from crossling.data.rows import Rows
    from crossling.encoders.coverage import Coverage
    from crossling.encoders.extending import Extended
    from crossling.study.encoder_report import EncoderReport


def show_catalogue() -> None:
    """All data sets by name, with what is at hand."""
    from crossling.data.catalogue import describe, list_entries

    rows: list[tuple[str, ...]] = []
    parts: list[str] = []
    for name, version in list_entries():
        entry = describe(name, version)
        languages = " ".join(entry.languages) if len(entry.languages) <= 8 else f"{len(entry.languages)} languages"
        more = " and more" if entry.other_languages else ""
        shown = f"{name}@{version}" if version else name
        rows.append((shown, entry.task, languages + more, " ".join(entry.splits), _name_place(entry)))
        if entry.roles:
            parts.append(f"{shown}:{entry.roles[0]}=en,{entry.roles[1]}={entry.languages[-1]}")
    out.print(Table("", ("set", "task", "languages", "splits", "found"), tuple(rows), names=5).to_rich())
    print_message(f"Parts of a row in a language each: {' '.join(parts)}")
    print_message("Show rows of one: crossling data show panx:de. A folder of data sets is named by CROSSLING_DATA.")


def _name_place(entry: SetDescription) -> str:
    if entry.available:
        return f"{len(entry.available)} at hand"
    if entry.hub:
        return f"hub: {entry.hub}"
    return "custom files" if entry.folder else "embedded"


def show_rows(rows: Rows, count: int) -> None:
    """The first rows of a data set, and how often each label occurs."""
    left_out = rows.describe_left_out()
    print_message(
        f"{rows.name}: {len(rows):,} rows of {rows.kind.__name__}, language {rows.language}"
        + (f"; {left_out}" if left_out else "")
    )
    for row, record in zip(range(count), rows, strict=False):
        out.print(f"[bold]{row}[/]")
        print_facts(_describe_record(record))
    try:
        counts = rows.count_labels()
    except UserError:
        return
    total = sum(counts.values()) or 1
    shares = tuple((label, f"{number:,}", f"{100 * number / total:.1f} %") for label, number in counts.items())
    out.print(Table("", ("label", "count", "share"), shares).to_rich())


def _describe_record(record: Record) -> dict[str, str]:
    """A record's fields in words; tags stand at their words, but for those outside of spans."""
    if isinstance(record, TaggedSentence):
        pairs = zip(record.words, record.tags, strict=True)
        return {"words": " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)}
    values = {field: getattr(record, field) for field in record.__dataclass_fields__}
    return {n: " ".join(map(str, v)) if isinstance(v, tuple) else str(v) for n, v in values.items()}


def show_cleaning(data: str | dict[str, Any], rows: Rows) -> None:
    """What the checks of a cleaned set can find, and what they cannot."""
    from crossling.data.cleaning import explain_checks

    if isinstance(data, dict) and "clean" in data:
        print_message(f"Languages: {explain_checks(data['clean'], rows.language)}.")


def show_encoder(report: EncoderReport) -> None:
    """What is known of an encoder, how it tokenizes languages, and what will not work with it."""
    print_facts(report.facts())
    shown = [one for one in report.tokenizations if one.text]
    missing = [one.language for one in report.tokenizations if not one.text]
    rows = []
    for one in shown:
        offline = (f"{one.offline[0]:.2f}", f"{one.offline[1]:.2%}") if one.offline else ("", "")
        own = (f"{one.fertility:.2f}", f"{one.unknown:.2%}")
        rows.append((f"{one.language} {name_of(one.language)}", *own, *offline, one.text))
    if rows:
        columns = ("language", "subwords a word", "words with unknown", "offline: subwords", "unknown", "text")
        out.print(Table("", columns, tuple(rows)).to_rich())
    if missing:
        print_message(
            f"No text of {', '.join(missing)} is at hand; measure on your own: crossling coverage ENCODER FILE"
        )
    if report.checkpoint.reasons:
        return
    limits = report.limits()
    print_message("It can be used." + (" What will not work:" if limits else ""))
    for limit in limits:
        print_message(f"- {limit}")


def show_coverage(coverage: Coverage) -> None:
    """How well an encoder can write a language."""
    print_facts(coverage.facts())
    near = tuple(
        (f"{language} {name_of(language)}", f"{similarity:.2f}", f"{fertility:.2f}")
        for language, similarity, fertility in coverage.neighbours
        if similarity >= 0.01
    )
    if near:
        out.print(Table("", ("language with similar subwords", "similarity", "subwords a word there"), near).to_rich())
    compared = " ".join(language for language, _, _ in coverage.neighbours)
    print_message(
        ("" if near else "No language of the embedded corpus has similar subwords. ")
        + f"Compared with {compared}, by the subwords in use: 1 is the same, 0 none in common; other text of the same "
        "language has about 0.4, another language in the same script about 0.1."
    )


def show_extended(extended: Extended) -> None:
    """What an encoder got for a language, and what it needs next."""
    print_facts(extended.facts())
    changes = tuple((name, before, now) for name, (before, now) in extended.changes().items())
    out.print(Table("", ("this text", "before", "now"), changes).to_rich())
    print_message(
        "The vectors of new subwords are initial values, the mean of what they are made of. Adapt the encoder to text "
        "of the language before you fine-tune it, by a stage such as:\n\n" + extended.next_recipe()
    )


def show_lexicon(
    lexicon: Lexicon, linked: LinkedWords, path: Path, *, gold: Gold | None = None, identical: bool = False
) -> None:
    """How many entries a lexicon has, and how good they are by gold links."""
    from crossling.aligners.lexicon import score_lexicon

    print_message(
        f"{len(lexicon):,} translations of {len(lexicon.translations):,} words, from {len(linked.pairs):,} sentence "
        f"pairs: {path}"
    )
    if not len(lexicon):
        print_message("No word has enough links; lower --least or --probability, or take more text.")
    if gold is not None:
        score = score_lexicon(lexicon, linked.pairs, gold, identical=identical)
        print_message(
            f"precision {score.precision:.4f}  recall {score.recall:.4f}  (words of GOLD are counted from {gold.base})"
        )
        print_message(
            f"{score.right:,} of {score.proposed:,} entries are in gold links; {score.found:,} of {score.sure:,} word "
            "pairs with a sure link are entries"
        )
