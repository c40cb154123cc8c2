"""A cache of loaded encoders and their identities, for a process that trains many times."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.encoders.structure import Direction
from crossling.errors import ArtefactError
from crossling.recipe.recipe import EncoderSettings

Key = tuple[str, str | None, Direction | None]
KEPT_BYTES = 1.5e9
"""Larger encoders are loaded each time instead of kept twice in memory."""


@dataclass
class EncoderCache:
    """Encoders by name, revision and attention, each with the identity that it was first loaded with."""

    keep: bool = False
    """Keep the last encoder unchanged and return copies of it."""
    _identities: dict[Key, str] = field(default_factory=dict)
    _labels: dict[Key, str] = field(default_factory=dict)
    _shapes: dict[Key, tuple[int, int]] = field(default_factory=dict)
    _kept: tuple[Key, Encoder] | None = None

    def identify(self, settings: EncoderSettings) -> str:
        """The hash of an encoder's content."""
        key = (settings.name, settings.revision, settings.attention)
        if key not in self._identities:
            self._find(key)
        return self._identities[key]

    def label(self, settings: EncoderSettings) -> str:
        """An encoder's name in tables; 4-bit blocks have that of the encoder that they were trimmed from."""
        self.identify(settings)
        return self._labels[(settings.name, settings.revision, settings.attention)]

    def measure(self, settings: EncoderSettings) -> tuple[int, int]:
        """An encoder's number of layers and its width."""
        self.identify(settings)
        return self._shapes[(settings.name, settings.revision, settings.attention)]

    def load(self, name: str, revision: str | None = None, attention: Direction | None = None) -> Encoder:
        """An encoder to train or to predict with; an error if it changed since it was first loaded."""
        encoder = self._find((name, revision, attention))
        return _copy(encoder) if self._kept is not None and self._kept[1] is encoder else encoder

    def load_last(self, name: str, revision: str | None = None, attention: Direction | None = None) -> Encoder:
        """The same where it is not needed again: what is kept is given away instead of a copy."""
        encoder, self._kept = self._find((name, revision, attention)), None
        return encoder

    def _find(self, key: Key) -> Encoder:
        """The encoder that is kept, or one that is loaded."""
        if self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        self._kept = None
        name, revision, attention = key
        encoder = load_encoder(name, revision=revision, attention=attention)
        if self._identities.setdefault(key, encoder.identity) != encoder.identity:
            raise ArtefactError(f"{name}: was changed while it was in use; run again")
        self._labels[key] = encoder.name
        self._shapes[key] = encoder.layers, encoder.width
        if self.keep and 4 * sum(p.numel() for p in encoder.parameters()) < KEPT_BYTES:
            self._kept = (key, encoder)
        return encoder


def _copy(encoder: Encoder) -> Encoder:
    """A copy with weights of its own; the tokenizer, which training does not change, is shared."""
    return copy.deepcopy(encoder, {id(encoder.tokenizer): encoder.tokenizer})
