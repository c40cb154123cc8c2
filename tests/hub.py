"""A stand-in for the hub on this machine: serves folders as repositories, over the few routes its clients use.

Repositories lie in ``folder/models/<id>/…`` and ``folder/datasets/<id>/…``; an id may have one slash. Another
revision than the main one lies beside it, in ``<id>@<revision>/…`` with ``%2F`` for its slashes. The client
reads ``HF_ENDPOINT`` when it is imported, so what uses the stand-in runs in a process of its own, with the
environment that ``environment`` gives.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

RESOLVE = re.compile(r"/(?P<kind>datasets/)?(?P<id>[^/]+(/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
API = re.compile(
    r"/api/(?P<kind>models|datasets)/(?P<id>[^/]+(/[^/]+)?)"
    r"(/(?P<verb>revision|tree|paths-info)/(?P<revision>[^/]+)(/(?P<path>.+))?)?"
)


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder of repositories; gives the endpoint's address."""
    handler = type("Handler", (_Handler,), {"folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """Variables for a process that shall see the stand-in as the hub and keep its cache below ``home``."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
    kept.pop("CROSSLING_DATA", None)
    timeout = {"HF_HUB_ETAG_TIMEOUT": "120", "HF_HUB_DOWNLOAD_TIMEOUT": "120"}
    telemetry = {"HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), **timeout, **telemetry, **more}


def hash_repository(folder: Path) -> str:
    """The commit that the stand-in gives a repository: a hash of its files."""
    digest = hashlib.sha1()
    for path in _list_files(folder):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing: the requests of a test are no output of it."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match = API.fullmatch(unquote(urlsplit(self.path).path))
        repository = self._find_repository(match["kind"], match["id"], match["revision"]) if match else None
        if match is None or match["verb"] != "paths-info" or repository is None:
            return self._refuse("RepoNotFound")
        wanted = json.loads(body)["paths"]
        known = {item["path"]: item for item in _list_tree(repository, "", recursive=True)}
        return self._send_json([known[path] for path in wanted if path in known])

    def _answer(self, *, with_body: bool) -> None:
        address = urlsplit(self.path)
        raw = address.path
        if match := RESOLVE.fullmatch(raw):
            kind = "datasets" if match["kind"] else "models"
            repository = self._find_repository(kind, unquote(match["id"]), match["revision"])
            self._send_file(repository, unquote(match["path"]), with_body=with_body)
        elif match := API.fullmatch(raw):
            self._send_info(match, recursive="recursive=true" in address.query.lower())
        else:
            self._refuse("EntryNotFound")

    def _find_repository(self, kind: str, identity: str, revision: str | None) -> Path | None:
        """The folder of a repository at a revision, by its name or its commit; else the main one."""
        main = self.folder / kind / identity
        for other in main.parent.glob(f"{main.name}@*"):
            if quote(unquote(revision or ""), safe="") in (other.name.partition("@")[2], hash_repository(other)):
                return other
        return main if main.is_dir() else None

    def _send_file(self, repository: Path | None, path: str, *, with_body: bool) -> None:
        if repository is None:
            return self._refuse("RepoNotFound")
        file = repository / path
        if not file.is_file():
            return self._refuse("EntryNotFound")
        content = file.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        part = content
        if wanted:
            stop = int(wanted[2]) + 1 if wanted[2] else len(content)
            part = content[int(wanted[1]) : stop]
        self.send_response(206 if wanted else 200)
        if wanted:
            first = int(wanted[1])
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", hash_repository(repository))
        self.end_headers()
        if with_body:
            self.wfile.write(part)
        return None

    def _send_info(self, match: re.Match[str], *, recursive: bool) -> None:
        repository = self._find_repository(match["kind"], unquote(match["id"]), match["revision"])
        if repository is None:
            return self._refuse("RepoNotFound")
        if match["verb"] == "tree":
            folder = unquote(match["path"] or "")
            if folder and not (repository / folder).is_dir():
                return self._refuse("EntryNotFound")
            return self._send_json(_list_tree(repository, folder, recursive=recursive))
        names = [path.relative_to(repository).as_posix() for path in _list_files(repository)]
        identity = unquote(match["id"])
        return self._send_json(
            {
                "_id": hashlib.sha1(identity.encode()).hexdigest()[:24],
                "id": identity,
                "modelId": identity,
                "sha": hash_repository(repository),
                "lastModified": "2020-01-01T00:00:00.000Z",
                "private": False,
                "disabled": False,
                "gated": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": [{"rfilename": name} for name in names],
            }
        )

    def _send_json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _list_tree(repository: Path, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
    start = repository / folder
    found = sorted(start.rglob("*") if recursive else start.iterdir())
    return [
        {
            "type": "directory" if path.is_dir() else "file",
            "oid": hashlib.sha1(str(path).encode() if path.is_dir() else path.read_bytes()).hexdigest(),
            "size": 0 if path.is_dir() else path.stat().st_size,
            "path": path.relative_to(repository).as_posix(),
        }
        for path in found
    ]
