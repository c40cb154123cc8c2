"""The world that sentences are about: people, places and organisations of a split, and who can do what to what."""

from __future__ import annotations

from functools import cache
from typing import Literal

from crossling.phrasebook.dice import Dice
from crossling.phrasebook.lexicon import load_concepts, select
from crossling.phrasebook.tree import Adjunct, Clause, Name, Noun, NounPhrase, Pronoun, Tense

COUNTS = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "12", "15", "20", "25", "30", "40", "60", "100")
SMALL_COUNTS = COUNTS[:9]
DEEDS = (
    "visit", "buy", "sell", "read", "write", "build", "find", "lose", "open", "close", "repair", "wash",
    "photograph", "see", "cook", "eat", "drink", "order", "receive", "describe", "sign", "translate", "publish",
    "solve", "present", "steal", "use", "sing", "hear",
)  # fmt: skip
HABITS = (
    "read", "write", "buy", "sell", "repair", "visit", "cook", "eat", "drink", "use", "hear", "sing", "photograph",
    "translate", "wash", "order",
)  # fmt: skip
PROJECTS = ("buy", "sell", "visit", "read", "write", "repair", "translate", "publish", "present", "describe")
BUSINESS = ("buy", "sell", "build", "publish", "sign", "present", "receive")
SOCIAL = ("help", "invite", "support", "congratulate", "criticise", "meet", "see", "wait")
INDOORS = frozenset((
    "buy", "sell", "read", "write", "see", "order", "use", "sing", "hear", "wash", "find", "lose", "steal", "repair",
    "meet", "wait",
))  # fmt: skip
ADJECTIVE_CLASSES = {
    "thing": ("thing",), "clothes": ("thing", "colour"), "vehicle": ("thing", "colour", "nation"),
    "small": ("thing", "colour"), "furniture": ("thing", "colour", "nation"), "machine": ("machine",),
    "sight": ("place",), "place": ("place",), "building": ("place",), "structure": ("place",),
    "text": ("text",), "food": ("food",), "soup": ("food",), "drink": ("drink",), "animal": ("animal",),
    "person": ("person",), "document": ("document",), "problem": ("problem",), "watch": ("film",),
}  # fmt: skip
YEARS = {"train": (1950, 1994), "dev": (1995, 2008), "test": (2009, 2024)}


@cache
def adjectives_for(concept: str) -> tuple[str, ...]:
    """The adjectives that make sense with a noun."""
    tags = load_concepts()[concept].tags
    classes = {c for tag in sorted(tags) for c in ADJECTIVE_CLASSES.get(tag, ())}
    if "place" in classes:
        classes -= {"thing", "text"}
    return tuple(a for a in select("adj") if not classes.isdisjoint(load_concepts()[a].tags))


@cache
def objects_of(verb: str) -> tuple[str, ...]:
    """The nouns that a verb takes as object."""
    wanted = load_concepts()[verb].objects
    return tuple(noun for noun in select("noun") if not wanted.isdisjoint(load_concepts()[noun].tags))


