"""What there is to start with (``crossling start``): the user's files and the catalogue's, opened and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from crossling.data.catalogue import has_files
from crossling.data.languages import find_scripts
from crossling.data.records import TEXT_COLUMNS, PlainText, TaggedSentence
from crossling.data.spec import parse_spec
from crossling.errors import UserError, nearest
from crossling.study.choices import Gain, Ingredient, LabelledSet, TaskChoices, choose_best, load_choices
from crossling.study.start_files import PARALLEL, FileReader, Found, Spec, is_catalogue_name, name_language
from crossling.study.start_overlaps import note_overlaps

if TYPE_CHECKING:
    from crossling.encoders.coverage import Coverage
    from crossling.encoders.encoder import Encoder

MOST_LABELS = 100
"""More labels than a classifier's column of labels has."""
FEW_LABELS = 1_000
"""Labelled rows with which teachers are weak: with 1,839 labelled tweets, teaching on more tweets was no gain."""
LEXICON_PAIRS = 1_000
"""Sentence pairs of a language below which its lexicon would have few words: the 1,997 of NTREX give 884 in German."""
UNSPACED = frozenset(("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar"))
"""Scripts without spaces between words: a lexicon would be one of characters or pieces."""
PHRASEBOOK = "phrasebook"
"""How the names of the embedded sets begin."""
COVERED_ROWS = 2_000
"""Rows that the coverage of a language is measured on."""


@dataclass(frozen=True)
class Request:
    """What a user asks for, and the data that they name."""

    task: str
    languages: tuple[str, ...]
    labels: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    source: str = "en"


@dataclass
class AvailableData:
    """All that was found."""

    task: str
    source: str
    languages: tuple[str, ...]
    choices: TaskChoices
    chosen_set: LabelledSet | None = None
    """The catalogue's set, where labels are taken from it, named or not."""
    labels: list[Found] = field(default_factory=list)
    dev: Found | None = None
    tests: list[Found] = field(default_factory=list)
    text: list[Found] = field(default_factory=list)
    pairs: list[tuple[Found, Found]] = field(default_factory=list)
    translations: list[Found] = field(default_factory=list)
    lexicon: list[Found] = field(default_factory=list)
    """Translations that lexicons can be made from."""
    notes: list[str] = field(default_factory=list)
    layers: int | None = None
    """Of the encoder, where that is known yet."""
    warnings: list[str] = field(default_factory=list)
    """Of training rows that are also scored; written into the recipe, too."""

    def described(self) -> list[tuple[str, Found]]:
        """Each set with its role; of the catalogue's, those that are used."""
        used = self.choose()[0]
        others = [*self.text, *self._list_pairs(), *self.translations]
        shown = {str(found.spec): ("not used", found) for found in others if found.given}
        if used is not None:
            lexicon = self.lexicon if used.replaces_words else []
            shown |= {str(found.spec): ("translations", found) for found in lexicon}
            shown |= {str(found.spec): (used.needs, found) for found in self.data_for(used)}
        return [
            *(("labels", found) for found in self.labels),
            *([("dev", dev)] if (dev := self.find_dev()) else []),
            *shown.values(),
            *(("scored", found) for found in self.tests),
        ]

    def data_for(self, ingredient: Ingredient) -> list[Found]:
        """The sets of the kind that an ingredient needs."""
        translations = self.lexicon if ingredient.replaces_words else self.translations
        known = {"text": self.text, "pairs": self._list_pairs(), "translations": translations}
        return known.get(ingredient.needs, [])

    def _list_pairs(self) -> list[Found]:
        return list({str(found.spec): found for pair in self.pairs for found in pair}.values())

    def find_dev(self) -> Found | None:
        """What selects the checkpoint; nothing where it is taught on."""
        used, _ = self.choose()
        taught = [found.spec for found in self.data_for(used)] if used else []
        return self.dev if self.dev is not None and self.dev.spec not in taught else None

    def find_lacking(self, ingredient: Ingredient) -> list[str]:
        """Target languages that what an ingredient needs is not in."""
        there = {found.language for found in self.data_for(ingredient)}
        return [code for code in self.languages if code not in there]

    def find_text(self, ingredient: Ingredient) -> dict[str, bool]:
        """By target language: whether what an ingredient needs is there in it."""
        lacking = self.find_lacking(ingredient)
        return {code: code not in lacking for code in self.languages}

    def gain(self, ingredient: Ingredient) -> Gain | None:
        """What an ingredient brought to these languages, or to others in their place: with text, or without."""
        return ingredient.gain(self.find_text(ingredient))

    def choose(self) -> tuple[Ingredient | None, Gain | None]:
        """The best of what can be done with this data, and its gain; nothing where plain fine-tuning is best."""
        return choose_best(filter(self.has_data, self.choices.ingredients), self.gain)

    def has_data(self, ingredient: Ingredient) -> bool:
        """Whether what an ingredient needs is at hand: data, and the layer that it names."""
        if ingredient.replaces_words and not self.lexicon:
            return False
        if not all(map(has_files, ingredient.list_other_sets(self.source))):
            return False
        if self.layers is not None and ingredient.layer > self.layers:
            return False
        return ingredient.needs == "nothing" or bool(self.data_for(ingredient))


