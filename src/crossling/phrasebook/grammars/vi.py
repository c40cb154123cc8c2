"""Vietnamese: no inflection; classifiers, particles for tense, adjectives and owners after the noun."""

from __future__ import annotations

from crossling.phrasebook.grammar import Grammar, Order, Word
from crossling.phrasebook.lexicon import load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Name, Noun, NounPhrase, Pronoun, Quality

TENSES = {"past": "đã", "future": "sẽ"}


class Vietnamese(Grammar):
    code = "vi"

    def noun(self, noun: Noun, case: str) -> list[Word]:
        entry = self.lexicon[noun.concept]
        mass = "mass" in load_concepts()[noun.concept].tags
        negated = case == "negated" and noun.det == "indef" and not noun.count and not mass
        words = [] if negated else self.determiner(noun)
        if entry.get("cl") and (noun.det != "none" or noun.count):
            words.append(Word(entry.get("cl"), "NOUN", ((id(noun), "classifier"),)))
        words.append(Word(entry.form, "NOUN", ((id(noun), "noun"),)))
        for position, adjective in enumerate(noun.adjectives):
            words.append(Word(self.lexicon[adjective].form, "ADJ", ((id(noun), f"adj{position}"),)))
        if noun.det == "this" or negated:
            words.append(Word("nào" if negated else "này", "DET", ((id(noun), "det"),)))
        if noun.relative is not None:
            words += self.clause(noun.relative, "relative")
        if noun.owner is not None:
            words += [Word("của", "ADP", ((id(noun), "owner"),)), *self.phrase(noun.owner)]
        return words + (self.place(noun.where) if noun.where is not None else [])

    def determiner(self, noun: Noun) -> list[Word]:
        key, count = ((id(noun), "det"),), (id(noun), "count")
        if noun.det == "how_many" or noun.count == "many":
            return self.tokens(self.lexicon[noun.count or "how_many"].form, "DET", count)
        if noun.count:
            entry = self.lexicon.get(noun.count)
            return [Word(entry.form if entry else noun.count, "NUM", (count,))]
        if noun.number == "pl":
            return [Word("các" if noun.det == "def" else "những", "DET", key)]
        mass = "mass" in load_concepts()[noun.concept].tags
        return [Word("một", "NUM", key)] if noun.det == "indef" and not mass else []

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        if not name.title:
            return words
        return self.tokens(self.lexicon[name.title].form, "NOUN", (id(name), "title")) + words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        return [Word(self.lexicon[pronoun.concept].form, "PRON", ((id(pronoun), "pron"),))]

    def under(self, preposition: str, phrase: NounPhrase) -> list[Word]:
        return [Word(preposition, "ADP", ((id(phrase), "case"),)), *self.phrase(phrase)]

    def place(self, place: NounPhrase) -> list[Word]:
        if isinstance(place, Noun):
            return self.under(self.lexicon[place.concept].get("in", "ở"), place)
        return self.under("tại" if isinstance(place, Name) and place.kind == "ORG" else "ở", place)

    def month(self, concept: str) -> str:
        return self.parse(self.lexicon[concept].form)[-1][0]

    def subordinate(self, clause: Clause, link: str) -> list[Word]:
        """``when`` needs no particle of the past."""
        words = self.clause(clause, "sub")
        return [word for word in words if word.form != "đã"] if link == "when" else words

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        phrase = adjunct.phrase
        if adjunct.concept == "where":
            where = Word("đâu", "PRON", ((id(adjunct), "adv"),))
            return [where] if clause.verb in ("arrive", "return") else [Word("ở", "ADP"), where]
        if phrase is None:
            return self.tokens(self.lexicon[adjunct.concept].form, "ADV", (id(adjunct), "adv"))
        if (adjunct.kind, clause.verb) in (("in", "arrive"), ("to", "return")):
            return self.phrase(phrase)
        if adjunct.kind == "in":
            return self.place(phrase)
        return self.under({"to": "đến", "from": "từ", "with": "với", "for": "cho"}[adjunct.kind], phrase)

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        words = self.fronted(clause)
        subject = clause.object if clause.passive else clause.subject
        if clause.verb == "exist":
            verb = [*self.tense(clause), Word("có", "VERB", ((id(clause), "verb"),))]
            return [*words, *self.adjuncts(clause, "time", "in"), *verb, *self.phrase(subject)]
        if order != "relative":
            words += self.phrase(subject)
        if clause.verb == "be":
            words += self.predicate(clause)
        elif clause.passive:
            words += self.passive(clause)
        else:
            words += [*self.adjuncts(clause, "freq"), *self.verb(clause)]
            words += self.phrase(clause.object, "negated" if clause.negative else "")
            if clause.recipient is not None:
                words += self.under("cho", clause.recipient)
        way = ("to", "from") if clause.verb == "return" else ("from", "to")
        words += self.adjuncts(clause, "manner", "with", *way, "in", "for", "time")
        if order == "question" and self.asked(clause) is None:
            opening = [Word("có", "ADV"), Word("phải", "ADJ")]
            return [*opening, *words, Word("không", "PART")]
        return words

    def tense(self, clause: Clause) -> list[Word]:
        """The particle of the tense, then the negation."""
        words = []
        if clause.tense in TENSES:
            words.append(Word(TENSES[clause.tense], "ADV", ((id(clause), "aux"),)))
        if clause.negative and clause.modal != "can":
            words.append(Word("không", "ADV", ((id(clause), "not"),)))
        return words

    def verb(self, clause: Clause) -> list[Word]:
        words = self.tense(clause)
        if clause.modal == "can" and clause.negative:
            words.append(Word("không_thể", "AUX", ((id(clause), "modal"), (id(clause), "not"))))
        elif clause.modal:
            words.append(Word(self.lexicon[clause.modal].form, "AUX", ((id(clause), "modal"),)))
        return [*words, Word(self.lexicon[clause.verb].form, "VERB", ((id(clause), "verb"),))]

    def passive(self, clause: Clause) -> list[Word]:
        """được (or bị for what one suffers), agent, verb."""
        entry = self.lexicon[clause.verb]
        mark = Word(entry.get("pas", "được"), "AUX", ((id(clause), "aux"),))
        verb = Word(entry.form, "VERB", ((id(clause), "verb"),))
        return [*self.tense(clause), mark, *self.phrase(clause.subject), verb]

    def predicate(self, clause: Clause) -> list[Word]:
        """là before nouns; adjectives need no copula."""
        predicate = clause.predicate
        key = ((id(clause), "verb"),)
        negation = [Word("không", "ADV", ((id(clause), "not"),))] if clause.negative else []
        future = [Word("sẽ", "ADV", ((id(clause), "aux"),))] if clause.tense == "future" else []
        if not isinstance(predicate, Quality):
            if negation:
                negation.append(Word("phải", "ADJ"))
            once = [Word("từng", "ADV", ((id(clause), "aux"),))] if clause.tense == "past" and not negation else []
            words = self.phrase(predicate)
            job = isinstance(predicate, Noun) and "job" in load_concepts()[predicate.concept].tags
            if job and words[0].form == "một":
                words = words[1:]
            return [*future, *once, *negation, Word("là", "AUX", key), *words]
        adjective = Word(self.lexicon[predicate.concept].form, "ADJ", ((id(predicate), "adj"),))
        if predicate.than is not None:
            than = Word("hơn", "ADV", ((id(predicate), "more"), (id(predicate), "than")))
            return [*future, *negation, adjective, than, *self.phrase(predicate.than)]
        degree = []
        if predicate.degree:
            degree = self.tokens(self.lexicon[predicate.degree].form, "ADV", (id(predicate), "degree"))
        return [*future, *negation, *degree, adjective]


GRAMMAR = Vietnamese
