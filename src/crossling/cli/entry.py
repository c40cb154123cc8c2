"""Where ``crossling`` starts.

Loading the parser of all verbs takes longer than reading the state of ten thousand cells, and people ask for that state
again and again: without options, it is shown without the parser.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from crossling.processes import share_cores


def main() -> None:
    """Run the command that the command line names."""
    share_cores()
    try:
        match sys.argv[1:]:
            case ["study", "status", study] if study and not study.startswith("-"):
                guard(lambda: _show_status(Path(study)))
            case _:
                from crossling.cli.main import app

                guard(app)
    finally:
        # The process ends: to look for garbage among all that libraries created would take it another second.
        gc.freeze()


def _show_status(study: Path) -> None:
    """As ``crossling.cli.study.status`` without options."""
    gc.disable()  # the process ends in a moment, and no object of ten thousand cells is garbage before
    from crossling.cli.show_study import show_status
    from crossling.study.folder import find_out

    sys.exit(show_status(find_out(study)))


def guard(run: Callable[[], Any]) -> None:
    """Run a command; an error that the user can fix is printed without a traceback, with exit code 2."""
    from crossling.errors import LogFormatter, UserError
    from crossling.files import describe_failure

    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])  # until there is a progress bar to write above
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # what is read and written is UTF-8, wherever it is run
    try:
        run()
    except UserError as error:
        _exit(str(error))
    except Exception as error:
        message = describe_failure(error, getattr(error, "filename", None) or "output")
        if message is None:
            raise
        _exit(message)


def _exit(message: str) -> None:
    from crossling.addresses import mask_credentials
    from crossling.report.terminal import print_error

    print_error(mask_credentials(message))
    sys.exit(2)
