"""A table made again: the encoder prepared, the study run, its models analysed, our figures put beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from crossling.data.catalogue import open_data
from crossling.files import write_atomic
from crossling.papers.drafting import Cell, Draft, write_study
from crossling.papers.measures import MEASURES, ORIGINAL, Results
from crossling.progress import NoProgress, Progress

if TYPE_CHECKING:
    from crossling.store.artefacts import Store
    from crossling.study.probing import Compared
    from crossling.study.sites import Site

SUBTRACTED = ("probe", "head_probe")
"""Analyses whose figures are differences from the encoder that a model was."""


@dataclass(frozen=True)
class Ours:
    """A cell with our figure."""

    cell: Cell
    value: float | None
    """The mean over seeds; none where there is no figure."""
    spread: float | None = None
    """Standard deviation over seeds, where there are several."""
    seeds: int = 0

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        published = self.cell.figure.value
        return None if self.value is None or published is None else self.value - published


@dataclass(frozen=True)
class Reproduced:
    """A table of the paper with ours beside it."""

    draft: Draft
    cells: tuple[Ours, ...]
    out: Path
    failed: Mapping[str, str] = field(default_factory=dict)
    """Cells of the study without results, and why."""


def reproduce(
    draft: Draft,
    *,
    out: Path,
    store: Store,
    workers: int | None = None,
    progress: Progress | None = None,
    command: str = "",
    site: Site | None = None,
) -> Reproduced:
    """Make a table again. Killed and started again, it goes on: what is finished is left alone."""
    from crossling.study.scheduling import run_study

    progress = progress or NoProgress()
    _extend_encoder(draft, out, store=store, progress=progress)
    study = write_study(draft, out)
    outcome = run_study(study, out=out, store=store, workers=workers, progress=progress, command=command, site=site)
    results = Results(out, draft.scores)
    for name, settings in draft.analyses.items():
        found = _analyse(draft, name, settings, results, progress)
        if found is not None:
            results.analyses[name] = found
    return Reproduced(draft, tuple(collect(draft, results)), out, dict(outcome.failed))


def collect(draft: Draft, results: Results) -> list[Ours]:
    """Our figure for every cell that this scale has."""
    found = []
    for cell in draft.cells:
        values = list(MEASURES[cell.address.measure](results, cell.address).values()) if cell.address else []
        spread = stdev(values) if len(values) > 1 else None
        found.append(Ours(cell, fmean(values) if values else None, spread, len(values)))
    return found


def _extend_encoder(draft: Draft, out: Path, *, store: Store, progress: Progress) -> None:
    """Write the text and the encoder with a larger vocabulary, unless they are there from before."""
    if draft.extend is None or (out / draft.extended).is_dir():
        return
    from crossling.encoders.extending import extend_on

    rows = open_data(draft.extend.text, split="train", store=store.root)
    side = "source" if rows.language.partition("-")[0] == draft.extend.language else "target"
    lines = [text if isinstance(text, str) else " ".join(text) for text in rows.column(side).to_pylist()]
    text = out / f"{draft.extended}.txt"
    write_atomic(text, "\n".join(lines) + "\n")
    extend_on(draft.encoder, text, pieces=draft.extend.pieces, out=out / draft.extended, progress=progress)


def _analyse(
    draft: Draft, name: str, table: Mapping[str, Any], results: Results, progress: Progress
) -> Compared | None:
    """Look into the models that cells ask for, and into the encoder as it was where one of them does."""
    from crossling.study.analysing import analyse, parse_settings
    from crossling.study.probing import Compared, analyse_with_bases

    variants = [variant for variant in draft.list_variants(name) if results.is_finished(variant)]
    models = [f"{task}: {system}={results.out / results.seeds[task, system][0]}" for task, system in variants]
    if any(cell.address and cell.address.original and cell.address.analysis == name for cell in draft.cells):
        models.append(f"{ORIGINAL}={draft.encoder}")
    if not models:
        return None
    settings = parse_settings(table)
    if settings.kind in SUBTRACTED:
        return analyse_with_bases(models, settings, against=None, source=None, progress=progress)
    return Compared(analyse(models, settings, progress=progress), {}, None)
