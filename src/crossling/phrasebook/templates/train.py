"""Templates of the training split."""

from __future__ import annotations

from crossling.phrasebook.lexicon import select
from crossling.phrasebook.tree import Adjunct, Clause, Group, Noun, Pronoun, Quality, Sentence, Tense
from crossling.phrasebook.world import BUSINESS, HABITS, PROJECTS, SOCIAL, World


def plain_deed(w: World) -> Sentence:
    return Sentence((w.deed(w.somebody()),))


def deed_somewhere(w: World) -> Sentence:
    clause = w.deed(w.person())
    return Sentence((clause.but(adjuncts=(w.where(clause.verb), w.time())),))


def deed_at_time_first(w: World) -> Sentence:
    return Sentence((w.deed(w.somebody()).but(adjuncts=(w.time(),), front="time"),))


def deed_denied(w: World) -> Sentence:
    return Sentence((w.deed(w.somebody(), counted=0).but(negative=True, adjuncts=(w.time(),)),))


def deed_with_manner(w: World) -> Sentence:
    manner = Adjunct("manner", concept=w.dice.pick(select("adverb", "manner")))
    verbs = ("read", "write", "repair", "wash", "sign", "translate", "open", "close", "sell", "photograph")
    return Sentence((w.deed(w.somebody(), verbs=verbs).but(adjuncts=(manner,)),))


def habit(w: World) -> Sentence:
    return Sentence((w.deed(w.somebody(), verbs=HABITS, tense="present").but(adjuncts=(w.time("present"),)),))


def frequent_habit(w: World) -> Sentence:
    often = Adjunct("freq", concept=w.dice.pick(select("adverb", "freq")))
    clause = w.deed(w.somebody(), verbs=HABITS, tense="present", counted=0)
    return Sentence((clause.but(adjuncts=(often, w.where(clause.verb))),))


def future_deed(w: World) -> Sentence:
    return Sentence((w.deed(w.somebody(), verbs=PROJECTS, tense="future").but(adjuncts=(w.time("future"),)),))


def people(w: World) -> Sentence:
    return Sentence((Clause(w.dice.pick(SOCIAL), w.person(), w.somebody(0.7), adjuncts=(w.time(),)),))


def people_somewhere(w: World) -> Sentence:
    verb = w.dice.pick(("meet", "help", "see", "congratulate", "invite"))
    return Sentence((Clause(verb, w.role(), w.person(), adjuncts=(w.where("meet"), w.time())),))


def gift(w: World) -> Sentence:
    verb = w.dice.pick(("give", "send", "sell"))
    return Sentence((Clause(verb, w.person(), w.thing_for(verb, counted=0), recipient=w.somebody()),))


def home(w: World) -> Sentence:
    return Sentence((Clause("live", w.somebody(0.8), adjuncts=(Adjunct("in", w.location()),), tense="present"),))


def work_for(w: World) -> Sentence:
    adjuncts = (Adjunct("for", w.organisation()), Adjunct("in", w.location()))
    tense: Tense = "present" if w.dice.chance(0.5) else "past"
    return Sentence((Clause("work", w.somebody(0.8), adjuncts=adjuncts, tense=tense),))


def founding(w: World) -> Sentence:
    adjuncts = (Adjunct("in", w.location()), w.year())
    return Sentence((Clause("found", w.full_person(), w.organisation(), adjuncts=adjuncts),))


def leading(w: World) -> Sentence:
    return Sentence((Clause("lead", w.person(), w.organisation(), tense="present"),))


def business(w: World) -> Sentence:
    return Sentence((w.deed(w.organisation(), verbs=BUSINESS).but(adjuncts=(w.where("sign", 1), w.time())),))


def business_passive(w: World) -> Sentence:
    verbs = ("build", "publish", "sign", "present", "translate")
    return Sentence((w.deed(w.organisation(), verbs=verbs).but(passive=True, adjuncts=(w.time(),)),))


def deed_passive(w: World) -> Sentence:
    verbs = ("write", "translate", "repair", "find", "steal", "build", "sign", "publish")
    return Sentence((w.deed(w.somebody(0.7), verbs=verbs).but(passive=True),))


def match_won(w: World) -> Sentence:
    contest = Noun("match", "def" if w.dice.chance(0.5) else "indef")
    return Sentence((Clause("win", w.team(), contest, adjuncts=(Adjunct("in", w.city()), w.time())),))


def prize(w: World) -> Sentence:
    clause = Clause("receive", w.somebody(0.8), w.noun(concept="prize"), adjuncts=(w.where("sign", 1), w.time()))
    return Sentence((clause.but(front="time" if w.dice.chance(0.5) else ""),))


def journey(w: World) -> Sentence:
    adjuncts = (Adjunct("from", w.city()), Adjunct("to", w.location()), w.time())
    return Sentence((Clause("travel", w.somebody(0.8), adjuncts=adjuncts),))


def journey_together(w: World) -> Sentence:
    adjuncts = (Adjunct("with", w.somebody(0.5)), Adjunct("to", w.location()))
    return Sentence((Clause("travel", w.person(), adjuncts=adjuncts),))


def birth(w: World) -> Sentence:
    return Sentence((Clause("be_born", w.full_person(), adjuncts=(Adjunct("in", w.city()), w.date())),))


