"""For the documentation site: links to folders and to files outside docs/, which it lacks, become plain text."""

from __future__ import annotations

import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page."""
    outside = "../" * (page.file.src_uri.count("/") + 1)

    def replace(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        is_page = "." in target.rpartition("/")[2] and not target.startswith(outside)
        return link[0] if is_page or "://" in target else text

    return LINK.sub(replace, markdown)
