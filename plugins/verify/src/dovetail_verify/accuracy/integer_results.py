"""Integer results, dequantized for comparison with the original.

If a backend computes in integers, a planned node yields integers under the name of its float result, with the scale in
its metadata. For a comparison, the float is computed from the integers, and readers get that float quantized again,
which yields the same integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, dtype_of, name_of
from dovetail.planning import get_placement, set_placement
from dovetail_onnx.files.parsing import parse_json

from dovetail_verify.accuracy.watched import first_float, float_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from dovetail.ir import Model


_SCALES = "dovetail.scales"
"""Metadata key of a node: scale and zero point of each integer result by its name, as JSON."""


def with_floats(low: Model, exact: Model) -> tuple[Model, Mapping[str, str]]:
    """Return a result with integer values dequantized; the result itself if no node computes in integers.

    Args:
        low: The result; it is not changed.
        exact: The model with everything high; its nodes have the same names as in `low`.

    Returns:
        The result, and the observed values of nodes without a result of their own: such a node is fused with the
        activation after it, which represents both.
    """
    if not any(_SCALES in node.metadata_props for node in low.graph):
        return low, {}
    shown = low.clone()
    names = FreshNames.of(shown.graph)
    floats = {name_of(node): node for node in exact.graph if first_float(node) is not None}
    stands: dict[str, ir.Node] = {}
    parts: list[str] = []
    for node in list(shown.graph):
        name = name_of(node)
        if name not in floats or first_float(node) is not None:
            continue
        scales = _scales(node)
        value = next((one for one in node.outputs if one.name in scales), None)
        if value is not None:
            dtype = dtype_of(float_of(floats[name]))
            stands[name] = _show(shown.graph, node, value, dtype, scales[name_of(value)], names)
        else:
            node.name = names.fresh(f"{name}/part")
            parts.append(name)
    seen: dict[str, str] = {}
    for name in parts:
        behind = next((user.name for user, _ in float_of(floats[name]).uses()), "")
        if behind in stands:
            stands[behind].name = name
            seen[name] = name_of(stands[behind].outputs[0])
    shown.touch()
    return shown, seen


def _scales(node: ir.Node) -> Mapping[str, tuple[float, int]]:
    """Return scale and zero point of each integer result of a node."""
    try:
        found = parse_json(node.metadata_props.get(_SCALES, "{}"), finite=True)
        return {name: (float(scale), int(zero)) for name, (scale, zero) in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        problem = f"node '{node.name}': {_SCALES} in its metadata_props cannot be read: {error}"
        raise DovetailError(problem, "compile the source model again") from None


def _show(
    graph: ir.Graph, node: ir.Node, value: ir.Value, dtype: ir.DataType, scales: tuple[float, int], names: FreshNames
) -> ir.Node:
    """Dequantize an integer value under its name, by a node of the original node's name; return that node."""
    import numpy as np
    import onnx_ir as ir

    name, kept, placement = name_of(value), dtype_of(value), get_placement(node)
    value.name = names.fresh(f"{name}/integers")
    constants = []
    for what, array in (
        ("scale", np.array(scales[0], dtype.numpy())),
        ("zero", np.array(scales[1], kept.numpy())),
    ):
        tensor = ir.Tensor(array, name=names.fresh(f"{name}/{what}"))
        constant = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        graph.register_initializer(constant)
        constants.append(constant)
    made: list[ir.Node] = []

    def step(op_type: str, given: ir.Value, called: str, kind: ir.DataType) -> ir.Value:
        result = ir.Value(name=called, type=ir.TensorType(kind), shape=value.shape)
        inputs, about = [given, *constants], names.fresh(f"{name}/{op_type}")
        made.append(ir.Node("", op_type, inputs, outputs=[result], name=about))
        set_placement(made[-1], placement)
        return result

    readers = list(value.uses())
    real = step("DequantizeLinear", value, name, dtype)
    integers = step("QuantizeLinear", real, names.fresh(f"{name}/again"), kept)
    step("DequantizeLinear", integers, names.fresh(f"{name}/rounded"), dtype)
    made[0].name, node.name = node.name, made[0].name
    graph.insert_after(node, made)
    for reader, index in readers:
        reader.replace_input_with(index, integers)
    return made[0]
