"""The folder with the artifacts of regions, and the nodes of a result that stand for regions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin.temporary import TemporaryFolder

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


FUNCTIONS = "dovetail."
"""Prefix of the domains of functions that hold regions; the backend's name follows."""

SHARED = "shared"
"""Folder for files of all regions of a backend, next to those of the regions."""

PROGRAM = ("EPContext", "com.microsoft")
"""Operator and domain of ONNX Runtime's node for a program that was compiled ahead of time."""

_ARTIFACT = "dovetail.artifact"


class ArtifactFolder:
    """The artifacts of a result: files below `root`, or in a temporary folder until the result is saved.

    Args:
        root: The folder `artifacts` of a saved result; None for a temporary one that lives as long as this object.
        altered: Names of files below `root` that changed since they were saved.
        names: Names of the files below `root` that belong to the result; None for all files there.
    """

    def __init__(self, root: Path | None = None, altered: Collection[str] = (), names: Collection[str] | None = None):
        self._temporary = None
        if root is None:
            self._temporary = TemporaryFolder("artifacts")
            root = self._temporary.path
        self.root = root
        self.altered = frozenset(altered)
        self.names = names

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield every file of the result with its name below `artifacts`, sorted; altered files are left out.

        Files that do not belong to the result are skipped, and links are not followed.
        """
        if self.names is not None:
            yield from ((name, self.root / name) for name in sorted(self.names) if name not in self.altered)
            return
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(self.root).as_posix(), path

    def of(self, name: str) -> Path:
        """Return the folder of the artifact that a node names.

        Raises:
            DovetailError: It is missing, or was edited after it was saved.
        """
        folder = self.root / name
        edited = next((file for file in sorted(self.altered) if file.startswith(f"{name}/")), "")
        if edited or not folder.is_dir():
            what = f"{edited} is not the file that was saved" if edited else f"{name} is missing"
            raise DovetailError(f"{self.root}: {what}", "compile again into this folder")
        return folder


def nodes_of(model: Model, node: ir.Node) -> Sequence[ir.Node]:
    """Return the nodes that `node` stands for: those of the function it calls, or of the region compiled into it.

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
    """Return the artifact of `node` as `<backend>/<region>`; empty for all other nodes. With `name`, set it first."""
    if name is not None:
        node.metadata_props[_ARTIFACT] = name
    return node.metadata_props.get(_ARTIFACT, "")


def stands_for_region(node: ir.Node) -> bool:
    """Check whether `node` stands for a region: a call of a function that holds one, or a node compiled from one."""
    return node.domain.startswith(FUNCTIONS) or bool(artifact_of(node))
