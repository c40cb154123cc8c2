"""English: do-support, possessive 's, a/an."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from crossling.phrasebook.grammar import Agreement, Grammar, Order, Word
from crossling.phrasebook.lexicon import Entry, load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Name, Noun, NounPhrase, Pronoun, Quality

PREPOSITIONS = {"to": "to", "from": "from", "with": "with", "for": "for"}


class English(Grammar):
    code = "en"

    def noun(self, noun: Noun, case: str) -> list[Word]:
        entry = self.lexicon[noun.concept]
        plural = self.agreement(noun).number == "pl"
        words = [*self.determiner(noun, entry, plural), *self.count(noun)]
        for position, adjective in enumerate(noun.adjectives):
            words.append(Word(self.lexicon[adjective].form, "ADJ", ((id(noun), f"adj{position}"),)))
        words.append(Word(pluralise(entry) if plural else entry.form, "NOUN", ((id(noun), "noun"),)))
        settle_article(words)
        if noun.owner and not is_human(noun.owner):
            words += [Word("of", "ADP", ((id(noun), "owner"),)), *self.phrase(noun.owner)]
        if noun.where:
            words += self.place(noun.where)
        if noun.relative:
            human = "person" in load_concepts()[noun.concept].tags
            words.append(Word("who" if human else "that", "PRON", ((id(noun.relative), "rel"),)))
            words += self.clause(noun.relative, "relative")
        return words

    def determiner(self, noun: Noun, entry: Entry, plural: bool) -> list[Word]:
        key = ((id(noun), "det"),)
        if noun.owner and is_human(noun.owner):
            return [*self.phrase(noun.owner), Word("'s", "PART", ((id(noun), "owner"),))]
        if noun.det == "def":
            return [Word("the", "DET", key)]
        if noun.det == "this":
            return [Word("these" if plural else "this", "DET", key)]
        mass = "mass" in entry or "mass" in load_concepts()[noun.concept].tags
        if noun.det == "indef" and not plural and not mass:
            return [Word("a", "DET", key)]
        return []

    def count(self, noun: Noun) -> list[Word]:
        if noun.det == "how_many":
            return self.markup(self.lexicon["how_many"].form, (id(noun), "count"))
        return number_words(self, noun)

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        if name.pattern and "det" in self.lexicon[name.pattern]:
            return [Word("the", "DET", ((id(name), "det"),)), *words]
        if name.title in ("mr", "mrs"):
            return [*self.tokens(self.lexicon[name.title].form, "PROPN", (id(name), "title")), *words]
        if name.title:
            title = Word(self.lexicon[name.title].form, "NOUN", ((id(name), "title"),))
            return [Word("the", "DET", ((id(name), "det"),)), title, *words]
        return words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        entry = self.lexicon[pronoun.concept]
        form = entry.get("o", entry.form) if case == "obl" else entry.form
        return [Word(form, "PRON", ((id(pronoun), "pron"),))]

    def place(self, place: NounPhrase) -> list[Word]:
        entry = self.lexicon[place.concept] if isinstance(place, Noun) else None
        form = next((p for p in ("at", "on") if entry and p in entry), "in")
        if isinstance(place, Name) and place.kind == "ORG":
            form = "at"
        return [Word(form, "ADP", ((id(place), "case"),)), *self.phrase(place)]

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        if adjunct.phrase is None:
            return self.tokens(self.lexicon[adjunct.concept].form, "ADV", (id(adjunct), "adv"))
        if adjunct.kind == "in":
            return self.place(adjunct.phrase)
        key = ((id(adjunct.phrase), "case"),)
        return [Word(PREPOSITIONS[adjunct.kind], "ADP", key), *self.phrase(adjunct.phrase, "obl")]

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        asked = self.asked(clause) if order == "question" else None
        subject = clause.object if clause.passive else clause.subject
        inverted = order == "question" and (asked is None or asked is not subject)
        finite, rest = self.predicate(clause, self.agreement(subject), inverted)
        words = self.fronted(clause)
        opening = self.phrase(subject, "nom") if order != "relative" else []
        if clause.verb == "exist":
            opening = [Word("there", "PRON", ())]
        if inverted:
            words += self.question_word(asked, clause) + finite + opening
        else:
            words += opening + finite
        return words + rest + self.tail(clause, asked)

    def question_word(self, asked: NounPhrase | Adjunct | None, clause: Clause) -> list[Word]:
        if asked is None:
            return []
        return self.adjunct(asked, clause) if isinstance(asked, Adjunct) else self.phrase(asked)

    def predicate(self, clause: Clause, agreement: Agreement, support: bool) -> tuple[list[Word], list[Word]]:
        """The finite word, which a question puts before the subject, and the rest of the verb group."""
        aux, key = (id(clause), "aux"), (id(clause), "verb")
        negation = [Word("not", "PART", ((id(clause), "not"),))] if clause.negative else []
        often = self.adjuncts(clause, "freq")
        plural = agreement.number == "pl"
        if clause.verb in ("be", "exist", "be_born") or clause.passive:
            forms = be_forms(clause.tense, plural)
            rest = [*negation, *[Word(form, "AUX", (key,)) for form in forms[1:]], *often]
            if clause.passive or clause.verb == "be_born":
                rest.append(Word(participle(self.lexicon[clause.verb]), "VERB", (key,)))
            return [Word(forms[0], "AUX", (aux if clause.passive else key,))], rest
        entry = self.lexicon[clause.verb]
        base = Word(entry.form.split()[0], "VERB", (key,))
        if clause.modal == "can":
            form = "can" if clause.tense == "present" else "could"
            joined = form == "can" and clause.negative and not support
            return [Word(form, "AUX", ((id(clause), "modal"),), tight=joined)], [*negation, *often, base]
        if clause.modal == "want":
            entry = self.lexicon["want"]
            base = Word("want", "VERB", ((id(clause), "modal"),))
            infinitive = [
                Word("to", "PART", ()),
                Word(self.lexicon[clause.verb].form.split()[0], "VERB", (key,)),
            ]
            return self.simple(clause, entry, base, infinitive, plural=plural, support=support)
        return self.simple(clause, entry, base, [], plural=plural, support=support)

    def simple(
        self, clause: Clause, entry: Entry, base: Word, after: list[Word], *, plural: bool, support: bool
    ) -> tuple[list[Word], list[Word]]:
        """A full verb in its tense, with do-support in questions and negations."""
        aux = ((id(clause), "aux"),)
        often = self.adjuncts(clause, "freq")
        negation = [Word("not", "PART", ((id(clause), "not"),))] if clause.negative else []
        if clause.tense == "future":
            return [Word("will", "AUX", aux)], [*negation, *often, base, *after]
        if support or clause.negative:
            form = "did" if clause.tense == "past" else "do" if plural else "does"
            return [Word(form, "AUX", aux)], [*negation, *often, base, *after]
        if clause.tense == "past":
            base.form = past(entry)
        elif not plural:
            base.form = add_s(base.form)
        return [*often, base], after

    def tail(self, clause: Clause, asked: object) -> list[Word]:
        """What follows the verb group."""
        words: list[Word] = []
        if isinstance(clause.predicate, Quality):
            words += self.quality(clause.predicate)
        elif clause.predicate is not None:
            words += self.phrase(clause.predicate, "obl")
        if clause.verb == "exist":
            words += self.phrase(clause.subject)
        elif clause.passive and clause.subject is not None:
            words += [Word("by", "ADP", ((id(clause.subject), "case"),)), *self.phrase(clause.subject, "obl")]
        elif clause.object is not None and not clause.passive and clause.object is not asked:
            preposition = self.lexicon[clause.verb].get("obj")
            if preposition:
                words.append(Word(preposition, "ADP", ((id(clause.object), "case"),)))
            words += self.phrase(clause.object, "obl")
        if clause.recipient is not None:
            words.append(Word("to", "ADP", ((id(clause.recipient), "case"),)))
            words += self.phrase(clause.recipient, "obl")
        kinds = ("manner", "with", "from", "to", "in", "for", "time")
        kept = [kind for kind in kinds if (a := clause.adjunct(kind)) is not None and a is not asked]
        return words + self.adjuncts(clause, *kept)

    def quality(self, quality: Quality) -> list[Word]:
        entry = self.lexicon[quality.concept]
        key = (id(quality), "adj")
        if quality.than is not None:
            compared = entry.get("cmp")
            words = [] if compared else [Word("more", "ADV", ((id(quality), "more"),))]
            words.append(Word(compared or entry.form, "ADJ", (key,)))
            return [*words, Word("than", "ADP", ((id(quality), "than"),)), *self.phrase(quality.than, "obl")]
        words = self.tokens(self.lexicon[quality.degree].form, "ADV", (id(quality), "degree")) if quality.degree else []
        return [*words, Word(entry.form, "ADJ", (key,))]


def number_words(grammar: Grammar, noun: Noun) -> list[Word]:
    """A count as the language writes it: a numeral, or ``many``."""
    if not noun.count:
        return []
    key = (id(noun), "count")
    if noun.count == "many":
        return grammar.markup(grammar.lexicon["many"].form, key)
    entry = grammar.lexicon.get(noun.count)
    return [Word(entry.form if entry else noun.count, "NUM", (key,))]


def is_human(phrase: NounPhrase) -> bool:
    """Whether English prefers the possessive 's."""
    if isinstance(phrase, Noun):
        return "person" in load_concepts()[phrase.concept].tags
    return isinstance(phrase, Name) and phrase.kind == "PER"


