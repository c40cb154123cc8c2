"""The long run: processes are killed, stored files are damaged, and untrusted input is read, hundreds of times.

    python tests/long_run.py --kills 500 --corruptions 1000 --files 10000 --folders 200

It counts results that were lost or wrong, tracebacks, and files that were changed outside the folders that a command
was given, and writes the counts into ``docs/results/tables/reliability.json``. Each trial has a seed made of the run's
and its number. A long run that was stopped continues with the same command.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from crossling.files import read_json, write_atomic
from crossling.recipe.recipe import RunSettings
from crossling.training.distributed import setup_distributed
from crossling.training.hardware import describe_hardware
from faults import DAMAGES, Command, Faults, Results, list_files, write_work
from hostile import load_good_recipes, make_bad_data, make_bad_recipe, make_good_folders, make_hostile_folder
from small_study import TWO_SYSTEMS, markers_of

TABLE = Path("docs/results/tables/reliability.json")
COUNTS = {"kills": 500, "corruptions": 1000, "files": 10_000, "folders": 200}
"""What is done by default."""
CHANGES = 650
"""About as many changes of files as an undisturbed run makes."""
SECONDS = 1.5
"""About as long as it takes."""
BATCH = {"data": 50, "recipes": 50, "folders": 10}
"""Things that one process reads."""
MEMORY = 12 << 30
"""Bytes that a process may ask for which reads untrusted input."""
TRACEBACK = "Traceback (most recent call last)"


@dataclass
class Part:
    """The counts of one part of the long run."""

    wanted: int
    done: int = 0
    trials: int = 0
    commits: list[str] = field(default_factory=list)
    """Whose code was run."""
    commands: int = 0
    """Processes that were started."""
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    """What was done, by kind."""
    lost: int = 0
    """Commands that did not finish undisturbed, and finished models that were made again."""
    wrong: int = 0
    """Results that differ from the undisturbed ones; hostile folders that were loaded."""
    tracebacks: int = 0
    """Commands that ended in another way than with a result or a message."""
    outside: int = 0
    """Commands that changed files outside the folders that they were given."""
    findings: list[str] = field(default_factory=list)


@dataclass
class Trial:
    """One trial: its folder, its dice, and the counts that it adds to."""

    root: Path
    dice: random.Random
    part: Part
    name: str

    def __post_init__(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        for folder in ("home", "sentinel"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "sentinel" / "file").write_text("unchanged\n", encoding="utf-8")
        self._before = self._list_sentinels()

    def start(
        self, *arguments: object, number: int = 0, function: Callable[..., None] | None = None, **faults: Any
    ) -> Command:
        """Start a process, which may change the store, the results, and what it is given to read."""
        self.part.commands += 1
        chosen = {} if function is None else {"function": function}
        return Command.start(
            *arguments,
            output=self.root / f"{number}.log",
            inside=[self.root / name for name in ("store", "out", "given")],
            home=self.root / "home",
            faults=Faults(**faults),
            **chosen,
        )

    def inspect(self, command: Command) -> int:
        """Wait for a process; count a traceback, and changes outside. Returns its exit code."""
        try:
            code = command.wait()
        except AssertionError as error:
            self.note("lost", str(error))
            return 1
        if TRACEBACK in command.read():
            self.note("tracebacks", command.read()[-3000:])
        after = self._list_sentinels()
        if changed := [*command.list_outside(), *sorted(map(str, after ^ self._before))]:
            self.note("outside", f"{' '.join(command.arguments)}: {changed}")
        self._before = after
        return code

    def note(self, fault: str, text: str) -> None:
        """Count a fault, with enough text to find its cause."""
        setattr(self.part, fault, getattr(self.part, fault) + 1)
        self.part.findings.append(f"{self.name}: {fault}: {text}")

    def count(self, kind: str, number: int = 1) -> None:
        """Count something that was done."""
        self.part.done += number
        self.part.kinds[kind] = self.part.kinds.get(kind, 0) + number

    def finish(self, work: Work) -> None:
        """Undisturbed, the same command finishes, with the results of one that nothing ever happened to.

        A study whose cells are finished does not need the models that were deleted.
        """
        command = work.start(self)
        code = self.inspect(command)
        if code != 0:
            self.note("lost", f"exit code {code}\n{command.read()[-2000:]}")
        elif wrong := work.results.compare(self.root / "store", self.root / "out", has_all=work.name == "run"):
            self.note("wrong", f"{wrong}\n{command.read()[-2000:]}")

    def _list_sentinels(self) -> set[tuple[str, int, int]]:
        places = (self.root / "sentinel", self.root / "home")
        known = (self.root / "home" / "tmp", self.root / "home" / ".cache")
        files = [path for path in list_files(*places) if not any(path.is_relative_to(one) for one in known)]
        return {(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@dataclass(frozen=True)
class Work:
    """A command whose results are known: a run, or a study of two systems."""

    name: str
    arguments: tuple[str, ...]
    folder: Path
    """Of its undisturbed store and results."""
    results: Results = field(default_factory=Results)

    def start(self, trial: Trial, **faults: Any) -> Command:
        """Start the command on the store of a trial."""
        places = ("--store", trial.root / "store", "--out", trial.root / "out")
        return trial.start(*self.arguments, *places, **faults)


@dataclass(frozen=True)
class Bench:
    """What all trials use, made once: commands with their results, and valid folders that are corrupted."""

    run: Work
    study: Work
    good: Path

    @classmethod
    def prepare(cls, folder: Path) -> Bench:
        """Run the recipe and the study undisturbed, and make the good folders."""
        recipe = write_work(folder / "work")
        study = recipe.with_name("study.toml")
        study.write_text(TWO_SYSTEMS, encoding="utf-8")
        shutil.rmtree(folder / "good", ignore_errors=True)
        make_good_folders(folder / "good")
        return cls(
            _finish(Work("run", ("run", str(recipe)), folder / "run")),
            _finish(Work("study", ("study", "run", str(study), "--workers", "2"), folder / "study")),
            folder / "good",
        )


def _finish(work: Work) -> Work:
    trial = Trial(work.folder, random.Random(0), Part(0), work.name)
    command = work.start(trial)
    if trial.inspect(command) != 0 or trial.part.findings:
        raise SystemExit(command.read())
    return Work(work.name, work.arguments, work.folder, Results.read(trial.root / "store", trial.root / "out"))


def kill(trial: Trial, bench: Bench) -> None:
    """Kill a run or a study again and again, then let it finish."""
    trial.dice.choice((kill_run, kill_study))(trial, bench)


def kill_run(trial: Trial, bench: Bench) -> None:
    """Kill a run at a change of a file, or at any moment."""
    for _ in range(trial.dice.randint(4, 12)):
        before = markers_of(trial.root / "store")
        if trial.dice.random() < 0.5:
            command = bench.run.start(trial, die_at=trial.dice.randint(1, CHANGES))
        else:
            command = bench.run.start(trial)
            command.process.join(trial.dice.random() * SECONDS)
            command.kill()
        code = trial.inspect(command)
        expect_kept(trial, before)
        if code != -signal.SIGKILL:
            break
        trial.count("runs")
    trial.finish(bench.run)


def kill_study(trial: Trial, bench: Bench) -> None:
    """Kill workers of a study, and its runners, of which there may be two."""
    runners = trial.dice.choice((1, 1, 2))
    for _ in range(trial.dice.randint(2, 6)):
        before = markers_of(trial.root / "store")
        commands = [bench.study.start(trial, number=number) for number in range(runners)]
        for _ in range(trial.dice.randint(0, 4)):
            time.sleep(trial.dice.random() * SECONDS)
            workers = [worker for command in commands for worker in command.list_children()]
            if workers and kill_worker(trial.dice.choice(workers)):
                trial.count("workers of studies")
        time.sleep(trial.dice.random() * SECONDS)
        for command in commands:
            command.kill()
            if trial.inspect(command) == -signal.SIGKILL:
                trial.count("runners of studies")
        expect_kept(trial, before)
    trial.finish(bench.study)


def kill_worker(process: int) -> bool:
    """Whether a process was there to be killed."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def expect_kept(trial: Trial, before: dict[str, int]) -> None:
    """What was finished is not made again."""
    after = markers_of(trial.root / "store")
    if any(after.get(name) != moment for name, moment in before.items()):
        trial.note("lost", f"finished models were made again: {before} {after}")