def find_available_data(request: Request, *, store: Path) -> AvailableData:
    """Open and check all that a user names, and what the catalogue has for the task and its languages."""
    choices = load_choices()
    if request.task not in choices:
        raise UserError(f"unknown task {request.task!r}.{nearest(request.task, choices)}")
    languages = tuple(dict.fromkeys(name_language(code) for code in request.languages))
    source = name_language(request.source)
    if source in languages:
        raise UserError(f"--language {source}: is the source language, which labels are in; name others, or --source")
    available = AvailableData(request.task, source, languages, choices[request.task])
    reader = FileReader(request.task, store)
    _add_labels(available, request, reader)
    _add_tests(available, request, reader)
    _add_text(available, request, reader)
    _add_catalogue_text(available, reader)
    _add_lexicon(available, reader)
    _check_labels(available)
    note_overlaps(available)
    return available


def _add_labels(available: AvailableData, request: Request, reader: FileReader) -> None:
    """The user's labelled files, by what their names say: dev and test sets are no training data."""
    set_dev: Found | None = None
    for text in request.labels:
        if (known := _find_whole_set(text, available)) and not available.chosen_set:
            available.chosen_set, (labelled, set_dev) = known, _open_set(known, available, reader)
            available.labels += [replace(found, given=True) for found in labelled]
            continue
        found = reader.read(text, language=available.source)
        _check_record(found, reader)
        role = _find_role(found.spec)
        if role == "test":
            available.tests.append(found)
        elif role == "dev" and available.dev is None and found.language == available.source:
            available.dev = found
        else:
            available.labels.append(found)
    available.dev = available.dev or set_dev  # the user's own selects
    if any(found.language == available.source for found in available.labels):
        return
    chosen, labelled, dev = _find_set(available, reader)
    own = {label for found in available.labels for label in _list_labels(found)}
    if available.labels and not own <= {label for found in labelled for label in _list_labels(found)}:
        others = ", ".join(sorted({found.language for found in available.labels}))
        raise UserError(
            f"--labels: none are in the source language, {available.source!r}, and those in {others} have other labels "
            f"than {labelled[0].rows.name}; name some in {available.source!r}, or set --source"
        )
    available.labels[:0] = labelled
    available.chosen_set, available.dev = chosen, available.dev or dev


def _find_set(available: AvailableData, reader: FileReader) -> tuple[LabelledSet, list[Found], Found | None]:
    """The catalogue's usual set for the task, of those whose files are found; where there is none, the phrasebook."""
    found = [one for one in available.choices.sets if all(map(has_files, _list_specs(one, available)))]
    if not found:
        raise UserError(f"no labelled set in {available.source!r} was found; name one: --labels FILE")
    real = [one for one in found if not one.test.startswith(PHRASEBOOK)]
    if not real:
        available.notes.append(
            "No labelled set of the task is in the folder CROSSLING_DATA, and none was named, so the embedded "
            "phrasebook stands in: generated sentences, to see it work. Name your labels with --labels"
        )
    chosen = max(real or found, key=lambda one: _count_tests(one, available))  # the first of equals
    return chosen, *_open_set(chosen, available, reader)


def _open_set(one: LabelledSet, available: AvailableData, reader: FileReader) -> tuple[list[Found], Found | None]:
    opened = [reader.open(spec, given=False) for spec in _list_specs(one, available)]
    return opened[: len(one.trains)], opened[-1] if one.dev else None


