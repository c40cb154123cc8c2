"""Analyses: functions from models to tables, one file each: ``analyses/<kind>.py``.

:class:`Analysis` states what such a file defines; ``prepare``, ``draw`` and the other functions below are optional.
Which models are analysed, what is kept in the store, files, the command line and the report are not its concern:
``study/analyse.py`` runs it, ``analyses/result.py`` writes and reads what it found, and ``cli/analyse.py`` makes
options of its settings. torch is imported inside functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from crossling.progress import NoProgress, Progress
from crossling.registry import load_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from crossling.analyses.models import AnalysedModels
    from crossling.analyses.result import AnalysisTable
    from crossling.analyses.settings import AnalysisSettings
    from crossling.models.model import Model, ModelCard
    from crossling.report.figures import HeatMap
    from crossling.report.table import Table
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


class AnalysisData(Protocol):
    """What an analysis reads besides models."""

    def fingerprints(self) -> list[str]:
        """Hashes of the content, the same for the same data wherever they lie."""


SettingsT = TypeVar("SettingsT", bound="AnalysisSettings", contravariant=True)
DataT = TypeVar("DataT", bound=AnalysisData)


class Analysis(Protocol[SettingsT, DataT]):
    """What the module of an analysis defines."""

    VERSION: int
    """Counts up when results change, so that nothing stale is read from the store."""
    Settings: type[AnalysisSettings]
    """Its settings, with ``kind: Literal["<kind>"]``; the docstring under a field is the help of its option. A field
    with ``exclude=True`` changes what is shown, not the table."""
    SCHEMA: pa.Schema
    """The columns of its table. Columns of lists are for figures and do not go into the CSV."""

    def open_analysis_data(self, settings: SettingsT, *, source: str, store: Path) -> DataT:
        """Open what it reads, once for all models and before any is loaded.

        ``source`` is the language that others are compared with.
        """

    def analyse(
        self, model: Model, card: ModelCard, data: DataT, *, settings: SettingsT, context: AnalysisContext
    ) -> pa.Table:
        """One model's table, which is kept in the store under the model, the settings, the data and ``VERSION``.

        The model is on ``context.distributed.device`` in evaluation mode. A pretrained encoder comes with the fusion
        ``last``, no heads and a card without tasks. Long work reports to ``context.progress``: begin, advance, end.
        """

    def summarise(self, found: AnalysisTable[SettingsT]) -> Sequence[Table]:
        """The tables that the terminal, the Markdown and the report show, of the tables of all models."""


@runtime_checkable
class Prepares(Protocol):
    """An analysis whose settings or models depend on the models that are named."""

    def prepare(self, settings: Any, models: AnalysedModels) -> tuple[AnalysisSettings, AnalysedModels]:
        """Settings with what depends on the models, and models with those that they are compared with.

        Raises an error where models cannot be compared, before anything is computed.
        """


@runtime_checkable
class Draws(Protocol):
    """An analysis with figures."""

    def draw(self, found: AnalysisTable[Any]) -> Mapping[str, str | HeatMap]:
        """By name, SVG: ``es`` becomes ``STEM-es.svg``, an empty name ``STEM.svg``.

        A heat map is drawn by the report, where a reader can point at its cells.
        """


@runtime_checkable
class WritesCsv(Protocol):
    """An analysis whose CSV is not simply its table."""

    def to_csv(self, found: AnalysisTable[Any]) -> Mapping[str, str]:
        """CSV by name, as figures are named."""


@runtime_checkable
class Measures(Protocol):
    """An analysis with figures that may go with a study's zero-shot scores."""

    MEASURES: tuple[str, ...]
    """Columns whose correlation with the scores is shown, in numbers and as a scatter plot."""


def load_analysis(kind: str) -> Analysis[AnalysisSettings, AnalysisData]:
    """The module of an analysis."""
    return cast("Analysis[AnalysisSettings, AnalysisData]", load_kind("analyses", kind))
