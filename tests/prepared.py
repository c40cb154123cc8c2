"""Processes of their own that start in milliseconds, with what they would import first imported already.

A server imports large libraries and forks for every process. It imports neither crossling, so that a process can do
without, nor what reads settings of the hub from the environment, so that a process can have others.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

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
SECONDS = 600
"""After which a process is killed."""
RUN_MODULE = "import runpy; runpy.run_module('crossling', run_name='__main__', alter_sys=True)"
"""Code that does what ``python -m crossling`` does."""
SERVER = """
import importlib, json, os, signal, sys, traceback

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

for name in sys.argv[1:]:
    importlib.import_module(name)
early = [name for name in ("crossling", "datasets", "huggingface_hub", "transformers") if name in sys.modules]
assert not early, early
while line := sys.stdin.readline():
    child = os.fork()
    if not child:
        execute(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _start_server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, *IMPORTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # which closes its input, at whose end it ends
    return server


def run_code(
    code: str, *arguments: object, variables: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """What ``python -c CODE ARGUMENTS`` does and prints, with these environment variables and in this folder."""
    server = _start_server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.NamedTemporaryFile("r") as output, tempfile.NamedTemporaryFile("r") as errors:
        given = {
            "code": code,
            "arguments": [str(argument) for argument in arguments],
            "variables": dict(os.environ) if variables is None else variables,
            "folder": str(folder or Path.cwd()),
            "output": output.name,
            "errors": errors.name,
            "seconds": SECONDS,
        }
        server.stdin.write(json.dumps(given) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        return subprocess.CompletedProcess([code], status, output.read(), errors.read())
