"""What all grammars share: words that remember the node they express, names, conjunctions, running text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from crossling.phrasebook.lexicon import Entry, load_lexicon
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, NounPhrase, Pronoun, Sentence

SUBORDINATE = frozenset(("because", "when", "although", "that"))
FUNCTION_TAGS = frozenset(("ADP", "DET"))
Order = Literal["main", "after", "sub", "question", "relative"]


@dataclass(eq=False, slots=True)
class Word:
    """A word form with its part of speech, the nodes it expresses and the entity it is part of."""

    form: str
    upos: str
    keys: tuple[object, ...] = ()
    entity: Name | None = None
    tight: bool = False
    """No space between this word and the next one in running text."""


class Agreement(NamedTuple):
    """What a verb or an adjective agrees with."""

    gender: str
    number: str


class Grammar:
    """Turns abstract sentences into words. A language subclasses this and defines what it does differently."""

    code: ClassVar[str]
    full_stop: ClassVar[str] = "."
    comma: ClassVar[str] = ","
    list_comma: ClassVar[str] = ","
    question_marks: ClassVar[tuple[str, str]] = ("", "?")
    space: ClassVar[str] = " "
    _markup: ClassVar[dict[str, tuple[tuple[str, str], ...]]] = {}

    def __init__(self) -> None:
        self.lexicon: Mapping[str, Entry] = load_lexicon(self.code)

    # What a language defines.

    def noun(self, noun: Noun, case: str) -> list[Word]:
        """A common noun phrase in a case (whatever the language marks on it, adpositions included)."""
        raise NotImplementedError

    def name(self, name: Name, case: str) -> list[Word]:
        """A named entity in a case, with the article or title that belongs before it."""
        raise NotImplementedError

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        """A pronoun in a case."""
        raise NotImplementedError

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        """An adverbial of a clause."""
        raise NotImplementedError

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        """A clause in one of the language's word orders."""
        raise NotImplementedError

    # What all share.

    def phrase(self, phrase: NounPhrase | None, case: str = "") -> list[Word]:
        """Any noun phrase; nothing where there is none."""
        if phrase is None:
            return []
        if isinstance(phrase, Noun):
            return self.noun(phrase, case)
        if isinstance(phrase, Name):
            return self.name(phrase, case)
        if isinstance(phrase, Pronoun):
            return self.pronoun(phrase, case)
        return self.group(phrase, case)

    def group(self, group: Group, case: str) -> list[Word]:
        """Members joined by ``and``, each in the case of the whole."""
        words: list[Word] = []
        for position, member in enumerate(group.members):
            if position and position == len(group.members) - 1:
                words += self.joiner(group)
            elif position:
                words.append(Word(self.list_comma, "PUNCT"))
            words += self.phrase(member, case)
        return words

    def joiner(self, group: Group) -> list[Word]:
        """The ``and`` between noun phrases."""
        return self.markup(self.lexicon["and"].form, (id(group), "and"))

    def gender(self, noun: Noun) -> str:
        """The grammatical gender of a noun, which for people follows the sex where a language has both forms."""
        entry = self.lexicon[noun.concept]
        return "f" if noun.sex == "f" and entry.get("f") else entry.gender

    def agreement(self, phrase: NounPhrase | None) -> Agreement:
        """Gender and number that a predicate agrees with."""
        if isinstance(phrase, Noun):
            plural = phrase.number == "pl" or phrase.count or phrase.det == "how_many"
            return Agreement(self.gender(phrase), "pl" if plural else "sg")
        if isinstance(phrase, Group):
            genders = {self.agreement(member).gender for member in phrase.members}
            return Agreement("f" if genders == {"f"} else "m", "pl")
        if isinstance(phrase, Name):
            return Agreement(self.name_gender(phrase), "sg")
        if isinstance(phrase, Pronoun):
            return Agreement("f" if phrase.concept == "she" else "m", "pl" if phrase.concept == "they" else "sg")
        return Agreement("m", "sg")

    def name_gender(self, name: Name) -> str:
        """A person's sex; otherwise what the lexicon says of the name or of the pattern that builds it."""
        if name.kind == "PER":
            return name.sex
        pattern = self.lexicon[name.pattern].gender if name.pattern else ""
        return pattern or self.lexicon[name.parts[0]].gender or "m"

    def part_form(self, name: Name, part: str) -> str:
        """A name's part in its basic form; some family names have one for women."""
        entry = self.lexicon[part]
        return (entry.get("f") if name.sex == "f" and name.kind == "PER" else "") or entry.form

    def name_words(self, name: Name) -> list[Word]:
        """The words of an uninflected name, all inside the entity."""
        if name.pattern:
            return self.pattern_words(name, {"{}": self.part_form(name, name.parts[0])})
        return [
            Word(self.part_form(name, part), "PROPN", ((id(name), self.lexicon[part].concept),), name)
            for part in name.parts
        ]

    def pattern_words(self, name: Name, slots: Mapping[str, str]) -> list[Word]:
        """The words of an organisation's name, from its pattern with the slots filled."""
        words = []
        for form, upos in self.parse(self.lexicon[name.pattern].form):
            keys: list[object] = []
            for slot, value in slots.items():
                if slot in form:
                    form = form.replace(slot, value)
                    keys.append((id(name), "part"))
            if upos == "ADP":
                keys.append((id(name), "of"))
            elif form not in slots.values():
                keys.append((id(name), "head"))
            words.append(Word(form, upos, tuple(keys), name))
        return words

    def parse(self, markup: str) -> tuple[tuple[str, str], ...]:
        """``on/ADP Monday/PROPN`` as pairs of form and tag."""
        parsed = self._markup.get(markup)
        if parsed is None:
            pairs = (token.rpartition("/") for token in markup.split())
            parsed = self._markup[markup] = tuple((form, upos) for form, _, upos in pairs)
        return parsed

    def markup(self, markup: str, key: tuple[int, str]) -> list[Word]:
        """Words of a tagged phrase; adpositions and articles are linked apart from what they go with."""
        apart = (*key, "case")
        return [Word(form, upos, (apart if upos in FUNCTION_TAGS else key,)) for form, upos in self.parse(markup)]

    def tokens(self, form: str, upos: str, key: object) -> list[Word]:
        """The words of a lexicon form, which may be several, all expressing one node."""
        words = []
        for token in form.split():
            text, slash, tag = token.partition("/")
            words.append(Word(text, tag if slash else upos, (key,)))
        return words

    def time(self, adjunct: Adjunct) -> list[Word]:
        """A time: a fixed phrase, a year, or a date whose parts are linked one by one."""
        if not adjunct.values:
            return self.markup(self.lexicon[adjunct.concept].form, (id(adjunct), "time"))
        slots = dict(zip(("{y}", "{m}", "{d}"), adjunct.values, strict=False))
        words = []
        for form, upos in self.parse(self.lexicon[adjunct.concept].form):
            slot = form.rstrip(".")
            if slot in slots:
                value = self.month(slots[slot]) if slot == "{m}" else slots[slot]
                words.append(Word(form.replace(slot, value), upos, ((id(adjunct), slot),)))
            else:
                role = "case" if upos in FUNCTION_TAGS else form
                words.append(Word(form, upos, ((id(adjunct), role),)))
        return words

    def month(self, concept: str) -> str:
        """A month as it stands in a date."""
        entry = self.lexicon[concept]
        return entry.get("date") or next(form for form, upos in self.parse(entry.form) if upos != "ADP")

    def asked(self, clause: Clause) -> NounPhrase | Adjunct | None:
        """The constituent that a question asks for."""
        for phrase in (clause.subject, clause.object, clause.recipient):
            if isinstance(phrase, Pronoun) and phrase.concept in ("who", "what"):
                return phrase
            if isinstance(phrase, Noun) and phrase.det == "how_many":
                return phrase
        return next((adjunct for adjunct in clause.adjuncts if adjunct.asked), None)

    def adjuncts(self, clause: Clause, *kinds: str) -> list[Word]:
        """The adjuncts of these kinds in this order, less one that stands at the front or is asked for."""
        words: list[Word] = []
        for kind in kinds:
            adjunct = clause.adjunct(kind)
            if adjunct is not None and kind != clause.front:
                words += self.adjunct(adjunct, clause)
        return words

    def fronted(self, clause: Clause, comma: bool = True) -> list[Word]:
        """The adjunct that the clause begins with."""
        adjunct = clause.adjunct(clause.front) if clause.front else None
        if adjunct is None:
            return []
        words = self.adjunct(adjunct, clause)
        return [*words, Word(self.comma, "PUNCT")] if comma else words

    def conjunction(self, link: str, clause: Clause, first: bool) -> tuple[list[Word], list[Word]]:
        """A conjunction's words before its clause, and after it where the language brackets the clause."""
        entry = self.lexicon[link]
        markup = (entry.get("initial") if first else "") or entry.form
        before, _, after = markup.partition("…")
        key = (id(clause), "link")
        return self.markup(before, key), self.markup(after, key)

    def subordinate(self, clause: Clause, link: str) -> list[Word]:
        """A clause under a conjunction."""
        return self.clause(clause, "sub")

    def realise(self, sentence: Sentence) -> list[Word]:
        """The words of a sentence, with its punctuation and its capital."""
        main, *rest = sentence.clauses
        links = list(sentence.links)
        words: list[Word] = []
        order: Order = "question" if sentence.question else "main"
        if links and links[0] in SUBORDINATE and links[0] != "that":
            entry = self.lexicon[links[0]]
            if sentence.fronted or "first" in entry:
                link, second = links.pop(0), rest.pop(0)
                before, after = self.conjunction(link, second, first=True)
                words += [*before, *self.subordinate(second, link), *after]
                words += [] if "nocomma" in entry else [Word(self.comma, "PUNCT")]
                words += self.markup(entry.get("then"), (id(second), "then"))
                order = "after"
        words += self.clause(main, order)
        for link, clause in zip(links, rest, strict=True):
            if "comma" in self.lexicon[link]:
                words.append(Word(self.comma, "PUNCT"))
            words += self.conjunction(link, clause, first=False)[0]
            words += self.subordinate(clause, link) if link in SUBORDINATE else self.clause(clause, "main")
        return self.finish(words, sentence.question)

    def finish(self, words: list[Word], question: bool) -> list[Word]:
        """Closing punctuation and a capital first letter."""
        opening, closing = self.question_marks
        words.append(Word(closing if question else self.full_stop, "PUNCT"))
        for position in range(len(words) - 2, -1, -1):
            # a comma that closes a relative clause gives way to the mark after it
            if words[position].form == self.comma and words[position + 1].upos == "PUNCT":
                del words[position]
        first = words[0]
        first.form = first.form[:1].upper() + first.form[1:]
        if question and opening:
            words.insert(0, Word(opening, "PUNCT", tight=True))
        return words

    def text(self, words: list[Word]) -> str:
        """Running text, spaced as the language spaces it."""
        return self.spans(words)[0]

    def spans(self, words: list[Word]) -> tuple[str, list[tuple[int, int]]]:
        """Running text, and where in it each word begins and ends."""
        text, places = "", []
        tight = True
        for word in words:
            form = word.form.replace("_", " ")
            text += "" if tight else self.gap(form)
            places.append((len(text), len(text) + len(form)))
            text += form
            tight = word.tight or not self.space
        return text, places

    def gap(self, form: str) -> str:
        """What stands between a word and the form after it."""
        return "" if form in {".", ",", "?", "!", "।", ":", ";", "'s"} else self.space
