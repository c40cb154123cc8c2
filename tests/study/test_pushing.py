"""Upload of an exported model, to a stand-in for the hub."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from crossling.errors import UserError
from crossling.study.pushing import check_name
from hub import environment

TOKEN = "hf_aSecretOfTheTest"
PUSH = """
import sys
from pathlib import Path
from crossling.errors import UserError
from crossling.study.pushing import push_folder
try:
    print(push_folder(Path(sys.argv[1]), sys.argv[2]))
except UserError as error:
    print(error)
    sys.exit(2)
"""


class _Hub(BaseHTTPRequestHandler):
    """Creates repositories and takes commits, from whoever has the token."""

    received: dict[str, bytes]
    requests: list[tuple[str, Any]]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Unauthorized"})
        address = f"http://{self.headers['Host']}/me/tagger"
        if self.path.endswith("/commit/main"):
            lines = [json.loads(line) for line in raw.decode().splitlines()]
            self.received |= {
                one["value"]["path"]: base64.b64decode(one["value"]["content"]) for one in lines if one["key"] == "file"
            }
            return self._answer(200, {"success": True, "commitOid": "0" * 40, "commitUrl": f"{address}/commit/0"})
        body = json.loads(raw)
        self.requests.append((self.path, body))
        if self.path == "/api/repos/create":
            return self._answer(200, {"url": address, "id": "me/tagger"})
        if "/preupload/" in self.path:
            files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in body["files"]]
            return self._answer(200, {"files": files})
        return self._answer(200, {"errors": [], "warnings": []})

    def do_GET(self) -> None:
        self._answer(200, {"id": "me/tagger", "siblings": [], "sha": "0" * 40})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hub() -> Iterator[tuple[str, type[_Hub]]]:
    handler = type("Handler", (_Hub,), {"received": {}, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    server.server_close()


def push(
    folder: Path, endpoint: str, home: Path, name: str = "me/tagger", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PUSH, folder, name],
        env=environment(endpoint, home, **more),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    (made / "README.md").write_text("---\nlanguage:\n- en\n---\n# model\n", encoding="utf-8")
    (made / "model.safetensors").write_bytes(bytes(range(256)))
    return made


def test_all_files_arrive_in_a_private_repository(hub: tuple[str, type[_Hub]], folder: Path, tmp_path: Path) -> None:
    endpoint, handler = hub
    done = push(folder, endpoint, tmp_path / "home", HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{endpoint}/me/tagger"
    assert handler.received == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert dict(handler.requests)["/api/repos/create"]["visibility"] == "private"


def test_token_is_written_nowhere(hub: tuple[str, type[_Hub]], folder: Path, tmp_path: Path) -> None:
    done = push(folder, hub[0], tmp_path / "home", HF_TOKEN=TOKEN)
    assert TOKEN not in done.stdout + done.stderr
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_refusals_name_the_reason_and_keep_the_folder(
    hub: tuple[str, type[_Hub]], folder: Path, tmp_path: Path
) -> None:
    refused = push(folder, hub[0], tmp_path / "home", HF_TOKEN="hf_wrong")
    assert refused.returncode == 2 and "the token is missing, wrong, or may not write there" in refused.stdout
    assert "hf_wrong" not in refused.stdout + refused.stderr
    assert (folder / "model.safetensors").is_file()


def test_impossible_names_are_refused_before_anything_is_written() -> None:
    for name in ("a/b/c", "a b", "me/-x"):
        with pytest.raises(UserError, match="write OWNER/NAME"):
            check_name(name)
    check_name("me/tagger-1.0_x")
