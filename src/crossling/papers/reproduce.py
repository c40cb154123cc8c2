"""Make a table again: extend the encoder, run the study, analyse its models, put our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from crossling.data.catalogue import open_data
from crossling.files import write_atomic
from crossling.papers.measures import MEASURES, Results
from crossling.papers.tables import PRETRAINED, Cell, TablePlan
from crossling.progress import NoProgress, Progress
from crossling.study.folder import name_file

if TYPE_CHECKING:
    from crossling.analyses.result import AnalysisTable
    from crossling.analyses.settings import AnalysisSettings
    from crossling.store.artefacts import Store
    from crossling.study.pool import WorkerPool


@dataclass(frozen=True)
class ReproducedCell:
    """A cell with our figure."""

    cell: Cell
    value: float | None
    """The mean over seeds; none where there is no figure."""
    spread: float | None = None
    """Standard deviation over seeds, where there are several."""
    seeds: int = 0
    mark: str = ""
    """Whether our figure differs from our baseline's."""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        published = self.cell.figure.value
        return None if self.value is None or published is None else self.value - published


@dataclass(frozen=True)
class ReproducedTable:
    """A table of the paper with ours beside it."""

    plan: TablePlan
    cells: tuple[ReproducedCell, ...]
    out: Path
    failed: Mapping[str, str] = field(default_factory=dict)
    """Cells of the study without results, and why."""
    notes: tuple[str, ...] = ()
    """What a reader of our scores must know."""


def reproduce_table(
    plan: TablePlan,
    *,
    out: Path,
    store: Store,
    workers: int | None = None,
    progress: Progress | None = None,
    command: str = "",
    pool: WorkerPool | None = None,
) -> ReproducedTable:
    """Make a table again. Killed and started again, it continues with what is not finished."""
    from crossling.study.scheduling import run_study

    progress = progress or NoProgress()
    _extend_encoder(plan, out, store=store, progress=progress)
    study = plan.place_extension(out)
    outcome = run_study(study, out=out, store=store, workers=workers, progress=progress, command=command, pool=pool)
    results = Results(out)
    for name, settings in plan.analyses.items():
        found = _analyse(plan, name, settings, results, progress)
        if found is not None:
            results.analyses[name] = found
    cells = tuple(collect_figures(plan, results))
    return ReproducedTable(plan, cells, out, dict(outcome.failed), tuple(results.list_notes()))


def collect_figures(plan: TablePlan, results: Results) -> list[ReproducedCell]:
    """Our figure for every cell that is run."""
    found = []
    for cell in plan.cells:
        values = list(MEASURES[cell.source.measure](results, cell.source).values()) if cell.source else []
        spread = stdev(values) if len(values) > 1 else None
        mark = results.mark(cell.source) if cell.source and values else ""
        found.append(ReproducedCell(cell, fmean(values) if values else None, spread, len(values), mark))
    return found


def _extend_encoder(plan: TablePlan, out: Path, *, store: Store, progress: Progress) -> None:
    """Write the text and the encoder with a larger vocabulary, unless they are there from before."""
    if plan.extend is None or (out / plan.extended).is_dir():
        return
    from crossling.encoders.extending import extend_on

    rows = open_data(plan.extend.text, split="train", store=store.root)
    side = "source" if rows.language.partition("-")[0] == plan.extend.language else "target"
    lines = [text if isinstance(text, str) else " ".join(text) for text in rows.column(side).to_pylist()]
    text = out / f"{plan.extended}.txt"
    write_atomic(text, "\n".join(lines) + "\n")
    extend_on(plan.encoder, text, pieces=plan.extend.pieces, out=out / plan.extended, progress=progress)


def _analyse(
    plan: TablePlan, name: str, settings: AnalysisSettings, results: Results, progress: Progress
) -> AnalysisTable[AnalysisSettings] | None:
    """Analyse the models that cells need; the result is written into the study's folder, for the report."""
    from crossling.analyses.result import write_result
    from crossling.study.analyse import analyse

    asked = plan.list_analysed(name)
    places = {
        label: (results.seeds[key][0], after) for label, (key, after) in asked.items() if results.is_finished(key)
    }
    models = [f"{label}={results.out / folder}{after and f'@{after}'}" for label, (folder, after) in places.items()]
    if pairs := getattr(settings, "compare", ()):
        kept = tuple(pair for pair in pairs if set(pair) <= set(places))
        settings = settings.model_copy(update={"compare": kept})
    if any(cell.source and cell.source.pretrained and cell.source.analysis == name for cell in plan.cells):
        models.append(f"{PRETRAINED}={plan.encoder}")
    if not models:
        return None
    found = analyse(models, settings, progress=progress)
    stem = name if name == settings.kind else name_file(settings.kind, name)
    write_result(found, results.out / f"{stem}.csv")
    return found
