"""The first pass: what onnx's own converter and inference can do for a model, done once and without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass
from dovetail.planning.placement import set_origin

from dovetail_canonicalize.inference import infer
from dovetail_canonicalize.loop_shapes import give_carried_shapes
from dovetail_canonicalize.names import NodeNames, all_nodes
from dovetail_canonicalize.order import sort_nodes
from dovetail_canonicalize.runtime_inference import infer_with_runtime
from dovetail_canonicalize.shadows import rename_shadows

if TYPE_CHECKING:
    import onnx
    from dovetail.ir.model import Model
    from dovetail.passes import Context

__all__ = ["Normalise"]

_SCAN_WITHOUT_BATCH = 9


@dataclass(frozen=True)
class Normalise(Pass):
    """Bring a model to one form: functions inlined, opset raised, nodes named, values typed.

    Given:  any model that onnx can read, with its weights anywhere.
    Result: nodes are in order, opset and IR version are what the chosen backends need (never lower than before),
            initializers are constants and no inputs, every node has a unique name and keeps its source name as its
            origin, every value has the type that inference finds.

    Options:
        opset: The version to raise the default domain to; 0 for the lowest that all chosen backends read.
    """

    name = "normalise"
    stage = "normalise"
    takes_anything = True

    opset: int = 0

    def run(self, model: Model, ctx: Context) -> bool:
        """Rebuild the model from its normalised proto."""
        skeleton = model.skeleton()
        if sort_nodes(skeleton.proto.graph):
            ctx.remark("passed", "", "sort", "the nodes were not in the order in which they read each other's results")
        if hidden := rename_shadows(skeleton.proto.graph):
            why = f"{hidden} names inside of bodies stood outside too; those inside are others now"
            ctx.remark("passed", "", "shadows", why)
        proto = _inlined(skeleton.proto, ctx)
        _initializers_are_no_inputs(proto, ctx)
        names = NodeNames(proto.graph)
        proto = self._converted(proto, ctx)
        renamed = names.give_back(proto.graph)
        _raise_ir_version(proto)
        skeleton.proto = _inferred(proto, ctx)
        if typed := infer_with_runtime(skeleton.proto):
            ctx.count("values typed by ONNX Runtime", typed)
        model.rebuild(skeleton)
        for node in model.nodes():
            if node.name in renamed:
                set_origin(node, renamed[node.name])
            if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
                give_carried_shapes(node)
        ctx.count("named", len(renamed))
        return True

    def _converted(self, proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
        import onnx.version_converter

        present = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), None)
        wanted = self.opset or max((backend.opset[0] for backend in ctx.backends), default=0)
        if present is None or present >= wanted:
            return proto
        if present < _SCAN_WITHOUT_BATCH and any(node.op_type == "Scan" for node in all_nodes(proto.graph)):
            ctx.remark(
                "missed",
                "",
                "opset-raise",
                f"the opset stays {present}: onnx's converter misreads the batch axis of its Scan",
                suggest="export the model again with a newer opset",
            )
            return proto
        proto.ir_version = max(proto.ir_version, _needed_ir_version(present), 4)
        try:
            converted = onnx.version_converter.convert_version(proto, wanted)
        except Exception as error:  # the converter raises whatever its C++ side threw
            ctx.remark(
                "missed",
                "",
                "opset-raise",
                f"the opset stays {present}, onnx's converter cannot raise it to {wanted}: {_first_line(error)}",
                suggest="export the model again with a newer opset",
            )
            return proto
        # The converter keeps neither of these.
        del converted.metadata_props[:]
        converted.metadata_props.extend(proto.metadata_props)
        ctx.remark("passed", "", "opset-raise", f"opset raised from {present} to {wanted}")
        return converted


def _inlined(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    import onnx.inliner

    if not proto.functions:
        return proto
    ctx.remark("passed", "", "inline", f"{len(proto.functions)} local functions inlined")
    return onnx.inliner.inline_local_functions(proto)


def _initializers_are_no_inputs(proto: onnx.ModelProto, ctx: Context) -> None:
    """IR 3 lists every initializer as an input too; from IR 4 on, that would make it a default that callers replace."""
    if proto.ir_version >= 4:
        return
    constants = {tensor.name for tensor in proto.graph.initializer}
    kept = [value for value in proto.graph.input if value.name not in constants]
    dropped = len(proto.graph.input) - len(kept)
    if dropped:
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        ctx.remark("passed", "", "initializer-inputs", f"{dropped} initializers are constants now and no graph inputs")


def _needed_ir_version(opset: int) -> int:
    import onnx.helper

    return onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), 4)


def _raise_ir_version(proto: onnx.ModelProto) -> None:
    opsets = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    proto.ir_version = max([proto.ir_version, *map(_needed_ir_version, opsets)])


def _inferred(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    try:
        return infer(proto)
    except Exception as error:  # the same: C++ exceptions of any kind
        ctx.remark("missed", "", "inference", f"onnx's inference stopped: {_first_line(error)}")
        return proto


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
