"""Passes that make models loadable by ONNX Runtime: zero points written or left out, and captured values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, bodies, dtype_of, graph_of, input_of, insert_after_value, name_of, producer_of
from dovetail.passes import Pass
from dovetail.planning import get_placement, origin_of, set_origin, set_placement
from dovetail.plugin import is_onnx

from dovetail_host.misread import TRANSPOSE_OPTIMIZER, misread_by_transpose_optimizer, nodes_cut_short

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context


class ExplicitZeroPoints(Pass):
    """Write a zero point of zero where ONNX Runtime's kernel reads one that the node leaves out.

    Given:  %y = com.microsoft.QLinearSigmoid(%x in uint8, %x_scale, %x_zero, %y_scale)
    Result: %y = com.microsoft.QLinearSigmoid(%x in uint8, %x_scale, %x_zero, %y_scale, 0 in uint8)

    The zero point of the result is optional and zero by default, but a kernel that reads it anyway crashes the process
    that loads the model.
    """

    name = "explicit-zero-points"
    stage = "normalize"
    after = ("normalize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Add the zeros as constants."""
        found = list(nodes_cut_short(model))
        names = ctx.analysis(FreshNames, model) if found else None
        for node, number in found:
            integers = input_of(node, 0)
            assert names is not None
            zero = ir.tensor(np.zeros((), dtype_of(integers).numpy()), name=names.fresh(f"{node.name}_zero_point"))
            value = ir.Value(name=zero.name, type=ir.TensorType(zero.dtype), shape=ir.Shape([]), const_value=zero)
            model.graph.register_initializer(value)
            node.resize_inputs(number)
            node.replace_input_with(number - 1, value)
            why = "its zero point is written out as the zero that it stands for: ONNX Runtime crashes without one"
            ctx.remark("passed", node, "zero-point", why)
        if found:
            model.touch()
        return bool(found)


_FROM_OPSET = 21
PROPAGATED = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators after which ONNX Runtime 1.32 repeats a DequantizeLinear; measured over 26 operators."""


class ImplicitZeroPoints(Pass):
    """Omit an all-zero zero point that ONNX Runtime would repeat in the wrong type.

    Given:  %f = DequantizeLinear(%integers in int8, %scale, 0)   y = MaxPool(%f)
    Result: %f = DequantizeLinear(%integers in int8, %scale)      y = MaxPool(%f)

    ONNX Runtime's optimizer QDQPropagationTransformer inserts a QuantizeLinear and a DequantizeLinear after operators
    that move data. From opset 21 on it gives that QuantizeLinear an `output_dtype` of int8 and a zero point in uint8,
    and then rejects the node. Without a zero point, which defaults to zero, the inserted node is valid. If a
    QuantizeLinear reads the result anyway, nothing is repeated, and the zero point is kept, because integer kernels are
    only matched with it.
    """

    name = "implicit-zero-points"
    stage = "outline"
    before = ("form-regions",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove the zero points, and initializers without remaining uses."""
        if model.opset < _FROM_OPSET:
            return False
        changed = [node for node in model.nodes() if _is_repeated(node)]
        for node in changed:
            zero = input_of(node, 2)
            node.replace_input_with(2, None)
            node.resize_inputs(2)
            if zero.is_initializer() and not zero.uses() and not zero.is_graph_output() and not zero.is_graph_input():
                del cast("ir.Graph", zero.graph).initializers[name_of(zero)]
        if changed:
            ctx.count("zero points left out", len(changed))
            model.touch()
        return bool(changed)


def _is_repeated(node: ir.Node) -> bool:
    """Check whether ONNX Runtime repeats a conversion from int8 after its reader."""
    if node.op_type != "DequantizeLinear" or not is_onnx(node) or len(node.inputs) < 3:
        return False
    zero = node.inputs[2]
    if zero is None or zero.const_value is None or dtype_of(zero).name != "INT8" or zero.const_value.numpy().any():
        return False
    moving = [reader for reader, _ in node.outputs[0].uses() if reader.op_type in PROPAGATED]
    return any(value.is_graph_output() or not _only_quantized(value) for value in _results(moving))


