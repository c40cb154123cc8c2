"""What an analysis is given besides its settings, its data and a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crossling.progress import NoProgress, Progress

if TYPE_CHECKING:
    from crossling.training.distributed import Distributed


@dataclass(frozen=True)
class AnalysisContext:
    """Where to compute, and where encoded text and finished tables are kept."""

    distributed: Distributed
    store: Path
    progress: Progress = field(default_factory=NoProgress)
    batch: int = 128
    """Sentences in a batch; results do not depend on it."""

    @property
    def encoded(self) -> Path:
        """The folder of encoded examples."""
        return self.store / "encoded"
