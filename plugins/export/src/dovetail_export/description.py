"""The description of an exported result: `deploy.json`, whose fields `docs/reference/exported.md` lists."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail_runtime.feeds import required_inputs
from dovetail_runtime.keeping import declarations
from dovetail_transforms.canonicalize.input_ranges import declared_range

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail_runtime import DeployedSession
    from dovetail_runtime.keeping import SessionPart

FILE = "deploy.json"
FORMAT, VERSION = "dovetail-deploy", 1
_CHUNK = 1 << 22  # bytes


def description_of(
    graph: ir.Graph, steps: Sequence[Mapping[str, Any]], constants: Sequence[Mapping[str, Any]], producer: str
) -> dict[str, Any]:
    """Describe a whole result.

    Args:
        graph: The graph of the result.
        steps: The descriptions of its steps, in order.
        constants: Those of outputs that no step computes.
        producer: The program that writes it, with its version.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "producer": producer,
        "inputs": [_with_range(value) for value in required_inputs(graph)],
        "outputs": _declared(graph.outputs),
        "constants": list(constants),
        "steps": list(steps),
    }


def step_of(part: SessionPart, deployed: DeployedSession, files: Sequence[Path], root: Path) -> dict[str, Any]:
    """Describe a step.

    Args:
        part: The part of the result that it computes.
        deployed: How its session is made.
        files: The files that it needs: the one to load first.
        root: The folder of the export.
    """
    return {
        "backends": list(part.backends),
        "engine": deployed.engine,
        "settings": dict(deployed.settings),
        "needs": [list(group) for group in deployed.needs],
        "files": [_file(file, root) for file in files],
        "inputs": part.inputs,
        "outputs": _declared(part.outputs),
    }


def constant_of(value: ir.Value, path: Path, root: Path) -> dict[str, Any]:
    """Describe a constant whose bytes are in a file below `root`."""
    (found,) = _declared([value])
    return {**found, "file": _file(path, root)}


def _declared(values: Sequence[ir.Value]) -> list[dict[str, Any]]:
    return [{"name": one["name"], "type": one["type"], "shape": one["extents"]} for one in declarations(values)]


def _with_range(value: ir.Value) -> dict[str, Any]:
    (found,) = _declared([value])
    limits = declared_range(value)
    return found if limits is None else {**found, "range": list(limits)}


def _file(path: Path, root: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return {"path": path.relative_to(root).as_posix(), "bytes": path.stat().st_size, "sha256": digest.hexdigest()}
