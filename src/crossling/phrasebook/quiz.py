"""Questions on short texts: several people do the same kinds of thing, so only reading finds the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crossling.data.records import Question
from crossling.phrasebook.dice import Dice
from crossling.phrasebook.grammar import Grammar, Word
from crossling.phrasebook.tree import Adjunct, Clause, Name, Noun, NounPhrase, Pronoun, Sentence
from crossling.phrasebook.world import SMALL_COUNTS, World

Fact = tuple[Clause, tuple[str, ...]]
"""A clause, and the roles that can be asked for."""


def make_row(grammar: Grammar, split: str, row: int) -> Question:
    """One text with one question; which fact is asked for is drawn."""
    dice = Dice("qa", split, row)
    world = World(split, dice)
    chosen = dice.sample(FACTS[split], 3)
    facts = [kind(world) for kind in chosen]
    hero = facts[0][0].subject
    # one person does several kinds of thing, and one kind of thing is done by several people
    facts = [(fact.but(subject=hero) if dice.chance(0.5) else fact, roles) for fact, roles in facts]
    facts += [kind(world) for kind in chosen[: 1 + dice.below(3)]]
    clause, roles = facts[dice.below(len(facts))]
    query, answer = ask(clause, dice.pick(roles))
    pieces, offset, found = [], 0, ("", 0)
    for fact, _ in dice.shuffle(facts):
        words = grammar.realise(Sentence((fact,)))
        text, spans = grammar.spans(words)
        if fact is clause:
            inside = [i for i, word in enumerate(words) if expresses(word, answer)]
            start, end = spans[inside[0]][0], spans[inside[-1]][1]
            found = (text[start:end], offset + start)
        pieces.append(text)
        offset += len(text) + len(grammar.space)
    asked = grammar.text(grammar.realise(Sentence((query,), question=True)))
    return Question(f"{split}-{row}", asked, grammar.space.join(pieces), (found[0],), (found[1],))


def ask(clause: Clause, role: str) -> tuple[Clause, tuple[object, str]]:
    """The question for a role of a clause, and what marks the words of its answer."""
    if role in ("in", "time"):
        asked = Adjunct(role, concept="where" if role == "in" else "when_asked")
        target = clause.adjunct(role)
        assert target is not None
        adjuncts = tuple(asked if adjunct is target else adjunct for adjunct in clause.adjuncts)
        answer = target if role == "time" else target.phrase
        return clause.but(adjuncts=adjuncts, front=""), (answer, "")
    if role == "count":
        noun = clause.object
        assert isinstance(noun, Noun)
        return clause.but(object=replace(noun, count="", det="how_many", adjectives=()), front=""), (
            noun,
            "count",
        )
    phrase: NounPhrase = getattr(clause, role)
    pronoun = Pronoun("who" if isinstance(phrase, Name) else "what")
    return clause.but(**{role: pronoun}, front=""), (phrase, "")


def expresses(word: Word, answer: tuple[object, str]) -> bool:
    """Whether a word belongs to the answer: its content words, not the preposition or article before it."""
    node, part = answer
    if isinstance(node, Name):
        return word.entity is node
    roles = [key[-1] for key in word.keys if isinstance(key, tuple) and key[0] == id(node)]
    if isinstance(node, Adjunct):
        return any(role != "case" for role in roles)
    return any(role in ((part,) if part else ("noun", "adj0")) for role in roles)


def birth(w: World) -> Fact:
    return Clause("be_born", w.full_person(), adjuncts=(Adjunct("in", w.city()), w.date())), ("in", "time")


def founding(w: World) -> Fact:
    clause = Clause("found", w.full_person(), w.organisation(), adjuncts=(Adjunct("in", w.city()), w.year()))
    return clause, ("subject", "in", "time")


def purchase(w: World) -> Fact:
    verb = w.dice.pick(("buy", "sell"))
    thing = replace(w.thing_for(verb, counted=0), det="indef", number="pl", count=w.dice.pick(SMALL_COUNTS))
    return Clause(verb, w.full_person(), thing, adjuncts=(Adjunct("in", w.city()),)), (
        "subject",
        "count",
        "in",
    )


def visit(w: World) -> Fact:
    place = w.noun("sight", det="indef", adjective=0.7)
    clause = Clause("visit", w.full_person(), place, adjuncts=(Adjunct("in", w.city()), w.time()))
    return clause, ("in", "time")


def help_given(w: World) -> Fact:
    verb = w.dice.pick(("help", "invite", "support"))
    clause = Clause(verb, w.full_person(), w.full_person(), adjuncts=(Adjunct("in", w.city()), w.time()))
    return clause, ("subject", "object", "in", "time")


def work(w: World) -> Fact:
    return Clause("work", w.full_person(), adjuncts=(Adjunct("in", w.city()), w.year())), ("in", "time")


def loss(w: World) -> Fact:
    verb = w.dice.pick(("lose", "find"))
    thing = replace(w.thing_for(verb, counted=0), det="indef")
    clause = Clause(verb, w.full_person(), thing, adjuncts=(Adjunct("in", w.city()), w.time()))
    return clause, ("subject", "object", "in", "time")


def signing(w: World) -> Fact:
    contract = w.noun("document", det="indef")
    clause = Clause("sign", w.full_person(), contract, adjuncts=(Adjunct("in", w.city()), w.time()))
    return clause, ("subject", "in", "time")


def studies(w: World) -> Fact:
    adjuncts = (Adjunct("in", w.organisation("university_of")), w.year())
    return Clause("study", w.full_person(), adjuncts=adjuncts), ("in", "time")


def criticism(w: World) -> Fact:
    verb = w.dice.pick(("criticise", "congratulate"))
    clause = Clause(verb, w.full_person(), w.full_person(), adjuncts=(w.time(),))
    return clause, ("subject", "object", "time")


def writing(w: World) -> Fact:
    verb = w.dice.pick(("write", "translate"))
    thing = replace(w.thing_for(verb, counted=0), det="indef", number="pl", count=w.dice.pick(SMALL_COUNTS))
    return Clause(verb, w.full_person(), thing, adjuncts=(Adjunct("in", w.country()),)), (
        "subject",
        "count",
        "in",
    )


def arrival(w: World) -> Fact:
    return Clause("arrive", w.full_person(), adjuncts=(Adjunct("in", w.city()), w.time())), ("time",)


def reading(w: World) -> Fact:
    verb = w.dice.pick(("read", "see"))
    thing = w.noun("text" if verb == "read" else "animal", det="indef", adjective=0.5)
    clause = Clause(verb, w.full_person(), thing, adjuncts=(Adjunct("in", w.country()), w.time()))
    return clause, ("object", "in", "time", "subject")


FACTS: dict[str, tuple[Callable[[World], Fact], ...]] = {
    "train": (birth, founding, purchase, visit, help_given, work, loss),
    "dev": (signing, studies, criticism),
    "test": (writing, arrival, reading),
}
