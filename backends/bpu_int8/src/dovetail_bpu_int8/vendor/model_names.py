"""Resolution of names in the vendor's files to nodes of the compiled model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir import name_of
from dovetail.planning import operator_name, select, walk
from dovetail.plugin import DovetailError
from dovetail.text import did_you_mean, near_misses

from dovetail_bpu_int8.vendor.tree import FileError

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_bpu_int8.vendor.asked import Named, Subgraph, VendorSettings


class ModelNames:
    """The nodes, values and operators of a source model.

    Args:
        model: The model.
    """

    def __init__(self, model: Model):
        self._model = model
        self._nodes: dict[str, list[ir.Node]] = {}
        self._values: dict[str, ir.Node] = {}
        self.operators: set[str] = set()
        for _, node in walk(model):
            self.operators.add(operator_name(node.domain, node.op_type))
            if node.name:
                self._nodes.setdefault(node.name, []).append(node)
            for value in node.outputs:
                if value.name:
                    self._values.setdefault(value.name, node)

    def has(self, name: str) -> bool:
        """Check whether a node or a value has the name."""
        return name in self._nodes or name in self._values

    def nodes(self, named: Named) -> list[ir.Node]:
        """Return the nodes that a file names: by node name, by result, or by any other selector.

        Raises:
            FileError: No node matches; suggests similar names.
        """
        exact = self._nodes.get(named.selector)
        if exact is None and named.selector in self._values:
            exact = [self._values[named.selector]]
        if exact is not None:
            return exact
        try:
            return select(self._model, named.selector)
        except DovetailError as error:
            near = near_misses(named.selector, self._nodes, alike=0.5)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else error.hint
            problem = f"{named.key}: the model has no node '{named.selector}'"
            raise FileError(named.place, problem, meant) from None

    def selector_of(self, node: ir.Node) -> str:
        """Return a selector for this node alone."""
        if node.name and len(self._nodes[node.name]) == 1:
            return f"name:{node.name}"
        return f"name:{next(value.name for value in node.outputs if value.name)}"

    def check_operator(self, named: Named) -> bool:
        """Check whether the model has nodes of an operator.

        Raises:
            FileError: The operator is unknown.
        """
        if named.selector in self.operators:
            return True
        from onnx import defs

        known = {schema.name for schema in defs.get_all_schemas()} | self.operators
        if named.selector in known:
            return False
        near = near_misses(named.selector, self.operators, alike=0.5) or near_misses(named.selector, known)
        meant = f"did you mean {' or '.join(map(repr, near))}?" if near else "name an operator of ONNX"
        raise FileError(named.place, f"{named.key}: there is no operator '{named.selector}'", meant)

    def between(self, subgraph: Subgraph) -> list[ir.Node]:
        """Return the nodes of a subgraph, from its outputs back to its inputs.

        Raises:
            FileError: A value is not in the model, or there is no node between them.
        """
        graph = self._model.graph
        known = {*self._values, *map(name_of, graph.inputs)}
        for name in (*subgraph.inputs, *subgraph.outputs):
            if name not in known:
                raise FileError(
                    subgraph.name,
                    f"subgraph_config: the model has no value '{name}'{did_you_mean(name, known)}",
                    "inputs and outputs of a subgraph are names of values, such as the outputs of nodes",
                )
        ends, found = set(subgraph.inputs), {}
        left = [self._values[name] for name in subgraph.outputs if name in self._values]
        while left:
            node = left.pop()
            if id(node) in found:
                continue
            found[id(node)] = node
            read = (value for value in node.inputs if value is not None and value.name not in ends)
            left += [maker for value in read if (maker := value.producer()) is not None]
        if not found:
            raise FileError(subgraph.name, f"subgraph_config '{subgraph.name.raw}': no node lies between its values")
        return [node for node in graph if id(node) in found]


_PARTS = ("_mul", "_reciprocal")  # of a Div
_DIV, _SOFTMAX = "Div", "Softmax"
_OPERATOR = "type:"


def take_other_names(asked: VendorSettings, names: ModelNames) -> None:
    """Replace the tool's names of nodes and operators by those in the model, with a note for each.

    Args:
        asked: Settings of the files, to update.
        names: The names of the model.
    """
    by_case = {name.lower(): name for name in names.operators}
    renamed: dict[str, str] = {}
    for named in asked.operators:
        own = by_case.get(named.selector.lower())
        if own is not None and named.selector not in names.operators:
            renamed[f"{_OPERATOR}{named.selector}"] = f"{_OPERATOR}{own}"
            asked.note(f"{named.place.where}, {named.key}: '{named.selector}' is taken for {own}", "write it so")
    asked.operators = [_renamed(one, renamed, _OPERATOR) for one in asked.operators]
    for named in asked.nodes:
        node = _node_of(named.selector, names)
        if node and named.selector not in renamed:
            renamed[named.selector] = node
            why = f"'{named.selector}' exists only after the vendor's optimizer; it is taken for '{node}'"
            asked.note(f"{named.place.where}, {named.key}: {why}", "name the node of the model")
    if not renamed:
        return
    asked.nodes = [_renamed(one, renamed) for one in asked.nodes]
    asked.placed = [(_renamed(one, renamed), where) for one, where in asked.placed]
    asked.requests = [replace(one, selector=renamed.get(one.selector, one.selector)) for one in asked.requests]


def _renamed(named: Named, renamed: dict[str, str], prefix: str = "") -> Named:
    own = renamed.get(f"{prefix}{named.selector}")
    return named if own is None else named._replace(selector=own.removeprefix(prefix))


def _node_of(name: str, names: ModelNames) -> str:
    """Return the model's node that the vendor's tool has split into a named part; empty if it is not a part."""
    stem = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), "")
    if not stem or names.has(name):
        return ""
    if names.has(stem):
        return stem
    scope, _, last = stem.rpartition("/")
    softmax = f"{scope}/{_SOFTMAX}" if scope else _SOFTMAX
    return softmax if last == _DIV and names.has(softmax) else ""