def _results(nodes: list[ir.Node]) -> Iterator[ir.Value]:
    return (value for node in nodes for value in node.outputs if value.name)


def _only_quantized(value: ir.Value) -> bool:
    readers = [reader for reader, _ in value.uses()]
    return bool(readers) and all(reader.op_type == "QuantizeLinear" for reader in readers)


class GuardCapturedValues(Pass):
    """Insert a Max of one operand between a moved dequantized value and the bodies that capture it.

    Given:  %f = DequantizeLinear(%integers)   %t = Transpose(%f)   y = If(%c) { Relu(%t) }
    Result: %f = DequantizeLinear(%integers)   %t = Transpose(%f)   %g = Max(%t)   y = If(%c) { Relu(%g) }

    ONNX Runtime's optimizer QDQPropagationTransformer inserts conversions between an operator that moves data and the
    readers of its result. It looks for the value among the inputs of the If, which do not include captured values, and
    crashes the process. Max of one operand is an identity that, unlike Identity, no earlier optimizer removes.
    """

    name = "guard-captured-values"
    stage = "outline"
    before = ("form-regions",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert one Max for each such value."""
        found = [(value, readers) for value in _moved(model) if (readers := _in_bodies(value))]
        if not found:
            return False
        names = ctx.analysis(FreshNames, model)
        for value, readers in found:
            producer = producer_of(value)
            guard = ir.node("Max", [value], name=names.fresh(f"guard_{value.name}"))
            result = guard.outputs[0]
            result.name, result.shape, result.type = names.fresh(f"{value.name}_captured"), value.shape, value.type
            set_placement(guard, get_placement(producer))
            set_origin(guard, origin_of(producer))
            insert_after_value(graph_of(producer), value, guard)
            for node, index in readers:
                node.replace_input_with(index, result)
            ctx.remark(
                "passed", guard, "captured", f"ONNX Runtime cannot convert '{value.name}' for bodies that read it"
            )
        return True


def _moved(model: Model) -> Iterator[ir.Value]:
    """Yield the values that data-movement operators derive from results of DequantizeLinear.

    The operators may be in a branch of an If, which ONNX Runtime inlines first if the condition is known.
    """
    nodes = list(model.nodes())
    waiting = [(node.outputs[0], False) for node in nodes if node.op_type == "DequantizeLinear"]
    if not waiting:
        return
    holders = {body: node for node in nodes if node.op_type == "If" for body in bodies(node)}
    seen = set()
    while waiting:
        value, moved = waiting.pop()
        if (value, moved) in seen:
            continue
        seen.add((value, moved))
        if moved:
            yield value
        for node, _ in value.uses():
            if is_onnx(node) and node.op_type in (*PROPAGATED, "Identity"):
                waiting.append((node.outputs[0], moved or node.op_type != "Identity"))
        graph = graph_of(producer_of(value))
        holder = holders.get(graph)
        if holder is not None and value.is_graph_output():
            waiting += [(holder.outputs[at], moved) for at, output in enumerate(graph.outputs) if output is value]


def _in_bodies(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """Return the uses of a value in bodies outside of its own graph."""
    home = producer_of(value).graph
    return [(node, index) for node, index in value.uses() if node.graph is not home]


class NoteTransposeOptimizer(Pass):
    """Remark that the result needs ONNX Runtime without its transpose optimizer.

    Given:  %t = Transpose(%x)   %r = Pad(%t, %pads, , %axes)   y = Transpose(%r)
    Result: a remark that names the Pad; the graph does not change
    """

    name = "note-transpose-optimizer"
    stage = "load"

    def run(self, model: Model, ctx: Context) -> bool:
        """Add one remark for all such nodes."""
        misread = misread_by_transpose_optimizer(model)
        if misread:
            why = f"{TRANSPOSE_OPTIMIZER} of ONNX Runtime misreads its axes, and is off wherever the result runs here"
            alone = f'elsewhere: InferenceSession(..., disabled_optimizers=["{TRANSPOSE_OPTIMIZER}"])'
            ctx.remark("analysis", misread[0], "transpose-optimizer", why, because=misread[1:9], suggest=alone)
        return False
