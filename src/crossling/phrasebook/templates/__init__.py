"""Sentence templates: each builds an abstract sentence from a world. The splits share none of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

from crossling.phrasebook.tree import Sentence
from crossling.phrasebook.world import World

Template = Callable[[World], Sentence]


@cache
def load_templates(split: str) -> tuple[Template, ...]:
    """The templates of a split."""
    module = importlib.import_module(f"crossling.phrasebook.templates.{split}")
    templates: tuple[Template, ...] = module.TEMPLATES
    return templates
