"""Where backends come from: what plans record about it, what differs here, and the files that results keep.

A backend of a distribution is recorded with the version and the contract of its distribution. One whose file was named
by its path is recorded by the name and the digest of the file; the file itself is kept in the result, so that it is
found on another machine, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail_onnx.files.reading import open_inside
from dovetail_onnx.results.manifest import MANIFEST, MODEL, PLAN, REMARKS, plain_name

if TYPE_CHECKING:
    from dovetail.planning import Remark
    from dovetail.plugin import CompiledModel, PluginSet

_OURS = (MODEL, PLAN, REMARKS, MANIFEST)
_PATH = "path"


def unplaced(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the backends of a plan without the places of their files, which say something about one machine only."""
    return [{key: value for key, value in entry.items() if key != _PATH} for entry in entries]


def located(entries: Sequence[Mapping[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return the backends of a plan that was read, with the places of their files.

    Args:
        entries: The backends as they stand in the plan. A place that stands there is not taken.
        folder: The folder of the plan. A file in it counts if it has the name and the digest that the plan records.
    """
    found = unplaced(entries)
    for entry in found:
        name, digest = entry.get("distribution"), entry.get("sha256")
        if isinstance(name, str) and isinstance(digest, str) and _digest(folder, name) == digest:
            entry[_PATH] = str((folder / name).absolute())
    return found


def changed_origins(entries: Sequence[Mapping[str, Any]], plugins: PluginSet) -> Iterator[tuple[str, str]]:
    """Yield what differs between the backends that a plan was made with and those that are here, with the way back.

    Args:
        entries: The backends of the plan.
        plugins: The plugins here.
    """
    for entry in entries:
        name, was, now = entry["name"], entry.get("distribution"), plugins.provenance(entry["name"])
        here = now.get("distribution")
        if not isinstance(was, str) or not here:
            continue
        if was != here:
            back = f"replay it under the same one: pip install '{was.replace(' ', '==')}'" if " " in was else ""
            yield f"the plan was made with '{name}' of {was}; here it is that of {here}", back or f"--backend {was}"
        elif now.get("sha256") != entry.get("sha256"):
            yield f"the plan was made with '{name}' of another content of {was}", "give the file that it was made with"
        elif now.get("contract") != entry.get("contract", now.get("contract")):
            what = f"version {entry['contract']} of the plugin contract, here it is {now['contract']}"
            yield f"the plan was made with {what}", "install the version of dovetail that it was made with"


def origin_remarks(entries: Sequence[Mapping[str, Any]], plugins: PluginSet) -> list[Remark]:
    """Return a remark for each difference that `changed_origins` finds."""
    from dovetail.planning import Remark

    return [Remark("analysis", "", "load", "version", why, (), back) for why, back in changed_origins(entries, plugins)]


def origins_of(compiled: CompiledModel) -> dict[str, Any]:
    """Return what a manifest records: the origin of every backend, and of the emitters that made its artifacts."""
    recorded = {
        entry["name"]: {key: entry[key] for key in ("distribution", "contract", "sha256") if key in entry}
        for entry in compiled.plan.backends
    }
    if compiled.artifacts is None or compiled.registry is None:
        return {"backends": recorded}
    table = compiled.registry.emitter
    names = sorted({name for backend in compiled.backends for name in backend.artifacts if name in table})
    return {"backends": recorded, "emitters": {name: _versioned(table.entry(name).owner) for name in names}}


def _versioned(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return distribution


def backend_texts(compiled: CompiledModel) -> dict[str, str]:
    """Return the backend files that a result needs and no distribution brings, by name: with those that they extend.

    A file that is no longer there is left out: whoever loads the result is asked for it.
    """
    named = {entry["name"]: Path(entry[_PATH]) for entry in compiled.plan.backends if _PATH in entry}
    texts = {}
    for backend in compiled.backends:
        main = named.get(backend.name)
        beside = [Path(str(file)) for file in backend.files or ()] if main is not None else []
        for file in [*filter(None, [main]), *beside]:
            if main is not None and file.parent == main.parent and _is_plain(file.name) and file.is_file():
                texts[file.name] = file.read_text(encoding="utf-8")
    return texts


def _digest(folder: Path, name: str) -> str:
    """Return the digest of a file in a folder; empty if it is missing, a link, or outside."""
    try:
        with open_inside(folder, plain_name(name)) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def _is_plain(name: str) -> bool:
    try:
        return plain_name(name) not in _OURS
    except ValueError:
        return False