class World:
    """Draws participants for one item; a name is never drawn twice in it."""

    def __init__(self, split: str, dice: Dice) -> None:
        self.split, self.dice = split, dice
        self._used: set[str] = set()

    def fresh(self, category: str) -> str:
        """A name of a category and of this split that the item has not used yet."""
        names = select(category, self.split)
        for _ in range(50):
            name = self.dice.pick(names)
            if name not in self._used:
                break
        self._used.add(name)
        return name

    def person(self, *, title: float = 0.15, sex: str = "") -> Name:
        """A person: given and family name, either alone, or with a title or a profession."""
        first = self.fresh("first")
        while sex and sex not in load_concepts()[first].tags:
            first = self.fresh("first")
        sex = "f" if "f" in load_concepts()[first].tags else "m"
        shape = self.dice.below(10)
        parts: tuple[str, ...] = (first, self.fresh("last")) if shape < 7 else (first,)
        if self.dice.chance(title):
            if self.dice.chance(0.5):
                honorific = "mrs" if sex == "f" else "mr"
                return Name("PER", parts[-1:] if len(parts) > 1 else (self.fresh("last"),), sex, title=honorific)
            return Name("PER", parts, sex, title=self.dice.pick(select("noun", "job")))
        return Name("PER", parts, sex)

    def full_person(self, sex: str = "") -> Name:
        """A person with given and family name and no title."""
        first = self.fresh("first")
        while sex and sex not in load_concepts()[first].tags:
            first = self.fresh("first")
        return Name("PER", (first, self.fresh("last")), "f" if "f" in load_concepts()[first].tags else "m")

    def city(self) -> Name:
        """A city."""
        return Name("LOC", (self.fresh("city"),))

    def country(self) -> Name:
        """A country."""
        return Name("LOC", (self.fresh("country"),))

    def location(self) -> Name:
        """A city or, less often, a country."""
        return self.country() if self.dice.chance(0.35) else self.city()

    def organisation(self, pattern: str = "") -> Name:
        """A company, bank, university, club or foundation; most have a place or a family in their name."""
        patterns = [p for p in select("org", self.split) if p != "plain_city"]
        pattern = pattern or ("plain_company" if self.dice.chance(0.3) else self.dice.pick(patterns))
        tags = load_concepts()[pattern].tags
        kind = next(kind for kind in ("city", "last", "company") if kind in tags)
        return Name("ORG", (self.fresh(kind),), pattern=pattern)

    def team(self) -> Name:
        """A football team: a club, or a city's name that stands for its team."""
        return self.organisation("club_of" if self.dice.chance(0.5) else "plain_city")

    def noun(
        self,
        *tags: str,
        det: Literal["def", "indef", "this"] | None = None,
        adjective: float = 0.35,
        counted: float = 0.0,
        concept: str = "",
    ) -> Noun:
        """A common noun of a class, perhaps with an adjective or a number."""
        concept = concept or self.dice.pick(select("noun", *tags))
        facts = load_concepts()[concept].tags
        fitting = adjectives_for(concept)
        adjectives = (self.dice.pick(fitting),) if fitting and self.dice.chance(adjective) else ()
        sex = self.sex(facts)
        if "mass" not in facts and self.dice.chance(counted):
            large = facts.isdisjoint(("building", "structure", "nature", "machine", "person", "animal"))
            count = "many" if self.dice.chance(0.2) else self.dice.pick(COUNTS if large else SMALL_COUNTS)
            return Noun(concept, "indef", "pl", sex, count, adjectives)
        chosen = det or ("indef" if self.dice.chance(0.55) else "def" if self.dice.chance(0.85) else "this")
        return Noun(concept, chosen, "sg", sex, "", adjectives)

    def sex(self, tags: frozenset[str]) -> str:
        """The sex of a person whom a noun describes."""
        if "person" not in tags:
            return ""
        if "human" in tags:
            return "f" if "f" in tags else "m"
        return "f" if self.dice.chance(0.5) else "m"

    def role(self, *, adjective: float = 0.3, counted: float = 0.0) -> Noun:
        """Somebody known by what they do."""
        return self.noun(
            "person", det="def" if self.dice.chance(0.6) else "indef", adjective=adjective, counted=counted
        )

    def somebody(self, name: float = 0.6) -> NounPhrase:
        """A named person or a role."""
        return self.person() if self.dice.chance(name) else self.role()

    def thing_for(self, verb: str, *, counted: float = 0.15) -> Noun:
        """Something that a verb can be done to."""
        concept = self.dice.pick(objects_of(verb))
        return self.noun(concept=concept, counted=counted)

    def deed(
        self,
        subject: NounPhrase,
        *,
        verbs: tuple[str, ...] = DEEDS,
        tense: Tense = "past",
        counted: float = 0.15,
    ) -> Clause:
        """Somebody does something to a thing."""
        verb = self.dice.pick(verbs)
        return Clause(verb, subject, self.thing_for(verb, counted=counted), tense=tense)

    def time(self, tense: Tense = "past") -> Adjunct:
        """When it happened, happens or will happen."""
        if tense == "present":
            return Adjunct("time", concept=self.dice.pick(select("time", "habit")))
        if tense == "future":
            return Adjunct("time", concept=self.dice.pick((*select("time", "future"), *select("time", "at"))))
        draw = self.dice.below(10)
        if draw < 2:
            return self.year()
        if draw < 3:
            return self.date()
        return Adjunct("time", concept=self.dice.pick(select("time", "past" if draw < 5 else "at")))

    def year(self) -> Adjunct:
        """A year, from a range of its own in each split."""
        low, high = YEARS[self.split]
        return Adjunct("time", concept="year", values=(str(low + self.dice.below(high - low + 1)),))

    def date(self) -> Adjunct:
        """A day, a month and a year."""
        month, day = self.dice.pick(select("time", "month")), str(1 + self.dice.below(28))
        return Adjunct("time", concept="date", values=(*self.year().values, month, day))

    def where(self, verb: str = "buy", name: float = 0.7) -> Adjunct:
        """Where it happened: a city or country, or a place where such things happen."""
        if verb in INDOORS and not self.dice.chance(name):
            return Adjunct("in", self.noun("place", det="def", adjective=0.15))
        return Adjunct("in", self.location())

    def profession(self, person: Name, adjective: float = 0.3) -> Noun:
        """What a person is, in the form that fits the person's sex."""
        concept = self.dice.pick(select("noun", "job"))
        adjectives = (self.dice.pick(("young", "famous", "rich", "clever")),) if self.dice.chance(adjective) else ()
        return Noun(concept, "indef", sex=person.sex, adjectives=adjectives)

    def pronoun(self, person: Name) -> Pronoun:
        """he or she."""
        return Pronoun("she" if person.sex == "f" else "he")
