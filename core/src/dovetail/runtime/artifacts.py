"""Artifacts: what backends make of their regions for their own tools."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.holdings import Holding
    from dovetail.plugin.backend import Backend

__all__ = ["FUNCTIONS", "Artifact", "ArtifactFolder", "EmittedRegion", "Emitter", "StandIn", "artifact_of", "nodes_of"]

FUNCTIONS = "dovetail."
"""How the domains of functions that hold regions begin; the name of the backend follows."""

_ARTIFACT = "dovetail.artifact"


@dataclass(frozen=True)
class StandIn:
    """The operator that stands for a region which was compiled ahead of time.

    Its inputs and outputs are those of the region, in the order of `EmittedRegion.model`.

    Attributes:
        op_type: Its name, as `EPContext`.
        domain: Its domain, as `com.microsoft`.
        attributes: Attributes by name: numbers, texts, and lists of them.
        version: The version of the domain that the model imports then.
        into: Names of registered conversions that every input goes through first, such as one of its layout.
        out: Names of registered conversions that every output goes through.
    """

    op_type: str
    domain: str
    attributes: Mapping[str, object] = field(default_factory=dict)
    version: int = 1
    into: tuple[str, ...] = ()
    out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Artifact:
    """What an emitter made of a region.

    Attributes:
        files: Names of the files that it wrote into its folder, which all belong to the result.
        node: The operator that stands for the region from now on; None where an engine runs the region itself.
    """

    files: tuple[str, ...] = ()
    node: StandIn | None = None


@dataclass(frozen=True)
class EmittedRegion:
    """A region for an emitter.

    Attributes:
        name: Its name in the result: `region_3`.
        backend: The backend, with its options chosen.
        model: The region as engines load it, with its conversions, at the working opset.
        source: The same nodes as the source model computes them, before any conversion: floats, with the weights of the
            source model. Its inputs and outputs are values of the source model.
        nodes: The names of its nodes.
        holdings: The quantised forms of the values that its nodes compute and read, with their parameters.
    """

    name: str
    backend: Backend
    model: Model
    source: Model
    nodes: tuple[str, ...]
    holdings: tuple[Holding, ...] = ()


class Emitter(Protocol):
    """Makes files for the tools of a backend, or compiles a region ahead of time."""

    def emit(self, region: EmittedRegion, folder: Path) -> Artifact:
        """Write what the backend's tools need of `region` into `folder`, and nothing outside of it.

        Raises:
            EngineError: The region, or the node that the error names, cannot be had; it is placed elsewhere.
        """


class ArtifactFolder:
    """The artifacts of a result: files below `root`, or of a compilation that has not been saved yet.

    Args:
        root: The folder `artifacts` of a saved result; None for a new one that lives as long as this object.
        altered: Names of files below it that are not as they were saved.
    """

    def __init__(self, root: Path | None = None, altered: Collection[str] = ()):
        self._temporary = None
        if root is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="dovetail-artifacts-")
            root = Path(self._temporary.name)
        self.root = root
        self._altered = frozenset(altered)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Every file with its name below `artifacts`, sorted."""
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                yield path.relative_to(self.root).as_posix(), path

    def of(self, name: str) -> Path:
        """The folder of the artifact that a node names.

        Raises:
            DovetailError: It is missing, or was edited since it was saved.
        """
        folder = self.root / name
        edited = next((file for file in sorted(self._altered) if file.startswith(f"{name}/")), "")
        if edited or not folder.is_dir():
            what = f"{edited} is not the file that was saved" if edited else f"{name} is missing"
            raise DovetailError(f"{self.root}: {what}", "compile again into this folder")
        return folder


def nodes_of(model: Model, node: ir.Node) -> Sequence[ir.Node]:
    """The nodes that `node` stands for: those of the function that it calls, or of the region compiled into it.

    Any other node stands for itself.
    """
    functions = model.ir.functions
    if not functions:
        return (node,)
    backend, _, region = artifact_of(node).partition("/")
    key = (f"{FUNCTIONS}{backend}", region, "") if backend else node.op_identifier()
    function = functions.get(key) if key[0].startswith(FUNCTIONS) else None
    return (node,) if function is None else tuple(function)


def artifact_of(node: ir.Node, name: str | None = None) -> str:
    """The artifact that `node` stands for, as `<backend>/<region>`; empty for all other nodes. With `name`, set it."""
    if name is not None:
        node.metadata_props[_ARTIFACT] = name
    return node.metadata_props.get(_ARTIFACT, "")
