"""What a process asks of libraries before they are loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crossling.processes import SPINS, share_cores

NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, SPINS),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, None),
        ({"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "7"}, "7"),
    ],
    ids=str,
)
def test_waiting_threads_sleep_soon_unless_the_user_asks_for_something_else(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str | None
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is restored, whatever is written
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    share_cores()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_commands_ask_for_it_before_torch_is_loaded() -> None:
    code = (
        "import os, sys; from crossling.cli.entry import main; sys.argv = ['crossling', '--version']\n"
        "try: main()\n"
        "except SystemExit: print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    bare = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{SPINS} False"
