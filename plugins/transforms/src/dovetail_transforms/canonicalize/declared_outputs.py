"""Correct declared shapes of graph outputs that contradict inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_onnx.skeleton import skeleton_of

from dovetail_transforms.canonicalize.inference import infer

if TYPE_CHECKING:
    import onnx
    from dovetail.ir.model import Model
    from dovetail.passes import Context


def infer_with_outputs(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    """Infer `proto` without the declared shapes of its outputs, then keep the declarations that do not contradict.

    ONNX Runtime runs a model with a wrong declared output rank, and onnx's inference keeps the declaration; onnx's full
    checker and stricter engines refuse it.

    Raises:
        Exception: Whatever inference throws; `proto` is then unchanged.
    """
    declared = [type(output.type).FromString(output.type.SerializeToString()) for output in proto.graph.output]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        inferred = infer(proto)
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
    # Shapes that inference cannot find are taken as declared; more may follow from them.
    if believed and any(name in believed for node in inferred.graph.node for name in node.input):
        return infer(inferred)
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
    """Correct declared outputs again after folding, which may have made shapes known; changes only outputs.

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
