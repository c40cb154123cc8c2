"""A disk that is full from the n-th write on: a message, exit code 2, and the same result once there is room again."""

from __future__ import annotations

import shutil

import pytest

from full_disk import run_trials

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_full_disk_is_a_message_and_the_next_run_has_the_same_result() -> None:
    found = run_trials("run", "--samples", "6")
    assert found["faults"] == 0, found["first faults"]
    assert found["exit code 2"] >= 6


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["run", "study", "analyse"])
def test_full_disk_at_every_write_is_a_user_error(scenario: str) -> None:
    found = run_trials(scenario)
    assert found["faults"] == 0, found["first faults"]
    assert found["exit code 2"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("error", ["EIO", "EROFS", "EDQUOT"])
def test_disk_that_fails_once_changes_no_result(error: str) -> None:
    found = run_trials("run", "--samples", "60", "--once", "--error", error)
    assert found["faults"] == 0, found["first faults"]
