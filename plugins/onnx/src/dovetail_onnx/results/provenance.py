"""The origin of backends: the records in plans, differences on this machine, and the files that results keep.

A backend of a distribution is recorded with the version and the contract of its distribution. One whose file was named
by its path is recorded by the name and the digest of the file; the file itself is kept in the result, so that it is
found on another machine, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.installed import version_of
from dovetail.planning import PlannedBackend, Remark

from dovetail_onnx.files.reading import open_inside
from dovetail_onnx.results.manifest import MANIFEST, MODEL, PLAN, REMARKS, plain_name

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_OURS = (MODEL, PLAN, REMARKS, MANIFEST)


def located(backends: Sequence[PlannedBackend], folder: Path) -> list[PlannedBackend]:
    """Return the backends of a plan that was read, with the places of their files.

    Args:
        backends: The backends as they stand in the plan.
        folder: The folder of the plan. A file in it counts if it has the name and the digest that the plan records.
    """
    return [
        replace(one, path=str((folder / one.distribution).absolute()))
        if one.sha256 and _digest(folder, one.distribution) == one.sha256
        else one
        for one in backends
    ]


def changed_origins(backends: Sequence[PlannedBackend], plugins: PluginSet) -> Iterator[tuple[str, str]]:
    """Yield differences between the backends that a plan was made with and the installed ones, with a way out.

    Args:
        backends: The backends of the plan.
        plugins: The plugins here.
    """
    for one in backends:
        name, was, now = one.name, one.distribution, PlannedBackend(one.name, **plugins.provenance(one.name))
        here = now.distribution
        if not was or not here:
            continue
        if was != here:
            back = f"replay it under the same one: pip install '{was.replace(' ', '==')}'" if " " in was else ""
            yield f"the plan was made with '{name}' of {was}; here it is that of {here}", back or f"--backend {was}"
        elif now.sha256 != one.sha256:
            yield f"the plan was made with '{name}' of another content of {was}", "give the file that it was made with"
        elif one.contract not in (None, now.contract):
            what = f"version {one.contract} of the plugin contract, here it is {now.contract}"
            yield f"the plan was made with {what}", "install the version of dovetail that it was made with"


def origin_remarks(backends: Sequence[PlannedBackend], plugins: PluginSet) -> list[Remark]:
    """Return a remark for each difference that `changed_origins` finds."""
    return [
        Remark("analysis", "", "load", "version", why, (), back) for why, back in changed_origins(backends, plugins)
    ]


def origins_of(compiled: CompiledModel) -> dict[str, Any]:
    """Return the origins that a manifest records: of every backend, and of the emitters that made its artifacts."""
    recorded = {
        one.name: {key: value for key, value in one.as_dict().items() if key in ("distribution", "contract", "sha256")}
        for one in compiled.plan.backends
    }
    if compiled.artifacts is None or compiled.registry is None:
        return {"backends": recorded}
    table = compiled.registry.emitter
    names = sorted({name for backend in compiled.backends for name in backend.artifacts if name in table})
    owners = [(name, table.entry(name).owner) for name in names]
    return {"backends": recorded, "emitters": {name: f"{owner} {version_of(owner)}".rstrip() for name, owner in owners}}


def backend_texts(compiled: CompiledModel) -> dict[str, str]:
    """Return the backend files that a result needs and no distribution provides, by name, with those that they extend.

    A file that no longer exists is left out: loading the result asks for it.
    """
    named = {one.name: Path(one.path) for one in compiled.plan.backends if one.path}
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
