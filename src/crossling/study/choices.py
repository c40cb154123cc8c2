"""What ``crossling start`` chooses, and on what evidence: the table ``start.toml``, validated."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field

from crossling.recipe.recipe import FrozenSettings, freeze

Needs = Literal["nothing", "text", "pairs", "translations", "labels", "teachers"]
"""Of an ingredient: no more data; unlabelled rows that the task reads; rows of the task with translations; sentences
with translations; labels in the target language; another encoder for the teachers."""


class Gain(NamedTuple):
    """Points from plain fine-tuning: the mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} points [{self.low:+.1f}, {self.high:+.1f}]"


class LabelledSet(FrozenSettings):
    """A set of the catalogue to learn a task from; ``{source}`` and ``{language}`` stand for codes."""

    train: str | tuple[str, ...]
    dev: str = ""
    test: str
    text: str = ""
    """Unlabelled text of the same kind."""
    pairs: tuple[str, ...] = ()
    """Two sets whose row i says the same: in the source language, in another."""
    translations: str = ""
    """Sentences with translations."""
    text_languages: tuple[str, ...] = ()
    """Languages of text, pairs and translations, besides the target ones."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Settings of the finetune stage."""

    @property
    def trains(self) -> tuple[str, ...]:
        """The training sets."""
        return (self.train,) if isinstance(self.train, str) else self.train


class Ingredient(FrozenSettings):
    """Something that more data can do, with what it brought."""

    study: str = ""
    system: str = ""
    none: tuple[float, ...]
    text: tuple[float, ...]
    none_in: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    text_in: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """As ``none`` and ``text``, in each language that was scored: means hide that one gains and another loses."""
    page: str
    needs: Needs
    rows: int = 2000
    ask: str
    why: str
    before: tuple[dict[str, Any], ...] = ()
    """Stages before fine-tuning; one that names training data, as of another task, needs the files of it."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    after: tuple[dict[str, Any], ...] = ()

    @property
    def replaces_words(self) -> bool:
        """Whether words are replaced by translations (code-switching), for which lexicons are made."""
        return any(stage.get("consistency", {}).get("words") for stage in (self.finetune, *self.after))

    @property
    def layer(self) -> int:
        """The layer whose vectors are replayed, which the encoder must have."""
        return int(self.finetune.get("replay", {}).get("layer", 0))

    def list_other_sets(self, source: str) -> list[str]:
        """Training data of stages before fine-tuning."""
        return [str(stage["train"]).format(source=source) for stage in self.before if "train" in stage]

    def gain(self, languages: Mapping[str, bool]) -> Gain | None:
        """What it brought in the place of these languages (true: with text); nothing where that was not measured.

        Of several languages the mean. Its interval is that of errors that are equal in all: rather too wide.
        """
        found = [self.gain_in(*one) or self.group_gain(has_text=one[1]) for one in languages.items()]
        known = [one for one in found if one is not None]
        return Gain(*map(fmean, zip(*known, strict=True))) if known else None

    def gain_in(self, language: str, has_text: bool) -> Gain | None:
        """What it brought in this very language, if it was scored like this."""
        values = (self.text_in if has_text else self.none_in).get(language)
        return Gain(*values) if values else None

    def group_gain(self, *, has_text: bool) -> Gain | None:
        """What it brought on the mean of languages with text, or of those without."""
        values = (self.text or self.none) if has_text or self.needs == "labels" else self.none
        return Gain(*values) if values else None


class TaskChoices(FrozenSettings):
    """All that is known to help with a task."""

    what: str
    lexicon: tuple[str, ...] = ()
    """Parallel text of the catalogue that lexicons are made from."""
    lexicon_languages: tuple[str, ...] = ()
    """Languages of lexicons, besides the target ones."""
    sets: tuple[LabelledSet, ...]
    ingredients: tuple[Ingredient, ...]


@cache
def load_choices() -> dict[str, TaskChoices]:
    """The choices for each task."""
    text = resources.files("crossling.study").joinpath("start.toml").read_text(encoding="utf-8")
    return {task: TaskChoices.model_validate(freeze(table)) for task, table in tomllib.loads(text).items()}


def choose_best(
    ingredients: Iterable[Ingredient], gain: Callable[[Ingredient], Gain | None]
) -> tuple[Ingredient | None, Gain | None]:
    """The ingredient with the largest gain, of those whose interval lies above 0, and its gain; the first of equals."""
    measured = [(one, found) for one in ingredients if (found := gain(one)) is not None and found.low > 0]
    return max(measured, key=lambda item: item[1].mean, default=(None, None))
