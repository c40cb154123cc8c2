"""The models that an analysis is about, and what they are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError, DataError, UserError, nearest
from crossling.store.artefacts import find_store


@dataclass(frozen=True)
class Pretrained:
    """An encoder before any training here, by name or folder."""

    name: str
    revision: str | None = None


ModelLocation = Path | Pretrained
"""Where a model is: the folder of a saved one, or an encoder that was not trained here."""


@dataclass(frozen=True)
class AnalysedModel:
    """One seed of a model."""

    task: str
    label: str
    seed: int | None
    location: ModelLocation
    source: str | None
    """The language that its labels came from; a pretrained encoder has none."""
    store: Path
    """Where its tables are kept."""
    encoder: Pretrained
    """What it was before any training."""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return name_model({"task": self.task, "model": self.label})


def name_model(row: Mapping[str, Any]) -> str:
    """A model's name, with its task where a study has several; ``row`` is one of an analysis's table."""
    return f"{row['task']}: {row['model']}" if row["task"] else str(row["model"])


def pretrained_model(encoder: Pretrained, label: str = "") -> AnalysedModel:
    """An encoder before any training, as a model to analyse."""
    folder = Path(encoder.name).expanduser()
    name = folder.name if folder.is_dir() else encoder.name
    label = label or "@".join(filter(None, (name, encoder.revision)))
    return AnalysedModel("", label, None, encoder, None, find_store(), encoder)


def has_pooler(location: ModelLocation) -> bool:
    """Whether a model's encoder has a pooler; weights are not loaded."""
    from crossling.encoders.loading import checkpoint_has_pooler, locate_checkpoint
    from crossling.models.card import read_card

    if isinstance(location, Pretrained):
        folder = locate_checkpoint(location.name, revision=location.revision)
    else:
        card = read_card(location)
        folder = location if card.files else locate_checkpoint(card.encoder, revision=card.revision)
    return folder is not None and checkpoint_has_pooler(folder)


@dataclass(frozen=True)
class AnalysedModels:
    """All models of an analysis."""

    models: tuple[AnalysedModel, ...]
    against: tuple[AnalysedModel, ...] = ()
    """What the setting ``against`` names, if an analysis has it and it is set."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """For each model that is compared with another: the other's name."""
    heads: tuple[AnalysedModel, ...] = ()
    """What the setting ``head`` names, if an analysis has it and it names a model."""

    @property
    def encoders(self) -> list[Pretrained]:
        """What the models were before any training."""
        return [model.encoder for model in self.models]

    @property
    def pretrained(self) -> frozenset[str]:
        """Names of encoders before any training here: they have no seeds."""
        return frozenset(model.name for model in self.models if isinstance(model.location, Pretrained))

    def check_unique(self) -> None:
        """Refuse two models of one name."""
        counts = Counter((model.task, model.label, model.seed) for model in self.models)
        twice = next((key[1] for key, count in counts.items() if count > 1), None)
        if twice is not None:
            raise ArtefactError(f"two models are called {twice!r}; give each a name: {twice}-1=WHERE {twice}-2=WHERE")

    def check_names(self, names: Iterable[str], *, setting: str) -> None:
        """Refuse names that none of the models has, before anything is computed."""
        known = list(dict.fromkeys(model.name for model in self.models))
        for name in names:
            if name not in known:
                raise DataError(f"{setting} {name!r}: no such model.{nearest(name, known)}")

    def with_bases(self, *, add: bool = True) -> AnalysedModels:
        """Each model with the encoder that it was before training, or with what ``against`` names.

        Without ``add``, only where that encoder is among the models.
        """
        if self.against:
            base = self.against[0]
            if any(other.name != base.name for other in self.against):
                raise UserError("against: holds several models; name one of them")
            names = dict.fromkeys(model.name for model in self.models)
            added = () if base.name in names else self.against
            return self._add(added, {name: base.name for name in names if name != base.name})
        known = {model.location: model.name for model in self.models if isinstance(model.location, Pretrained)}
        bases, new = {}, []
        for model in self.models:
            if isinstance(model.location, Pretrained):
                continue
            if model.encoder not in known:
                if not add:
                    continue
                new.append(pretrained_model(model.encoder))
                known[model.encoder] = new[-1].name
            bases[model.name] = known[model.encoder]
        return self._add(tuple(new), bases)

    def _add(self, models: tuple[AnalysedModel, ...], bases: Mapping[str, str]) -> AnalysedModels:
        found = replace(self, models=(*self.models, *models), bases=bases)
        if models:
            found.check_unique()
        return found
