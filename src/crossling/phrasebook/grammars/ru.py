"""Russian: six cases, animacy, numerals that govern, aspect, no articles, no present copula."""

from __future__ import annotations

from crossling.phrasebook.grammar import Agreement, Grammar, Order, Word
from crossling.phrasebook.grammars.ru_forms import (
    CASES,
    CONSONANTS,
    decline,
    decline_adjective,
    decline_name,
    inflect_numeral,
    past_form,
    short_participle,
)
from crossling.phrasebook.lexicon import Entry, load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Name, Noun, NounPhrase, Pronoun, Quality

THIS = {
    "m": "этот этого этому этот этим этом", "f": "эта этой этой эту этой этой",
    "n": "это этого этому это этим этом", "pl": "эти этих этим эти этими этих",
}  # fmt: skip
TITLES = {
    "mr": "господин господина господину господина господином господине",
    "mrs": "госпожа госпожи госпоже госпожу госпожой госпоже",
}
PRONOUNS = {
    "he": "он его ему его им нём", "she": "она её ей её ей ней", "they": "они их им их ими них",
    "someone": "кто-то кого-то кому-то кого-то кем-то ком-то", "who": "кто кого кому кого кем ком",
    "what": "что чего чему что чем чём",
}  # fmt: skip
ANIMATE = frozenset(("person", "animal", "animalhyper"))


