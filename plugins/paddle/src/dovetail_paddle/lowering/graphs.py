"""Lowering of whole graphs: operators by rule, bodies with their captured values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from dovetail.ir import all_nodes, name_of, producer_of

from dovetail_paddle.lowering.emitter import OPSET, OPSET_BFLOAT16, GraphEmitter
from dovetail_paddle.lowering.op import CONSTANTS, OpNotLowered, PdOp
from dovetail_paddle.lowering.rules import Rule, rules
from dovetail_paddle.pd_graph import BUILTIN, UNKNOWN, operands
from dovetail_paddle.signatures import OpOutput, operators, plain_name

if TYPE_CHECKING:
    import onnx_ir as ir


_IR_VERSION = 8  # of opset 18
_IR_VERSION_BFLOAT16 = 10  # of opset 22
NO_RULE = "there is no rule for it"
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""Exceptions of a rule for arguments that its operator cannot have."""
_WITHOUT_RULE = CONSTANTS | {"fetch", "while", "if"}


def lower_model(model: ir.Model, keep_unknown: bool) -> tuple[ir.Model, list[tuple[ir.Node, str]], list[ir.Node]]:
    """Lower a `pd_op` model to ONNX; return it with the unsupported operators and reasons, and the kept operators.

    Args:
        model: The model; it is not changed, and shares its weights.
        keep_unknown: Keep operators without a rule.
    """
    import onnx_ir as ir

    lowering = ModelLowering(keep_unknown, OPSET_BFLOAT16 if _has_bfloat16(model.graph) else OPSET)
    graph = lowering.main(model.graph)
    lowered = ir.Model(
        graph,
        ir_version=_IR_VERSION if lowering.emit.opset == OPSET else _IR_VERSION_BFLOAT16,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        metadata_props=dict(model.metadata_props),
    )
    return lowered, lowering.problems, lowering.kept


def _misfit(error: Exception) -> str:
    text = str(error.args[0]) if error.args else ""
    return f"its arguments do not fit its signature ({type(error).__name__}: {text[:200]})"


