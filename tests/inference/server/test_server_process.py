"""The process that serves: access, names, the socket, and a shutdown that finishes what was accepted."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crossling.errors import UserError
from crossling.inference.server.limits import Limits
from crossling.inference.server.process import (
    TOKEN,
    bind,
    check_access,
    is_loopback,
    name_models,
    read_token,
)
from prepared import RUN_MODULE, start_code
from served import Running, load_gated, run_server, wait_until

Trained = Callable[[str], Path]


def test_models_are_named_after_their_folders_or_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["runs/ner", "second=runs/ner", "./a=b/model", "."]
    expected = {"ner": "runs/ner", "second": "runs/ner", "model": "./a=b/model", tmp_path.name: "."}
    assert name_models(given) == {name: Path(folder) for name, folder in expected.items()}
    with pytest.raises(UserError, match="another model is called 'ner'"):
        name_models(["runs/ner", "other/ner"])
    with pytest.raises(UserError, match="cannot be a model's name"):
        name_models(["runs/my model"])


def test_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN, "from-the-environment\n")
    assert read_token(None) == "from-the-environment"
    file = tmp_path / "token"
    file.write_text("from-a-file-with-newline\n")
    assert read_token(file) == "from-a-file-with-newline"
    for bad in ("short", "with spaces between words", "nön-ascii-characters-here", ""):
        file.write_text(bad, encoding="utf-8")
        with pytest.raises(UserError, match="16 or more ASCII characters") as error:
            read_token(file)
        assert not bad or bad not in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        read_token(tmp_path / "none")


def test_other_machines_are_served_with_a_token_only() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        assert is_loopback(host)
        check_access(host, None, no_auth=False)
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(UserError, match="without a token"):
            check_access(host, None, no_auth=False)
        check_access(host, "t" * 20, no_auth=False)
        check_access(host, None, no_auth=True)


def test_address_in_use_is_an_error() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UserError, match="--port"):
            bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UserError, match="--host"):
        bind("192.0.2.1", 0)


def test_limits_that_fit_nothing_are_errors() -> None:
    with pytest.raises(UserError, match="batch = 0 must be positive"):
        Limits(batch=0)
    with pytest.raises(UserError, match="never fits into a queue of 10"):
        Limits(queue=10)
    assert Limits(wait=0.0).wait == 0


def accepts_connections(running: Running) -> bool:
    try:
        running.connect().close()
    except ConnectionError:
        return False
    return True


def test_stopping_answers_what_was_accepted(trained: Trained) -> None:
    gated = load_gated(trained("ner"))
    with run_server({"ner": gated}, limits=Limits(wait=0.0, batch=2)) as running, ThreadPoolExecutor(16) as pool:
        replies = [pool.submit(running.predict, {"texts": ["the cat"] * 3}) for _ in range(8)]
        wait_until(lambda: running.service.active == 8)
        running.server.should_exit = True
        wait_until(lambda: not accepts_connections(running))
        gated.gate.set()
        assert [reply.result(120).status for reply in replies] == [200] * 8
    assert not running.service.healthy


def count_taken(address: str, headers: dict[str, str]) -> int:
    """Requests for predictions that the server reads, answers or has answered."""
    with urllib.request.urlopen(urllib.request.Request(f"{address}/metrics", headers=headers), timeout=120) as response:
        lines = [line.rpartition(" ") for line in response.read().decode().splitlines()]
    counted = ("crossling_active_requests", 'crossling_requests_total{path="/v1/predict",status="200"}')
    return sum(int(value) for name, _, value in lines if name in counted)


def test_command_serves_and_stops(trained: Trained) -> None:
    """The real command: a token from the environment, many clients, SIGTERM in between, exit with 0."""
    token = "correct-horse-battery"
    models = [str(trained("ner")), f"reader={trained('qa')}"]
    words = ["serve", *models, "--port", "0", "--threads", "1"]
    with start_code(RUN_MODULE, *words, variables={**os.environ, TOKEN: token}) as process:
        address = process.read_line().split()[-1].rstrip("/")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def ask(number: int) -> int:
            body = json.dumps({"model": "ner", "texts": [f"the cat {number}"] * 100}).encode()
            request = urllib.request.Request(f"{address}/v1/predict", body, headers)
            with urllib.request.urlopen(request, timeout=120) as response:
                return len(json.load(response)["results"])

        with ThreadPoolExecutor(10) as pool:
            replies = [pool.submit(ask, number) for number in range(10)]
            wait_until(lambda: count_taken(address, headers) == 10)
            os.kill(process.pid, signal.SIGTERM)
            assert [reply.result(120) for reply in replies] == [100] * 10
        assert process.wait() == 0
        log = process.errors.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["event"] for line in lines[:3]] == ["model loaded", "model loaded", "serving"]
    assert lines[-1]["event"] == "stopped"
    assert sum(line.get("status") == 200 for line in lines) == 10
    assert token not in log
