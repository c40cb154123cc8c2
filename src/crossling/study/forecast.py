"""Forecast a study (``--dry-run``): its cells, what they share, what exists already, and the hours of the rest."""

from __future__ import annotations

import heapq
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossling.encoders.loading import load_encoder
from crossling.files import read_json
from crossling.progress import Progress
from crossling.recipe.recipe import EncoderSettings, Recipe
from crossling.store.artefacts import MARKER, Store
from crossling.study.folder import PlannedCell
from crossling.study.grid import Study
from crossling.study.local import LocalPool
from crossling.study.memory import fit_gpu_memory
from crossling.study.plan import Job, JobGraph, find_finished, fix_threads, plan_study
from crossling.study.pool import Resources, WorkerPool
from crossling.study.recipe_data import count_subwords, estimate_subwords
from crossling.study.recipe_run import RecipeRun

REFERENCE_PARAMETERS = 21.3e6
"""Weights of multilingual-e5-small without its subword table, which the speeds below were measured with."""
SPEEDS = {"cpu": 375.0, "cuda": 19_000.0}
"""Subwords trained on in a second where nothing of the kind was trained yet: on one CPU core (measured: 750 on two, in
float32), and in one of 15 processes side by side on an H200 (78 runs: 19,000 each, at the median)."""
PREDICTION_FACTOR = 3.0
"""Prediction is this much faster than training: there is no backward pass."""
SATURATION = 15
"""Processes side by side on one GPU that the speed above was measured with; more are taken to share it."""


@dataclass(frozen=True)
class VariantForecast:
    """What is left to do for one variant."""

    task: str
    label: str
    cells: int
    done: int
    to_predict: int
    stages_to_train: int


@dataclass(frozen=True)
class TimeForecast:
    """The time that a number of workers needs."""

    workers: int
    hours: float
    """Until the last job ends."""
    device_hours: float
    """Of all GPUs, or of all cores."""


@dataclass(frozen=True)
class Forecast:
    """What ``--dry-run`` shows."""

    variants: tuple[VariantForecast, ...]
    lines: tuple[str, ...]
    times: tuple[TimeForecast, ...]
    on_gpu: bool
    basis: str
    """Which speeds the times are computed from."""


def forecast_study(
    study: Study,
    *,
    store: Store,
    out: Path,
    workers: int | None = None,
    pool: WorkerPool | None = None,
    progress: Progress | None = None,
) -> Forecast:
    """Plan a study without training anything."""
    pool = pool or LocalPool()
    pool.measure(study, out, workers=workers)
    study = fix_threads(study, pool.resources.threads) if pool.resources.device == "cpu" else study
    cells, runs = plan_study(study, store, out, setup=pool.setup_distributed, progress=progress)
    resources = fit_gpu_memory(pool.resources, runs)
    finished = find_finished(cells, runs, out, clean=False)
    graph = JobGraph.from_cells(cells, finished=finished, is_trained=store.is_complete)
    speeds = Speeds.measure(store, resources, runs)
    seconds = {job.key: speeds.estimate(job, runs[job.folder]) for job in graph.jobs.values()}
    uses = Counter(training.identity for cell in cells for training in cell.list_trainings())
    trained = sum(map(store.is_complete, uses))
    to_train = sum(job.stage is not None for job in graph.jobs.values())
    lines = (
        f"{len(cells)} cells, {len(finished)} of them done",
        f"{uses.total()} stages in all, {len(uses)} different ones: {sum(n > 1 for n in uses.values())} serve several "
        f"cells, {trained} are trained already, {to_train} are to be trained",
        resources.describe(),
    )
    times = tuple(_forecast_time(graph, seconds, count, resources) for count in _counts(resources, len(graph.jobs)))
    variants = _forecast_variants(study, cells, finished, graph)
    return Forecast(variants, lines, times, resources.device != "cpu", speeds.basis)


def _forecast_variants(
    study: Study, cells: Sequence[PlannedCell], finished: Iterable[str], graph: JobGraph
) -> tuple[VariantForecast, ...]:
    done = set(finished)
    found = []
    for variant in study.variants:
        names = [cell.name for cell in cells if cell.folder == variant.folder]
        open_cells = [name for name in names if name not in done]
        stages = {key for name in open_cells for key in graph.cells[name] if graph.jobs[key].stage is not None}
        is_done = len(names) - len(open_cells)
        found.append(VariantForecast(variant.task, variant.label, len(names), is_done, len(open_cells), len(stages)))
    return tuple(found)


def _counts(resources: Resources, jobs: int) -> list[int]:
    """Numbers of workers worth a line: 1, 2, 4 and so on up to what would be used, or to the cores."""
    top = max(resources.workers, min(resources.cores, max(1, jobs)))
    doubling = [2**power for power in range(top.bit_length()) if 2**power <= top]
    return sorted({*doubling, resources.workers, top})


