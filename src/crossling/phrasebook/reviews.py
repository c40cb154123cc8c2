"""Reviews of one to five stars: graded judgements of a thing and its parts, and a closing word."""

from __future__ import annotations

from crossling.data.records import LabelledText
from crossling.phrasebook.dice import Dice
from crossling.phrasebook.grammar import Grammar
from crossling.phrasebook.lexicon import select
from crossling.phrasebook.tree import Clause, Noun, Quality, Sentence, Tense

STARS = ("1", "2", "3", "4", "5")
PRODUCTS = {
    "train": ("hotel", "phone", "novel", "computer", "concert"),
    "dev": ("restaurant", "book"),
    "test": ("film", "camera", "theatre"),
}
ASPECTS = {
    "hotel": ("room", "breakfast", "bed", "service", "price"), "phone": ("screen", "battery", "service"),
    "novel": ("plot", "ending"), "computer": ("screen", "battery", "service"), "concert": ("service", "ending"),
    "restaurant": ("food", "soup", "cake", "coffee", "service", "fish"), "book": ("plot", "ending"),
    "film": ("plot", "ending"), "camera": ("screen", "battery"), "theatre": ("service", "coffee", "food"),
}  # fmt: skip
EXPERIENCES = frozenset(("hotel", "concert", "restaurant", "theatre"))
"""What is over when it is reviewed."""
# The grades of a review's judgements: the first two are always given, the third sometimes.
GRADES: dict[str, tuple[tuple[int, ...], ...]] = {
    "5": ((5, 5, 5), (5, 4, 5), (5, 5, 4)),
    "4": ((4, 4, 4), (4, 4, 3), (4, 5, 4), (4, 4, 2)),
    "3": ((3, 3, 3), (4, 2, 3), (2, 4, 3), (3, 4, 3)),
    "2": ((2, 2, 2), (2, 2, 3), (2, 1, 2), (2, 2, 4)),
    "1": ((1, 1, 1), (1, 2, 1), (1, 1, 2)),
}
DEGREES = {2: ("", "very", "rather", "really"), 4: ("", "very", "really")}
UNSEEN: dict[str, tuple[str, ...]] = {
    "train": ("wonderful", "pleasant", "acceptable", "disappointing", "awful"),
    "dev": (),
    "test": (),
}
"""Words that only the evaluation splits use."""


def make_row(grammar: Grammar, split: str, row: int) -> LabelledText:
    """One review; every five rows hold each number of stars once."""
    stars = Dice("stars", split, row // 5).shuffle(STARS)[row % 5]
    dice = Dice("review", split, row)
    product = dice.pick(PRODUCTS[split])
    grades = dice.pick(GRADES[stars])
    aspects = dice.sample(ASPECTS[product], min(2, len(ASPECTS[product])))
    subjects = [Noun(product, "this"), *(Noun(aspect) for aspect in aspects)]
    clauses = [
        judge(dice, split, subject, grade, experienced=product in EXPERIENCES)
        for subject, grade in zip(subjects, grades, strict=False)
    ]
    sentences = join(dice, clauses if dice.chance(0.6) else clauses[:2], grades)
    texts = [grammar.text(grammar.realise(sentence)) for sentence in sentences]
    if len(clauses) < 3 or dice.chance(0.7):
        formula = dice.pick(select("formula", f"rate{stars}", split))
        texts.insert(0 if dice.chance(0.2) else len(texts), grammar.lexicon[formula].form)
    return LabelledText(grammar.space.join(texts), stars)


def judge(dice: Dice, split: str, subject: Noun, grade: int, *, experienced: bool) -> Clause:
    """Something was good or bad to a degree."""
    words = [word for word in select("adj", f"rate{grade}") if word not in UNSEEN[split]]
    degree = dice.pick(DEGREES.get(grade, ("",)))
    tense: Tense = "past" if experienced else "present"
    return Clause("be", subject, predicate=Quality(dice.pick(words), degree), tense=tense)


def join(dice: Dice, clauses: list[Clause], grades: tuple[int, ...]) -> list[Sentence]:
    """The judgements as sentences; a change of mind is joined by ``but``."""
    sentences = [Sentence((clauses[0],))]
    if abs(grades[1] - grades[0]) > 1:
        sentences = [Sentence((clauses[0], clauses[1]), ("but",))]
    elif dice.chance(0.4):
        sentences = [Sentence((clauses[0], clauses[1]), ("and",))]
    else:
        sentences.append(Sentence((clauses[1],)))
    return [*sentences, *(Sentence((clause,)) for clause in clauses[2:])]
