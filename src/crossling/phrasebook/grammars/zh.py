"""Chinese: measure words, modifiers before the noun, aspect particles, no spaces."""

from __future__ import annotations

from crossling.phrasebook.grammar import Grammar, Order, Word
from crossling.phrasebook.lexicon import load_concepts
from crossling.phrasebook.tree import Adjunct, Clause, Group, Name, Noun, NounPhrase, Pronoun, Quality


class Chinese(Grammar):
    code = "zh"
    full_stop = "。"
    comma = "，"
    list_comma = "、"
    question_marks = ("", "？")
    space = ""

    def noun(self, noun: Noun, case: str) -> list[Word]:
        words: list[Word] = []
        if noun.owner is not None:
            words += [*self.phrase(noun.owner), Word("的", "PART", ((id(noun), "owner"),))]
        if noun.where is not None:
            words += [*self.phrase(noun.where), Word("的", "PART", ((id(noun.where), "case"),))]
        words += [] if case == "negated" and noun.det == "indef" and not noun.count else self.determiner(noun)
        if noun.relative is not None:
            words += [
                *self.clause(noun.relative, "relative"),
                Word("的", "PART", ((id(noun.relative), "rel"),)),
            ]
        for position, concept in enumerate(noun.adjectives):
            entry = self.lexicon[concept]
            words.append(Word(entry.form, "ADJ", ((id(noun), f"adj{position}"),)))
            if "bare" not in entry and noun.relative is None:
                words.append(Word("的", "PART"))
        return [*words, Word(self.lexicon[noun.concept].form, "NOUN", ((id(noun), "noun"),))]

    def determiner(self, noun: Noun) -> list[Word]:
        """Numeral or demonstrative with the measure word of the noun."""
        key, count = ((id(noun), "det"),), (id(noun), "count")
        measure = Word(self.lexicon[noun.concept].get("cl", "个"), "NOUN", ((id(noun), "classifier"),))
        if noun.det == "how_many":
            return [*self.tokens(self.lexicon["how_many"].form, "NUM", count), measure]
        if noun.count == "many":
            return self.tokens(self.lexicon["many"].form, "NUM", count)
        if noun.count:
            entry = self.lexicon.get(noun.count)
            return [Word(entry.form if entry else noun.count, "NUM", (count,)), measure]
        if noun.det == "this":
            return [Word("这些", "DET", key)] if noun.number == "pl" else [Word("这", "DET", key), measure]
        if noun.det == "indef" and noun.number == "pl":
            return [Word("一些", "NUM", key)]
        mass = "mass" in load_concepts()[noun.concept].tags
        return [Word("一", "NUM", key), measure] if noun.det == "indef" and not mass else []

    def name(self, name: Name, case: str) -> list[Word]:
        words = self.name_words(name)
        if name.kind == "PER" and len(words) == 2:
            words.insert(1, Word("·", "PUNCT", (), name))
        if not name.title:
            return words
        title = self.tokens(self.lexicon[name.title].form, "NOUN", (id(name), "title"))
        return words + title if name.title in ("mr", "mrs") else title + words

    def pronoun(self, pronoun: Pronoun, case: str) -> list[Word]:
        return [Word(self.lexicon[pronoun.concept].form, "PRON", ((id(pronoun), "pron"),))]

    def joiner(self, group: Group) -> list[Word]:
        return [Word("和", "CCONJ", ((id(group), "and"),))]

    def located(self, place: NounPhrase) -> list[Word]:
        """A place with the word for inside or on top, where the noun wants one."""
        words = self.phrase(place)
        side = self.lexicon[place.concept].get("loc") if isinstance(place, Noun) else ""
        return [*words, Word(side, "ADP", ((id(place), "case"),))] if side else words

    def subordinate(self, clause: Clause, link: str) -> list[Word]:
        """``when`` needs no particle of completion."""
        words = self.clause(clause, "sub")
        return [word for word in words if word.form != "了"] if link == "when" else words

    def adjunct(self, adjunct: Adjunct, clause: Clause) -> list[Word]:
        if adjunct.kind == "time" and not adjunct.asked:
            return self.time(adjunct)
        phrase = adjunct.phrase
        if adjunct.concept == "where":
            where = Word("哪里", "PRON", ((id(adjunct), "adv"),))
            return [where] if clause.verb == "arrive" or adjunct.kind == "to" else [Word("在", "ADP"), where]
        if phrase is None:
            entry = self.lexicon[adjunct.concept]
            words = self.tokens(entry.form, "ADV", (id(adjunct), "adv"))
            return [*words, Word(entry.get("de"), "PART")] if entry.get("de") else words
        key = ((id(phrase), "case"),)
        if adjunct.kind == "to" or (adjunct.kind == "in" and clause.verb == "arrive"):
            return self.phrase(phrase)
        if adjunct.kind == "in":
            return [Word("在", "ADP", key), *self.located(phrase)]
        if adjunct.kind == "with":
            return [Word("和", "ADP", key), *self.phrase(phrase), Word("一起", "ADV", key)]
        return [Word({"from": "从", "for": "为"}[adjunct.kind], "ADP", key), *self.phrase(phrase)]

    def clause(self, clause: Clause, order: Order) -> list[Word]:
        words = self.fronted(clause)
        subject = clause.object if clause.passive else clause.subject
        place = clause.adjunct("in")
        if clause.verb == "exist":
            where = self.located(place.phrase) if place and place.phrase else []
            verb = Word("有", "VERB", ((id(clause), "verb"),))
            words += [
                *self.adjuncts(clause, "time"),
                *where,
                *self.particles(clause),
                verb,
                *self.phrase(subject),
            ]
        else:
            if order != "relative":
                words += self.phrase(subject)
            words += self.adjuncts(clause, "sentence", "time", "freq")
            if clause.verb == "be":
                words += self.predicate(clause)
            else:
                words += self.passive(clause) if clause.passive else self.verb_phrase(clause)
        if order == "question" and self.asked(clause) is None:
            words.append(Word("吗", "PART"))
        return words

    def particles(self, clause: Clause) -> list[Word]:
        """What stands before the verb: negation by tense, 将 for the future, 曾 for a past state."""
        negated, aux = ((id(clause), "not"),), ((id(clause), "aux"),)
        modal = [Word(self.lexicon[clause.modal].form, "AUX", ((id(clause), "modal"),))] if clause.modal else []
        if clause.negative:
            if clause.tense == "future" and not modal:
                return [Word("不", "ADV", negated), Word("会", "AUX", aux)]
            past = clause.tense == "past" and not modal and clause.verb != "be"
            return [Word("没有" if past else "不", "ADV", negated), *modal]
        if modal:
            return modal
        if clause.tense == "future":
            return [Word("将", "ADV", aux)]
        if clause.tense == "present" or clause.verb == "be":
            return []
        durable = clause.verb == "exist" or "dur" in load_concepts()[clause.verb].tags
        return [Word("曾", "ADV", aux)] if durable else []

    def verb_phrase(self, clause: Clause) -> list[Word]:
        entry = self.lexicon[clause.verb]
        after = "post" in entry
        words = [] if after else self.adjuncts(clause, *(("in",) if clause.verb != "arrive" else ()))
        words = [*self.particles(clause), *self.adjuncts(clause, "with", "from", "for"), *words]
        words += self.adjuncts(clause, "manner")
        recipient, target = clause.recipient, clause.object
        known = isinstance(target, Noun) and target.det in ("def", "this") and not target.count
        if recipient is not None and known and target is not None:
            words += [Word("把", "ADP"), *self.phrase(target)]
        form = entry.get("to") if recipient is not None else entry.form
        if clause.adjunct("to") is None:
            form = entry.get("alone", form)
        words.append(Word(form, "VERB", ((id(clause), "verb"),)))
        finished = clause.tense == "past" and not (clause.negative or clause.modal)
        if finished and "nole" not in entry and not after:
            words.append(Word("了", "AUX", ((id(clause), "aux"),)))
        words += self.adjuncts(clause, "to", *(("in",) if after or clause.verb == "arrive" else ()))
        words += self.phrase(recipient)
        return (
            words
            if recipient is not None and known
            else words + self.phrase(target, "negated" if clause.negative else "")
        )

    def passive(self, clause: Clause) -> list[Word]:
        """由 with the maker of a thing, 被 with one who acts upon it."""
        entry = self.lexicon[clause.verb]
        mark = entry.get("pas", "由") if clause.subject is not None else "被"
        key = (id(clause.subject), "case") if clause.subject is not None else (id(clause), "aux")
        place = self.adjuncts(clause, "in")
        agent = [Word(mark, "ADP", (key,)), *self.phrase(clause.subject)]
        verb = [Word(entry.form, "VERB", ((id(clause), "verb"),))]
        if mark == "被" and clause.tense == "past" and not clause.negative:
            verb.append(Word("了", "AUX", ((id(clause), "aux"),)))
        if mark == "由" and clause.negative:
            return [Word("不是", "AUX", ((id(clause), "not"),)), *agent, *place, *verb]
        return [*self.particles(clause), *agent, *place, *verb]

    def predicate(self, clause: Clause) -> list[Word]:
        predicate = clause.predicate
        if not isinstance(predicate, Quality):
            once = clause.tense == "past" and not clause.negative
            before = [Word("曾", "ADV", ((id(clause), "aux"),))] if once else self.particles(clause)
            copula = Word("是", "AUX", ((id(clause), "verb"),))
            return [*before, copula, *self.phrase(predicate)]
        entry = self.lexicon[predicate.concept]
        adjective = Word(entry.get("pred", entry.form), "ADJ", ((id(predicate), "adj"),))
        if predicate.than is not None:
            than = Word("比", "ADP", ((id(predicate), "than"),))
            negation = [Word("不", "ADV", ((id(clause), "not"),))] if clause.negative else []
            more = [] if clause.negative else [Word("更", "ADV", ((id(predicate), "more"),))]
            return [*negation, than, *self.phrase(predicate.than), *more, adjective]
        if clause.negative:
            return [*self.particles(clause), adjective]
        future = self.particles(clause)
        if predicate.degree and "novery" not in entry:
            degree = self.tokens(self.lexicon[predicate.degree].form, "ADV", (id(predicate), "degree"))
            end = [Word("了", "PART")] if predicate.degree == "too" else []
            return [*future, *degree, adjective, *end]
        return [*future, *([] if "novery" in entry else [Word("很", "ADV")]), adjective]


GRAMMAR = Chinese
