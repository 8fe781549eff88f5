"""A compiled region as a model of its own: the call that stands for it is replaced by the nodes of its function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.compiler import FUNCTIONS
from dovetail_transforms.regions.regions import inline_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


def call_in(model: Model) -> ir.Node | None:
    """The node of a region that calls the function which holds the region; None where no node does."""
    functions = model.ir.functions
    calls = (node for node in model.graph if node.domain.startswith(FUNCTIONS) and node.op_identifier() in functions)
    return next(calls, None)


def inlined(model: Model) -> Model:
    """A copy of a region with its nodes in the place of the call; weights are shared, and initializers again.

    Its inputs and outputs are those of the call, in that order: a model that has no other region may declare inputs
    that nothing reads, and give values that nothing computes.
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
