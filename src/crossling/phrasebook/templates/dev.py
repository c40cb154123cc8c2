"""Templates of the development split."""

from __future__ import annotations

from crossling.phrasebook.lexicon import select
from crossling.phrasebook.tree import Adjunct, Clause, Group, Noun, Pronoun, Quality, Sentence
from crossling.phrasebook.world import BUSINESS, HABITS, SOCIAL, World


def place_then_deed(w: World) -> Sentence:
    clause = w.deed(w.somebody())
    return Sentence((clause.but(adjuncts=(Adjunct("in", w.location()), w.time()), front="in"),))


def arrival_first(w: World) -> Sentence:
    person = w.person(title=0)
    arrival = Clause("arrive", person, adjuncts=(Adjunct("in", w.location()), w.time()))
    deed = w.deed(w.pronoun(person), verbs=("buy", "visit", "lose", "find", "order"))
    return Sentence((deed, arrival), ("when",), fronted=True)


def return_home(w: World) -> Sentence:
    adjuncts = (Adjunct("from", w.country()), Adjunct("to", w.city()), w.time())
    return Sentence((Clause("return", w.somebody(0.8), adjuncts=adjuncts),))


def gift_of_organisation(w: World) -> Sentence:
    clause = Clause("give", w.organisation(), w.noun(concept="prize"), recipient=w.person())
    return Sentence((clause.but(adjuncts=(w.time(),)),))


def studies(w: World) -> Sentence:
    pattern = w.dice.pick(("university_of", "institute_of"))
    adjuncts = (Adjunct("in", w.organisation(pattern)), w.year())
    return Sentence((Clause("study", w.somebody(0.8), adjuncts=adjuncts),))


def criticised_group(w: World) -> Sentence:
    role = Noun("director", sex=w.sex(frozenset(("person",))), owner=w.organisation())
    pair = Group((w.person(title=0), w.person(title=0)))
    return Sentence((Clause(w.dice.pick(("criticise", "invite", "congratulate")), role, pair),))


def deed_although(w: World) -> Sentence:
    person = w.person(title=0)
    state = Clause("be", w.pronoun(person), predicate=Quality(w.dice.pick(("tired", "sick", "sad", "poor"))))
    deed = w.deed(person, verbs=("buy", "visit", "repair", "sell"))
    return Sentence((deed, state), ("although",), fronted=w.dice.chance(0.5))


def report_of_business(w: World) -> Sentence:
    future = w.deed(w.organisation(), verbs=BUSINESS, tense="future").but(adjuncts=(w.time("future"),))
    return Sentence((Clause("announce", w.person()), future), ("that",))


def relative_work(w: World) -> Sentence:
    role = w.noun("person", "job", det="def", adjective=0)
    role.relative = Clause("work", None, adjuncts=(Adjunct("in", w.noun("workplace", det="def")),), tense="present")
    return Sentence((Clause(w.dice.pick(SOCIAL), w.person(), role, adjuncts=(w.time(),), front="time"),))


def match_lost(w: World) -> Sentence:
    first = Clause("win", w.team(), Noun("match"), adjuncts=(w.time(),))
    second = Clause("be", Noun("director", sex="m", owner=w.team()), predicate=Quality("sad", "very"))
    return Sentence((first, second), ("and",))


def asked_who(w: World) -> Sentence:
    verb = w.dice.pick(("found", "lead"))
    return Sentence((Clause(verb, Pronoun("who"), w.organisation()),), question=True)


def asked_when(w: World) -> Sentence:
    clause = w.deed(w.person(), verbs=("sign", "sell", "visit", "publish"))
    return Sentence((clause.but(adjuncts=(Adjunct("time", concept="when_asked"),)),), question=True)


def habit_denied(w: World) -> Sentence:
    clause = w.deed(w.somebody(), verbs=HABITS, tense="present", counted=0)
    return Sentence((clause.but(negative=True),))


def wish_denied(w: World) -> Sentence:
    clause = Clause(w.dice.pick(("help", "invite", "support")), w.role(), w.person(), tense="present")
    return Sentence((clause.but(modal=w.dice.pick(("want", "can")), negative=True),))


def possession(w: World) -> Sentence:
    concept = w.dice.pick(select("noun", "thing"))
    thing = w.noun(concept=concept, det="def", adjective=0.4)
    thing.owner = w.person(title=0)
    verb = w.dice.pick(("find", "steal", "sell", "photograph", "see"))
    return Sentence((Clause(verb, w.somebody(), thing, adjuncts=(w.where(verb),)),))


TEMPLATES = (
    place_then_deed, arrival_first, return_home, gift_of_organisation, studies, criticised_group, deed_although,
    report_of_business, relative_work, match_lost, asked_who, asked_when, habit_denied, wish_denied, possession,
)  # fmt: skip