def profession(w: World) -> Sentence:
    person = w.person(title=0)
    return Sentence((Clause("be", person, predicate=w.profession(person), tense="present"),))


def comparison(w: World) -> Sentence:
    first, second = w.dice.sample(select("noun", "sight"), 2)
    quality = Quality(w.dice.pick(("big", "ancient", "beautiful", "modern", "quiet")), than=Noun(second))
    return Sentence((Clause("be", Noun(first, where=w.city()), predicate=quality, tense="present"),))


def existence(w: World) -> Sentence:
    clause = Clause("exist", w.noun("sight", det="indef", counted=0.4), tense="present")
    return Sentence((clause.but(adjuncts=(Adjunct("in", w.location()),)),))


def two_deeds(w: World) -> Sentence:
    first, second = w.deed(w.person(), counted=0), w.deed(w.somebody(), counted=0)
    return Sentence((first, second), (w.dice.pick(("and", "but")),))


def deed_because(w: World) -> Sentence:
    person = w.person(title=0)
    state = Quality(w.dice.pick(select("adj", "state")), "very" if w.dice.chance(0.4) else "")
    clause = Clause("travel", person, adjuncts=(Adjunct("to", w.location()),))
    reason = Clause("be", w.pronoun(person), predicate=state)
    return Sentence((clause.but(negative=w.dice.chance(0.5)), reason), ("because",))


def deed_when_arrived(w: World) -> Sentence:
    person = w.person(title=0)
    arrival = Clause("arrive", w.pronoun(person), adjuncts=(Adjunct("in", w.location()),))
    return Sentence((Clause(w.dice.pick(SOCIAL), person, w.person()), arrival), ("when",))


def report_of_deed(w: World) -> Sentence:
    verb = w.dice.pick(("say", "announce", "believe", "know"))
    return Sentence((Clause(verb, w.somebody()), w.deed(w.person())), ("that",))


def relative_home(w: World) -> Sentence:
    role = w.noun("person", det="def", adjective=0.2)
    role.relative = Clause("live", None, adjuncts=(Adjunct("in", w.location()),), tense="present")
    return Sentence((w.deed(role),))


def owned(w: World) -> Sentence:
    role = Noun(w.dice.pick(("friend", "neighbour", "teacher", "lawyer", "doctor")), sex=w.sex(frozenset(("person",))))
    role.owner = w.person(title=0)
    return Sentence((Clause(w.dice.pick(SOCIAL), role, w.person()),))


def head_of(w: World) -> Sentence:
    role = Noun("director", sex=w.sex(frozenset(("person",))), owner=w.organisation())
    verb = w.dice.pick(("sign", "present", "criticise", "support"))
    return Sentence((Clause(verb, role, w.noun(concept=w.dice.pick(("contract", "report", "plan", "project")))),))


def yes_no(w: World) -> Sentence:
    return Sentence((w.deed(w.person()).but(adjuncts=(w.time(),)),), question=True)


def asked_where(w: World) -> Sentence:
    clause = w.deed(w.person(), verbs=("buy", "find", "lose", "read", "sign"))
    return Sentence((clause.but(adjuncts=(Adjunct("in", concept="where"),)),), question=True)


def together(w: World) -> Sentence:
    pair = Group((w.person(title=0), w.person(title=0)))
    return Sentence((w.deed(pair, counted=0.3).but(adjuncts=(w.time(),)),))


def sentence_adverb(w: World) -> Sentence:
    mood = w.dice.pick(select("adverb", "sentence"))
    verbs = ("lose", "sell", "steal") if mood == "unfortunately" else ("find", "sign", "solve", "receive", "repair")
    adjuncts = (Adjunct("sentence", concept=mood),)
    return Sentence((w.deed(w.somebody(), verbs=verbs, counted=0).but(adjuncts=adjuncts, front="sentence"),))


def wish(w: World) -> Sentence:
    clause = w.deed(w.somebody(), verbs=("buy", "sell", "read", "visit", "write", "repair"), tense="present")
    return Sentence((clause.but(modal=w.dice.pick(("want", "can"))),))


def quality_of_thing(w: World) -> Sentence:
    noun = w.noun("thing", det="def" if w.dice.chance(0.7) else "this", adjective=0)
    quality = Quality(w.dice.pick(select("adj", "thing")), w.dice.pick(("", "very", "rather")))
    return Sentence((Clause("be", noun, predicate=quality, tense="present"),))


def unknown_doer(w: World) -> Sentence:
    clause = Clause("steal", Pronoun("someone"), w.thing_for("steal"))
    return Sentence((clause.but(adjuncts=(w.where("steal"), w.time())),))


TEMPLATES = (
    plain_deed, deed_somewhere, deed_at_time_first, deed_denied, deed_with_manner, habit, frequent_habit,
    future_deed, people, people_somewhere, gift, home, work_for, founding, leading, business, business_passive,
    deed_passive, match_won, prize, journey, journey_together, birth, profession, comparison, existence,
    two_deeds, deed_because, deed_when_arrived, report_of_deed, relative_home, owned, head_of, yes_no,
    asked_where, together, sentence_adverb, wish, quality_of_thing, unknown_doer,
)  # fmt: skip
