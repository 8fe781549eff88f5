"""Type and shape inference with onnx, and workarounds for its gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.ir import is_onnx
from dovetail_onnx.skeleton import skeleton_of

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.canonicalize.ranks import add_ranks

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def explicit_windows(proto: onnx.ModelProto) -> dict[int, onnx.NodeProto]:
    """Return replacements for pooling nodes with wrongly inferred extents, by node index.

    Args:
        proto: A model after inference.
    """
    if not any(node.op_type in _POOLS for node in all_nodes(proto.graph)):
        return {}
    shapes = {
        value.name: _extents(value) for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)
    }
    found = {}
    for index, node in enumerate(all_nodes(proto.graph)):
        if node.op_type in _POOLS and is_onnx(node) and _attribute(node, "ceil_mode", 0):
            stand_in = _explicit(node, shapes)
            if stand_in is not None:
                found[index] = stand_in
    return found


def _explicit(node: onnx.NodeProto, shapes: Mapping[str, list[int | None] | None]) -> onnx.NodeProto | None:
    """Return the node without `ceil_mode` and with explicit padding; None if its extents are right or unknown."""
    import onnx

    given, inferred = shapes.get(node.input[0]), shapes.get(node.output[0])
    kernel = list(_attribute(node, "kernel_shape", ()))
    if (
        given is None
        or inferred is None
        or len(given) != len(kernel) + 2
        or _attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    ):
        return None
    ones, none = [1] * len(kernel), [0] * 2 * len(kernel)
    strides, dilations = (list(_attribute(node, name, ones)) for name in ("strides", "dilations"))
    pads = list(_attribute(node, "pads", none))
    wrong = False
    for axis, (extent, size, stride, dilation) in enumerate(zip(given[2:], kernel, strides, dilations)):
        if extent is None or stride < 1:
            return None
        before, covered = pads[axis], (size - 1) * dilation + 1
        windows = -(-(extent + before + pads[axis + len(kernel)] - covered) // stride) + 1
        if (windows - 1) * stride >= extent + before:
            windows -= 1
        wrong |= inferred[axis + 2] != windows
        pads[axis + len(kernel)] = max((windows - 1) * stride + covered - extent - before, 0)
    if not wrong:
        return None
    stand_in = onnx.NodeProto()
    stand_in.CopyFrom(node)
    del stand_in.attribute[:]
    stand_in.attribute.extend(entry for entry in node.attribute if entry.name not in ("ceil_mode", "pads"))
    stand_in.attribute.append(onnx.helper.make_attribute("pads", pads))
    return stand_in


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    import onnx

    found = next((entry for entry in node.attribute if entry.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def _extents(value: onnx.ValueInfoProto) -> list[int | None] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]


# onnx 1.23 has no inference for these, which would leave all later values untyped.
_SHAPE_PRESERVING = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
_MOST_ROUNDS = 8


def infer_types(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of `proto` with inferred types and shapes.

    Shape-preserving operators without inference in onnx are inferred as `Identity`; pooling for which onnx infers wrong
    extents is inferred with explicit padding; ranks that onnx leaves out are added.
    """
    inferred = _inferred(proto)
    stand_ins: dict[int, onnx.NodeProto] = {}
    # Each correction changes later extents, where onnx may be wrong again.
    for _ in range(_MOST_ROUNDS):
        wrong = explicit_windows(inferred)
        if not wrong:
            break
        stand_ins |= wrong
        inferred = _inferred_with(proto, stand_ins)
    for _ in range(_MOST_ROUNDS):
        if not add_ranks(inferred):
            break
        inferred = _inferred(inferred)
    return inferred


def _inferred_with(proto: onnx.ModelProto, stand_ins: Mapping[int, onnx.NodeProto]) -> onnx.ModelProto:
    """Infer with some nodes replaced; value names do not change."""
    import onnx

    work = onnx.ModelProto()
    work.CopyFrom(proto)
    # Declared shapes of their results, and of later values, are wrong in the same way, so drop them.
    stale = {name for node in stand_ins.values() for name in node.output}
    for index, node in enumerate(all_nodes(work.graph)):
        if index in stand_ins:
            node.CopyFrom(stand_ins[index])
        elif is_onnx(node) and not stale.isdisjoint(node.input):
            stale.update(name for name in node.output if name)
    for value in [value for value in work.graph.value_info if value.name in stale]:
        work.graph.value_info.remove(value)
    inferred = _inferred(work)
    originals = dict(enumerate(all_nodes(proto.graph)))
    for index, node in enumerate(all_nodes(inferred.graph)):
        if index in stand_ins:
            node.CopyFrom(originals[index])
    return inferred


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    import onnx.shape_inference

    stand_ins = {
        index: node.op_type
        for index, node in enumerate(all_nodes(proto.graph))
        if node.op_type in _SHAPE_PRESERVING and is_onnx(node)
    }
    if not stand_ins:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    _rename(proto.graph, dict.fromkeys(stand_ins, "Identity"))
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    finally:
        _rename(proto.graph, stand_ins)
    _rename(inferred.graph, stand_ins)
    return inferred


