"""The `normalize` pass: bring a model into one form, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import is_onnx
from dovetail.passes import Pass
from dovetail.planning import origin_of, set_origin
from dovetail.text import pluralize
from dovetail_onnx.skeleton import skeleton_of, was_sorted
from dovetail_onnx.topological_order import sort_nodes

from dovetail_transforms.canonicalize.fix_shapes import fix_shapes
from dovetail_transforms.canonicalize.functions import inline_functions
from dovetail_transforms.canonicalize.inference import infer_anew, set_carried_shapes
from dovetail_transforms.canonicalize.input_ranges import declare_ranges
from dovetail_transforms.canonicalize.names import NodeNames, rename_shadows
from dovetail_transforms.canonicalize.opsets import (
    default_version,
    drop_unused_imports,
    ir_version_of,
    set_default_version,
)
from dovetail_transforms.canonicalize.runtime_inference import infer_with_runtime
from dovetail_transforms.fusions.fusion import named_fusions
from dovetail_transforms.raising import NotRaised, raise_opset

if TYPE_CHECKING:
    import onnx
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend


_NEWEST_COMMON = 18  # the default: an opset that every engine reads


@dataclass(frozen=True)
class Normalize(Pass):
    """Normalize a model: inline functions, raise the opset, name nodes, type values.

    Given:  any model that onnx can read, with its weights anywhere.
    Result: nodes are in topological order, opset and IR version are what the chosen backends need (never lower than
            before), initializers are not inputs, every node has a unique name and its source name as origin, every
            value has its inferred type, and no declared type contradicts inference.

    Options:
        opset: The version to raise the default domain to; 0 for the lowest that all chosen backends read.
        shapes: Shapes of inputs besides those of `--fix-shape`: `NAME:1x3x224x224`, with a space between two.
    """

    name = "normalize"
    stage = "normalize"
    takes_anything = True

    opset: int = 0
    shapes: str = ""

    def run(self, model: Model, ctx: Context) -> bool:
        """Rebuild the model from its normalized proto."""
        sorted_before = was_sorted(model)
        origins = _origins(model)
        skeleton = skeleton_of(model)
        proto = skeleton.proto
        fix_shapes(proto.graph, ctx, self.shapes.split())
        if sort_nodes(proto.graph) or sorted_before:
            ctx.remark("passed", "", "sort", "the nodes were not in topological order and are sorted now")
        if hidden := rename_shadows(proto.graph):
            why = f"{hidden} names in bodies were those of other values, outside or in another body, and are renamed"
            ctx.remark("passed", "", "shadows", why)
        _drop_training(proto, ctx)
        own = {function.domain for function in proto.functions}
        proto = inline_functions(proto, ctx)
        _initializers_are_no_inputs(proto, ctx)
        names = NodeNames(proto.graph)
        proto = self._converted(proto, ctx)
        renamed = names.restore(proto.graph)
        _raise_ir_version(proto)
        if dropped := [domain for domain in drop_unused_imports(proto) if domain not in own]:
            why = f"unused import of {', '.join(map(repr, dropped))} dropped"
            ctx.remark("passed", "", "unused-imports", why)
        proto.producer_name = proto.producer_name or "dovetail"
        skeleton.proto = _inferred(proto, ctx)
        if typed := infer_with_runtime(skeleton.proto):
            ctx.count("values typed by ONNX Runtime", typed)
        model.rebuild(skeleton)
        declare_ranges(model, ctx)
        for node in model.nodes():
            before = renamed.get(node.name or "", (node.name or "",))
            if node.name in renamed or before[0] in origins:
                set_origin(node, tuple(source for name in before for source in origins.get(name, (name,))))
            if node.op_type == "Loop" and is_onnx(node):
                set_carried_shapes(node)
        ctx.count("named", len(renamed))
        return True

    def _converted(self, proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
        present = default_version(proto.opset_import)
        wanted = self.opset or max((_lowest_opset(backend, ctx) for backend in ctx.backends), default=0)
        if present is None:
            # Inserted conversions need the default domain, even if no node of the model does.
            present = max(wanted, _NEWEST_COMMON)
            set_default_version(proto, present)
            ctx.remark("passed", "", "import", f"the model imports opset {present} now; it imported no default domain")
        if present >= wanted:
            return proto
        before = proto.SerializeToString()
        try:
            raise_opset(proto, present, wanted)
        except NotRaised as refused:
            why = f"the opset stays {present}: {refused.message}"
            ctx.remark("missed", refused.node, "opset-raise", why, suggest=refused.hint)
            return type(proto).FromString(before)
        set_default_version(proto, wanted)
        ctx.remark("passed", "", "opset-raise", f"opset raised from {present} to {wanted}")
        return proto


def _origins(model: Model) -> dict[str | None, tuple[str, ...]]:
    """Return the origins of nodes created by earlier passes, by node name; the proto does not have them."""
    if model.untouched and model.lazy is not None:
        return {}
    return {node.name: origin_of(node) for node in model.nodes() if origin_of(node) != (node.name,)}


def _drop_training(proto: onnx.ModelProto, ctx: Context) -> None:
    if proto.training_info:
        del proto.training_info[:]
        ctx.remark("passed", "", "training", "training information is dropped")


def _initializers_are_no_inputs(proto: onnx.ModelProto, ctx: Context) -> None:
    """Remove initializers from the inputs.

    IR 3 lists all initializers as inputs. From IR 4 on, such an initializer is a default that callers may override,
    unless the request freezes inputs.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    defaults = [value.name for value in proto.graph.input if value.name in constants]
    if not defaults:
        return
    if proto.ir_version >= 4 and not ctx.request.freeze_inputs:
        why = (
            f"{pluralize(len(defaults), 'input')} such as '{defaults[0]}' {'has' if len(defaults) == 1 else 'have'} a "
            "default that callers may replace, so it is converted in every run, and nothing is folded into it: "
            "--freeze-inputs makes constants of them"
        )
        ctx.remark("analysis", "", "default-inputs", why, suggest="--freeze-inputs, if no caller gives another value")
        return
    kept = [value for value in proto.graph.input if value.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    why = f"{len(defaults)} initializers are no longer graph inputs"
    ctx.remark("passed", "", "initializer-inputs", why + ", as --freeze-inputs says" * (proto.ir_version >= 4))


def _raise_ir_version(proto: onnx.ModelProto) -> None:
    version = default_version(proto.opset_import)
    if version is not None:
        proto.ir_version = max(proto.ir_version, ir_version_of(version))


def _inferred(proto: onnx.ModelProto, ctx: Context) -> onnx.ModelProto:
    try:
        return infer_anew(proto, ctx)
    except DovetailError:  # a function of an operator file explains the error in a node
        raise
    except Exception as error:  # C++ exceptions of any kind
        ctx.remark("missed", "", "inference", f"onnx's inference stopped: {_first_line(error)}")
        return proto


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _lowest_opset(backend: Backend, ctx: Context) -> int:
    """Return the lowest opset that can express a backend's formats, and what its fusions make if its tools read that.

    Models are lowered for its tools on emission.
    """
    fusions = named_fusions(backend.prepare, ctx.registry).values() if backend.prepare else ()
    return max([backend.lowest_opset, *(one.opset for one in fusions if one.opset <= backend.opset[1])])
