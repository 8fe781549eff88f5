"""The model that passes transform: an onnx-ir graph, its origin, and a revision number that keys cached analyses."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.graphs import all_nodes, named_bodies

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx_ir import Graph, Node  # in the class body, `ir` is its property

    from dovetail.ir.dialect import Dialect, LazyModel, SourceSnapshot
    from dovetail.ir.editing import FreshNames


class Model:
    """A graph and its origin.

    It holds an onnx-ir model, or the lazy model of its front end (`LazyModel`), from which the onnx-ir model is built
    on first use. Passes that transform the lazy model replace it with `rebuild`.

    Attributes:
        path: The file it was opened from; None if it was built in memory.
        revision: Incremented by every change; analyses are valid for one revision.
        names: The name generator of the model that this one is a part of; None for a whole model.
        dialect: The semantics of its operators; None for a model built in memory, which gets the dialect of an
            installed front end when a pipeline starts.
    """

    def __init__(
        self,
        model: ir.Model | None = None,
        path: Path | None = None,
        *,
        lazy: LazyModel | None = None,
        checked: bool = False,
        dialect: Dialect | None = None,
    ):
        self._ir = model
        self._unbuilt = lazy
        self._building = threading.RLock()
        self.path = path
        self.revision = 0
        self.names: FreshNames | None = None
        self._checked = checked
        self.dialect = dialect
        self._source: SourceSnapshot | None = None

    @property
    def source(self) -> SourceSnapshot | None:
        """The model before any pass, recorded and checked on first use; None if it has no dialect.

        Raises:
            DovetailError: The model was built in memory, and its dialect rejects it as invalid.
        """
        if self._source is None and self.dialect is not None:
            self._source = self.dialect.snapshot(self, checked=self._checked)
        return self._source

    @property
    def ir(self) -> ir.Model:
        """The onnx-ir model. Passes edit it in place and call `touch` after every change."""
        built = self._ir
        if built is None:
            with self._building:  # threads that read it at once build it once
                if self._ir is None:
                    self._ir, self._unbuilt = self._read.build(), None
                built = self._ir
        return built

    @property
    def _read(self) -> LazyModel:
        """Return the lazy model, for a graph that is not built yet."""
        assert self._unbuilt is not None, "a model is built from what a front end read, or given"
        return self._unbuilt

    @property
    def untouched(self) -> bool:
        """Whether the onnx-ir graph is not built yet, so that no node can have annotations."""
        return self._ir is None

    @property
    def lazy(self) -> LazyModel | None:
        """The lazy model; None once the graph is built."""
        return self._unbuilt

    def rebuild(self, lazy: LazyModel) -> None:
        """Replace the graph by a lazy model."""
        self._ir, self._unbuilt = None, lazy
        self.touch()

    def replace(self, other: Model) -> None:
        """Take over the graph of `other`, which must not be used afterwards."""
        self._ir, self._unbuilt = other._ir, other._unbuilt
        self.touch()

    @property
    def graph(self) -> Graph:
        """The main graph."""
        return self.ir.graph

    @property
    def opset(self) -> int:
        """The version of the default ONNX domain that the model imports (1 if it imports none)."""
        return self.ir.opset_imports.get("", 1)

    def touch(self) -> None:
        """Mark the graph as changed: cached analyses become invalid."""
        self.revision += 1

    def graphs(self) -> Iterator[tuple[str, Graph]]:
        """Yield every graph with its body path, outermost first: `""`, `"loop/body"`, `"loop/body/if_2/then_branch"`.

        In paths, a node without a name is identified by its first output.
        """
        return _graphs("", self.ir.graph)

    def nodes(self) -> Iterator[Node]:
        """Yield every node of the main graph and of all bodies; a node precedes the nodes of its bodies."""
        return all_nodes(self.ir.graph)

    def clone(self) -> Model:
        """Return a copy of the graph that shares the weights."""
        checked = self._checked and not self.revision
        if self._ir is None:
            return Model(path=self.path, lazy=self._read.copy(), checked=checked, dialect=self.dialect)
        copied = self._ir.clone()
        _unshare_types(copied.graph)
        return Model(copied, self.path, checked=checked, dialect=self.dialect)

    def continued(self) -> Model:
        """Return a copy with which the compilation of this model goes on: both have one source and one history."""
        model = self.clone()
        model._source, model.revision = self._source, self.revision
        return model

    def interface(self) -> tuple[list[str], list[str]]:
        """Return the names of the graph's inputs and outputs, in order, without building the graph."""
        if self._ir is None:
            return self._read.interface()
        graph = self._ir.graph
        return [value.name or "" for value in graph.inputs], [value.name or "" for value in graph.outputs]

    def initializer_names(self) -> set[str]:
        """Return the names of the main graph's initializers, without building the graph."""
        if self._ir is None:
            return self._read.initializer_names()
        return set(self._ir.graph.initializers)

    def node_count(self) -> int:
        """Return the number of nodes of the main graph, without building the graph."""
        return self._read.node_count() if self._ir is None else len(self._ir.graph)

    def save(
        self, path: str | Path, *, external: bool | None = None, progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        """Write the model with the installed front end for the suffix of `path`; the same as `dovetail.save`."""
        import dovetail

        dovetail.save(self, path, external=external, progress=progress)

    def __repr__(self) -> str:
        where = f" from {self.path}" if self.path is not None else ""
        return f"<Model{where}>" if self.untouched else f"<Model '{self.graph.name}'{where}: {len(self.graph)} nodes>"

    def runnable(self) -> Model:
        """Return the model in operators that engines run: the model itself, or a copy lowered by its dialect."""
        return self if self.dialect is None else self.dialect.runnable(self)

    def text(self) -> str:
        """Return the model as text, printed by its dialect.

        Raises:
            DovetailError: It has no dialect.
        """
        if self.dialect is None:
            raise DovetailError("no front end prints models", "pip install dovetail-onnx, which prints ONNX models")
        return self.dialect.text(self)

    def __str__(self) -> str:
        return repr(self) if self.dialect is None else self.text()


def _unshare_types(graph: ir.Graph) -> None:
    """Give every value of a cloned graph its own type object: onnx-ir shares them, and setting `dtype` mutates them."""
    import onnx_ir as ir

    values = [*graph.inputs, *graph.initializers.values()]
    for node in all_nodes(graph):
        values.extend(node.outputs)
        for _, body in named_bodies(node):
            values.extend((*body.inputs, *body.initializers.values()))
    for value in values:
        if isinstance(value.type, ir.TensorType):
            value.type = ir.TensorType(value.type.dtype, denotation=value.type.denotation)
        elif value.type is not None:
            value.type = copy.deepcopy(value.type)


def _graphs(path: str, graph: ir.Graph) -> Iterator[tuple[str, ir.Graph]]:
    stack = [(path, graph)]
    while stack:
        path, graph = stack.pop()
        yield path, graph
        holders = [node for node in graph if node.attributes.data]
        inner = [(_join(path, node, name), body) for node in holders for name, body in named_bodies(node)]
        stack.extend(reversed(inner))


def _join(path: str, node: ir.Node, name: str) -> str:
    label = node.name or (node.outputs[0].name if node.outputs else None) or node.op_type
    return "/".join(part for part in (path, label, name) if part)
