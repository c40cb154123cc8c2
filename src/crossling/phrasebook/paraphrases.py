"""Paraphrase pairs that share nearly all words: what differs is who did what, not which words are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crossling.data.records import LabelledPair
from crossling.phrasebook.dice import Dice
from crossling.phrasebook.grammar import Grammar
from crossling.phrasebook.lexicon import select
from crossling.phrasebook.nli import OPPOSITES, compared, state
from crossling.phrasebook.tree import Adjunct, Clause, Group, Noun, Quality, Sentence
from crossling.phrasebook.world import World

Pair = tuple[Sentence, Sentence]
Maker = Callable[[World, bool], Pair]


def make_row(grammar: Grammar, split: str, row: int) -> LabelledPair:
    """One pair; every two rows hold a paraphrase (1) and a scramble (0)."""
    label = Dice("paraphrase label", split, row // 2).shuffle(("1", "0"))[row % 2]
    dice = Dice("paraphrase", split, row)
    first, second = dice.pick(MAKERS[split])(World(split, dice), label == "1")
    if dice.chance(0.5):
        first, second = second, first
    return LabelledPair(grammar.text(grammar.realise(first)), grammar.text(grammar.realise(second)), label)


def moved(w: World, clause: Clause) -> Clause:
    """The clause with its time in front or where it was."""
    return clause.but(front="time" if not clause.front and w.dice.chance(0.6) else "")


def between_people(w: World, same: bool) -> Pair:
    verb = w.dice.pick(("help", "invite", "support", "criticise", "congratulate", "wait"))
    clause = Clause(verb, w.person(), w.person(), adjuncts=(w.where("sign", 1), w.time()))
    passive = verb in ("invite", "criticise") and w.dice.chance(0.6)
    if same:
        return Sentence((clause,)), Sentence((clause.but(passive=True) if passive else clause.but(front="time"),))
    swapped = clause.but(subject=clause.object, object=clause.subject, passive=passive)
    return Sentence((clause,)), Sentence((swapped if passive else moved(w, swapped),))


def between_places(w: World, same: bool) -> Pair:
    there, here = w.city(), w.city()
    verb = w.dice.pick(("travel", "return"))
    clause = Clause(verb, w.person(), adjuncts=(Adjunct("from", there), Adjunct("to", here), w.time()))
    if same:
        return Sentence((clause,)), Sentence((clause.but(front="time"),))
    back = (Adjunct("from", here), Adjunct("to", there), clause.adjuncts[2])
    return Sentence((clause,)), Sentence((moved(w, clause.but(adjuncts=back)),))


def comparing(w: World, same: bool) -> Pair:
    smaller, larger, quality = compared(w)
    first = state(larger, Quality(quality, than=smaller))
    opposite = OPPOSITES[quality]
    if same:
        second = state(smaller, Quality(opposite, than=larger))
    elif w.dice.chance(0.5):
        second = state(smaller, Quality(quality, than=larger))
    else:
        second = state(larger, Quality(opposite, than=smaller))
    return Sentence((first,)), Sentence((second,))


def two_deeds(w: World, same: bool) -> Pair:
    verbs = w.dice.sample(("buy", "sell", "find", "repair", "read", "lose", "visit"), 2)
    first, second = (w.deed(w.person(title=0), verbs=(verb,), counted=0) for verb in verbs)
    if same:
        return Sentence((first, second), ("and",)), Sentence((second, first), ("and",))
    crossed = (first.but(subject=second.subject), second.but(subject=first.subject))
    if w.dice.chance(0.5):
        crossed = crossed[::-1]
    return Sentence((first, second), ("and",)), Sentence(crossed, ("and",))


def two_things(w: World, same: bool) -> Pair:
    one, other = w.dice.sample(("car", "bicycle", "shirt", "hat", "table", "chair", "bag", "box"), 2)
    left, right = w.dice.sample(select("adj", "colour"), 2)
    things = Noun(one, "indef", adjectives=(left,)), Noun(other, "indef", adjectives=(right,))
    clause = Clause(w.dice.pick(("buy", "sell")), w.person(), Group(things), adjuncts=(w.time(),))
    if same:
        return Sentence((clause,)), Sentence((moved(w, clause.but(object=Group(things[::-1]))),))
    swapped = replace(things[0], adjectives=(right,)), replace(things[1], adjectives=(left,))
    order = swapped if w.dice.chance(0.5) else swapped[::-1]
    return Sentence((clause,)), Sentence((moved(w, clause.but(object=Group(order))),))


def giving(w: World, same: bool) -> Pair:
    verb = w.dice.pick(("give", "send", "sell"))
    clause = Clause(verb, w.person(), w.thing_for(verb, counted=0), recipient=w.person(), adjuncts=(w.time(),))
    if same:
        return Sentence((clause,)), Sentence((clause.but(front="time"),))
    return Sentence((clause,)), Sentence((moved(w, clause.but(subject=clause.recipient, recipient=clause.subject)),))


def reported(w: World, same: bool) -> Pair:
    speaker = Clause(w.dice.pick(("say", "announce")), w.person(title=0))
    deed = Clause(w.dice.pick(("help", "invite", "support")), w.person(), w.person(), adjuncts=(w.time(),))
    first = Sentence((speaker, deed), ("that",))
    if same:
        return first, Sentence((speaker, deed.but(front="time")), ("that",))
    if w.dice.chance(0.5):
        return first, Sentence((speaker.but(subject=deed.subject), deed.but(subject=speaker.subject)), ("that",))
    return first, Sentence((speaker, moved(w, deed.but(subject=deed.object, object=deed.subject))), ("that",))


def reasons(w: World, same: bool) -> Pair:
    left = Clause("leave", w.person(title=0), w.city())
    right = Clause("arrive", w.person(title=0), adjuncts=(Adjunct("in", w.city()),))
    first = Sentence((left, right), ("because",))
    if same:
        return first, Sentence((left, right), ("because",), fronted=True)
    crossed = (left.but(subject=right.subject), right.but(subject=left.subject))
    return first, Sentence(crossed, ("because",), fronted=w.dice.chance(0.5))


def two_times(w: World, same: bool) -> Pair:
    days = [Adjunct("time", concept=day) for day in w.dice.sample(select("time", "day"), 2)]
    verb = w.dice.pick(("visit", "leave"))
    first, second = (
        Clause(
            verb,
            w.person(title=0),
            w.city() if verb == "leave" else w.noun("sight", det="def"),
            adjuncts=(day,),
        )
        for day in days
    )
    if same:
        return Sentence((first, second), ("and",)), Sentence((second, first), ("and",))
    crossed = (first.but(adjuncts=second.adjuncts), second.but(adjuncts=first.adjuncts))
    return Sentence((first, second), ("and",)), Sentence(crossed if w.dice.chance(0.5) else crossed[::-1], ("and",))


def symmetric(w: World, same: bool) -> Pair:
    meeting = Clause("meet", w.person(title=0), w.person(title=0), adjuncts=(Adjunct("in", w.city()),))
    later = Clause("travel", w.person(title=0), adjuncts=(Adjunct("to", w.city()),))
    first = Sentence((meeting, later), ("and",))
    turned = meeting.but(subject=meeting.object, object=meeting.subject)
    if same:
        return first, Sentence((later, turned) if w.dice.chance(0.5) else (turned, later), ("and",))
    crossed = turned.but(object=later.subject)
    return first, Sentence((crossed, later.but(subject=meeting.subject)), ("and",))


MAKERS: dict[str, tuple[Maker, ...]] = {
    "train": (between_people, between_places, comparing, two_deeds, two_things),
    "dev": (giving, reasons),
    "test": (reported, two_times, symmetric),
}
