"""Headless Chromium for tests of pages, where this machine has one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell")

WAIT = 120_000.0
"""Milliseconds for the browser to start and for a page to show what is expected."""


def launch_chromium() -> Iterator[Browser]:
    """A browser for a fixture to yield from."""
    program = os.environ.get("CROSSLING_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium found; install one, or set CROSSLING_BROWSER to its path")
    expect.set_options(timeout=WAIT)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.geteuid() != 0, timeout=WAIT)
        yield started
        started.close()