def _rename(graph: onnx.GraphProto, op_types: dict[int, str]) -> None:
    for index, node in enumerate(all_nodes(graph)):
        node.op_type = op_types.get(index, node.op_type)


def infer_with_outputs(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    """Infer `proto` without the declared shapes of its outputs, then restore declarations that do not contradict.

    ONNX Runtime accepts a wrong declared output rank, and onnx's inference keeps the declaration; onnx's full checker
    and stricter engines reject it.

    Raises:
        Exception: Whatever inference throws; `proto` is then unchanged.
    """
    declared = [type(output.type).FromString(output.type.SerializeToString()) for output in proto.graph.output]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        inferred = infer_types(proto)
    finally:
        for output, kind in zip(proto.graph.output, declared):
            output.type.CopyFrom(kind)
    believed = set()
    for output, kind in zip(inferred.graph.output, declared):
        if kind.HasField("tensor_type") and kind.tensor_type.HasField("shape"):
            if not output.type.tensor_type.HasField("shape"):
                believed.add(output.name)
                output.type.tensor_type.shape.CopyFrom(kind.tensor_type.shape)
            else:
                _merge_declaration(output, kind.tensor_type.shape, ctx)
    # Where inference finds no shape, take the declared one; more may follow from it.
    if believed and any(name in believed for node in inferred.graph.node for name in node.input):
        return infer_types(inferred)
    return inferred


def _merge_declaration(output: onnx.ValueInfoProto, declared: onnx.TensorShapeProto, ctx: Context) -> None:
    found = output.type.tensor_type
    if _contradicts(found.shape, declared):
        why = f"it is declared as {_text(declared)} and computed as {_text(found.shape)}; the declaration is corrected"
        ctx.remark("passed", output.name, "declared-shape", why)
        return
    for dim, said in zip(found.shape.dim, declared.dim):
        # Prefer the user's dimension name over a generated one.
        if not dim.HasField("dim_value"):
            dim.CopyFrom(said)


def _contradicts(found: onnx.TensorShapeProto, declared: onnx.TensorShapeProto) -> bool:
    if len(found.dim) != len(declared.dim):
        return True
    return any(
        one.HasField("dim_value") and other.HasField("dim_value") and one.dim_value != other.dim_value
        for one, other in zip(found.dim, declared.dim)
    )


def _text(shape: onnx.TensorShapeProto) -> str:
    return "[" + ", ".join(str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
                           for dim in shape.dim) + "]"  # fmt: skip


def correct_outputs(model: Model, ctx: Context) -> bool:
    """Correct declared outputs again after folding, which may reveal shapes; changes only outputs.

    Returns:
        Whether a declaration was corrected.
    """
    import onnx_ir as ir

    before = len(ctx.remarks)
    try:
        inferred = infer_with_outputs(skeleton_of(model).proto, ctx)
    except Exception:  # C++ exceptions of any kind: no new information
        return False
    if len(ctx.remarks) == before:
        return False
    for value, output in zip(model.graph.outputs, inferred.graph.output):
        shape = ir.serde.deserialize_type_proto_for_shape(output.type)
        if shape is not None:
            value.shape = shape
    return True


def set_carried_shapes(loop: ir.Node) -> None:
    """Set the shapes of a Loop's outputs whose carried value has a constant shape.

    onnx leaves them unknown because a body may change the shape in every iteration. It does not if the initial value
    and the body's output have the same static shape.
    """
    body = loop.attributes["body"].as_graph() if "body" in loop.attributes else None
    if body is None:
        return
    for index, output in enumerate(loop.outputs[: len(loop.inputs) - 2]):
        initial, carried = loop.inputs[2 + index], body.outputs[1 + index]
        if initial is None or output.shape is not None or initial.shape is None or not initial.shape.is_static():
            continue
        if carried.shape is not None and carried.shape == initial.shape:
            output.shape = initial.shape
            if output.type is None:
                output.type = initial.type
