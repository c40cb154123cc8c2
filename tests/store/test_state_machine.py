"""Whatever happens to processes, files, disk and clock: what finishes equals what an undisturbed run gives.

Rules of a hypothesis state machine are drawn at random: run, kill at a write, fill the disk, start several runners with
clocks that are wrong, damage stored files. After each, an undisturbed command finishes, and its results are compared.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from faults import DAMAGES, Command, Faults, Results, list_files, write_work

CHANGES = 650
"""About as many changes of files as an undisturbed run makes."""
CLOCK_SPEEDS = (0.0, 1.0, 10_000.0)
"""Leases never expire, expire in time, expire at once."""
MOST = 10_000


@dataclass(frozen=True)
class Work:
    """A recipe, and the results that it gives undisturbed."""

    recipe: Path
    folder: Path
    results: Results

    def start(self, root: Path, *, number: int = 0, **faults: Any) -> Command:
        """Run the recipe on the store of a folder; several runners have folders of their own for results."""
        store, out = root / "store", root / str(number) / "out"
        return Command.start(
            *("run", self.recipe, "--store", store, "--out", out),
            output=root / f"{number}.log",
            inside=(store, out.parent),
            home=root / "home",
            faults=Faults(**faults),
        )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """The work, done once without any fault."""
    folder = tmp_path_factory.mktemp("undisturbed")
    work = Work(write_work(folder / "work"), folder, Results())
    command = work.start(folder)
    assert command.wait() == 0, command.read()
    return Work(work.recipe, folder, Results.read(folder / "store", folder / "0" / "out"))


class DamageMachine(RuleBasedStateMachine):
    """A store whose files are damaged, and then a run."""

    work: ClassVar[Work]
    unverified: ClassVar[bool] = False
    """Whether runs believe what is stored."""
    files: ClassVar[str] = "*"
    """Files that may be damaged."""
    damages: ClassVar[tuple[str, ...]] = tuple(DAMAGES)

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.root = Path(self._folder.name)

    def _start(self, number: int = 0, **faults: Any) -> Command:
        return self.work.start(self.root, number=number, unverified=self.unverified, **faults)

    def _check(self, command: Command, *, number: int = 0, may_fail: bool = False) -> int:
        """A command ends with results that are right, or, after a fault, with a message."""
        code = command.wait()
        text = command.read()
        assert "Traceback" not in text, text
        assert not command.list_outside(), command.list_outside()
        assert code == 0 or (may_fail and code in (2, -9)), f"exit code {code}\n{text}"
        if code == 0:
            wrong = self.work.results.compare(self.root / "store", self.root / str(number) / "out")
            assert not wrong, f"{', '.join(wrong)}: not as in the undisturbed run\n{text}"
        return code

    @initialize(finished=st.booleans())
    def begin(self, finished: bool) -> None:
        """The store of a finished run, or an empty one."""
        if finished:
            for name in ("store", "0"):
                shutil.copytree(self.work.folder / name, self.root / name)

    @rule(place=st.integers(0, MOST), how=st.integers(0, MOST), seed=st.integers(0, MOST))
    def damage(self, place: int, how: int, seed: int) -> None:
        """Something happens to a stored file while no process runs."""
        files = [path for path in list_files(self.root / "store", self.root / "0") if path.match(self.files)]
        if files:
            path, name = files[place % len(files)], self.damages[how % len(self.damages)]
            note(f"{name} {path.relative_to(self.root)}")
            DAMAGES[name](path, random.Random(seed))

    def teardown(self) -> None:
        try:
            self._check(self._start())
        finally:
            self._folder.cleanup()


class StoreMachine(DamageMachine):
    """A store whose runners are killed, too, meet a full disk, and take the work from each other."""

    @rule()
    def run(self) -> None:
        self._check(self._start())

    @rule(at=st.integers(1, CHANGES))
    def kill(self, at: int) -> None:
        self._check(self._start(die_at=at), may_fail=True)

    @rule(at=st.integers(1, CHANGES))
    def fill_disk(self, at: int) -> None:
        self._check(self._start(full_at=at), may_fail=True)

    @rule(
        first=st.sampled_from(CLOCK_SPEEDS),
        second=st.sampled_from(CLOCK_SPEEDS),
        deaths=st.tuples(st.integers(0, CHANGES), st.integers(0, CHANGES)),
    )
    def start_two_runners(self, first: float, second: float, deaths: tuple[int, int]) -> None:
        """They may lose their leases to each other, and may die."""
        speeds = (first, second)
        commands = [self._start(n, clock_speed=speeds[n], die_at=deaths[n]) for n in (0, 1)]
        for number, command in enumerate(commands):
            self._check(command, number=number, may_fail=True)


def run_machine(
    kind: type[DamageMachine], *, examples: int, steps: int, phases: Sequence[Phase] = (Phase.generate,), **changes: Any
) -> None:
    """Let a machine take random walks, always the same ones; ``changes`` are its class attributes."""
    run_state_machine_as_test(
        type(kind.__name__, (kind,), changes),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )


def test_results_survive_random_faults(work: Work) -> None:
    run_machine(StoreMachine, work=work, examples=3, steps=4)


def test_machine_finds_wrong_results_where_digests_are_not_compared(work: Work) -> None:
    flips = {"files": "artefacts/*/*.safetensors", "damages": ("flip_bit",)}
    with pytest.raises(AssertionError, match="weights.*not as in the undisturbed run"):
        run_machine(DamageMachine, work=work, examples=20, steps=2, unverified=True, **flips)


@pytest.mark.slow
def test_results_survive_many_more_random_faults(work: Work) -> None:
    run_machine(StoreMachine, work=work, examples=40, steps=12, phases=(Phase.generate, Phase.shrink))