def corrupt(trial: Trial, bench: Bench) -> None:
    """Damage up to twelve stored files of a finished or an interrupted command, then run it again."""
    work = trial.dice.choice((bench.run, bench.run, bench.study))
    if trial.dice.random() < 0.5:
        for name in ("store", "out"):
            shutil.copytree(work.folder / name, trial.root / name)
    elif work is bench.run:
        trial.inspect(work.start(trial, die_at=trial.dice.randint(40, CHANGES)))
    else:
        command = work.start(trial)
        command.process.join(trial.dice.uniform(0.3, 2.5))
        command.kill()
    files = list_files(trial.root / "store", trial.root / "out")
    for path in trial.dice.sample(files, min(len(files), trial.dice.randint(1, 12))):
        name = trial.dice.choice(list(DAMAGES))
        if path.exists():
            DAMAGES[name](path, trial.dice)
            trial.count(name.replace("_", " "))
            trial.name += f", {name} {path.relative_to(trial.root)}"
    trial.finish(work)


def read_files(trial: Trial, bench: Bench) -> None:
    """Read bad data files, and check bad recipes."""
    kind = "recipes" if trial.part.trials % 2 else "data"
    read_batch(trial, bench, kind, first=trial.part.trials // 2 * BATCH[kind])


def read_folders(trial: Trial, bench: Bench) -> None:
    """Load hostile folders of encoders and models."""
    read_batch(trial, bench, "folders", first=trial.part.trials * BATCH["folders"])


def read_batch(trial: Trial, bench: Bench, kind: str, *, first: int) -> None:
    """Read several of one kind in one process, and count how that ended."""
    report = trial.root / "given" / "report.json"
    report.parent.mkdir()
    code = trial.inspect(trial.start(kind, first, bench.good, trial.root, report, function=read_given))
    found = read_json(report) or []
    if code != 0 or len(found) != BATCH[kind]:
        trial.note("tracebacks", f"exit code {code} at {kind} {first + len(found)}")
    for seed, outcome in enumerate(found, first):
        trial.count(f"{kind} {outcome['end']}")
        for fault in ("tracebacks", "wrong", "outside"):
            if fault in outcome:
                trial.note(fault, f"{kind} {seed}: {outcome[fault]}")


def read_given(kind: str, first: str, good: str, root: str, report: str) -> None:
    """The main function of a process that reads untrusted input; it writes how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    given, found = Path(root) / "given", []
    recipes = load_good_recipes(str(Path(good) / "encoder" / "xlm-r"), given / "files") if kind == "recipes" else []
    for seed in range(int(first), int(first) + BATCH[kind]):
        place = given / str(seed)
        try:
            if kind == "data":
                outcome = _read_data(place, seed, store=Path(root) / "store")
            elif kind == "recipes":
                message = make_bad_recipe(recipes, given / f"{seed}.toml", seed).check(Path(root) / "store")
                outcome = {"end": "refused" if message else "accepted"}
            else:
                outcome = _read_folder(Path(good), place, seed)
        except BaseException as error:
            outcome = {"end": "raised", "tracebacks": repr(error)[:2000]}
        shutil.rmtree(place, ignore_errors=True)
        found.append(outcome)
        write_atomic(Path(report), json.dumps(found))


def _read_data(folder: Path, seed: int, *, store: Path) -> dict[str, str]:
    """Read twice: from the store it must be the same."""
    bad = make_bad_data(folder, seed)
    rows, again = bad.read(store), bad.read(store)
    outcome = {"end": "refused" if isinstance(rows, str) else "read"}
    return outcome if rows == again else {**outcome, "wrong": f"{bad.fault}: {rows!r}, then {again!r}"[:2000]}


def _read_folder(good: Path, folder: Path, seed: int) -> dict[str, str]:
    hostile = make_hostile_folder(good, folder / "model", seed)
    before = _list_all(folder)
    try:
        hostile.refusal()
        outcome = {"end": "refused"}
    except AssertionError as error:
        fault = "wrong" if error.__cause__ is None else "tracebacks"
        outcome = {"end": "loaded" if fault == "wrong" else "raised", fault: str(error)[:2000]}
    return outcome if _list_all(folder) == before else {**outcome, "outside": f"{hostile.attack}: files were changed"}


def _list_all(folder: Path) -> dict[str, tuple[int, int]]:
    facts = {str(path): path.lstat() for path in sorted(folder.rglob("*"))}
    return {name: (found.st_size, found.st_mtime_ns) for name, found in facts.items()}


PARTS: dict[str, Callable[[Trial, Bench], None]] = {
    "kills": kill,
    "corruptions": corrupt,
    "files": read_files,
    "folders": read_folders,
}


def main() -> None:
    """Do all parts, and write the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--folder", type=Path, default=Path("build/long-run"), help="Where it works.")
    parser.add_argument("--out", type=Path, default=TABLE, help="Where the counts are written.")
    parser.add_argument("--jobs", type=int, default=2, help="Parts that are done at the same time.")
    parser.add_argument("--fresh", action="store_true", help="Begin anew, though an earlier run was stopped.")
    given = parser.parse_args()
    folder = given.folder.resolve()
    if given.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    state = read_json(folder / "state.json") or {}
    parts = {name: Part(**{**state.get(name, {}), "wanted": getattr(given, name)}) for name in PARTS}
    for part in parts.values():
        if part.done < part.wanted:
            part.commits = list(dict.fromkeys([*part.commits, find_commit()]))
    bench, lock = Bench.prepare(folder / "undisturbed"), Lock()

    def work_on(name: str) -> None:
        while parts[name].done < parts[name].wanted:
            do_trial(name, parts[name], bench, folder, seed=given.seed)
            with lock:
                known = {one: asdict(part) for one, part in parts.items()}
                write_atomic(folder / "state.json", json.dumps(known, indent=1))

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(work_on, parts))
    write_atomic(given.out, json.dumps(describe(parts, given.seed), indent=1) + "\n")
    print(format_table(parts))
    sys.exit(any(part.findings for part in parts.values()))


