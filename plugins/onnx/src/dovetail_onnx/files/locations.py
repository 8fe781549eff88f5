"""Where data lies: a path, or the URL of another file system."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_LOCAL = "file://"


def is_remote(data: object) -> bool:
    """Whether data is the URL of a file or folder of another file system."""
    return isinstance(data, str) and _REMOTE.match(data) is not None and not data.lower().startswith(_LOCAL)


def local_path(data: object) -> object:
    """Return the path that a `file://` URL names; anything else as it is."""
    if not isinstance(data, str) or not data.lower().startswith(_LOCAL):
        return data
    return Path(unquote(urlsplit(data).path))


def data_location(text: str) -> str | Path:
    """Return what an argument of a command names: the URL of another file system, or a path."""
    return text if is_remote(text) else Path(str(local_path(text)))
