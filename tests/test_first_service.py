"""The page that leads a newcomer from a recipe to a service is executed, with a tiny encoder."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from crossling.cli.main import app
from prepared import RUN_MODULE, run_code, start_code

PAGE = Path(__file__).parent.parent / "docs" / "first-service.md"


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=make_environment())
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def request(command: list[str], folder: Path) -> str | bytes:
    """The answer to curl's command; without curl, to the request that it would send."""
    if shutil.which("curl"):
        return run(command, folder)
    _, _, address, _, header, _, data = command
    sent = Request(address, data.encode(), dict([header.split(": ", 1)]))
    with urlopen(sent, timeout=120) as answer:
        content: bytes = answer.read()
    return content


@contextmanager
def served(line: str, folder: Path) -> Iterator[str]:
    """A server until the block ends; its port."""
    variables = make_environment()
    with start_code(RUN_MODULE, *shlex.split(line)[1:], variables=variables, folder=folder) as server:
        try:
            address = server.read_line()  # printed when requests are accepted
            port = re.search(r":(\d+)/$", address.strip())
            assert port is not None, f"{address}\n{server.errors.read_text(encoding='utf-8')}"
            yield port[1]
        finally:
            os.kill(server.pid, signal.SIGTERM)
            server.wait()


def call(line: str) -> str:
    """What a command of crossling prints, run in this process: what is read and written is the same in a new one."""
    done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False, env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.output


def test_page_is_executed_as_it_stands(tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CROSSLING_STORE")
    [recipe] = find_blocks("toml")
    small = recipe.replace('"multilingual-e5-small"', json.dumps(str(flat_folder))).replace("[:200]", "[:40]")
    assert small.count(str(flat_folder)) == 1
    (tmp_path / "first.toml").write_text(small, encoding="utf-8")
    *first, serve, ask = [line for block in find_blocks("bash") for line in block.splitlines()]
    outputs = [call(line) for line in first]
    assert "span_f1" in outputs[0] and "hi" in outputs[0]
    [program] = find_blocks("python")
    without_crossling = "import sys\nsys.modules['crossling'] = None\n" + program
    done = run_code(without_crossling, variables=make_environment(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "8000" in serve and "8000" in ask
    assert shlex.split(serve)[0] == "crossling"
    with served(serve.replace("8000", "0"), tmp_path) as port:
        [result] = json.loads(request(shlex.split(ask.replace("8000", port)), tmp_path))["results"]
    assert [word["word"] for word in result["words"]] == ["Anna", "lebt", "in", "Berlin", "."]
    assert {"text", "spans", "words"} <= result.keys()
