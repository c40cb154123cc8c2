"""One module per language: ``grammars/<code>.py`` defines ``GRAMMAR``, its grammar."""

from __future__ import annotations

import importlib
from functools import cache

from crossling.phrasebook.grammar import Grammar


@cache
def load_grammar(language: str) -> Grammar:
    """The grammar of a language, built once."""
    module = importlib.import_module(f"crossling.phrasebook.grammars.{language}")
    grammar: Grammar = module.GRAMMAR()
    return grammar
