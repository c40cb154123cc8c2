"""Commands in processes of their own that meet faults: killed at a write, a full disk, a clock that is wrong.

A fork server imports everything once, so that a command starts in milliseconds. What is killed by SIGKILL is a process
like any other.
"""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from multiprocessing import forkserver, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crossling.errors import ArtefactError
from crossling.files import read_json
from crossling.recipe.overrides import to_toml
from forked import can_fork, fork
from small_study import predictions_of, weights_of, write_bio, write_recipe
from tiny import save_tiny

PRELOADED = [
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.xlm_roberta.modeling_xlm_roberta",
    "crossling.cli.main",
    "crossling.cli.show_run",
    "crossling.cli.show_study",
    "crossling.data.readers.bio",
    "crossling.fusions.last",
    "crossling.inference.predictor",
    "crossling.stages.finetune",
    "crossling.stages.masked_training",
    "crossling.study.run_report",
    "crossling.study.scheduling",
    "crossling.tasks.tag",
    "pandas",
]
"""Modules that every command uses."""
TIMEOUT = 600.0
"""Seconds after which a command that faults may have blocked is given up."""
ROUNDING = 1e-6
"""By which confidences may differ."""
CHANGES = {
    "open": (0,),
    "os.rename": (0, 1),
    "os.link": (0, 1),
    "os.symlink": (1,),
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
    "shutil.rmtree": (0,),
}
"""Audit events of Python that change files, and which of their arguments are paths."""
RELATIVE = ("os.remove", "os.rmdir")
"""Events whose last argument is an open folder that the path is relative to, or -1."""


@dataclass(frozen=True)
class Faults:
    """What happens to one process."""

    die_at: int = 0
    """The process is killed at this change of a file; 0: never."""
    full_at: int = 0
    """From this change of a file on the disk is full; 0: never."""
    clock_speed: float = 1.0
    """Of the clock by which leases expire."""
    unverified: bool = False
    """Digests are not compared: what a run must notice."""


def run_crossling(*arguments: str) -> None:
    """The command line, as in a process of its own."""
    from crossling.cli.main import main

    sys.argv = ["crossling", *arguments]
    main()


