"""Plan a study: the identities of every cell's stages and predictions, and the jobs that are left to do.

All of it is known before anything is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from crossling.encoders.cache import EncoderCache
from crossling.errors import DataError, Problems
from crossling.files import is_filled, write_many
from crossling.progress import NoProgress, Progress
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import RunSettings
from crossling.store.artefacts import Store
from crossling.study.folder import COMPLETE, RECIPE, RUN, PlannedCell, PlannedVariant, StudyPlan, is_finished
from crossling.study.grid import Study, Variant
from crossling.study.layers import describe_faults
from crossling.study.recipe_run import RecipeRun
from crossling.training.distributed import Distributed, setup_distributed

State = Literal["waiting", "running", "done", "failed"]
POSTPONE_SECONDS = 0.5
"""Before a job that another process holds is tried again."""


def plan_study(
    study: Study,
    store: Store,
    out: Path,
    *,
    setup: Callable[[RunSettings], Distributed] = setup_distributed,
    progress: Progress | None = None,
) -> tuple[list[PlannedCell], dict[str, RecipeRun]]:
    """Open all data and work out identities; whatever is missing for any variant, data or layers, is reported at once.

    Returns the cells in the order of work, and by folder the run of each variant. ``setup`` gives the device and the
    precision of a run where it will be run: both count in identities.
    """
    runs: dict[str, RecipeRun] = {}
    faults: dict[str, list[str]] = {}
    encoders = EncoderCache()
    for variant in study.variants:
        problems = Problems()
        with problems.collect():
            distributed = setup(variant.recipe.run)
            folder = out / variant.folder
            run = RecipeRun(variant.recipe, store, folder, distributed, progress or NoProgress(), encoders=encoders)
            run.check_targets(problems)
            runs[variant.folder] = run
        for line in problems.lines():
            faults.setdefault(line, []).append(variant.folder)
    for name, run in runs.items() if not faults else ():
        problems = Problems()
        run.check_layers(problems)
        for line in problems.lines():
            faults.setdefault(line, []).append(name)
    if faults:
        raise DataError(describe_faults(faults, len(study.variants)))
    cells = []
    for cell in study.cells:
        setup(cell.variant.recipe.run)  # the number of threads counts in identities
        variant, run = cell.variant, runs[cell.variant.folder]
        names = (cell.name, variant.folder, variant.task, variant.system, variant.label)
        identities = run.identify_stages(cell.seed), run.identify_predictions(cell.seed)
        trainings = tuple(run.list_trainings(cell.seed).values())
        cells.append(PlannedCell(*names, cell.seed, *identities, trainings))
    return cells, runs


def fix_threads(study: Study, threads: int) -> Study:
    """The study with a number of CPU threads where a recipe names none: it is part of what results are known by."""

    def fix(variant: Variant) -> Variant:
        run = variant.recipe.run
        if run.threads is not None:
            return variant
        fixed = {"run": run.model_copy(update={"threads": threads})}
        return replace(variant, recipe=variant.recipe.model_copy(update=fixed))

    return replace(study, variants=tuple(map(fix, study.variants)))


def write_plan(
    study: Study,
    cells: Sequence[PlannedCell],
    out: Path,
    *,
    store: Store,
    runs: Mapping[str, RecipeRun],
    command: str = "",
    device: str = "",
    threads: int | None = None,
) -> None:
    """Write the study's folder: the plan, and for each variant the recipe and the record of a run."""
    stages: dict[str, dict[str, tuple[str, ...]]] = {}
    for cell in cells:
        stages.setdefault(cell.folder, {})[str(cell.seed)] = cell.stages
    variants = [PlannedVariant(v.task, v.system, v.axes, v.label, v.folder) for v in study.variants]
    texts: dict[Path, str] = {}
    for variant in variants:
        run, folder = runs[variant.folder], out / variant.folder
        texts[folder / RECIPE] = to_toml(run.resolved.model_dump(mode="json"))
        texts[folder / RUN] = run.describe(stages.get(variant.folder, {}), command).to_json()
    write_many(texts, out)
    StudyPlan(
        study.name,
        study.settings,
        tuple(variants),
        tuple(cells),
        store.root.resolve(),
        identity=study.identity,
        overrides=study.overrides,
        command=command,
        device=device,
        threads=threads,
    ).write(out)


