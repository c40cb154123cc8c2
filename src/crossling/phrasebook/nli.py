"""Inference pairs: a premise, and a hypothesis that follows from it, contradicts it, or is left open by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crossling.data.records import LabelledPair
from crossling.phrasebook.dice import Dice
from crossling.phrasebook.grammar import Grammar
from crossling.phrasebook.lexicon import load_concepts, select
from crossling.phrasebook.tree import (
    Adjunct,
    Clause,
    Group,
    Name,
    Noun,
    NounPhrase,
    Pronoun,
    Quality,
    Sentence,
)
from crossling.phrasebook.world import SMALL_COUNTS, World, adjectives_for

LABELS = ("entailment", "neutral", "contradiction")
Pair = tuple[Clause, Clause]
HYPERNYMS = {"animal": "animal", "fruit": "fruit", "building": "building"}
ANTONYMS = {
    "big": "small", "old": "new", "ancient": "recent", "expensive": "cheap", "heavy": "light", "long": "short",
    "difficult": "easy", "interesting": "boring", "cold": "hot", "safe": "dangerous", "clean": "dirty",
    "rich": "poor",
}  # fmt: skip
OPPOSITES = {**ANTONYMS, **{b: a for a, b in ANTONYMS.items()}}
VERBS = {
    "train": ("buy", "sell", "find", "repair", "photograph", "visit", "wash"),
    "dev": ("build", "describe", "translate", "steal"),
    "test": ("write", "sign", "see", "present", "lose"),
}


def make_row(grammar: Grammar, split: str, row: int) -> LabelledPair:
    """One pair; every three rows hold each label once."""
    label = Dice("nli label", split, row // 3).shuffle(LABELS)[row % 3]
    dice = Dice("nli", split, row)
    premise, hypothesis = dice.pick(CASES[label])(World(split, dice))
    first, second = (grammar.text(grammar.realise(Sentence((clause,)))) for clause in (premise, hypothesis))
    return LabelledPair(first, second, label)


def scene(w: World, *, counted: float = 0.0, adjective: float = 0.6) -> Clause:
    """Somebody did something, somewhere, some time."""
    verb = w.dice.pick(VERBS[w.split])
    thing = w.noun(concept=w.thing_for(verb).concept, det="indef", adjective=adjective, counted=counted)
    subject: NounPhrase = w.person(title=0.2) if w.dice.chance(0.75) else w.role()
    clause = Clause(verb, subject, thing, adjuncts=(w.where(verb, 1.0), w.time()))
    return clause.but(front="time") if w.dice.chance(0.25) else clause


def object_of(clause: Clause) -> Noun:
    """The object of a scene, which is always a common noun."""
    assert isinstance(clause.object, Noun)
    return clause.object


def shorten(w: World, clause: Clause) -> Clause:
    """The clause with one adjunct or none."""
    kept = tuple(adjunct for adjunct in clause.adjuncts if w.dice.chance(0.35))[:1]
    return clause.but(adjuncts=kept, front="")


def vary(w: World, clause: Clause) -> Clause:
    """The clause as it is or, where the verb allows it, in the passive."""
    passive = "pass" in load_concepts()[clause.verb].tags and not clause.negative and w.dice.chance(0.3)
    return clause.but(passive=True, front="") if passive else clause


def plain(noun: Noun) -> Noun:
    """A noun without its adjectives."""
    return replace(noun, adjectives=())


# Entailment


def fewer_details(w: World) -> Pair:
    clause = scene(w, counted=0.35)
    thing = object_of(clause) if w.dice.chance(0.4) else plain(object_of(clause))
    return clause, vary(w, shorten(w, clause).but(object=thing))


def said_again(w: World) -> Pair:
    clause = scene(w, counted=0.2)
    clause = clause.but(negative=w.dice.chance(0.5))
    return clause, vary(w, clause.but(front="" if clause.front else "time"))


def wider_object(w: World) -> Pair:
    """Also the ground of a contradiction and, turned round, of an open question."""
    tag = w.dice.pick(tuple(HYPERNYMS))
    verb = "eat" if tag == "fruit" else w.dice.pick(("see", "photograph"))
    thing = w.noun(tag, det="indef")
    clause = Clause(verb, w.somebody(), thing, adjuncts=(Adjunct("in", w.location()), w.time()))
    return clause, shorten(w, clause).but(object=Noun(HYPERNYMS[tag], "indef"))


def some_person(w: World) -> Pair:
    clause = scene(w)
    return clause, shorten(w, clause).but(subject=Pronoun("someone"))


def stated_profession(w: World) -> Pair:
    person = w.full_person()
    person.title = w.dice.pick(select("noun", "job"))
    clause = scene(w).but(subject=person)
    role = Noun(person.title, "indef", sex=person.sex)
    return clause, Clause("be", Name("PER", person.parts, person.sex), predicate=role, tense="present")


def narrower_denial(w: World) -> Pair:
    clause = scene(w, adjective=0).but(negative=True)
    clause = shorten(w, clause)
    return clause, clause.but(object=described(w, object_of(clause)))


def one_of_two(w: World) -> Pair:
    pair = Group((w.person(title=0), w.person(title=0)))
    clause = scene(w).but(subject=pair)
    return clause, shorten(w, clause).but(subject=w.dice.pick(pair.members))


def turned_comparison(w: World) -> Pair:
    smaller, larger, quality = compared(w)
    premise = state(larger, Quality(quality, than=smaller))
    return premise, state(smaller, Quality(OPPOSITES[quality], than=larger))


# Contradiction


def denied(w: World) -> Pair:
    clause = scene(w)
    opposite = clause.but(negative=True, front="")
    return (clause, opposite) if w.dice.chance(0.35) else (opposite, vary(w, clause))


def denied_widely(w: World) -> Pair:
    clause, wide = wider_object(w)
    return clause, wide.but(negative=True, adjuncts=())


def denied_profession(w: World) -> Pair:
    clause, role = stated_profession(w)
    return clause, role.but(negative=True)


def other_day(w: World) -> Pair:
    first, second = w.dice.sample(select("time", w.dice.pick(("day", "month"))), 2)
    clause = scene(w, adjective=0.2)
    times = [clause.but(adjuncts=(Adjunct("time", concept=concept),), front="") for concept in (first, second)]
    return times[0], vary(w, times[1])


def other_place(w: World) -> Pair:
    clause = scene(w, adjective=0.2).but(front="")
    return clause, vary(w, clause.but(adjuncts=(Adjunct("in", w.location()), *clause.adjuncts[1:])))


def other_number(w: World) -> Pair:
    clause = scene(w, counted=1.0)
    thing = object_of(clause)
    if not thing.count:
        return denied(w)
    number = w.dice.pick([count for count in SMALL_COUNTS if count != thing.count])
    first = replace(thing, count=w.dice.pick([c for c in SMALL_COUNTS if c != number]))
    return clause.but(object=first), vary(w, clause.but(object=replace(thing, count=number)))


def opposite_quality(w: World) -> Pair:
    thing = Noun(w.dice.pick(select("noun", "thing")), owner=w.person(title=0))
    quality = w.dice.pick(("big", "old", "expensive", "heavy", "new", "small", "cheap", "light"))
    return state(thing, Quality(quality, w.dice.pick(("", "very")))), state(thing, Quality(OPPOSITES[quality]))


def reversed_comparison(w: World) -> Pair:
    smaller, larger, quality = compared(w)
    return state(larger, Quality(quality, than=smaller)), state(smaller, Quality(quality, than=larger))


# Neutral


def described(w: World, noun: Noun) -> Noun:
    """The noun with an adjective."""
    fitting = adjectives_for(noun.concept) or ("beautiful",)
    return replace(noun, adjectives=(w.dice.pick(fitting),))


def more_details(w: World) -> Pair:
    clause = scene(w, adjective=0, counted=0.35)
    if w.dice.chance(0.5):
        return shorten(w, clause).but(adjuncts=()), vary(w, clause.but(front=w.dice.pick(("", "time"))))
    short = shorten(w, clause)
    longer = short.but(object=described(w, object_of(clause)))
    return short, longer.but(subject=Pronoun("someone")) if w.dice.chance(0.3) else vary(w, longer)


def other_deed(w: World) -> Pair:
    clause = scene(w)
    other = scene(w)
    if other.verb == clause.verb:
        other = other.but(verb=next(verb for verb in ("visit", "see", "describe") if verb != clause.verb))
        other = other.but(object=w.noun("sight", det="indef"))
    doer = Pronoun("someone") if w.dice.chance(0.2) else clause.subject
    return clause, shorten(w, other).but(subject=doer, negative=w.dice.chance(0.35))


def other_person(w: World) -> Pair:
    clause = scene(w)
    return clause, shorten(w, clause).but(subject=w.person(title=0))


def unstated_profession(w: World) -> Pair:
    person = w.full_person()
    role = w.profession(person, adjective=0)
    denial = w.dice.chance(0.5)
    return scene(w).but(subject=person), Clause("be", person, predicate=role, tense="present", negative=denial)


def wider_denial(w: World) -> Pair:
    clause = scene(w, adjective=0).but(negative=True, front="")
    narrow = clause.but(object=described(w, object_of(clause)), adjuncts=())
    return narrow, narrow.but(object=plain(object_of(clause)))


def narrower_object(w: World) -> Pair:
    wide, narrow = wider_object(w)
    return narrow, wide


def other_quality(w: World) -> Pair:
    first, second = opposite_quality(w)
    assert isinstance(first.predicate, Quality) and isinstance(second.predicate, Quality)
    related = (first.predicate.concept, second.predicate.concept)
    choices = [q for q in ("big", "old", "expensive", "heavy", "new", "small", "cheap", "light") if q not in related]
    return first, second.but(predicate=Quality(w.dice.pick(choices)))


def compared_otherwise(w: World) -> Pair:
    smaller, larger, quality = compared(w)
    other = w.dice.pick(("ancient", "recent") if quality in ("big", "small") else ("big", "small"))
    pair = (larger, smaller) if w.dice.chance(0.3) else (smaller, larger)
    return state(larger, Quality(quality, than=smaller)), state(pair[0], Quality(other, than=pair[1]))


def compared(w: World) -> tuple[Noun, Noun, str]:
    """Two places of a kind in two cities, and a quality that has an opposite."""
    concept = w.dice.pick(select("noun", "sight", "building"))
    pair = [Noun(concept, where=w.city()) for _ in range(2)]
    return pair[0], pair[1], w.dice.pick(("big", "ancient", "small", "recent"))


def state(subject: NounPhrase, quality: Quality) -> Clause:
    """Something is so."""
    return Clause("be", subject, predicate=quality, tense="present")


CASES: dict[str, tuple[Callable[[World], Pair], ...]] = {
    "entailment": (
        fewer_details, fewer_details, said_again, wider_object, some_person, stated_profession, narrower_denial,
        one_of_two, turned_comparison,
    ),
    "contradiction": (
        denied, denied, denied_widely, denied_profession, other_day, other_place, other_number, opposite_quality,
        reversed_comparison,
    ),
    "neutral": (
        more_details, more_details, other_deed, other_person, unstated_profession, wider_denial, narrower_object,
        compared_otherwise, other_quality,
    ),
}  # fmt: skip
