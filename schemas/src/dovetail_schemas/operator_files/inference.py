"""InferMeta as onnx calls it: arguments from a node, results into its types."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir.types import dtype_name, from_name
from dovetail.plugin.isolation import described
from dovetail.suggestions import did_you_mean

from dovetail_schemas.operator_files.entries import Argument, Entry, OperatorFile
from dovetail_schemas.operator_files.meta import STANDARD, Meta
from dovetail_schemas.operator_files.schemas import attribute_of

if TYPE_CHECKING:
    import onnx


Infer = Callable[..., "Meta | Sequence[Meta]"]


def function_named(name: str, file: OperatorFile) -> Infer:
    """The standard function of a name, or that of the file's own module.

    Raises:
        ValueError: There is none, or the module cannot be imported.
    """
    if name in STANDARD:
        return STANDARD[name]
    if not file.functions:
        raise ValueError(
            f"infer_meta: there is no standard function '{name}'{did_you_mean(name, STANDARD)}, and the file names no "
            "module under functions:"
        )
    try:
        module = importlib.import_module(file.functions)
    except Exception as error:
        raise ValueError(f"functions: {file.functions} cannot be imported: {described(error)}") from error
    found = vars(module).get(name)
    if not callable(found):
        near = did_you_mean(name, [*STANDARD, *vars(module)])
        raise ValueError(f"infer_meta: neither {file.functions} nor the standard functions have '{name}'{near}")
    return found


def inference_of(entry: Entry, file: OperatorFile) -> Callable[[Any], None] | None:
    """What onnx's shape inference calls for a node of an operator; None if its file says nothing about results.

    Raises:
        ValueError: The function is not there.
    """
    if entry.infer_meta is None:
        return None
    call = entry.infer_meta.call
    function = function_named(call.function, file)
    names = call.arguments or (entry.kernel.parameters if entry.kernel else ()) or [arg.name for arg in entry.args]
    args = {arg.name: arg for arg in entry.args}
    wanted = [args[name] for name in names]
    who = f"{file.domain}::{entry.name} ({entry.where}): infer_meta {call.function}"

    def infer(context: Any) -> None:
        given = [_argument(arg, entry, context) for arg in wanted]
        if any(meta is None or isinstance(meta, Meta) and not meta.dtype for meta in given[:1]):
            return  # nothing is known of the first input, so nothing follows
        try:
            made = function(*given)
        except Exception as error:
            why = str(error) if isinstance(error, ValueError) else described(error)
            raise DovetailError(f"{_node(context)}: {who}: {why}") from error
        results = [made] if isinstance(made, Meta) else list(made)
        if len(results) < context.get_num_outputs() or not all(isinstance(one, Meta) for one in results):
            count = context.get_num_outputs()
            problem = f"{_node(context)}: {who} returns {made!r}, and the node has {count} outputs"
            raise DovetailError(problem, "return a Meta for each")
        for index in range(context.get_num_outputs()):
            if results[index].dtype:
                context.set_output_type(index, _type_of(results[index], who))

    return infer


def inference_of_body(entry: Entry, function: onnx.FunctionProto) -> Callable[[Any], None]:
    """What onnx's shape inference calls for a node of a composite: it looks into the decomposition."""

    def infer(context: Any) -> None:
        import onnx

        given = [context.get_input_type(index) for index in range(context.get_num_inputs())]
        if any(type_ is None for type_ in given):
            return
        attributes = []
        for arg in entry.attributes:
            found = context.get_attribute(arg.name)
            attributes.append(attribute_of(arg, arg.default) if found is None and arg.has_default else found)
        held = [attribute for attribute in attributes if attribute is not None]
        try:
            made = onnx.shape_inference.infer_function_output_types(function, given, held)
        except Exception:  # C++ exceptions of any kind: the results stay open
            return
        for index, type_ in enumerate(made[: context.get_num_outputs()]):
            if type_.WhichOneof("value"):
                context.set_output_type(index, type_)

    return infer


def _node(context: Any) -> str:
    """The node as messages name it; onnx shows it as `node Type[domain] (name)`."""
    shown = str(context.get_display_name())
    name = shown.rpartition(" (")[2].rstrip(")") if shown.endswith(")") else shown
    return f"node '{name}'"


def _argument(arg: Argument, entry: Entry, context: Any) -> object:
    if not arg.is_tensor:
        import onnx

        found = context.get_attribute(arg.name)
        held = attribute_of(arg, arg.default) if found is None and arg.has_default else found
        value = None if held is None else onnx.helper.get_attribute_value(held)
        return value.decode() if isinstance(value, bytes) else value
    index = [one.name for one in entry.inputs].index(arg.name)
    if arg.is_list:
        return [_meta(context.get_input_type(position)) for position in range(index, context.get_num_inputs())]
    return _meta(context.get_input_type(index)) if index < context.get_num_inputs() else None


def _meta(type_: onnx.TypeProto | None) -> Meta:
    import onnx_ir as ir

    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.elem_type:
        return Meta("")
    tensor = type_.tensor_type
    shape = tuple(_extent(one) for one in tensor.shape.dim) if tensor.HasField("shape") else None
    return Meta(dtype_name(ir.DataType(tensor.elem_type)), shape)


def _extent(dimension: Any) -> int | str | None:
    return dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or None


def _type_of(meta: Meta, who: str) -> onnx.TypeProto:
    import onnx

    try:
        dtype = from_name(meta.dtype)
    except KeyError:
        why = f"{who} gives the element type '{meta.dtype}', which there is not"
        raise DovetailError(why, "types are called as in backend files: float32, int64, bool") from None
    made = onnx.TypeProto()
    made.tensor_type.elem_type = dtype.value
    if meta.shape is not None:
        made.tensor_type.shape.SetInParent()
        for extent in meta.shape:
            dimension = made.tensor_type.shape.dim.add()
            if isinstance(extent, int):
                dimension.dim_value = extent
            elif extent:
                dimension.dim_param = extent
    return made
