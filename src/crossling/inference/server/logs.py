"""Logs as JSON lines that hold no user's text: numbers, names and places in the code."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

LOGGER = logging.getLogger("crossling.server")
FIELDS = "fields"
"""The attribute of a log record that holds what is logged beside the event."""


class JsonFormatter(logging.Formatter):
    """A JSON object a line. Of an exception the type and the place: its message may quote a text."""

    def format(self, record: logging.LogRecord) -> str:
        """A log record as one line."""
        facts = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            facts |= describe_error(record.exc_info[1])
        return json.dumps(facts, ensure_ascii=False)


def describe_error(error: BaseException) -> dict[str, object]:
    """The type of an exception and the lines of code that led to it, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "trace": places}


def log(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: object) -> None:
    """Write an event with its facts."""
    LOGGER.log(level, event, extra={FIELDS: fields}, exc_info=error)


def setup_logs(stream: TextIO) -> None:
    """Send the server's logs, and those of uvicorn, to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    for logger in (LOGGER, logging.getLogger("uvicorn"), logging.getLogger("uvicorn.error")):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if logger is LOGGER else logging.WARNING)
