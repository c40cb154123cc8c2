"""A real browser for tests: headless Chromium, spoken to through a pipe, with all that its console says."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell")
LIMIT = 60.0


def find_browser() -> str | None:
    """The program: ``CROSSLING_BROWSER``, or one that is installed."""
    named = os.environ.get("CROSSLING_BROWSER")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Browser:
    """One page of a browser."""

    to_browser: BinaryIO
    from_browser: BinaryIO
    session: str = ""
    said: list[str] = field(default_factory=list)
    """Errors and warnings of the console, exceptions, requests that were made or refused."""
    number: int = 0
    waiting: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and wait for its answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to_browser.write(json.dumps(message).encode() + b"\0")
        self.to_browser.flush()
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
        raise AssertionError(f"{method}: no answer")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.waiting:
            part = os.read(self.from_browser.fileno(), 1 << 16)
            assert part, "the browser is gone"
            self.waiting += part
        text, _, self.waiting = self.waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.said.append(f"exception: {json.dumps(parameters['exceptionDetails'])}")
            case "Runtime.consoleAPICalled":
                self.said.append(f"console: {json.dumps(parameters['args'])}")
            case "Log.entryAdded":
                self.said.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
            case "Network.requestWillBeSent" if not parameters["request"]["url"].startswith(("file:", "data:")):
                self.said.append(f"request: {parameters['request']['url']}")

    def open(self, page: Path, *, width: int = 1100, height: int = 900) -> None:
        """Load a page from its file and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + LIMIT
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") == "about:blank":
            assert time.monotonic() < deadline, "the page did not load"
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> Path:
        """What the page looks like, as PNG: the window, or the whole length of it."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path


def _take_places(reading: int, writing: int) -> None:
    """A browser reads commands from file 3 and writes answers to file 4; either may be one of ours."""
    reading, writing = (fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (reading, writing))
    os.dup2(reading, 3)
    os.dup2(writing, 4)


@contextmanager
def start_browser(program: str) -> Iterator[Browser]:
    """A browser with one empty page and no way to the network."""
    ours, theirs = os.pipe(), os.pipe()
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            command,
            preexec_fn=partial(_take_places, ours[0], theirs[1]),
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        try:
            with os.fdopen(ours[1], "wb") as writer, os.fdopen(theirs[0], "rb", buffering=0) as reader:
                browser = Browser(writer, reader)
                target = browser.call("Target.createTarget", url="about:blank")["targetId"]
                browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
                for domain in ("Page", "Runtime", "Log", "Network"):
                    browser.call(f"{domain}.enable")
                yield browser
        finally:
            process.kill()
            process.wait()
