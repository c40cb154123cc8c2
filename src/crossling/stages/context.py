"""What a stage is given besides its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.progress import NoProgress, Progress
from crossling.recipe.recipe import EncoderSettings

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.training.distributed import Distributed


@dataclass
class StageContext:
    """One training run: its seed, its source language, where it works and what it starts from."""

    seed: int
    source: str
    encoder: Encoder
    encoder_settings: EncoderSettings
    distributed: Distributed
    work: Path
    """Checkpoints."""
    store: Path
    """Below it: ``data`` and ``encoded``, the caches."""
    checkpoint_seconds: float = 120.0
    progress: Progress = field(default_factory=NoProgress)
    track: Callable[[dict[str, float], int], None] = lambda values, step: None
    on_start: Callable[[Any, Encoder], None] | None = None
    """Told the task and the encoder as training starts: what they will read afterwards can be encoded meanwhile."""
    base: Callable[[], Encoder] | None = None
    """Loads the encoder that the recipe names; none where the stage starts from that very encoder."""

    @property
    def encoded(self) -> Path:
        """Where encoded examples are kept."""
        return self.store / "encoded"

    def should_trim(self, weight_decay: float) -> bool:
        """Rows that no gradient reaches stay as they are only where weight decay does not move them either."""
        wanted = self.encoder_settings.trim
        return weight_decay == 0 if wanted == "auto" else wanted
