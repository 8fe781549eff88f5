"""The model that passes work on: an onnx-ir graph, where it came from, and a revision that analyses key on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes, named_bodies

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.skeleton import Skeleton
    from dovetail.ir.source.snapshot import Source

__all__ = ["Model"]


class Model:
    """A graph with its origin.

    It is built from an onnx-ir model, or from a `Skeleton` that becomes one when the graph is first asked for; a pass
    that works on protos takes the skeleton and puts another one in its place.

    Attributes:
        path: The file it was opened from, or None when it was built in memory.
        revision: Grows with every change; analyses are valid for one revision.
    """

    def __init__(
        self,
        model: ir.Model | None = None,
        path: Path | None = None,
        *,
        skeleton: Skeleton | None = None,
        checked: bool = False,
    ):
        self._ir = model
        self._skeleton = skeleton
        self.path = path
        self.revision = 0
        self._checked = checked
        self._source: Source | None = None

    @property
    def source(self) -> Source:
        """The model as it was before any pass; taken, and checked, when it is first asked for.

        Raises:
            DovetailError: The model was built in memory and is wrong (see `dovetail.ir.source`).
        """
        if self._source is None:
            from dovetail.ir.source.snapshot import Source

            self._source = Source.of(self, checked=self._checked)
        return self._source

    @property
    def ir(self) -> ir.Model:
        """The onnx-ir model. Passes edit it in place and call `touch` when they changed it."""
        if self._ir is None:
            from dovetail.ir.skeleton import assemble

            self._ir, self._skeleton = assemble(self._skeleton), None
        return self._ir

    @property
    def untouched(self) -> bool:
        """Whether the graph is still as it was read, so that no node can carry annotations yet."""
        return self._ir is None

    def skeleton(self) -> Skeleton:
        """The model as a proto without weights, and the weights."""
        from dovetail.ir.skeleton import split_weights

        return self._skeleton or split_weights(self._ir)

    def rebuild(self, skeleton: Skeleton) -> None:
        """Put another graph in the place of this one."""
        self._ir, self._skeleton = None, skeleton
        self.touch()

    @property
    def graph(self) -> ir.Graph:
        """The main graph."""
        return self.ir.graph

    @property
    def opset(self) -> int:
        """The version of the default ONNX domain that the model imports (1 if it imports none)."""
        return self.ir.opset_imports.get("", 1)

    def touch(self) -> None:
        """Tell that the graph changed: every cached analysis is dropped."""
        self.revision += 1

    def graphs(self) -> Iterator[tuple[str, ir.Graph]]:
        """Every graph with its body path, outermost first: `""`, `"loop_1/body"`, `"loop_1/body/if_2/then_branch"`.

        A node without a name is called by its first output in the path.
        """
        return _graphs("", self.ir.graph)

    def nodes(self) -> Iterator[ir.Node]:
        """Every node of the main graph and of all bodies; a node comes before the nodes of its own bodies."""
        return all_nodes(self.ir.graph)

    def clone(self) -> Model:
        """A copy of the graph; the weights are shared."""
        checked = self._checked and not self.revision
        if self._ir is None:
            return Model(path=self.path, skeleton=self._skeleton.copy(), checked=checked)
        return Model(self._ir.clone(), self.path, checked=checked)

    def interface(self) -> tuple[list[str], list[str]]:
        """The names of the graph's inputs and outputs, in order; asking does not build the graph."""
        if self._ir is None:
            graph = self._skeleton.proto.graph
            return [value.name for value in graph.input], [value.name for value in graph.output]
        return [value.name for value in self._ir.graph.inputs], [value.name for value in self._ir.graph.outputs]

    def initializer_names(self) -> set[str]:
        """The names of the main graph's initializers; asking does not build the graph."""
        if self._ir is None:
            return {tensor.name for tensor in self._skeleton.proto.graph.initializer}
        return set(self._ir.graph.initializers)

    def node_count(self) -> int:
        """The number of nodes of the main graph; asking does not build the graph."""
        return len(self._skeleton.proto.graph.node) if self._ir is None else len(self._ir.graph)

    def save(
        self,
        path: str | Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write the model to `path`; see `dovetail.ir.save_model`."""
        from dovetail.ir.saving import save_model

        save_model(self, path, external=external, progress=progress)

    def __repr__(self) -> str:
        where = f" from {self.path}" if self.path is not None else ""
        return f"<Model{where}>" if self.untouched else f"<Model '{self.graph.name}'{where}: {len(self.graph)} nodes>"

    def __str__(self) -> str:
        from dovetail.ir.printer import print_model

        return print_model(self)


def _graphs(path: str, graph: ir.Graph) -> Iterator[tuple[str, ir.Graph]]:
    stack = [(path, graph)]
    while stack:
        path, graph = stack.pop()
        yield path, graph
        inner = [(_join(path, node, name), body) for node in graph for name, body in named_bodies(node)]
        stack.extend(reversed(inner))


def _join(path: str, node: ir.Node, name: str) -> str:
    label = node.name or (node.outputs[0].name if node.outputs else None) or node.op_type
    return "/".join(part for part in (path, label, name) if part)
