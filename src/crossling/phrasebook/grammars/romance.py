"""What Spanish and French share: articles, adjectives after the noun, ``de`` for owners, subject before verb."""

from __future__ import annotations

from typing import ClassVar

from crossling.phrasebook.grammar import Agreement, Grammar, Order, Word
from crossling.phrasebook.lexicon import Entry, load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, NounPhrase, Quality

AFTER_VERB = ("manner", "with", "from", "to", "in", "for", "time")


class Romance(Grammar):
    relative_pronoun: str
    more: str
    than: str
    by: str
    prepositions: ClassVar[dict[str, str]]

    # What each language defines.

    def article(self, det: str, agreement: Agreement, entry: Entry | None = None) -> str:
        """The article or demonstrative."""
        raise NotImplementedError

    def plural(self, entry: Entry, form: str) -> str:
        """A noun's plural."""
        raise NotImplementedError

    def inflect(self, entry: Entry, agreement: Agreement) -> str:
        """An adjective in agreement."""
        raise NotImplementedError

    def place(self, place: NounPhrase, clause: Clause | None = None) -> list[Word]:
        """Where something is."""
        raise NotImplementedError

    def verb(self, clause: Clause, agreement: Agreement) -> list[Word]:
        """The verb group with its negation."""
        raise NotImplementedError

    def complement(self, clause: Clause, phrase: NounPhrase) -> list[Word]:
        """A direct object."""
        raise NotImplementedError

    def question(self, clause: Clause, asked: NounPhrase | Adjunct | None) -> list[Word]:
        """A question that does not ask for its subject."""
        raise NotImplementedError

    # What both share.

    def noun(self, noun: Noun, case: str) -> list[Word]:
        entry = self.lexicon[noun.concept]
        agreement = self.agreement(noun)
        form = entry.get("f") if noun.sex == "f" and entry.get("f") else entry.form
        if agreement.number == "pl":
            form = self.plural(entry, form)
        before: list[Word] = []
        after: list[Word] = []
        for position, concept in enumerate(noun.adjectives):
            adjective = self.lexicon[concept]
            words = self.tokens(self.inflect(adjective, agreement), "ADJ", (id(noun), f"adj{position}"))
            (before if "pre" in adjective else after).extend(words)
        head = [*before, Word(form, "NOUN", ((id(noun), "noun"),)), *after]
        words = [*self.determiner(noun, agreement, case), *self.count(noun, agreement), *head]
        if noun.owner:
            words += [Word("de", "ADP", ((id(noun), "owner"),)), *self.phrase(noun.owner)]
        if noun.where:
            words += self.origin(noun.where)
        if noun.relative:
            words.append(Word(self.relative_pronoun, "PRON", ((id(noun.relative), "rel"),)))
            words += self.clause(noun.relative, "relative")
        return words

    def determiner(self, noun: Noun, agreement: Agreement, case: str) -> list[Word]:
        if noun.det in ("none", "how_many") or (noun.count and noun.det == "indef"):
            return []
        form = self.article(noun.det, agreement, self.lexicon[noun.concept])
        return [Word(form, "DET", ((id(noun), "det"),))] if form else []

    def count(self, noun: Noun, agreement: Agreement) -> list[Word]:
        key = (id(noun), "count")
        if noun.det == "how_many" or noun.count == "many":
            entry = self.lexicon[noun.count or "how_many"]
            words = self.markup(entry.form, key)
            for word in words:
                word.keys = (key,)
            if agreement.gender == "f" and entry.get("f"):
                words[0].form = entry.get("f")
            return words
        entry_or_none = self.lexicon.get(noun.count)
        form = entry_or_none.form if entry_or_none else noun.count
        return [Word(form, "NUM", (key,))] if noun.count else []

    def under(self, preposition: str, phrase: NounPhrase, case: str = "") -> list[Word]:
        """A preposition and its phrase; the short ones are said again before each member of a group."""
        if isinstance(phrase, Group) and preposition in ("a", "à", "de"):
            first, *others = phrase.members
            words = self.under(preposition, first, case)
            for member in others:
                words += [*self.joiner(phrase), *self.under(preposition, member, case)]
            return words
        return [Word(preposition, "ADP", ((id(phrase), "case"),)), *self.phrase(phrase, case)]

    def origin(self, place: NounPhrase) -> list[Word]:
        """The place that something belongs to."""
        return self.under("de", place, "bare")

    def titled(self, name: Name) -> list[Word]:
        """The profession before a person's name, with its article."""
        entry = self.lexicon[name.title]
        form = entry.get("f") if name.sex == "f" and entry.get("f") else entry.form
        article = Word(self.article("def", Agreement(name.sex, "sg"), entry), "DET", ((id(name), "det"),))
        return [article, Word(form, "NOUN", ((id(name), "title"),)), *self.name_words(name)]

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        if adjunct.phrase is None:
            return self.tokens(self.lexicon[adjunct.concept].form, "ADV", (id(adjunct), "adv"))
        if adjunct.kind == "in":
            return self.place(adjunct.phrase, clause)
        return self.under(self.prepositions[adjunct.kind], adjunct.phrase, "obl")

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        subject = clause.object if clause.passive else clause.subject
        if order == "question":
            asked = self.asked(clause)
            if asked is None or asked is not subject:
                return self.question(clause, asked)
        words = self.fronted(clause)
        if order != "relative" and clause.verb != "exist":
            words += self.phrase(subject, "nom")
        return words + self.verb(clause, self.agreement(subject)) + self.tail(clause, None)

    def tail(self, clause: Clause, asked: object) -> list[Word]:
        """What follows the verb: complements, then adjuncts."""
        subject = clause.object if clause.passive else clause.subject
        words: list[Word] = []
        if isinstance(clause.predicate, Quality):
            words += self.quality(clause.predicate, self.agreement(subject))
        elif clause.predicate is not None:
            words += self.noun_predicate(clause.predicate)
        if clause.verb == "exist" and subject is not None:
            words += self.complement(clause, subject)
        elif clause.passive and clause.subject is not None:
            words += self.under(self.by, clause.subject, "obl")
        elif clause.object is not None and not clause.passive and clause.object is not asked:
            words += self.complement(clause, clause.object)
        if clause.recipient is not None:
            words += self.under(self.prepositions["recipient"], clause.recipient, "obl")
        kinds = (kind for kind in AFTER_VERB if clause.adjunct(kind) is not asked)
        return words + self.adjuncts(clause, *kinds)

    def predicated(self, entry: Entry) -> Entry:
        """An adjective as it stands after the copula."""
        return entry

    def noun_predicate(self, predicate: NounPhrase) -> list[Word]:
        """A noun after the copula; professions stand bare."""
        words = self.phrase(predicate, "nom")
        bare = isinstance(predicate, Noun) and predicate.det == "indef" and not predicate.adjectives
        if bare and isinstance(predicate, Noun) and "job" in load_concepts()[predicate.concept].tags:
            return words[1:] if words[0].upos == "DET" else words
        return words

    def quality(self, quality: Quality, agreement: Agreement) -> list[Word]:
        form = self.inflect(self.predicated(self.lexicon[quality.concept]), agreement)
        adjective = self.tokens(form, "ADJ", (id(quality), "adj"))
        if quality.than is not None:
            more = Word(self.more, "ADV", ((id(quality), "more"),))
            than = Word(self.than, "SCONJ", ((id(quality), "than"),))
            return [more, *adjective, than, *self.phrase(quality.than, "obl")]
        if quality.degree:
            degree = self.tokens(self.lexicon[quality.degree].form, "ADV", (id(quality), "degree"))
            return degree + adjective
        return adjective
