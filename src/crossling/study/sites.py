"""Where a study's work is done: on this machine, or on the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from crossling.progress import Progress
from crossling.recipe.recipe import RunSettings
from crossling.store.artefacts import Store
from crossling.study.crew import Crew, ProcessCrew
from crossling.study.grid import Study
from crossling.study.sizing import Size, choose_size
from crossling.training.distributed import Distributed, setup_distributed


class Site(Protocol):
    """Machines, as a runner sees them."""

    def choose_size(self, study: Study, out: Path, *, workers: int | None) -> Size:
        """Workers and threads, as asked for, or as fits."""

    def join(self, settings: RunSettings) -> Distributed:
        """What a run finds there: device and precision count in identities."""

    def gather(self, study: Study, out: Path, store: Store, *, size: Size, progress: Progress) -> Crew:
        """A crew, which begins to get ready while the study is planned."""


class Here:
    """This machine."""

    def choose_size(self, study: Study, out: Path, *, workers: int | None) -> Size:
        return choose_size(study, out, workers=workers)

    def join(self, settings: RunSettings) -> Distributed:
        return setup_distributed(settings)

    def gather(self, study: Study, out: Path, store: Store, *, size: Size, progress: Progress) -> Crew:
        crew = ProcessCrew(out, store.root.resolve(), gpus=size.gpus)
        crew.hire()  # it imports while the study is being planned
        return crew


@contextmanager
def open_site(ray: str | None) -> Iterator[Site]:
    """The Ray cluster at an address, until the end of the work; this machine where no address is given."""
    if ray is None:
        yield Here()
        return
    from crossling.study.ray_cluster import RayCluster

    with RayCluster.connect(ray) as cluster:
        yield cluster
