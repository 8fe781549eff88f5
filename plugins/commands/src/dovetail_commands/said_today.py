"""Notes that were shown today already: what is the same at every compilation is said once a day."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable

from dovetail.errors import DovetailError
from dovetail_onnx.files.private_folders import cache_folder, exposed
from dovetail_onnx.files.writing import write_text

_DAY = 24 * 3600


def new_notes(notes: Iterable[str], now: float | None = None) -> list[str]:
    """Return the notes that were not shown within a day, and remember that they are shown now.

    The record is a file in the user's cache folder; where it cannot be read or written, every note is new.

    Args:
        notes: The notes.
        now: Seconds since the epoch; the present by default.
    """
    now = time.time() if now is None else now
    path = cache_folder() / "notes.json"
    if exposed(path.parent.absolute()):  # others could have put a link there
        return list(notes)
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    shown = {key: at for key, at in known.items() if _is_recent(at, now)} if isinstance(known, dict) else {}
    fresh = []
    for note in notes:
        key = hashlib.blake2b(note.encode("utf-8", "replace"), digest_size=8).hexdigest()
        if key not in shown:
            fresh.append(note)
            shown[key] = now
    with contextlib.suppress(OSError, DovetailError):  # a read-only home costs nothing but repeated notes
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, json.dumps(shown))
    return fresh


def _is_recent(at: object, now: float) -> bool:
    return isinstance(at, (int, float)) and 0 <= now - at < _DAY