def get_fork_server() -> Any:
    """Starts processes that have imported everything, from a process that has no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def start_fork_server() -> None:
    """Fork it before the first test, where that is possible: it would import for seconds what is imported already."""
    get_fork_server()
    if not can_fork():
        return

    def start(executable: str, arguments: list[str], keep: list[int]) -> int:
        return fork(lambda: exec(arguments[-1], {"__name__": "__main__"}), keep=keep)

    spawn = util.spawnv_passfds  # type: ignore[attr-defined]
    util.spawnv_passfds = start  # type: ignore[attr-defined]
    try:
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = spawn  # type: ignore[attr-defined]


@dataclass
class Command:
    """One call of ``crossling``, or of a function, in a process of its own."""

    arguments: tuple[str, ...]
    output: Path
    """What it prints."""
    process: Any = None
    outside: Path = field(init=False)
    """The files that it changed outside its folders, a line for each."""

    def __post_init__(self) -> None:
        self.outside = self.output.resolve().with_suffix(".outside")

    @classmethod
    def start(
        cls,
        *arguments: object,
        output: Path,
        inside: Iterable[Path],
        home: Path,
        faults: Faults | None = None,
        function: Callable[..., None] = run_crossling,
    ) -> Command:
        """Start it in the folder ``home``; it may change files below the folders ``inside``, and temporary ones."""
        command = cls(tuple(map(str, arguments)), output)
        places = [str(path.resolve()) for path in (*inside, home / "tmp", home / ".cache")]
        given = (function, command.arguments, command.output, command.outside, places, home, faults or Faults())
        command.process = get_fork_server().Process(target=_execute, args=given)
        command.process.start()
        return command

    def wait(self, seconds: float = TIMEOUT) -> int:
        """Its exit code, negative where a signal ended it."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"{' '.join(self.arguments)}: was not over after {seconds} s\n{self.read()}")
        return int(self.process.exitcode)

    def poll(self) -> int | None:
        """Its exit code; none while it runs."""
        code: int | None = self.process.exitcode
        return code

    def finish(self, *, code: int = 0) -> str:
        """Wait for it; what it printed."""
        assert self.wait() == code, self.read()
        return self.read()

    def kill(self) -> None:
        """Kill it, if it is not over yet."""
        self.process.kill()
        self.process.join()

    def list_children(self) -> list[int]:
        """The processes that it started, and that live."""
        try:
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="utf-8")
        except OSError:
            return []
        return [int(number) for number in text.split()]

    def read(self) -> str:
        """What it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""

    def list_outside(self) -> list[str]:
        """Changes outside its folders."""
        return self.outside.read_text(encoding="utf-8").splitlines() if self.outside.exists() else []


def _execute(
    function: Callable[..., None],
    arguments: tuple[str, ...],
    output: Path,
    outside: Path,
    places: list[str],
    home: Path,
    faults: Faults,
) -> None:
    """The main function of the process."""
    # Tests that a shell runs in the background were started with Ctrl-C ignored, which processes inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("wb") as stream:
        for target in (1, 2):
            os.dup2(stream.fileno(), target)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    for name, value in {"HOME": home, "TMPDIR": temporary, "COLUMNS": "200"}.items():
        os.environ[name] = str(value)
    tempfile.tempdir = str(temporary)
    os.chdir(home)
    _fork_workers()
    _set_clock(faults.clock_speed)
    if faults.unverified:
        _switch_off_verification()
    noted = os.open(outside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
    sys.addaudithook(FileWatch(tuple(places), noted, faults))
    code = 0
    try:
        function(*arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


@dataclass
class FileWatch:
    """An audit hook that counts changes of files, notes those outside, and lets the process meet its faults there."""

    places: tuple[str, ...]
    outside: int
    """The file that is written to, which is open: to open one here would be another event."""
    faults: Faults
    main: int = field(default_factory=os.getpid)
    count: int = 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or (event == "open" and not _is_for_writing(arguments)):
            return
        paths = [arguments[place] for place in CHANGES[event]]
        if any(isinstance(path, int) for path in paths):
            return  # of a file that is open already
        if event not in RELATIVE or arguments[-1] == -1:
            for path in paths:
                self._check(os.fsdecode(path))
        if os.getpid() != self.main:
            return  # a worker: faults are of the process that was started
        self.count += 1
        if self.count == self.faults.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.faults.full_at and self.count >= self.faults.full_at and event in ("open", "os.link", "os.mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(paths[-1]))

    def _check(self, path: str) -> None:
        whole = os.path.realpath(path)
        if "__pycache__" in Path(whole).parts:  # compiled code, of Python and of numba
            return
        inside = any(whole == place or whole.startswith(place + os.sep) for place in self.places)
        if not inside and whole != os.devnull and not os.path.isdir(whole):  # noqa: PTH112
            os.write(self.outside, f"{whole}\n".encode())


def _is_for_writing(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))


def _fork_workers() -> None:
    """Workers of a study are forked, too: to import everything again would take seconds."""
    from crossling.study import local

    local.multiprocessing = SimpleNamespace(get_context=lambda _: multiprocessing.get_context("fork"))  # type: ignore[attr-defined]


def _set_clock(speed: float) -> None:
    """Leases of others seem to expire early or late."""
    from crossling.store import leases

    if speed != 1.0:
        began = time.monotonic()
        clock = {"monotonic": lambda: began + speed * (time.monotonic() - began), "sleep": time.sleep}
        leases.time = SimpleNamespace(**clock)  # type: ignore[attr-defined]


def _switch_off_verification() -> None:
    """Believe whatever is stored, as if files could not be damaged."""
    from crossling.data import cache
    from crossling.inference import evaluate
    from crossling.store.artefacts import Store

    for module in (cache, evaluate):
        module.is_intact = Path.is_file  # type: ignore[attr-defined]
    Store.verify = lambda *_: None  # type: ignore[method-assign]


def write_work(folder: Path) -> Path:
    """A recipe of two stages, two seeds and two test sets, so that files of every kind can be mistaken for others."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_recipe(folder, save_tiny(folder / "encoder", family="xlm-r", layers=1), lr=0.03)
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    (first,) = tables["stage"]
    other = {**tables["evaluate"][0]["on"], "path": str(write_bio(folder / "other.tsv", 9, shift=5)), "language": "sw"}
    tables |= {"seeds": [1, 2], "stage": [first, {**first, "lr": 0.02}]}
    tables["evaluate"].append({"on": other})
    path.write_text(to_toml(tables), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Results:
    """All that a run or a study finished: what must not depend on the faults that it met."""

    weights: dict[str, str] = field(default_factory=dict)
    histories: dict[str, Any] = field(default_factory=dict)
    """Of each model: its losses, and its scores on development data."""
    predictions: dict[str, list[Any]] = field(default_factory=dict)
    scores: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Path, out: Path) -> Results:
        """The results that lie in a store and in the folder of a run or a study; an empty marker is none."""
        markers = {path.parent.name: path for path in store.glob("artefacts/*/complete.json") if path.stat().st_size}
        weights = {name: digest for name, digest in weights_of(store).items() if name in markers}
        histories = {name: read_json(path)["history"] for name, path in markers.items()}
        scores = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.glob("scores*"))}
        return cls(weights, histories, predictions_of(out), scores)

    def compare(self, store: Path, out: Path, *, has_all: bool = True) -> list[str]:
        """What differs from them in a store and a folder; without ``has_all``, models may be missing."""
        try:
            found = Results.read(store, out)
        except (ArtefactError, KeyError, TypeError) as error:
            return [f"cannot be read: {error!r}"]
        same = {one.name: getattr(found, one.name) == getattr(self, one.name) for one in fields(self)}
        same["predictions"] = _agree(found.predictions, self.predictions)
        if not has_all:
            same["weights"] = all(self.weights[name] == value for name, value in found.weights.items())
            same["histories"] = all(self.histories[name] == value for name, value in found.histories.items())
        return [name for name, agrees in same.items() if not agrees]