def settle_article(words: list[Word]) -> None:
    """``an`` before a vowel sound."""
    for article, following in pairwise(words):
        sounds_vowel = following.form[0].lower() in "aeiou" and not following.form.startswith(("uni", "eu"))
        if article.form == "a" and (sounds_vowel or following.form.startswith("hon")):
            article.form = "an"


@cache
def pluralise_form(form: str) -> str:
    if form.endswith("y") and form[-2] not in "aeiou":
        return form[:-1] + "ies"
    return form + ("es" if form.endswith(("s", "x", "ch", "sh")) else "s")


def pluralise(entry: Entry) -> str:
    """The plural: regular unless the lexicon gives it."""
    return entry.get("pl") or pluralise_form(entry.form)


def add_s(base: str) -> str:
    """The third person singular."""
    return pluralise_form(base)


def past(entry: Entry) -> str:
    """The simple past: the second form given, or regular."""
    forms = entry.form.split()
    return entry.get("p") or (forms[1] if len(forms) > 1 else forms[0] + ("d" if forms[0].endswith("e") else "ed"))


def participle(entry: Entry) -> str:
    """The past participle: the third form given, or regular."""
    forms = entry.form.split()
    return forms[2] if len(forms) > 2 else forms[0] if forms[0] == "born" else past(entry)


def be_forms(tense: str, plural: bool) -> tuple[str, ...]:
    """The forms of ``be``."""
    if tense == "future":
        return ("will", "be")
    if tense == "past":
        return ("were",) if plural else ("was",)
    return ("are",) if plural else ("is",)


GRAMMAR = English
