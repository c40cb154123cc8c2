"""What settings of analyses share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from crossling.errors import RecipeError
from crossling.recipe.recipe import FrozenSettings, parse_kind


class AnalysisSettings(FrozenSettings):
    """Settings of any analysis."""

    kind: str

    def file_stem(self) -> str:
        """The name of the files with its results, without an ending."""
        on = getattr(self, "on", "")
        return f"{self.kind}-{on if isinstance(on, str) else 'own'}" if on else self.kind

    def name_models(self) -> dict[str, str]:
        """Models that settings name besides those that are analysed, by setting."""
        against = str(getattr(self, "against", ""))
        return {"against": against} if against else {}

    def describe(self) -> str:
        """The settings that are not the default, as JSON."""
        shown = self.model_dump(mode="json", exclude_defaults=True)
        for name, field in type(self).model_fields.items():
            if field.exclude and getattr(self, name) != field.get_default(call_default_factory=True):
                shown[name] = getattr(self, name)
        return json.dumps(shown, ensure_ascii=False)


def parse_settings(table: Mapping[str, Any]) -> AnalysisSettings:
    """The settings of an analysis, or one error that lists every problem."""
    problems: list[str] = []
    settings = parse_kind("analyses", table, key=str(table.get("kind")), problems=problems)
    if settings is None:
        raise RecipeError("\n  ".join(problems))
    assert isinstance(settings, AnalysisSettings)
    return settings


def check_languages(codes: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a language that is named twice."""
    if len(set(codes)) < len(codes):
        raise ValueError("every language once")
    return codes


def parse_pairs(items: Any) -> Any:
    """``A:B`` as pairs of names; a name with a colon of its own stands between spaces: ``ner: plain : ner: multi``."""
    if not isinstance(items, list | tuple):
        raise ValueError(f"{items!r} is no list")
    return tuple(_split_pair(item) if isinstance(item, str) else item for item in items)


def _split_pair(text: str) -> tuple[str, str]:
    first, sign, second = text.partition(" : ") if " : " in text else text.partition(":")
    if not sign or not first.strip() or not second.strip():
        raise ValueError(f"{text!r}: write two models' names with a colon between, such as ner:ner-multi")
    return first.strip(), second.strip()


def parse_assignments(value: Any) -> Any:
    """``TASK=MODEL`` items as a mapping."""
    if isinstance(value, Mapping) or not isinstance(value, Sequence):
        return value
    named = dict(str(item).partition("=")[::2] for item in value)
    if not all(named.values()):
        raise ValueError("write a task and a model's name, such as pos=pos-cross")
    return named


Languages = Annotated[tuple[str, ...], AfterValidator(check_languages)]
ModelPairs = Annotated[tuple[tuple[str, str], ...], BeforeValidator(parse_pairs)]
ModelsByTask = Annotated[dict[str, str], BeforeValidator(parse_assignments)]