def _forecast_time(graph: JobGraph, seconds: Mapping[str, float], workers: int, resources: Resources) -> TimeForecast:
    """Jobs go to free workers in their order."""
    if resources.device == "cpu":
        # A worker has resources.threads threads; more workers than cores for them share what there is.
        slow = max(1.0, workers * resources.threads / resources.cores)
    else:
        slow = max(1.0, workers / (resources.gpus * SATURATION))
    total = _simulate(graph, {key: value * slow for key, value in seconds.items()}, workers) / 3600
    on_cpu = resources.device == "cpu"
    used = min(resources.cores, workers * resources.threads) if on_cpu else max(1, min(resources.gpus, workers))
    return TimeForecast(workers, total, total * used)


def _simulate(graph: JobGraph, seconds: Mapping[str, float], workers: int) -> float:
    """The time at which everything is done, job after job handed to the first free worker."""
    ends: dict[str, float] = {}
    free = [0.0] * workers
    for job in sorted(graph.jobs.values(), key=lambda job: (_depth(graph, job), job.position)):
        begin = max(heapq.heappop(free), *(ends[need] for need in job.needs), 0.0)
        ends[job.key] = begin + seconds[job.key]
        heapq.heappush(free, ends[job.key])
    return max(ends.values(), default=0.0)


def _depth(graph: JobGraph, job: Job) -> int:
    return max((1 + _depth(graph, graph.jobs[need]) for need in job.needs), default=0)


@dataclass(frozen=True)
class Speeds:
    """Subwords in a second, as measured in the store or as known from elsewhere."""

    measured: Mapping[tuple[str, str], float]
    """By encoder and kind of stage."""
    resources: Resources
    basis: str
    parameters: dict[str, float]

    @classmethod
    def measure(cls, store: Store, resources: Resources, runs: Mapping[str, RecipeRun]) -> Speeds:
        """Speeds of what the store's artefacts were trained with, on the same device and as many threads."""
        found: dict[tuple[str, str], list[float]] = {}
        for path in (store.root / "artefacts").glob(f"*/{MARKER}"):
            record = read_json(path) or {}
            work, machine = record.get("work", {}), record.get("machine", {})
            alike = machine.get("device") == resources.device
            alike &= resources.device != "cpu" or machine.get("threads") == str(resources.threads)
            if alike and work.get("subwords") and work.get("seconds"):
                kind = path.parent.name.partition("-")[0]
                found.setdefault((work["encoder"], kind), []).append(work["subwords"] / work["seconds"])
        measured = {key: statistics.median(values) for key, values in found.items()}
        wanted = {
            (run.recipe.encoder_of(number).name, run.recipe.stage[number].kind)
            for run in runs.values()
            for number in _list_trained(run)
        }
        return cls(measured, resources, _describe_basis(measured, found, wanted, resources), {})

    def estimate(self, job: Job, run: RecipeRun) -> float:
        """Seconds that a job takes."""
        if job.stage is None:
            subwords = sum(estimate_subwords(rows) for _, _, rows in run.targets)
            return subwords / (PREDICTION_FACTOR * self._speed(run.recipe, _list_trained(run)[-1]))
        settings = run.recipe.stage[job.stage]
        subwords = settings.epochs * count_subwords(run.opened[job.stage])
        return float(subwords / self._speed(run.recipe, job.stage))

    def _speed(self, recipe: Recipe, number: int) -> float:
        """Subwords in a second that a stage learns from."""
        settings, kind = recipe.encoder_of(number), recipe.stage[number].kind
        if (settings.name, kind) in self.measured:
            return self.measured[settings.name, kind]
        scale = REFERENCE_PARAMETERS / self._body(settings)
        return SPEEDS[self.resources.device] * (self.resources.threads if self.resources.device == "cpu" else 1) * scale

    def _body(self, settings: EncoderSettings) -> float:
        """Weights of the encoder without its subword table."""
        name = settings.name
        if name not in self.parameters:
            encoder = load_encoder(name, revision=settings.revision)
            table = encoder.model.get_input_embeddings().weight.numel()
            self.parameters[name] = max(1.0, sum(p.numel() for p in encoder.parameters()) - table)
        return self.parameters[name]


def _list_trained(run: RecipeRun) -> list[int]:
    """Numbers of the stages that train; an average does not."""
    return [number for number, data in enumerate(run.opened) if data.reads_per_epoch()]


def _describe_basis(
    measured: Mapping[tuple[str, str], float],
    found: Mapping[tuple[str, str], Sequence[float]],
    wanted: Iterable[tuple[str, str]],
    resources: Resources,
) -> str:
    where = f"{resources.threads} CPU threads" if resources.device == "cpu" else "this kind of device"
    lines = []
    for name, kind in sorted(wanted):
        if (name, kind) in measured:
            count = len(found[name, kind])
            lines.append(
                f"{kind} of {name}: {measured[name, kind]:,.0f} subwords/s, measured in {count} runs of the store"
            )
        else:
            lines.append(f"{kind} of {name}: nothing like it in the store for {where}, so a default rate")
    return "Speeds: " + "; ".join(lines) + "."
