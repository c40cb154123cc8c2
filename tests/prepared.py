"""Processes of their own that start in milliseconds, with what they would import first imported already.

A server imports large libraries and forks for every process. It imports neither crossling, so that a process can do
without, nor what reads settings of the hub from the environment, so that a process can have others.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from forked import can_fork, fork

IMPORTED = (
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "safetensors.torch",
    "scipy.stats",
    "tokenizers",
    "dill",
    "fsspec",
    "jinja2",
    "regex",
    "yaml",
)
ABSENT = ("crossling", "datasets", "huggingface_hub", "transformers")
"""What the server must not import."""
SECONDS = 600
"""After which a process is killed."""
RUN_MODULE = "import runpy; runpy.run_module('crossling', run_name='__main__', alter_sys=True)"
"""Code that does what ``python -m crossling`` does."""
SERVER = """
import importlib, json, os, signal, sys, traceback
receive, send = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")

def execute(given):
    signal.alarm(given["seconds"])
    for number, path in enumerate((os.devnull, given["output"], given["errors"])):
        os.dup2(os.open(path, os.O_RDWR), number)
    os.environ.clear()
    os.environ.update(given["variables"])
    os.chdir(given["folder"])
    sys.argv = ["-c", *given["arguments"]]
    code = 0
    try:
        exec(compile(given["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for name in sys.argv[4:]:
    importlib.import_module(name)
early = [name for name in sys.argv[3].split() if name in sys.modules]
assert not early, early
while line := receive.readline():
    given = json.loads(line)
    if isinstance(given, int):  # a process that is waited for
        answer = os.waitstatus_to_exitcode(os.waitpid(given, 0)[1])
    elif not (answer := os.fork()):
        execute(given)
    print(answer, file=send, flush=True)
"""


@cache
def start_server() -> tuple[IO[str], IO[str]]:
    """What the server reads and what it answers.

    Forked, where nothing is imported that it must not have: what it imports first, this process has imported, too.
    """
    (receive, to_server), (from_server, send) = os.pipe(), os.pipe()
    words = [str(receive), str(send), " ".join(ABSENT), *IMPORTED]
    if can_fork() and not any(name in sys.modules for name in ABSENT):
        for name in IMPORTED:
            importlib.import_module(name)
        atexit.register(os.waitpid, fork(lambda: _serve(words), keep=(receive, send)), 0)
    else:
        atexit.register(subprocess.Popen([sys.executable, "-c", SERVER, *words], pass_fds=(receive, send)).wait)
    os.close(receive)
    os.close(send)
    sending = os.fdopen(to_server, "w")
    atexit.register(sending.close)  # before it is waited for: at the end of its input it ends
    return sending, os.fdopen(from_server)


def _serve(words: list[str]) -> None:
    """As a new process would, which does not find the modules of tests."""
    sys.argv = ["-c", *words]
    sys.path[:] = ["", *(path for path in sys.path if path != str(Path(__file__).parent))]
    exec(compile(SERVER, "<string>", "exec"), {"__name__": "__main__"})


def _ask(question: object) -> int:
    to_server, from_server = start_server()
    to_server.write(json.dumps(question) + "\n")
    to_server.flush()
    return int(from_server.readline())


@dataclass(frozen=True)
class Prepared:
    """A process that was started, and the files that it prints to."""

    pid: int
    output: Path
    errors: Path

    def wait(self) -> int:
        """Its exit code, negative where a signal ended it; to be called once."""
        return _ask(self.pid)

    def read_line(self) -> str:
        """What it prints first, once the line is whole; what it printed where it ended instead."""
        from crossling.processes import is_running

        deadline = time.monotonic() + SECONDS
        while "\n" not in (text := self.output.read_text(encoding="utf-8")):
            if not is_running(self.pid) or time.monotonic() > deadline:
                return text
            time.sleep(0.01)
        return text.partition("\n")[0]


@contextmanager
def start_code(
    code: str, *arguments: object, variables: dict[str, str] | None = None, folder: Path | None = None
) -> Iterator[Prepared]:
    """``python -c CODE ARGUMENTS``, with these environment variables and in this folder."""
    with tempfile.TemporaryDirectory() as printed:
        output, errors = (Path(printed) / name for name in ("output", "errors"))
        output.touch()
        errors.touch()
        given = {
            "code": code,
            "arguments": [str(argument) for argument in arguments],
            "variables": dict(os.environ) if variables is None else variables,
            "folder": str(folder or Path.cwd()),
            "output": str(output),
            "errors": str(errors),
            "seconds": SECONDS,
        }
        started = Prepared(_ask(given), output, errors)
        try:
            yield started
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(started.pid, signal.SIGKILL)
            raise


def run_code(
    code: str, *arguments: object, variables: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """What it does and prints."""
    with start_code(code, *arguments, variables=variables, folder=folder) as started:
        status = started.wait()
        texts = (path.read_text(encoding="utf-8") for path in (started.output, started.errors))
        return subprocess.CompletedProcess([code], status, *texts)
