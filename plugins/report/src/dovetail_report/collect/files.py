"""The files of a result: their sizes, and the texts among them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dovetail_onnx.results.reading import SavedFolder, find_result

from dovetail_report.collect.texts import short

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel


def sizes(compiled: CompiledModel) -> list[dict[str, Any]]:
    """Return name and bytes of each file of a saved result, largest first; empty if it is not saved."""
    place, found = compiled.saved_to, None
    if place is not None and place.is_file():  # the output of another store, such as an archive
        return [{"file": short(place.name), "bytes": place.stat().st_size}]
    if place is not None and place.is_dir():
        found = find_result(place)
    elif isinstance(compiled.saved, SavedFolder):
        found = compiled.saved.found
    if found is None:
        return []
    files = found.manifest.files
    return [{"file": name, "bytes": record.size} for name, record in sorted(files.items(), key=lambda f: -f[1].size)]


def json_file(compiled: CompiledModel, name: str) -> dict[str, Any]:
    """Return a JSON file of a result; empty if there is none, or if it was edited so that it is no JSON object."""
    text: str | bytes = compiled.files.get(name, "")
    if not text and isinstance(compiled.saved, SavedFolder) and compiled.saved.found is not None:
        text = compiled.saved.found.texts.get(name, b"")
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
