"""Compiled programs of results from somebody else: engines load files of the result's artifacts, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import EngineError
from dovetail.plugin.loading import PROGRAM, SHARED
from dovetail.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.plugin import RegionModel
    from dovetail.plugin.loading import ArtifactFolder


def artifact_folder(artifacts: ArtifactFolder, name: str) -> Path:
    """Return the folder of the artifact that a node names; it holds files of the result alone, none of them a link.

    Raises:
        DovetailError: It is missing, was edited after it was saved, or leads out of the result.
    """
    problem = _problem(artifacts, name)
    if problem:
        raise DovetailError(f"{artifacts.root}: {problem}", "compile again into this folder")
    return artifacts.of(name)


def shared_folder(artifacts: ArtifactFolder, name: str) -> Path | None:
    """Return the folder of files that artifacts of a backend share; None if it has none.

    Args:
        artifacts: The artifacts of a result.
        name: The artifact that a node names.

    Raises:
        DovetailError: See `artifact_folder`.
    """
    shared = f"{name.partition('/')[0]}/{SHARED}"
    is_known = any(file.startswith(f"{shared}/") for file in (*artifacts.altered, *(artifacts.names or ())))
    return artifact_folder(artifacts, shared) if is_known or (artifacts.root / shared).exists() else None


def _problem(artifacts: ArtifactFolder, name: str) -> str:
    parts, folder = name.split("/"), artifacts.root / name
    places = [folder, *list(folder.parents)[: len(parts)]]
    if {"", ".", ".."} & set(parts) or set(name) & set("\\:\0") or any(place.is_symlink() for place in places):
        return f"{printable(name)} leads out of the result"
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(artifacts.root).as_posix()
        if file.is_symlink() or artifacts.names is not None and file.is_file() and inner not in artifacts.names:
            return f"{printable(inner)} does not belong to the result"
    return ""


def refuse_programs(region: RegionModel, label: str) -> None:
    """Refuse nodes that name a compiled program by a path, which may lead anywhere.

    Programs of a result are its artifacts, and are found by the region.

    Args:
        region: The region.
        label: The engine, for messages.

    Raises:
        EngineError: There is such a node.
    """
    if region.artifact is not None:
        return
    node = next((node for node in region.model.nodes() if (node.op_type, node.domain) == PROGRAM), None)
    if node is not None:
        what = f"node '{node.name}' ({node.op_type}) names a compiled program, and no artifact belongs to it"
        raise EngineError(f"{label}: {what}", "compile the model that it was made from", node.name or "")
