"""Hindi: verb last, postpositions after the oblique, ने with perfective transitives, agreement with bare objects."""

from __future__ import annotations

from crossling.phrasebook.grammar import Agreement, Grammar, Order, Word
from crossling.phrasebook.grammars.hi_forms import (
    HABITUAL,
    IS,
    OF,
    WAS,
    decline_entry,
    future,
    inflect,
    perfective,
)
from crossling.phrasebook.lexicon import load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, NounPhrase, Pronoun, Quality

PRONOUNS = {
    "he": ("वह", "उस", "उसने"), "she": ("वह", "उस", "उसने"), "they": ("वे", "उन", "उन्होंने"),
    "someone": ("कोई", "किसी", ""), "who": ("कौन", "किस", "किसने"), "what": ("क्या", "किस", ""),
}  # fmt: skip
ORDINARY = ("freq", "sentence", "time", "in", "with", "from", "to", "for")


class Hindi(Grammar):
    code = "hi"
    full_stop = "।"

    def noun(self, noun: Noun, case: str) -> list[Word]:
        oblique = case == "obl"
        slot = self.slot(noun)
        plural = slot.endswith("pl")
        words = self.attributes(noun, slot, oblique)
        if not (case == "negated" and noun.det == "indef" and not noun.count):
            words += self.determiner(noun, slot, oblique)
        for position, concept in enumerate(noun.adjectives):
            entry = self.lexicon[concept]
            form = inflect(entry.form, slot, oblique, "inv" in entry)
            words.append(Word(form, "ADJ", ((id(noun), f"adj{position}"),)))
        entry = self.lexicon[noun.concept]
        form = decline_entry(entry, plural=plural, oblique=oblique, feminine=noun.sex == "f")
        return words + self.tokens(form, "NOUN", (id(noun), "noun"))

    def agreement(self, phrase: NounPhrase | None) -> Agreement:
        """Respect is plural: श्री and श्रीमती."""
        agreement = super().agreement(phrase)
        if isinstance(phrase, Name) and phrase.title in ("mr", "mrs"):
            return Agreement(agreement.gender, "pl")
        return agreement

    def slot(self, phrase: NounPhrase | None) -> str:
        """Gender and number as the tables of endings name them."""
        gender, number = self.agreement(phrase)
        return f"{gender if gender == 'f' else 'm'} {number}"

    def attributes(self, noun: Noun, slot: str, oblique: bool) -> list[Word]:
        """Relative clause, owner and place, all before the noun."""
        words: list[Word] = []
        if noun.relative is not None:
            key = ((id(noun.relative), "rel"),)
            words += self.complements(noun.relative, None)
            *before, last = self.tokens(self.lexicon[noun.relative.verb].form, "NOUN", (id(noun.relative), "verb"))
            last.form, last.upos = last.form + "ने", "VERB"
            words += [*before, last, Word(inflect("वाला", slot, oblique), "ADP", key)]
        of = OF["m pl" if oblique and slot == "m sg" else slot]
        if noun.owner is not None:
            words += self.under(noun.owner, of, key=(id(noun), "owner"))
        if noun.where is not None:
            words += self.under(noun.where, of)
        return words

    def determiner(self, noun: Noun, slot: str, oblique: bool) -> list[Word]:
        key = (id(noun), "det")
        plural = slot.endswith("pl")
        if noun.det == "this":
            form = ("इन" if plural else "इस") if oblique else ("ये" if plural else "यह")
            return [Word(form, "DET", (key,))]
        count = (id(noun), "count")
        if noun.det == "how_many":
            return [Word("कितनी" if slot.startswith("f") else "कितने", "DET", (count,))]
        if noun.count:
            if noun.count == "many":
                return [Word("कई", "DET", (count,))]
            entry = self.lexicon.get(noun.count)
            return [Word(entry.form if entry else noun.count, "NUM", (count,))]
        mass = "mass" in load_concepts()[noun.concept].tags
        return [Word("एक", "DET", (key,))] if noun.det == "indef" and not plural and not mass else []

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        key = (id(name), "title")
        if name.title in ("mr", "mrs"):
            return self.markup(self.lexicon[name.title].form, key) + words
        if name.title:
            entry = self.lexicon[name.title]
            form = decline_entry(entry, plural=False, oblique=False, feminine=name.sex == "f")
            return [Word(form, "NOUN", (key,)), *words]
        return words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        direct, oblique, _ = PRONOUNS[pronoun.concept]
        return [Word(oblique if case == "obl" else direct, "PRON", ((id(pronoun), "pron"),))]

    def under(self, phrase: NounPhrase, postposition: str, key: object = None) -> list[Word]:
        """The oblique and its postposition, which personal pronouns swallow."""
        words = self.phrase(phrase, "obl")
        case = (key or (id(phrase), "case"),)
        if isinstance(phrase, Pronoun) and phrase.concept != "someone":
            first, *others = postposition.split()
            fused = PRONOUNS[phrase.concept][2] if first == "ने" else words[0].form + first
            words[0].form = fused
            words[0].keys += case
            return words + [Word(other, "ADP", case) for other in others]
        return words + [Word(form, "ADP", case) for form in postposition.split()]

    def place(self, place: NounPhrase) -> list[Word]:
        entry = self.lexicon[place.concept] if isinstance(place, Noun) else None
        return self.under(place, entry.get("at", "में") if entry else "में")

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        phrase = adjunct.phrase
        if phrase is None:
            words = self.tokens(self.lexicon[adjunct.concept].form, "ADV", (id(adjunct), "adv"))
            if len(words) > 1 and words[-1].form == "से":
                words[0].upos, words[-1].upos = "NOUN", "ADP"
            return words
        if adjunct.kind == "to" or (adjunct.kind == "in" and clause.verb == "arrive"):
            at = isinstance(phrase, Noun) and bool(self.lexicon[phrase.concept].get("at"))
            return self.under(phrase, "पर") if at else self.phrase(phrase, "obl")
        if adjunct.kind == "in":
            return self.place(phrase)
        return self.under(phrase, {"from": "से", "with": "के साथ", "for": "के लिए"}[adjunct.kind])

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        words = self.fronted(clause, comma=clause.front == "sentence")
        if order == "question" and self.asked(clause) is None:
            words.insert(0, Word("क्या", "PRON"))
        if clause.verb == "exist":
            return [
                *words,
                *self.adjuncts(clause, "time", "in"),
                *self.phrase(clause.subject),
                *self.copula(clause),
            ]
        if clause.verb == "be":
            subject = self.phrase(clause.subject, "dir")
            return [*words, *subject, *self.adjuncts(clause, "time", "in"), *self.predicate(clause)]
        if clause.passive:
            return words + self.passive(clause)
        complements, verb = self.complements(clause, clause.object), self.verb(clause)
        if order == "question" and self.asked(clause) is clause.subject:
            # the question word stands right before the verb proper
            host = len(self.split_verb(clause)[0])
            return [*words, *complements, *verb[:host], *self.subject(clause), *verb[host:]]
        return [*words, *self.subject(clause), *complements, *verb]

    def ergative(self, clause: Clause) -> bool:
        entry = self.lexicon[clause.verb]
        return clause.tense == "past" and "intr" not in entry and "dur" not in entry and not clause.modal

    def subject(self, clause: Clause) -> list[Word]:
        assert clause.subject is not None
        marker = self.lexicon[clause.verb].get("subj") or ("ने" if self.ergative(clause) else "")
        return self.under(clause.subject, marker) if marker else self.phrase(clause.subject, "dir")

    def marker(self, clause: Clause, target: NounPhrase) -> str:
        """The postposition of the object; का agrees with the noun inside the verb."""
        entry = self.lexicon[clause.verb]
        marker = entry.get("obj")
        if marker == "का":
            return "की" if entry.get("host") == "f" else "का"
        return marker or ("को" if is_person(target) else "")

    def complements(self, clause: Clause, target: NounPhrase | None) -> list[Word]:
        """Adjuncts, recipient, object and manner: everything between subject and verb."""
        asked = self.asked(clause)
        words = self.adjuncts(clause, *(kind for kind in ORDINARY if clause.adjunct(kind) is not asked))
        if clause.recipient is not None:
            words += self.under(clause.recipient, "को")
        if target is not None:
            marker = self.marker(clause, target)
            direct = "negated" if clause.negative else "dir"
            words += self.under(target, marker) if marker else self.phrase(target, direct)
        if isinstance(asked, Adjunct):
            words += self.adjunct(asked, clause)
        return words + self.adjuncts(clause, "manner")

    def verb(self, clause: Clause) -> list[Word]:
        """Host noun, negation, verb and auxiliary."""
        entry = self.lexicon[clause.verb]
        key = (id(clause), "verb")
        host, verb = self.split_verb(clause)
        negation = [Word("नहीं", "PART", ((id(clause), "not"),))] if clause.negative else []
        subject = self.slot(clause.subject)
        auxiliary = ((id(clause), "aux"),)
        if clause.modal:
            modal, own = self.lexicon[clause.modal].form, ((id(clause), "modal"),)
            upos = "AUX" if clause.modal == "can" else "VERB"
            verb.form += "" if clause.modal == "can" else "ना"
            if clause.modal == "can" and clause.tense == "past":
                return [*host, *negation, verb, Word(perfective(modal, subject), upos, own)]
            tense = WAS if clause.tense == "past" else IS
            finite = Word(modal + HABITUAL[subject], upos, own)
            return [*host, *negation, verb, finite, Word(tense[subject], "AUX", auxiliary)]
        if clause.tense == "future":
            return [*host, *negation, Word(future(verb.form, subject), "VERB", (key,))]
        if clause.tense == "past" and "dur" not in entry:
            return [*host, *negation, Word(perfective(verb.form, self.controller(clause)), "VERB", (key,))]
        tense = WAS if clause.tense == "past" else IS
        verb.form += HABITUAL[subject]
        return [*host, *negation, verb, Word(tense[subject], "AUX", auxiliary)]

    def split_verb(self, clause: Clause) -> tuple[list[Word], Word]:
        """The words before the verb proper, and the verb as a bare stem."""
        *host, verb = self.tokens(self.lexicon[clause.verb].form, "NOUN", (id(clause), "verb"))
        verb.upos = "VERB"
        return host, verb

    def controller(self, clause: Clause) -> str:
        """What a perfective agrees with: the noun in the verb, else a bare object, else by default m sg."""
        entry = self.lexicon[clause.verb]
        host = entry.get("host")
        if host:
            return {"m": "m sg", "f": "f sg", "mp": "m pl"}[host]
        if not self.ergative(clause) and not clause.passive:
            return self.slot(clause.subject)
        if clause.object is None or self.marker(clause, clause.object):
            return "m sg"
        return self.slot(clause.object)

    def passive(self, clause: Clause) -> list[Word]:
        assert clause.object is not None
        marker = self.marker(clause, clause.object)
        words = self.under(clause.object, marker) if marker else self.phrase(clause.object, "dir")
        words += self.adjuncts(clause, "time", "in")
        if clause.subject is not None:
            words += self.under(clause.subject, "द्वारा")
        host, verb = self.split_verb(clause)
        slot = self.controller(clause)
        verb.form = perfective(verb.form, slot)
        form = future("जा", slot) if clause.tense == "future" else perfective("जा", slot)
        negation = [Word("नहीं", "PART", ((id(clause), "not"),))] if clause.negative else []
        return [*words, *host, *negation, verb, Word(form, "AUX", ((id(clause), "aux"),))]

    def copula(self, clause: Clause) -> list[Word]:
        slot = self.slot(clause.subject)
        form = {"past": WAS[slot], "present": IS[slot], "future": future("हो", slot)}[clause.tense]
        upos = "VERB" if clause.verb == "exist" else "AUX"
        negation = [Word("नहीं", "PART", ((id(clause), "not"),))] if clause.negative else []
        return [*negation, Word(form, upos, ((id(clause), "verb"),))]

    def predicate(self, clause: Clause) -> list[Word]:
        predicate = clause.predicate
        if not isinstance(predicate, Quality):
            words = self.phrase(predicate, "dir")
            job = isinstance(predicate, Noun) and "job" in load_concepts()[predicate.concept].tags
            if job and isinstance(predicate, Noun) and not predicate.adjectives and words[0].form == "एक":
                words = words[1:]
            return words + self.copula(clause)
        entry = self.lexicon[predicate.concept]
        form = inflect(entry.form, self.slot(clause.subject), fixed="inv" in entry)
        words = [Word(form, "ADJ", ((id(predicate), "adj"),))]
        if predicate.than is not None:
            more = Word("ज़्यादा", "ADV", ((id(predicate), "more"),))
            words = [*self.under(predicate.than, "से", key=(id(predicate), "than")), more, *words]
        elif predicate.degree:
            degree = self.tokens(self.lexicon[predicate.degree].form, "ADV", (id(predicate), "degree"))
            words = degree + words
        return words + self.copula(clause)


def is_person(phrase: NounPhrase) -> bool:
    """Whether an object is marked with को."""
    if isinstance(phrase, Group):
        return is_person(phrase.members[0])
    if isinstance(phrase, Noun):
        return "person" in load_concepts()[phrase.concept].tags
    return phrase.kind == "PER" if isinstance(phrase, Name) else phrase.concept != "what"


GRAMMAR = Hindi
