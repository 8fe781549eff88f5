"""The nodes inside of functions that hold regions, and the values that calls pass in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


class Calls(NamedTuple):
    """The nodes that calls of functions stand for.

    Attributes:
        nodes: The nodes of the called function by `id` of the call.
        passed: By `id` of a function's input, the value that the call passes; by `id` of an output of the call, the
            value of the function that it returns.
    """

    nodes: dict[int, list[ir.Node]]
    passed: dict[int, ir.Value]


def called(model: Model) -> Calls:
    """Find the calls in the main graph; the first call of a function has its nodes, because each node is shown once."""
    calls = Calls({}, {})
    functions = dict(model.ir.functions)
    for node in model.graph if functions else ():
        function = functions.pop(node.op_identifier(), None)
        if function is None:
            continue
        calls.nodes[id(node)] = list(all_nodes(function))
        calls.passed.update((id(inner), value) for inner, value in zip(function.inputs, node.inputs) if value)
        calls.passed.update((id(value), inner) for value, inner in zip(node.outputs, function.outputs))
    return calls
