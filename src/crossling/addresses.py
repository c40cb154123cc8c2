"""Addresses of stores and data, which may carry credentials: these are never shown and never stored."""

from __future__ import annotations

import re

MASK = "***"
_SCHEME = r"(?P<scheme>\b(?!github:|git:)[A-Za-z][A-Za-z0-9+.-]+://?)"
_PATTERNS = (
    # user:secret@ before the first slash; of web addresses also a token alone, which elsewhere is a container or a user
    re.compile(_SCHEME + r"[^\s/@'\"<>]*:[^\s/'\"<>]*@"),
    re.compile(r"(?P<scheme>\bhttps?://?)[^\s/'\"<>]*@", re.IGNORECASE),
    # secrets with a slash, as Amazon's have; after a host comes a port, which is a number
    re.compile(_SCHEME + r"[^\s/@:'\"<>]+:(?!\d+/)[^\s@'\"<>]*@"),
)
_PARAMETERS = re.compile(
    r"([?&;](?:[\w.%-]*(?:token|secret|signature|password|passwd|credentials?|key|keyid)|sig|pwd|auth)=)[^&;\s'\"<>#]+",
    re.IGNORECASE,
)


def is_address(place: object) -> bool:
    """Whether a place is an address, rather than a path."""
    return "://" in str(place)


def mask_credentials(text: str) -> str:
    """A text in which the credentials of all addresses are replaced by ``***``; other texts are as they were."""
    if ":/" not in text:  # a path has one slash where an address had two
        return text
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<scheme>{MASK}@", text)
    return _PARAMETERS.sub(rf"\g<1>{MASK}", text)
