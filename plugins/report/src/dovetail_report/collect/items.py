"""The tables of a report's graph: planned nodes in columns, conversions, inputs, outputs and edges.

Texts that repeat are stored once and referred to by number, so that a model of 100,000 nodes stays a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.planning import operator_name
from dovetail_commands.plan_graph.contraction import DrawnEdge, PlanGraph
from dovetail_commands.plan_graph.result_graph import size_of, type_of
from dovetail_onnx.signatures import Signatures, input_name

from dovetail_report.collect.scopes import scope_of
from dovetail_report.collect.texts import Interned, short

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import CompiledModel

    from dovetail_report.collect.reasons import Reasons

_CONSTANTS = 6  # shown of a node
_EXPANDED = 60  # nodes of an expansion that are drawn
_FOLDED = "folded into "
_COLUMNS = ("name", "operator", "backend", "precision", "output", "type", "region", "scope", "bytes")


class ReportItems:
    """Collects the tables of the items of a plan's graph.

    Args:
        graph: The graph.
        compiled: Its result.
        reasons: The reasons of its nodes.
    """

    def __init__(self, graph: PlanGraph, compiled: CompiledModel, reasons: Reasons):
        self._graph, self._reasons, self._plan = graph, reasons, compiled.plan
        self._signatures = Signatures(compiled.model.ir.opset_imports)
        self._operators, self._types, self._constants = Interned(), Interned(), Interned(2000)
        self._type_keys: dict[tuple[Any, ...], int] = {}
        self._type_of: dict[int, int] = {}
        self._expansions: dict[tuple[Any, ...], int] = {}

    def tables(self) -> dict[str, Any]:
        """Return the tables by name."""
        nodes, edges = self._nodes(), [self._edge(edge) for edge in self._graph.edges]
        return {
            "nodes": nodes,
            "inputs": [[short(name), self._types.index(kind)] for name, kind in self._graph.inputs],
            "outputs": [[short(name), self._types.index(kind)] for name, kind in self._graph.outputs],
            **self._conversions(),
            "edges": [number for edge in edges for number in edge],
            "types": self._types.texts,
            "expansions": list(self._expansions),
        }

    def _edge(self, edge: DrawnEdge) -> tuple[int, int, int]:
        return edge.source, edge.target, self._type(edge.value)

    def _type(self, value: ir.Value | None) -> int:
        """Return the number of the text of a value's type."""
        found = self._type_of.get(id(value))
        if found is None:
            found = self._type_of[id(value)] = self._number_of_type(value)
        return found

    def _number_of_type(self, value: ir.Value | None) -> int:
        """Return the number of the text of a value's type; texts are made once per distinct type."""
        if value is None or value.shape is None:
            return self._types.index("" if value is None else type_of(value))
        key = (value.dtype, tuple(map(_extent_key, value.shape.dims)))
        found = self._type_keys.get(key)
        if found is None:
            found = self._type_keys[key] = self._types.index(type_of(value))
        return found

    def _nodes(self) -> dict[str, Any]:
        """Return the planned nodes in columns; rare properties by the number of the node."""
        places, precisions, scopes = Interned(), Interned(), Interned()
        rows: list[tuple[Any, ...]] = []
        sizes: dict[int, int] = {}  # by number of type
        rare: dict[str, dict[int, Any]] = {
            name: {} for name in ("origins", "ports", "reasons", "constants", "expansion")
        }
        for number, node in enumerate(self._graph.nodes):
            name = node.name or node.output or node.op_type
            main = self._graph.main[number]
            made = self._graph.result.nodes[main] if main >= 0 else None
            value = self._result_of(number, made)
            type_ = self._type(value)
            if type_ not in sizes:
                sizes[type_] = 0 if value is None else size_of(value, open_first=True) or 0
            rows.append((
                short(name), self._operators.index(node.operator), places.index(node.backend),
                precisions.index(str(node.precision or "")), _cut_output(node.output, name), type_,
                self._graph.region(number), scopes.index(scope_of(made)), sizes[type_],
            ))  # fmt: skip
            if node.origin and node.origin != (node.name,):
                rare["origins"][number] = [short(origin) for origin in node.origin[:20]]
            if node.ports:
                rare["ports"][number] = {port: str(format_) for port, format_ in sorted(node.ports.items())}
            if reasons := self._reasons.of.get(node.name):
                rare["reasons"][number] = reasons
            if constants := self._constants_of(number):
                rare["constants"][number] = constants
            expansion = self._expansion(number, made, node.op_type)
            if expansion is not None:
                rare["expansion"][number] = expansion
        columns = {name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS)}
        if len(scopes.texts) < 2:  # one text, which is empty for most models
            columns["scope"] = []
        return {
            **columns, **rare, "operators": self._operators.texts, "backends": places.texts,
            "precisions": precisions.texts, "scopes": scopes.texts, "constant_texts": self._constants.texts,
            "holder": self._graph.holder, "folded": self._folded(),
        }  # fmt: skip

    def _members(self, number: int) -> list[int]:
        """Return the nodes of the file that stand for a planned node, in their order."""
        main = self._graph.main[number]
        own = self._graph.parts.get(number, [])
        return sorted((*own, main)) if main >= 0 else own

    def _result_of(self, number: int, made: ir.Node | None) -> ir.Value | None:
        """Return the first result of a planned node, in the file."""
        return made.outputs[0] if made is not None and made.outputs else None

    def _constants_of(self, number: int) -> list[int]:
        """Return the constants that a node reads, each with its port and type: `W int8[16,8,3,3]`.

        A quantized constant is the one that its DequantizeLinear reads.
        """
        main = self._graph.main[number]
        if main < 0:
            return []
        node = self._graph.result.nodes[main]
        inserted = number in self._graph.parts
        found: list[int] = []
        for index, value in enumerate(node.inputs):
            if value is None or len(found) == _CONSTANTS:
                continue
            stored = self._stored(value) if inserted else value
            if stored.is_initializer():
                port = input_name(index, self._signatures(node))
                found.append(self._constants.index(f"{port} {self._types.texts[self._type(stored)]}"))
        return found

    def _stored(self, value: ir.Value) -> ir.Value:
        """Return the constant behind the inserted nodes that convert it; the value itself if there are none."""
        found = value
        while (maker := self._graph.result.makers.get(id(found))) is not None:
            node = self._graph.result.nodes[maker]
            if maker in self._graph.main_nodes or not node.inputs or node.inputs[0] is None:
                return value
            found = node.inputs[0]
        return found

    def _expansion(self, number: int, made: ir.Node | None, op_type: str) -> int | None:
        """Return the number of the pattern of file nodes that stand for a node; None if it stands for itself."""
        if made is not None and number not in self._graph.parts and made.op_type == op_type:
            return None
        members = self._members(number)[:_EXPANDED]
        place = {member: index for index, member in enumerate(members)}
        pattern = []
        for member in members:
            node = self._graph.result.nodes[member]
            makers = (self._graph.result.makers.get(id(value)) for value in self._graph.result.reads[member])
            inner = tuple(sorted({place[maker] for maker in makers if maker in place and maker != member}))
            pattern.append((self._operators.index(operator_name(node.domain, node.op_type)), inner))
        key = tuple(pattern)
        return self._expansions.setdefault(key, len(self._expansions))

    def _folded(self) -> Mapping[int, list[list[str]]]:
        """Return the nodes of the source model that are inside of each node: name and operator."""
        index = {node.name: number for number, node in enumerate(self._graph.nodes)}
        found: dict[int, list[list[str]]] = {}
        for source in self._plan.sources:
            into = index.get(source.fate.removeprefix(_FOLDED)) if source.fate.startswith(_FOLDED) else None
            if into is not None:
                found.setdefault(into, []).append([short(source.name), short(source.operator)])
        return found

    def _conversions(self) -> dict[str, Any]:
        """Return the conversions: value, number of its kind, first reader, bytes; and the kinds."""
        kinds: dict[tuple[str, str, str], int] = {}
        rows, reasons, expansions = [], {}, {}
        result = self._graph.result
        for number, join in enumerate(self._graph.joins):
            kind = kinds.setdefault((join.kind, str(join.held), str(join.wanted)), len(kinds))
            rows.append([short(join.value), kind, short(join.at), join.bytes])
            parts = self._graph.parts.get(self._graph.first_join + number, [])
            if parts:
                expansions[number] = [short(result.nodes[part].name) for part in parts[:4]]
            found = [entry for part in parts for entry in self._reasons.of.get(result.nodes[part].name or "", ())]
            if found:
                reasons[number] = found
        return {
            "conversion_kinds": [list(kind) for kind in kinds],
            "conversions": rows,
            "conversion_reasons": reasons,
            "conversion_nodes": expansions,
        }


def _extent_key(extent: int | ir.SymbolicDim) -> int | str | None:
    return extent if isinstance(extent, int) else extent.value


def _cut_output(name: str, node: str) -> str:
    """Return the name of a value; `~` stands for the name of its node at the start, because most begin with it."""
    return f"~{short(name[len(node) :])}" if name.startswith(node) and len(node) <= 200 else short(name)
