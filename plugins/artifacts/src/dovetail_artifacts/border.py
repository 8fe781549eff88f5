"""Conversions at the border of a region that was compiled ahead of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.planning.conversion import Step
from dovetail.planning.placement import HOST, Placement, set_placement
from dovetail.plugin.isolation import calling
from dovetail_rewriting import Replacement

if TYPE_CHECKING:
    from dovetail.ir.fresh_names import FreshNames
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["convert_border"]


def convert_border(
    model: Model, node: ir.Node, into: Sequence[str], out: Sequence[str], names: FreshNames, ctx: Context
) -> None:
    """Let every input and output of `node` go through conversions, which the host runs.

    Args:
        model: The model.
        node: A node that stands for a region.
        into: Names of the conversions of each input, in order.
        out: Names of those of each output.
        names: Fresh names.
        ctx: Has the registered conversions.

    Raises:
        DovetailError: A conversion is not installed, fails, or gives no value with a type.
    """
    for index, value in enumerate(node.inputs):
        for name in into:
            value = _converted(model, node, value, name, names, ctx, before=True)
        node.replace_input_with(index, value)
    for value in node.outputs if out else ():
        readers = list(value.uses())
        result = value
        for name in out:
            result = _converted(model, node, result, name, names, ctx, before=False)
        _hand_over(model, value, result, readers, names)


def _converted(
    model: Model, node: ir.Node, value: ir.Value, name: str, names: FreshNames, ctx: Context, before: bool
) -> ir.Value:
    who = f"conversion '{name}' of {ctx.registry.conversion.entry(name).owner}"
    op = Replacement(node, names, model.opset)
    with calling(f"{who} at '{value.name}'"):
        result = ctx.registry.conversion[name]().build(op, value, Step(name))
    if not isinstance(result, ir.Value) or result.type is None:
        raise DovetailError(
            f"{who} at '{value.name}' gives no value with a type", "`build` returns the converted value, with its type"
        )
    for made in op.nodes:
        set_placement(made, Placement(HOST))
        made.name = names.fresh(f"{value.name}_{name}")
        for output in made.outputs:
            output.name = output.name or names.fresh(f"{value.name}_{name}")
    for constant in op.initializers:
        model.graph.register_initializer(constant)
    if before:
        model.graph.insert_before(node, op.nodes)
    else:
        model.graph.insert_after(node, op.nodes)
    return result


def _hand_over(model: Model, value: ir.Value, result: ir.Value, readers: Sequence[tuple], names: FreshNames) -> None:
    """Let the readers of `value` read `result`, which takes its name and shape."""
    if result is value:
        return
    for reader, index in readers:
        reader.replace_input_with(index, result)
    for _, graph in model.graphs():
        for index, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[index] = result
    result.shape = value.shape
    value.shape = None
    name = value.name
    value.name = names.fresh(f"{name}_compiled")
    result.name = name