def _agree(first: dict[str, list[dict[str, Any]]], second: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether predictions are equal; confidences up to the rounding of float32.

    A set whose predictions are made again alone is in batches of other shapes than with the sets beside it.
    """
    return first.keys() == second.keys() and all(
        len(first[name]) == len(second[name])
        and all(
            {**one, "confidence": 0} == {**other, "confidence": 0}
            and abs(one["confidence"] - other["confidence"]) <= ROUNDING
            for one, other in zip(first[name], second[name], strict=True)
        )
        for name in first
    )


def list_files(*folders: Path) -> list[Path]:
    """All files below folders, in an order that does not depend on the file system."""
    return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def flip_bit(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, dice: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: dice.randrange(len(content))] if content else b"")


def empty(path: Path, dice: random.Random) -> None:
    path.write_bytes(b"")


def fill_with_zeros(path: Path, dice: random.Random) -> None:
    """As a file system may leave what it had not written when the power was cut."""
    path.write_bytes(bytes(path.stat().st_size))


def delete(path: Path, dice: random.Random) -> None:
    path.unlink()


def swap(path: Path, dice: random.Random) -> None:
    """Exchange the contents of this file and of another of its kind."""
    others = [one for one in list_files(path.parents[1]) if one.suffix == path.suffix and one != path]
    if others:
        other = dice.choice(others)
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    one.__name__: one for one in (flip_bit, truncate, empty, fill_with_zeros, delete, swap)
}
"""What can happen to a stored file, by name."""
