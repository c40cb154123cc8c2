"""Templates of the test split."""

from __future__ import annotations

from crossling.phrasebook.lexicon import select
from crossling.phrasebook.tree import Adjunct, Clause, Group, Noun, Pronoun, Quality, Sentence
from crossling.phrasebook.world import BUSINESS, DEEDS, HABITS, SOCIAL, World


def time_and_place_first(w: World) -> Sentence:
    verb = w.dice.pick(SOCIAL)
    clause = Clause(verb, w.person(), w.person(), adjuncts=(w.time(), w.where("sign", 1)), front="time")
    return Sentence((clause,))


def founder_and_leader(w: World) -> Sentence:
    company = w.organisation("plain_company")
    first = Clause("found", w.full_person(), company, adjuncts=(w.year(),))
    lead = Clause("lead", w.person(), Noun("company"), tense="present")
    return Sentence((first, lead), ("but",))


def bought_from_abroad(w: World) -> Sentence:
    thing = w.noun("vehicle", det="indef")
    clause = Clause("sell", w.organisation(), thing, recipient=w.somebody(0.8), adjuncts=(w.where("sign", 1), w.time()))
    return Sentence((clause,))


def waiting_because(w: World) -> Sentence:
    person = w.person(title=0)
    waiting = Clause("wait", w.role(), person, adjuncts=(w.where("wait", 0),))
    reason = Clause("return", w.pronoun(person), adjuncts=(Adjunct("from", w.location()),))
    return Sentence((waiting, reason), ("because",))


def reason_first(w: World) -> Sentence:
    person = w.person(title=0)
    reason = Clause("be", person, predicate=Quality(w.dice.pick(select("adj", "state")), "very"))
    leaving = Clause("leave", w.pronoun(person), w.city(), adjuncts=(w.time(),))
    return Sentence((leaving, reason), ("because",), fronted=True)


def three_people(w: World) -> Sentence:
    trio = Group((w.person(title=0), w.person(title=0), w.person(title=0)))
    adjuncts = (Adjunct("to", w.location()), w.time())
    return Sentence((Clause("travel", trio, adjuncts=adjuncts),))


def report_with_reason(w: World) -> Sentence:
    person = w.person(title=0)
    deed = w.deed(person, counted=0)
    reason = Clause("be", w.pronoun(person), predicate=Quality(w.dice.pick(select("adj", "state"))))
    return Sentence((Clause("say", w.somebody()), deed, reason), ("that", "because"))


def passive_with_place(w: World) -> Sentence:
    clause = w.deed(w.organisation(), verbs=("build", "publish", "sign", "present")).but(passive=True)
    return Sentence((clause.but(adjuncts=(Adjunct("in", w.location()), w.year())),))


def relative_object(w: World) -> Sentence:
    role = w.noun("person", det="indef", adjective=0.3)
    role.relative = Clause("work", None, adjuncts=(Adjunct("for", w.organisation()),), tense="present")
    return Sentence(
        (Clause(w.dice.pick(("meet", "help", "invite")), w.person(), role, adjuncts=(w.time(),), front="time"),)
    )


def compared_people(w: World) -> Sentence:
    quality = Quality(w.dice.pick(("young", "rich", "clever", "friendly", "famous")), than=w.person(title=0))
    return Sentence((Clause("be", w.person(title=0), predicate=quality, tense="present"),))


def asked_how_many(w: World) -> Sentence:
    verb = w.dice.pick(("buy", "sell", "write", "read", "translate"))
    noun = w.thing_for(verb, counted=0)
    asked = Noun(noun.concept, "how_many", "pl")
    return Sentence((Clause(verb, w.person(), asked, adjuncts=(w.where("sign", 1),)),), question=True)


def asked_whom(w: World) -> Sentence:
    clause = Clause(w.dice.pick(("help", "invite", "support", "congratulate")), w.person(), Pronoun("who"))
    return Sentence((clause.but(adjuncts=(w.time(),)),), question=True)


def denied_but(w: World) -> Sentence:
    person = w.person(title=0)
    no = w.deed(person, verbs=("buy", "sell", "read", "visit", "write"), counted=0).but(negative=True)
    yes = w.deed(w.pronoun(person), verbs=DEEDS)
    return Sentence((no, yes), ("but",))


def team_abroad(w: World) -> Sentence:
    clause = Clause("win", w.team(), Noun("match", "indef"), adjuncts=(Adjunct("in", w.country()), w.date()))
    return Sentence((clause.but(front="time"),))


def counted_habit(w: World) -> Sentence:
    clause = w.deed(w.role(counted=0.6), verbs=HABITS, tense="present", counted=0)
    return Sentence((clause.but(adjuncts=(Adjunct("in", w.city()),)),))


def support_of_plan(w: World) -> Sentence:
    plan = w.noun("plan", det="def", adjective=0)
    plan.owner = w.organisation()
    return Sentence((Clause(w.dice.pick(("support", "criticise", "describe")), w.somebody(), plan),))


def business_denied(w: World) -> Sentence:
    clause = w.deed(w.organisation(), verbs=BUSINESS, tense="future", counted=0)
    return Sentence((clause.but(negative=True, adjuncts=(w.time("future"),)),))


TEMPLATES = (
    time_and_place_first, founder_and_leader, bought_from_abroad, waiting_because, reason_first, three_people,
    report_with_reason, passive_with_place, relative_object, compared_people, asked_how_many, asked_whom,
    denied_but, team_abroad, counted_habit, support_of_plan, business_denied,
)  # fmt: skip
