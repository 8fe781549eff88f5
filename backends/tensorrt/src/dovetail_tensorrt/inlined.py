"""Inlining of a compiled region: the call of its function is replaced by the function's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin.loading import FUNCTIONS
from dovetail_runtime import inline_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


def call_in(model: Model) -> ir.Node | None:
    """Return the call of the region's function, or None."""
    functions = model.ir.functions
    calls = (node for node in model.graph if node.domain.startswith(FUNCTIONS) and node.op_identifier() in functions)
    return next(calls, None)


def inlined(model: Model) -> Model:
    """Copy a region with its call inlined; weights are shared, and become initializers again.

    Inputs and outputs are those of the call, in order: a model with a single region may declare unused inputs, and
    return values that no node computes.
    """
    copy = model.clone()
    call = call_in(copy)
    if call is None:
        return copy
    read = [value.name for value in call.inputs if value is not None and not value.is_initializer()]
    given = [value.name for value in call.outputs]
    inline_regions(copy)
    graph = copy.graph
    inputs = {value.name: value for value in graph.inputs}
    outputs = {value.name: value for node in graph for value in node.outputs}
    graph.inputs[:] = [inputs[name] for name in read]
    graph.outputs[:] = [outputs[name] for name in given]
    return copy