def find_finished(
    cells: Iterable[PlannedCell], runs: Mapping[str, RecipeRun], out: Path, *, clean: bool = True
) -> set[str]:
    """Names of the cells whose results are all there and whole; ``clean`` deletes the markers of others."""
    finished = set()
    for cell in cells:
        path = out / cell.name / COMPLETE
        if not is_filled(path):
            continue  # another process may be writing it at this moment
        if is_finished(out, cell) and runs[cell.folder].has_predictions(cell.seed):
            finished.add(cell.name)
        elif clean:
            path.unlink(missing_ok=True)
    return finished


@dataclass
class Job:
    """One stage to train, or one cell to predict."""

    key: str
    """The stage's identity, or the cell's name."""
    lease: str
    """The name of its lease."""
    cell: str
    """The first cell that needs it."""
    folder: str
    seed: int
    stage: int | None
    """The number of the stage; none for predictions."""
    needs: tuple[str, ...]
    """Keys of the jobs that come first."""
    position: int
    state: State = "waiting"
    attempts: int = 0
    not_before: float = 0.0

    @property
    def rank(self) -> tuple[int, int]:
        """Finish cells first, then what is nearest to finishing one, then the order of the study."""
        return (-1_000 if self.stage is None else -self.stage, self.position)


@dataclass
class JobGraph:
    """All jobs of a study that are left to do, each after those that it needs.

    A stage that several cells share is one job: it runs once, and all that need it wait while other work goes on.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    cells: dict[str, list[str]] = field(default_factory=dict)
    """The jobs that each cell still needs, its predictions last."""

    @classmethod
    def from_cells(
        cls,
        cells: Sequence[PlannedCell],
        *,
        finished: Collection[str],
        is_trained: Callable[[str], bool],
        damaged: Collection[str] = (),
    ) -> JobGraph:
        """Jobs for all that is neither finished nor trained, and for damaged models, which are not trained."""
        graph = cls()
        for position, cell in enumerate(cells):
            broken = [one.identity for one in cell.list_trainings() if one.identity in damaged]
            done = cell.name in finished and not broken
            graph.cells[cell.name] = [] if done else graph._add(cell, position, is_trained, broken)
        return graph

    def _add(
        self, cell: PlannedCell, position: int, is_trained: Callable[[str], bool], damaged: Iterable[str]
    ) -> list[str]:
        trainings = {training.identity: training for training in cell.list_trainings()}
        missing: dict[str, None] = {}

        def visit(identity: str) -> None:
            """Add what is missing for a training, then the training itself."""
            if identity not in missing and not is_trained(identity):
                for need in trainings[identity].needs:
                    visit(need)
                missing[identity] = None

        for identity in (*damaged, cell.stages[-1]):
            visit(identity)
        for key in missing:
            training = trainings[key]
            needs = tuple(need for need in training.needs if need in missing)
            job = Job(key, key, cell.name, cell.folder, training.seed, training.stage, needs, position)
            self.jobs.setdefault(key, job)
        lease, last = f"predict-{cell.identity}", tuple(missing)[-1:]
        self.jobs[cell.name] = Job(cell.name, lease, cell.name, cell.folder, cell.seed, None, last, position)
        return [*missing, cell.name]

    def ready(self) -> Iterator[Job]:
        """Jobs that could begin now, the most useful first."""
        now = time.monotonic()
        waiting = (job for job in self.jobs.values() if job.state == "waiting" and job.not_before <= now)
        yield from sorted((job for job in waiting if self._is_unblocked(job)), key=lambda job: job.rank)

    def _is_unblocked(self, job: Job) -> bool:
        return all(self.jobs[need].state == "done" for need in job.needs)

    def postpone(self, job: Job) -> None:
        """Another process has it: try again later."""
        job.state, job.not_before = "waiting", time.monotonic() + POSTPONE_SECONDS

    def fail(self, job: Job) -> list[str]:
        """Give a job up, with all that need it; returns the names of the cells that this costs."""
        lost = [name for name, keys in self.cells.items() if job.key in keys and self.state_of(name) != "failed"]
        job.state = "failed"
        for other in self.jobs.values():
            if job.key in other.needs and other.state != "failed":
                self.fail(other)
        return lost

    def state_of(self, cell: str) -> State:
        """The state of a cell."""
        states = [self.jobs[key].state for key in self.cells[cell]]
        if not states or states[-1] == "done":
            return "done"
        if "failed" in states:
            return "failed"
        return "running" if "running" in states else "waiting"

    def is_finished(self) -> bool:
        """Whether every job is done or given up."""
        return all(job.state in ("done", "failed") for job in self.jobs.values())

    def count(self) -> dict[State, int]:
        """Cells in each state."""
        states = [self.state_of(cell) for cell in self.cells]
        return {state: states.count(state) for state in ("done", "running", "waiting", "failed")}
