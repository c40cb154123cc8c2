"""French: elision and contraction, compound past with agreement, ne … pas, partitives, est-ce que."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import pairwise
from typing import ClassVar

from crossling.phrasebook.grammar import Agreement, Word
from crossling.phrasebook.grammars.romance import Romance
from crossling.phrasebook.lexicon import Entry, load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Name, Noun, NounPhrase, Pronoun

ARTICLES = {
    "def": {"m": "le", "f": "la", "pl": "les"},
    "indef": {"m": "un", "f": "une", "pl": "des"},
    "this": {"m": "ce", "f": "cette", "pl": "ces"},
}
BE = {"past": "était étaient", "present": "est sont", "future": "sera seront"}
HAVE = {"past": "a ont", "present": "a ont", "future": "aura auront"}
ELIDED = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'"}
CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
NO_BREAK_SPACE = "\u00a0"


class French(Romance):
    code = "fr"
    relative_pronoun = "qui"
    more = "plus"
    than = "que"
    by = "par"
    prepositions: ClassVar[dict[str, str]] = {
        "to": "à",
        "from": "de",
        "with": "avec",
        "for": "pour",
        "recipient": "à",
    }

    def article(self, det: str, agreement: Agreement, entry: Entry | None = None) -> str:
        return ARTICLES[det]["pl" if agreement.number == "pl" else agreement.gender]

    def determiner(self, noun: Noun, agreement: Agreement, case: str) -> list[Word]:
        """Partitives for what is not counted; plain ``de`` under negation and before an adjective."""
        entry = self.lexicon[noun.concept]
        key = ((id(noun), "det"),)
        mass = "mass" in load_concepts()[noun.concept].tags
        if noun.det == "indef" and not noun.count:
            preposed = any("pre" in self.lexicon[adjective] for adjective in noun.adjectives)
            if case == "negated" or (agreement.number == "pl" and preposed):
                return [Word("de", "DET", key)]
            if mass:
                de = Word("de", "DET", key)
                return [de, Word(self.article("def", agreement, entry), "DET", key)]
        return super().determiner(noun, agreement, case)

    def plural(self, entry: Entry, form: str) -> str:
        if form == entry.form and entry.get("pl"):
            return entry.get("pl")
        return form if form[-1] in "sxz" else form + ("x" if form.endswith(("eau", "eu")) else "s")

    def inflect(self, entry: Entry, agreement: Agreement) -> str:
        form = entry.form
        if "inv" in entry:
            return form
        if agreement.gender == "f":
            feminine = entry.get("f") or (form if form.endswith("e") else form + "e")
            return feminine + ("s" if agreement.number == "pl" else "")
        if agreement.number == "pl":
            return entry.get("pl") or (form if form[-1] in "sx" else form + "s")
        return form

    def noun(self, noun: Noun, case: str) -> list[Word]:
        words = super().noun(noun, case)
        if self.agreement(noun) == ("m", "sg"):
            for word, following in pairwise(words):
                entry = next((e for a in noun.adjectives if (e := self.lexicon[a]).form == word.form), None)
                if entry and entry.get("v") and starts_with_vowel(following):
                    word.form = entry.get("v")
        return words

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        if name.title in ("mr", "mrs"):
            return [*self.markup(self.lexicon[name.title].form, (id(name), "title")), *words]
        if name.title:
            return self.titled(name)
        country = self.lexicon[name.parts[0]].gender if name.kind == "LOC" else ""
        if (name.pattern and "det" in self.lexicon[name.pattern]) or (country and case != "bare"):
            gender = country or self.name_gender(name)
            return [Word(ARTICLES["def"][gender], "DET", ((id(name), "det"),)), *words]
        return words

    def time(self, adjunct: Adjunct) -> list[Word]:
        """The first of a month is an ordinal."""
        words = super().time(adjunct)
        for word in words:
            if word.form == "1" and adjunct.concept == "date":
                word.form, word.upos = "1er", "ADJ"
        return words

    def predicated(self, entry: Entry) -> Entry:
        """Some adjectives have another form after the copula: un nouveau sac, le sac est neuf."""
        if not entry.get("pred"):
            return entry
        return Entry(entry.concept, entry.get("pred"), {"f": entry.get("predf")})

    def name_gender(self, name: Name) -> str:
        if name.kind == "LOC":
            return self.lexicon[name.parts[0]].gender or "m"
        return super().name_gender(name)

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        return [Word(self.lexicon[pronoun.concept].form, "PRON", ((id(pronoun), "pron"),))]

    def place(self, place: NounPhrase, clause: Clause | None = None) -> list[Word]:
        """à, en, au, dans, sur or chez, by what kind of place it is."""
        if isinstance(place, Name) and place.kind == "LOC":
            entry = self.lexicon[place.parts[0]]
            if entry.gender == "f" or (entry.gender and starts_with_vowel(Word(entry.form, "PROPN"))):
                return self.under("en", place, "bare")
            return self.under("à", place)
        if isinstance(place, Name):
            return self.under("à" if "det" in self.lexicon[place.pattern] else "chez", place)
        preposition = self.lexicon[place.concept].get("in", "à") if isinstance(place, Noun) else "à"
        if isinstance(place, Noun) and place.det != "def" and preposition == "à":
            preposition = "dans"
        return self.under(preposition, place)

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        phrase = adjunct.phrase
        if adjunct.kind == "to" and phrase is not None:
            preposition = self.lexicon[clause.verb].get("to")
            return self.under(preposition, phrase) if preposition else self.place(phrase)
        if adjunct.kind == "from" and isinstance(phrase, Name) and phrase.kind == "LOC":
            masculine = self.lexicon[phrase.parts[0]].gender == "m"
            return self.under("de", phrase, "" if masculine else "bare")
        return super().adjunct(adjunct, clause)

    def complement(self, clause: Clause, phrase: NounPhrase) -> list[Word]:
        return self.phrase(phrase, "negated" if clause.negative else "obl")

    def verb(self, clause: Clause, agreement: Agreement) -> list[Word]:
        finite, rest = self.verb_parts(clause, agreement)
        often = self.adjuncts(clause, "freq")
        key = ((id(clause), "not"),)
        if clause.negative:
            finite = [Word("ne", "ADV", key), *finite, Word("pas", "ADV", key)]
        if clause.verb == "exist":
            finite = [Word("il", "PRON"), *finite]
        return finite + often + rest

    def verb_parts(self, clause: Clause, agreement: Agreement) -> tuple[list[Word], list[Word]]:
        """What ``ne … pas`` encloses, and what follows."""
        plural = agreement.number == "pl"
        aux, key = ((id(clause), "aux"),), ((id(clause), "verb"),)
        if clause.verb == "exist":
            form = {"past": "avait", "present": "a", "future": "aura"}[clause.tense]
            return [Word("y", "PRON"), Word(form, "VERB", key)], []
        if clause.verb == "be":
            return [Word(BE[clause.tense].split()[plural], "AUX", key)], []
        entry = self.lexicon[clause.verb]
        if clause.passive:
            participle = [Word(agree(part(entry), agreement), "VERB", key)]
            if clause.tense == "past":
                finite = Word(HAVE["past"].split()[plural], "AUX", aux)
                return [finite], [Word("été", "AUX", aux), *participle]
            return [Word(BE[clause.tense].split()[plural], "AUX", aux)], participle
        if clause.modal:
            form = conjugate(self.lexicon[clause.modal], clause.tense, plural)
            return [Word(form, "VERB", ((id(clause), "modal"),))], [Word(entry.form, "VERB", key)]
        if clause.tense == "past" and not entry.get("imp"):
            auxiliary = BE["present"] if "être" in entry else HAVE["past"]
            target = agreement if "être" in entry else self.preceding_object(clause)
            form = agree(part(entry), target) if target else part(entry)
            return [Word(auxiliary.split()[plural], "AUX", aux)], [Word(form, "VERB", key)]
        return [Word(conjugate(entry, clause.tense, plural), "VERB", key)], []

    def preceding_object(self, clause: Clause) -> Agreement | None:
        """With avoir the participle agrees with an object that stands before it: how many …"""
        asked = clause.object
        return self.agreement(asked) if isinstance(asked, Noun) and asked.det == "how_many" else None

    def question(self, clause: Clause, asked: NounPhrase | Adjunct | None) -> list[Word]:
        """est-ce que, after the question word where there is one."""
        subject = clause.object if clause.passive else clause.subject
        words: list[Word] = []
        if isinstance(asked, Adjunct):
            words += self.adjunct(asked, clause)
        elif asked is not None:
            words += self.phrase(asked, "obl")
        words += [Word("est", "AUX", (), tight=True), Word("-ce", "PRON"), Word("que", "SCONJ")]
        if clause.verb != "exist":
            words += self.phrase(subject, "nom")
        words += self.verb(clause, self.agreement(subject)) + self.tail(clause, asked)
        return words + self.fronted(clause, comma=False)

    def finish(self, words: list[Word], question: bool) -> list[Word]:
        """Contract and elide, once the neighbours are known."""
        merged: list[Word] = []
        for position, word in enumerate(words):
            following = words[position + 1] if position + 1 < len(words) else None
            vowel = following is not None and starts_with_vowel(following, self.lexicon)
            last = merged[-1] if merged else None
            pair = (last.form, word.form) if last and word.upos == "DET" else None
            if pair in CONTRACTED and not (vowel and word.form == "le") and last:
                last.form = CONTRACTED[pair]
                last.keys += tuple(key for key in word.keys if key not in last.keys)
                continue
            if vowel and word.form in ELIDED and word.upos not in ("NOUN", "PROPN"):
                word.form, word.tight = ELIDED[word.form], True
            elif vowel and word.form == "ce" and word.upos == "DET":
                word.form = "cet"
            elif word.form == "si" and following is not None and following.form in ("il", "ils"):
                word.form, word.tight = "s'", True
            elif word.form in ("l'", "d'"):
                word.tight = True
            merged.append(word)
        return super().finish(merged, question)

    def gap(self, form: str) -> str:
        return NO_BREAK_SPACE if form in {"?", "!", ":", ";"} else super().gap(form)


@cache
def vowel_initial(form: str) -> bool:
    return unicodedata.normalize("NFD", form)[0].lower() in "aeiouœ"


def starts_with_vowel(word: Word, lexicon: object = None) -> bool:
    """Whether le, de, que … lose their vowel before a word; h is mute in our common nouns, not in names."""
    if word.form[0] in "hH":
        return word.upos in ("NOUN", "ADJ")
    return vowel_initial(word.form) and word.form not in ("-ce", "y") and word.upos != "NUM"


def part(entry: Entry) -> str:
    """The past participle."""
    return entry.get("part") or entry.form[:-2] + "é"


def agree(participle: str, agreement: Agreement) -> str:
    """A participle in agreement."""
    form = participle + "e" if agreement.gender == "f" else participle
    return form + "s" if agreement.number == "pl" and not form.endswith("s") else form


def conjugate(entry: Entry, tense: str, plural: bool) -> str:
    """A simple finite form in the third person; the past is the imperfect."""
    if tense == "future":
        form = entry.get("fut") or entry.form + "a"
        return form[:-1] + "ont" if plural else form
    if tense == "past":
        return entry.get("imp")[:-1] + "ent" if plural else entry.get("imp")
    stem = entry.form[:-2]
    return (entry.get("3p") or stem + "ent") if plural else entry.get("3") or stem + "e"


GRAMMAR = French