def _find_whole_set(text: str, available: AvailableData) -> LabelledSet | None:
    """The choices' set that a user names by its name and the source language alone, as in panx:en."""
    if not is_catalogue_name(text):
        return None
    found = []
    for one in available.choices.sets:
        spec = parse_spec(_fill(one.trains[0], available))
        is_named = text == f"{spec.name}:{spec.language}" and spec.split == "train" and len(one.trains) == 1
        if is_named and all(map(has_files, _list_specs(one, available))):
            found.append(one)
    return max(found, key=lambda one: _count_tests(one, available), default=None)


def _list_specs(one: LabelledSet, available: AvailableData) -> list[str]:
    """What is learnt from and what selects."""
    return [_fill(spec, available) for spec in (*one.trains, *([one.dev] if one.dev else []))]


def _count_tests(one: LabelledSet, available: AvailableData) -> int:
    """Languages that can be scored."""
    return sum(has_files(_fill(one.test, available, code)) for code in (available.source, *available.languages))


def _fill(template: str, available: AvailableData, language: str = "") -> str:
    return template.format(source=available.source, language=language or available.source)


def _find_role(spec: Spec) -> str:
    """``dev`` or ``test`` where the name of a set's file or its split says so."""
    if isinstance(spec, str):
        split = parse_spec(spec).split_text  # of rows of a split, the user knows what they are for
        return split if split in ("dev", "test") else ""
    pieces = Path(str(spec.get("path", ""))).name.lower().replace("-", ".").replace("_", ".").split(".")
    if {"dev", "valid", "val", "validation"} & set(pieces):
        return "dev"
    return "test" if "test" in pieces else ""


def _check_record(found: Found, reader: FileReader) -> None:
    from crossling.inference.evaluate import check_kind

    check_kind(reader.task, found.rows)


def _list_labels(found: Found) -> set[str]:
    return set() if "answers" in found.rows.column_names else set(found.rows.labels())


def _add_tests(available: AvailableData, request: Request, reader: FileReader) -> None:
    """The user's test sets; for languages without one, the catalogue's, where it has the same labels."""
    for text in request.tests:
        found = reader.read(text, split="test")
        _check_record(found, reader)
        available.tests.append(found)
    known = {label for found in available.labels for label in _list_labels(found)}
    sets = (available.chosen_set,) if available.chosen_set else available.choices.sets
    for language in (available.source, *available.languages):
        if language in {found.language for found in available.tests}:
            continue
        tests = [one.test for one in sets if available.chosen_set or not one.test.startswith(PHRASEBOOK)]
        spec = next(filter(has_files, (_fill(test, available, language) for test in tests)), None)
        if spec is None:
            continue
        found = reader.open(spec, given=False)
        unknown = _list_labels(found) - known
        if not unknown:
            available.tests.append(found)
        elif language != available.source:
            available.notes.append(
                f"{spec} has labels that yours lack ({', '.join(sorted(unknown)[:5])}), so it cannot be scored on"
            )


def _add_text(available: AvailableData, request: Request, reader: FileReader) -> None:
    """The user's unlabelled and parallel text, by what can be done with it."""
    reads_plain = reader.task.settings.kind in ("tag", "classify")
    for text in request.text:
        found = reader.read_text(text)
        if found.rows.kind is reader.task.record or (reads_plain and found.rows.kind in (PlainText, *PARALLEL)):
            available.text.append(found)
        else:
            available.notes.append(
                f"{text}: {found.rows.kind.__name__} rows cannot teach this task, which reads "
                f"{reader.task.record.__name__} rows; it is not used"
            )
    for text in request.parallel:
        opened = reader.read_parallel(text, source=available.source)
        if isinstance(opened, tuple):
            if len(opened[0].rows) != len(opened[1].rows):
                raise UserError(
                    f"{text}: {len(opened[0].rows):,} and {len(opened[1].rows):,} rows; row i must say the same in both"
                )
            available.pairs.append(opened)
        elif opened.rows.kind not in PARALLEL:
            raise UserError(f"{text}: holds {opened.rows.kind.__name__} rows, which are no translations")
        else:
            available.translations.append(opened)
            if reads_plain:  # the target side is text like any other
                available.text.append(opened)
    if available.translations and not reads_plain and not _is_useful("translations", available):
        available.notes.append("Translations were not found to help with this task, so they are not used")


