"""Type and shape inference with onnx, and workarounds for its gaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from dovetail.ir import is_onnx
from dovetail_onnx.skeleton import graphs_of, skeleton_of

from dovetail_transforms.canonicalize.names import all_nodes
from dovetail_transforms.canonicalize.ranks import add_ranks
from dovetail_transforms.canonicalize.runtime_inference import infer_with_runtime

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


def infer_anew(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    """Infer `proto` without its declarations of values, then restore those that contradict nothing.

    onnx's inference keeps what a file declares of a value and stops there, and engines refuse what does not fit. Only
    the types of outputs are kept: they are part of the model.

    Raises:
        Exception: Whatever inference throws; `proto` is then unchanged.
    """
    declared = [_taken(graph) for graph in graphs_of(proto.graph)]
    try:
        inferred = infer_with_outputs(proto, ctx)
        infer_with_runtime(inferred)
        if _restored(inferred, declared, ctx):
            inferred = infer_types(inferred)
    finally:
        for graph, values in zip(graphs_of(proto.graph), declared):
            graph.value_info.extend(values)
    return inferred


def _taken(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Remove the declarations of a graph's intermediate values, and return them."""
    import onnx

    taken = onnx.GraphProto(value_info=graph.value_info)
    del graph.value_info[:]
    return list(taken.value_info)


def _restored(inferred: onnx.ModelProto, declared: Iterable[list[onnx.ValueInfoProto]], ctx: Context) -> bool:
    """Write what is declared of each graph into an inferred model; return whether other values may follow from it."""
    follows, given = False, _open_extents(inferred.graph)
    for graph, values in zip(graphs_of(inferred.graph), declared):
        known = {value.name: value for value in graph.value_info}
        made = {name for node in graph.node for name in node.output}
        read = {name for node in graph.node for name in node.input}
        for value in values:
            found = known.get(value.name)
            if value.name not in made or not value.type.WhichOneof("value"):
                continue
            if found is None:
                known[value.name] = graph.value_info.add()
                known[value.name].CopyFrom(value)
            elif _merge_value(found, value, given, ctx) or not _lacks_shape(found):
                continue
            else:
                found.type.CopyFrom(value.type)
            follows |= value.name in read
    return follows


def _open_extents(graph: onnx.GraphProto) -> set[str]:
    """Return the names of extents of a model's inputs."""
    return {dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param}


def _lacks_shape(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


def _merge_value(found: onnx.ValueInfoProto, declared: onnx.ValueInfoProto, given: Set[str], ctx: Context) -> bool:
    """Complete what was inferred of a value by its declaration; return whether they contradict each other."""
    if found.type.WhichOneof("value") != declared.type.WhichOneof("value"):
        _corrected(found.name, _kind(declared), _kind(found), ctx)
        return True
    if not found.type.HasField("tensor_type"):
        return False
    right, said = found.type.tensor_type, declared.type.tensor_type
    if right.elem_type and said.elem_type and right.elem_type != said.elem_type:
        _corrected(found.name, _element(said), _element(right), ctx)
        return True
    if not (right.HasField("shape") and said.HasField("shape")):
        return False
    return _merge_declaration(found, said.shape, given, ctx)


def _kind(value: onnx.ValueInfoProto) -> str:
    return (value.type.WhichOneof("value") or "").removesuffix("_type").replace("_", " ")


def _element(kind: onnx.TypeProto.Tensor) -> str:
    import onnx

    return onnx.TensorProto.DataType.Name(kind.elem_type).lower()


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
    believed, given = set(), _open_extents(inferred.graph)
    for output, kind in zip(inferred.graph.output, declared):
        if kind.HasField("tensor_type") and kind.tensor_type.HasField("shape"):
            if not output.type.tensor_type.HasField("shape"):
                believed.add(output.name)
                output.type.tensor_type.shape.CopyFrom(kind.tensor_type.shape)
            else:
                _merge_declaration(output, kind.tensor_type.shape, given, ctx)
    # Where inference finds no shape, take the declared one; more may follow from it.
    if believed and any(name in believed for node in inferred.graph.node for name in node.input):
        return infer_types(inferred)
    return inferred


def _merge_declaration(
    value: onnx.ValueInfoProto, declared: onnx.TensorShapeProto, given: Set[str], ctx: Context
) -> bool:
    """Name inferred extents as they are declared; return whether the declaration contradicts them.

    Args:
        value: What is inferred, changed in place.
        declared: The declaration.
        given: Names of extents that the inputs of the model have, and a caller chooses.
        ctx: For a remark.
    """
    found = value.type.tensor_type
    if _contradicts(found.shape, declared, given):
        _corrected(value.name, _text(declared), _text(found.shape), ctx)
        return True
    for dim, said in zip(found.shape.dim, declared.dim):
        # Prefer the user's dimension name over a generated one.
        if not dim.HasField("dim_value"):
            dim.CopyFrom(said)
    return False


def _corrected(name: str, declared: str, computed: str, ctx: Context) -> None:
    why = f"it is declared as {declared} and computed as {computed}; the declaration is corrected"
    ctx.remark("passed", name, "declared-shape", why)


def _contradicts(found: onnx.TensorShapeProto, declared: onnx.TensorShapeProto, given: Set[str]) -> bool:
    if len(found.dim) != len(declared.dim):
        return True
    return any(
        other.HasField("dim_value")
        and (one.dim_value != other.dim_value if one.HasField("dim_value") else one.dim_param in given)
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