class Russian(Grammar):
    code = "ru"

    def noun(self, noun: Noun, case: str) -> list[Word]:
        entry = self.lexicon[noun.concept]
        gender, number = self.agreement(noun)
        animate = not ANIMATE.isdisjoint(load_concepts()[noun.concept].tags)
        locative = case == "loc"
        case = "pre" if locative else case
        words: list[Word] = []
        slot, noun_case, plural = ("pl" if number == "pl" else gender), case, number == "pl"
        adjective_case = case
        if noun.det == "this":
            form = THIS[slot].split()[CASES.index("gen" if case == "acc" and animate and slot in ("m", "pl") else case)]
            words.append(Word(form, "DET", ((id(noun), "det"),)))
        if noun.count or noun.det == "how_many":
            numeral, adjective_case, noun_case, plural = self.count(noun, case, gender, animate)
            words += numeral
        for position, adjective in enumerate(noun.adjectives):
            form = decline_adjective(self.lexicon[adjective].form, slot, adjective_case, animate)
            words.append(Word(form, "ADJ", ((id(noun), f"adj{position}"),)))
        form = decline(entry, noun_case, plural=plural, animate=animate, feminine=noun.sex == "f")
        if locative and not plural:
            form = entry.get("loc") or form
        words.append(Word(form, "NOUN", ((id(noun), "noun"),)))
        return words + self.attached(noun, slot)

    def attached(self, noun: Noun, slot: str) -> list[Word]:
        """Owner, place and relative clause after the noun."""
        words = self.phrase(noun.owner, "gen")
        if noun.where:
            words += self.place(noun.where)
        if noun.relative:
            pronoun = Word(decline_adjective("который", slot, "nom"), "PRON", ((id(noun.relative), "rel"),))
            inner = self.clause(noun.relative, "relative")
            words += [Word(",", "PUNCT"), pronoun, *inner, Word(",", "PUNCT")]
        return words

    def count(self, noun: Noun, case: str, gender: str, animate: bool) -> tuple[list[Word], str, str, bool]:
        """The numeral, the case of adjectives, the case of the noun, and whether the noun is plural."""
        key = (id(noun), "count")
        if noun.det == "how_many" or noun.count == "many":
            words = self.markup(self.lexicon[noun.count or "how_many"].form, key)
            return words, "gen", "gen", True
        entry = self.lexicon.get(noun.count)
        form = entry.form if entry else noun.count
        form = inflect_numeral(noun.count, form, case=case, gender=gender, animate=animate)
        words = [Word(form, "NUM", (key,))]
        few = noun.count in ("2", "3", "4")
        if case not in ("nom", "acc"):
            return words, case, case, True
        if few and not (case == "acc" and animate):
            return words, "nom" if gender == "f" else "gen", "gen", False
        return words, "gen", "gen", True

    def name(self, name: Name, case: str) -> list[Word]:
        case = "pre" if case == "loc" else case
        if name.pattern:
            return self.organisation(name, case)
        if name.kind == "LOC":
            words = self.name_words(name)
            words[0].form = decline(self.lexicon[name.parts[0]], case, plural=False, animate=False)
            return words
        words = [
            Word(self.person_part(part, name.sex, case), "PROPN", ((id(name), part),), name) for part in name.parts
        ]
        key = ((id(name), "title"),)
        if name.title in TITLES:
            return [Word(TITLES[name.title].split()[CASES.index(case)], "NOUN", key), *words]
        if name.title:
            entry = self.lexicon[name.title]
            form = decline(entry, case, plural=False, animate=True, feminine=name.sex == "f")
            return [Word(form, "NOUN", key), *words]
        return words

    def person_part(self, part: str, sex: str, case: str) -> str:
        entry = self.lexicon[part]
        form = entry.get("f") if sex == "f" and entry.get("f") else entry.form
        return form if "0" in entry else decline_name(form, sex, case, "slav" in entry)

    def organisation(self, name: Name, case: str) -> list[Word]:
        """The head is declined; the place or the founder after it stands in the genitive."""
        part, pattern = self.lexicon[name.parts[0]], self.lexicon[name.pattern]
        if load_concepts()[part.concept].category == "last":
            genitive = self.person_part(part.concept, "m", "gen")
        else:
            genitive = decline(part, "gen", plural=False, animate=False)
        plain = pattern.form.startswith("{}*")
        form = decline(part, case, plural=False, animate=False) if plain else part.form
        words = self.pattern_words(name, {"{gen}": genitive, "{}": form})
        for word in words:
            if word.form.endswith("*"):
                word.form = word.form.removesuffix("*")
                if not plain:
                    head = Entry(name.pattern, word.form, {pattern.gender: ""})
                    word.form = decline(head, case, plural=False, animate=False)
        return words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        form = PRONOUNS[pronoun.concept].split()[CASES.index("pre" if case == "loc" else case)]
        return [Word(form, "PRON", ((id(pronoun), "pron"),))]

    def under(self, preposition: str, case: str, phrase: NounPhrase) -> list[Word]:
        """A preposition with its phrase: во Франции, со студентом."""
        words = self.phrase(phrase, case)
        start = words[0].form[:2].lower()
        if start[1:] in CONSONANTS + "ь" and (preposition, start[0]) in {
            ("в", "в"),
            ("в", "ф"),
            ("с", "с"),
            ("с", "з"),
        }:
            preposition += "о"
        return [Word(preposition, "ADP", ((id(phrase), "case"),)), *words]

    def place(self, place: NounPhrase, case: str = "loc") -> list[Word]:
        return self.under("на" if self.on(place) else "в", case, place)

    def on(self, place: NounPhrase) -> bool:
        return isinstance(place, Noun) and "na" in self.lexicon[place.concept]

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        phrase = adjunct.phrase
        if phrase is None:
            return self.tokens(self.lexicon[adjunct.concept].form, "ADV", (id(adjunct), "adv"))
        if adjunct.kind == "to" or (adjunct.kind == "in" and clause.verb == "arrive"):
            return self.place(phrase, "acc")
        if adjunct.kind == "in":
            return self.place(phrase)
        if adjunct.kind == "from":
            return self.under("с" if self.on(phrase) else "из", "gen", phrase)
        return self.under("с", "ins", phrase) if adjunct.kind == "with" else self.under("на", "acc", phrase)

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        asked = self.asked(clause) if order == "question" else None
        subject = clause.object if clause.passive else clause.subject
        nominative = self.phrase(subject, "nom") if order != "relative" else []
        agreement = self.agreement(subject)
        manner = self.adjuncts(clause, "freq", "manner")
        verb = self.verb(clause, agreement)
        front = self.fronted(clause, comma=clause.front == "sentence")
        tail = self.tail(clause, asked, agreement)
        if clause.verb == "exist":
            return [*front, *self.adjuncts(clause, "time", "in"), *verb, *nominative]
        if order == "question" and asked is None and not clause.predicate:
            particle = Word("ли", "PART")
            return [*verb[:1], particle, *nominative, *manner, *verb[1:], *tail, *front]
        if asked is not None and asked is not subject:
            question = self.question_word(clause, asked)
            if isinstance(asked, Adjunct) and clause.object is not None:
                return [*question, *nominative, *manner, *verb, *tail]
            return [*question, *manner, *verb, *nominative, *tail]
        return [*front, *nominative, *manner, *verb, *tail]

    def question_word(self, clause: Clause, asked: NounPhrase | Adjunct) -> list[Word]:
        if isinstance(asked, Adjunct):
            return self.adjunct(asked, clause)
        return self.phrase(asked, self.lexicon[clause.verb].get("obj", "acc"))

    def verb(self, clause: Clause, agreement: Agreement) -> list[Word]:
        slot = "pl" if agreement.number == "pl" else agreement.gender
        plural = agreement.number == "pl"
        key = ((id(clause), "verb"),)
        negation = [Word("не", "PART", ((id(clause), "not"),))] if clause.negative else []
        was = {"m": "был", "f": "была", "n": "было", "pl": "были"}[slot]
        copula = {"past": was, "present": "", "future": "будут" if plural else "будет"}[clause.tense]
        if clause.passive:
            auxiliary = [Word(copula, "AUX", ((id(clause), "aux"),))] if copula else []
            return [
                *negation,
                *auxiliary,
                Word(short_participle(self.lexicon[clause.verb], slot), "VERB", key),
            ]
        if clause.verb == "exist":
            return [*negation, Word(copula or "есть", "VERB", key)]
        if clause.verb == "be":
            if not copula and not negation and not isinstance(clause.predicate, Quality):
                return [Word("—", "PUNCT")]
            return [*negation, *([Word(copula, "AUX", key)] if copula else [])]
        entry = self.lexicon[clause.verb]
        if clause.modal:
            modal = self.lexicon[clause.modal]
            form = past_form(modal, slot) if clause.tense == "past" else modal.get("pres").split(",")[plural]
            return [*negation, Word(form, "VERB", ((id(clause), "modal"),)), Word(entry.form, "VERB", key)]
        if clause.tense == "past":
            return [*negation, Word(past_form(entry, slot), "VERB", key)]
        if clause.tense == "present":
            return [*negation, Word(entry.get("pres").split(",")[plural], "VERB", key)]
        if "ipf" in entry:
            auxiliary = [Word("будут" if plural else "будет", "AUX", ((id(clause), "aux"),))]
            return [*negation, *auxiliary, Word(entry.form, "VERB", key)]
        return [*negation, Word(entry.get("fut").split(",")[plural], "VERB", key)]

    def tail(self, clause: Clause, asked: object, agreement: Agreement) -> list[Word]:
        """Complements, then adjuncts."""
        words: list[Word] = []
        case = "nom" if clause.tense == "present" else "ins"
        if isinstance(clause.predicate, Quality):
            words += self.quality(clause.predicate, agreement, case)
        elif clause.predicate is not None:
            words += self.phrase(clause.predicate, case)
        if clause.passive:
            words += self.phrase(clause.subject, "ins")
        words += self.phrase(clause.recipient, "dat")
        if clause.object is not None and not clause.passive and clause.object is not asked:
            words += self.phrase(clause.object, self.lexicon[clause.verb].get("obj", "acc"))
        kinds = ("with", "from", "to", "in", "for", "time")
        return words + self.adjuncts(clause, *(kind for kind in kinds if clause.adjunct(kind) is not asked))

    def quality(self, quality: Quality, agreement: Agreement, case: str) -> list[Word]:
        entry = self.lexicon[quality.concept]
        key = ((id(quality), "adj"),)
        if quality.than is not None:
            than = Word("чем", "SCONJ", ((id(quality), "than"),))
            return [
                Word(entry.get("cmp"), "ADJ", key),
                Word(",", "PUNCT"),
                than,
                *self.phrase(quality.than, "nom"),
            ]
        slot = "pl" if agreement.number == "pl" else agreement.gender
        adjective = Word(decline_adjective(entry.form, slot, case), "ADJ", key)
        if not quality.degree:
            return [adjective]
        return [*self.tokens(self.lexicon[quality.degree].form, "ADV", (id(quality), "degree")), adjective]


GRAMMAR = Russian