def _is_useful(needs: str, available: AvailableData) -> bool:
    candidates = (one for one in available.choices.ingredients if one.needs == needs)
    return choose_best(candidates, available.gain)[0] is not None


def _add_catalogue_text(available: AvailableData, reader: FileReader) -> None:
    """Text of the kind that the catalogue's labels are of: that is what gains were measured with."""
    one = available.chosen_set
    if one is None:
        return
    for language in dict.fromkeys((*available.languages, *one.text_languages)):
        if language == available.source:
            continue
        if one.text and has_files(_fill(one.text, available, language)):
            available.text.append(reader.open(_fill(one.text, available, language), given=False))
        if one.translations and has_files(_fill(one.translations, available, language)):
            available.translations.append(reader.open(_fill(one.translations, available, language), given=False))
        if one.pairs and all(has_files(_fill(side, available, language)) for side in one.pairs):
            first, second = (reader.open(_fill(side, available, language), given=False) for side in one.pairs)
            available.pairs.append((first, second))


def _add_lexicon(available: AvailableData, reader: FileReader) -> None:
    """Text that lexicons can be made from: the user's, and the catalogue's, which need not be like what is labelled."""
    choices = available.choices
    if not any(one.replaces_words for one in choices.ingredients):
        return
    sets = [found for found in available.translations if found.given]
    for language in dict.fromkeys((*available.languages, *choices.lexicon_languages)):
        specs = [_fill(one, available, language) for one in choices.lexicon if language != available.source]
        opened = [reader.open(spec, given=False) for spec in specs if has_files(spec)]
        sets += [found for found in opened if found.rows.fingerprint not in {one.rows.fingerprint for one in sets}]
    for language in dict.fromkeys(found.language for found in sets):
        some = [found for found in sets if found.language == language]
        if set(find_scripts(language)) & UNSPACED:
            why = "its words are not separated by spaces"
        elif sum(len(found.rows) for found in some) < LEXICON_PAIRS:
            why = f"it takes {LEXICON_PAIRS:,} sentence pairs or more"
        else:
            available.lexicon += some
            continue
        given = [found.rows.name for found in some if found.given]
        available.notes += [f"{name}: no lexicon is made from it, since {why}" for name in given]


def _check_labels(available: AvailableData) -> None:
    """Labels that are not what the task learns."""
    for found in available.labels:
        labels, name = _list_labels(found), found.rows.name
        spans = any(label[:2] in ("B-", "I-") for label in labels)
        if found.rows.kind is TaggedSentence and spans != (available.task == "ner"):
            kind = "mark spans (B-PER, I-PER, O)" if spans else "mark no spans"
            raise UserError(f"{name}: its tags {kind}; use the task {'ner' if spans else 'pos'}, or another column")
        if found.rows.kind is not TaggedSentence and len(labels) > MOST_LABELS:
            raise UserError(
                f"{name}: {len(labels):,} different labels in {len(found.rows):,} rows; is that the right column? Name "
                f"it by a table, as in label = 3: {found.spec}"
            )
    total = sum(len(found.rows) for found in available.labels)
    if total < FEW_LABELS:
        available.notes.append(
            f"{total:,} labelled rows are few: models trained on them may be weak teachers. Compare with plain "
            "fine-tuning on a test set"
        )


def measure_languages(available: AvailableData, encoder: Encoder) -> dict[str, Coverage]:
    """How well the encoder's subwords fit each target language that there is text of."""
    from crossling.encoders.coverage import measure_lines

    measured = {}
    for language in available.languages:
        sets = [found for _, found in available.described() if found.language == language]
        if sets:
            lines = islice(_list_lines(sets), COVERED_ROWS)
            measured[language] = measure_lines(encoder, lines, name=sets[0].rows.name, language=language)
    return measured


def _list_lines(sets: Sequence[Found]) -> Iterable[str]:
    """The texts of rows, of parallel ones the target side."""
    for found in sets:
        names = TEXT_COLUMNS[found.rows.kind]
        for chunk in found.rows.chunks(500):
            for value in chunk[names[-1] if found.rows.kind in PARALLEL else names[0]]:
                yield value if isinstance(value, str) else " ".join(value)
