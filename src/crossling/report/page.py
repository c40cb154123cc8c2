"""Pages of one file: our own style and script go in as they are, all else is escaped, and nothing is fetched.

The policy at the top of every page lets only the page's one script run, named by its hash, so that text which looks
like code stays text even where escaping should fail.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render_page(template: str, *, title: str, styles: Sequence[str], script: str, **values: object) -> str:
    """A template with its style sheets and its script, which are parts of this package."""
    style = "\n".join(_read_part(name) for name in styles)
    code = _read_part(script)
    page: str = (
        _environment()
        .get_template(template)
        .render(
            title=title,
            style=Markup(style),
            script=Markup(code),
            script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
            **values,
        )
    )
    return page


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("crossling", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read_part(name: str) -> str:
    """A style sheet or script: our own text, put into the page as it is."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
