"""Abstract sentences: what is said, before any language decides how.

Nodes are compared by identity, because a word in one language is linked to a word in another when both
express the same node, and two mentions of one city in a sentence are two nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Number = Literal["sg", "pl"]
Tense = Literal["past", "present", "future"]


@dataclass(eq=False, slots=True)
class Name:
    """A named entity: a person (given name, family name), a place, or an organisation built by a pattern."""

    kind: Literal["PER", "LOC", "ORG"]
    parts: tuple[str, ...]
    sex: str = ""
    pattern: str = ""
    title: str = ""


@dataclass(eq=False, slots=True)
class Noun:
    """A common noun with its determiner, number, adjectives and whatever is attached to it."""

    concept: str
    det: Literal["def", "indef", "this", "none", "how_many"] = "def"
    number: Number = "sg"
    sex: str = ""
    count: str = ""
    adjectives: tuple[str, ...] = ()
    owner: NounPhrase | None = None
    where: NounPhrase | None = None
    relative: Clause | None = None


@dataclass(eq=False, slots=True)
class Pronoun:
    """he, she, they, someone; who and what in questions."""

    concept: str


@dataclass(eq=False, slots=True)
class Group:
    """Noun phrases joined by ``and``."""

    members: tuple[NounPhrase, ...]


NounPhrase = Name | Noun | Pronoun | Group


@dataclass(eq=False, slots=True)
class Quality:
    """A predicated adjective, perhaps graded (``very``) or compared (``than`` something)."""

    concept: str
    degree: str = ""
    than: NounPhrase | None = None


@dataclass(eq=False, slots=True)
class Adjunct:
    """A free addition to a clause; ``kind`` is time, in, to, from, with, for, manner, freq or sentence."""

    kind: str
    phrase: NounPhrase | None = None
    concept: str = ""
    values: tuple[str, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether this is the ``where`` or ``when`` of a question."""
        return self.concept in ("where", "when_asked")


@dataclass(eq=False, slots=True)
class Clause:
    """An event or a state: the verb, who takes part, and when, where and how."""

    verb: str
    subject: NounPhrase | None
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    predicate: Quality | NounPhrase | None = None
    adjuncts: tuple[Adjunct, ...] = ()
    tense: Tense = "past"
    negative: bool = False
    passive: bool = False
    modal: str = ""
    front: str = ""

    def adjunct(self, kind: str) -> Adjunct | None:
        """The adjunct of a kind, where there is one."""
        for adjunct in self.adjuncts:
            if adjunct.kind == kind:
                return adjunct
        return None

    def but(self, **changes: Any) -> Clause:
        """A copy with some parts changed: how a premise becomes a hypothesis."""
        return replace(self, **changes)


@dataclass(eq=False, slots=True)
class Sentence:
    """Clauses with the conjunction before each (the first has none); ``fronted`` puts the second one first."""

    clauses: tuple[Clause, ...]
    links: tuple[str, ...] = ()
    fronted: bool = False
    question: bool = False