class ModelLowering:
    """The lowering of one model.

    Attributes:
        emit: Emits the nodes.
        problems: Operators that cannot be lowered, with the reason.
        kept: Unknown operators that were kept.
    """

    def __init__(self, keep_unknown: bool, opset: int = OPSET):
        self.emit = GraphEmitter(opset)
        self.problems: list[tuple[ir.Node, str]] = []
        self.kept: list[ir.Node] = []
        self._keep_unknown = keep_unknown
        self._rules = rules()
        self._operators = operators()

    def main(self, graph: ir.Graph) -> ir.Graph:
        """Lower the main graph."""
        import onnx_ir as ir

        emit = self.emit
        for value in (*graph.inputs, *graph.initializers.values()):
            emit.names.reserve(name_of(value))
        for node in all_nodes(graph):
            emit.names.reserve(name_of(node))
        results = [_fetched(value) for value in graph.outputs]
        for name, _ in results:
            emit.names.reserve(name)
        inputs = []
        for value in graph.inputs:
            held = ir.Value(name=value.name, type=value.type, shape=value.shape)
            inputs.append(held)
            emit.bind(value, held)
        for value in graph.initializers.values():
            held = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=value.const_value)
            emit.initializers.append(held)
            emit.bind(value, held)
        self.nodes(graph)
        if self.problems:
            return ir.Graph([], [], nodes=())
        try:
            outputs = self.results([value for _, value in results], emit.nodes)
        except MALFORMED as error:
            self.problems += [(producer_of(value), _misfit(error)) for value in graph.outputs[:1]]
            return ir.Graph([], [], nodes=())
        for (name, original), value in zip(results, outputs, strict=True):
            value.name = name
            value.type, value.shape = value.type or original.type, original.shape
        imports = {"": emit.opset, **({UNKNOWN: 1} if self.kept else {})}
        made = ir.Graph(inputs, outputs, nodes=emit.nodes, opset_imports=imports, name=graph.name)
        for value in emit.initializers:
            made.register_initializer(value)
        return made

    def results(self, values: Sequence[ir.Value], nodes: Sequence[ir.Node]) -> list[ir.Value]:
        """Return the lowered graph results, each a distinct output of a node in this graph."""
        own = {id(output) for node in nodes for output in node.outputs}
        found: list[ir.Value] = []
        self.emit.source = None
        for value in values:
            lowered = self.emit.lowered(value)
            if id(lowered) not in own or any(lowered is other for other in found):
                lowered = self.emit("Identity", [lowered])
                lowered.type = value.type
            found.append(lowered)
        return found

    def nodes(self, graph: ir.Graph) -> None:
        """Lower the nodes of a graph in order."""
        emit = self.emit
        blocked: set[ir.Value] = set()  # results of operators that were not lowered
        for node in graph:
            emit.source = node
            if any(value in blocked for value in node.inputs if value is not None):
                blocked.update(node.outputs)
                self._check_only(node)
                continue
            try:
                self._node(node)
            except OpNotLowered as problem:
                self.problems.append((node, str(problem)))
                blocked.update(node.outputs)
            except MALFORMED as error:
                self.problems.append((node, _misfit(error)))
                blocked.update(node.outputs)

    def _check_only(self, node: ir.Node) -> None:
        """Report an operator without a rule even if its operands could not be lowered."""
        if node.domain != BUILTIN and self._rule(node) is None and plain_name(node.op_type) not in _WITHOUT_RULE:
            self.problems.append((node, NO_RULE))

    def _rule(self, node: ir.Node) -> Rule | None:
        name = plain_name(node.op_type)
        return self._rules.get(name) if node.domain != UNKNOWN and name in self._operators else None

    def _node(self, node: ir.Node) -> None:
        emit = self.emit
        if node.domain == BUILTIN:
            self._builtin(node)
            return
        name = plain_name(node.op_type)
        if name in CONSTANTS or name == "fetch":
            return  # constants are emitted by their readers, results by the graph
        if name in ("while", "if"):
            from dovetail_paddle.lowering.rules.control_flow import lower_if, lower_while

            (lower_while if name == "while" else lower_if)(node, self)
            return
        rule = self._rule(node)
        if rule is None:
            if not self._keep_unknown:
                raise OpNotLowered(NO_RULE)
            self._keep(node)
            return
        op = PdOp(node, self._operators[name], emit)
        made = rule(op, emit)
        self._bind(node, op.operator.outputs, made if isinstance(made, tuple) else (made,))

    def _bind(
        self, node: ir.Node, outputs: Sequence[OpOutput], made: Sequence[ir.Value | list[ir.Value] | None]
    ) -> None:
        for output, value, lowered in zip(outputs, node.outputs, made, strict=False):
            if lowered is None:
                continue
            if output.is_list and isinstance(lowered, list):
                self.emit.bind_list(value, lowered)
            else:
                self.emit.bind(value, cast("ir.Value", lowered))

    def _builtin(self, node: ir.Node) -> None:
        emit = self.emit
        if node.op_type == "combine":
            return  # items are looked up by the list's readers
        if node.op_type in ("split", "slice"):
            items = emit.items(operands(node)[0])
            if items is None:
                raise OpNotLowered("its operand is no list of tensors")
            if node.op_type == "slice":
                items = [items[node.attributes["index"].as_int()]]
            for value, lowered in zip(node.outputs, items, strict=False):
                emit.bind(value, lowered)
        else:
            raise OpNotLowered(NO_RULE)

    def _keep(self, node: ir.Node) -> None:
        """Keep an unknown operator, with lowered operands."""
        emit = self.emit
        operands: list[ir.Value | None] = []
        for value in node.inputs:
            items = None if value is None else emit.items(value)
            operands += items if items is not None else [None if value is None else emit.lowered(value)]
        name = plain_name(node.op_type)
        made = emit(name, operands, outputs=len(node.outputs), domain=UNKNOWN)
        kept = emit.nodes[-1]
        for attribute in node.attributes.values():
            kept.attributes.add(attribute)
        for value, lowered in zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True):
            emit.bind(value, lowered)
        self.kept.append(kept)


def _has_bfloat16(graph: ir.Graph) -> bool:
    import onnx_ir as ir

    values = (*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs))
    return any(value.dtype == ir.DataType.BFLOAT16 for value in values)


def _fetched(value: ir.Value) -> tuple[str, ir.Value]:
    """Return the name and value of a graph result."""
    node = value.producer()
    if node is None or node.op_type != "fetch":
        return name_of(value), value
    return name_of(value), operands(node)[0]
