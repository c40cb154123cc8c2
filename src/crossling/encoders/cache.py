"""A cache of loaded encoders and their identities, for a process that trains many times."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.errors import ArtefactError
from crossling.recipe.recipe import EncoderSettings

KEPT_BYTES = 1.5e9
"""Larger encoders are loaded each time instead of kept twice in memory."""


@dataclass
class EncoderCache:
    """Encoders by name and revision, each with the identity that it was first loaded with."""

    keep: bool = False
    """Keep the last encoder unchanged and return copies of it."""
    _identities: dict[tuple[str, str | None], str] = field(default_factory=dict)
    _labels: dict[tuple[str, str | None], str] = field(default_factory=dict)
    _shapes: dict[tuple[str, str | None], tuple[int, int]] = field(default_factory=dict)
    _kept: tuple[tuple[str, str | None], Encoder] | None = None

    def identify(self, settings: EncoderSettings) -> str:
        """The hash of an encoder's content."""
        name = (settings.name, settings.revision)
        if name not in self._identities:
            self.load(*name)
        return self._identities[name]

    def label(self, settings: EncoderSettings) -> str:
        """An encoder's name in tables; 4-bit blocks have that of the encoder that they were trimmed from."""
        self.identify(settings)
        return self._labels[(settings.name, settings.revision)]

    def measure(self, settings: EncoderSettings) -> tuple[int, int]:
        """An encoder's number of layers and its width."""
        self.identify(settings)
        return self._shapes[(settings.name, settings.revision)]

    def load(self, name: str, revision: str | None = None) -> Encoder:
        """An encoder to train or to predict with; an error if it changed since it was first loaded."""
        if self._kept is not None and self._kept[0] == (name, revision):
            return _copy(self._kept[1])
        encoder = load_encoder(name, revision=revision)
        if self._identities.setdefault((name, revision), encoder.identity) != encoder.identity:
            raise ArtefactError(f"{name}: was changed while it was in use; run again")
        self._labels[(name, revision)] = encoder.name
        self._shapes[(name, revision)] = encoder.layers, encoder.width
        if self.keep and 4 * sum(p.numel() for p in encoder.parameters()) < KEPT_BYTES:
            self._kept = ((name, revision), encoder)
            return _copy(encoder)
        return encoder


def _copy(encoder: Encoder) -> Encoder:
    """A copy with weights of its own; the tokenizer, which training does not change, is shared."""
    return copy.deepcopy(encoder, {id(encoder.tokenizer): encoder.tokenizer})