def do_trial(name: str, part: Part, bench: Bench, folder: Path, *, seed: int) -> None:
    """One trial; one that finds something is kept, to be looked at."""
    began, known = time.monotonic(), len(part.findings)
    label = f"{seed}-{name}-{part.trials}"
    trial = Trial(folder / "trial" / name, random.Random(label), part, label)
    PARTS[name](trial, bench)
    part.trials += 1
    part.seconds += time.monotonic() - began
    if len(part.findings) > known:
        shutil.copytree(trial.root, folder / "found" / label, dirs_exist_ok=True, symlinks=True)
        print(*part.findings[known:], sep="\n", flush=True)


def find_commit() -> str:
    """The commit whose code is run."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def describe(parts: dict[str, Part], seed: int) -> dict[str, Any]:
    """The counts, and what they were made with."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seed": seed,
        "machine": describe_hardware(setup_distributed(RunSettings(device="cpu"))),
        "parts": {
            name: {key: round(value) if key == "seconds" else value for key, value in asdict(part).items()}
            for name, part in parts.items()
        },
    }


def format_table(parts: dict[str, Part]) -> str:
    """The counts, as text."""
    columns = ("done", "commands", "lost", "wrong", "tracebacks", "outside")
    lines = [f"{'':12}" + "".join(f"{name:>12}" for name in columns)]
    for name, part in parts.items():
        lines.append(f"{name:12}" + "".join(f"{getattr(part, column):>12,}" for column in columns))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
