"""InferMeta functions as onnx shape inference: arguments from a node, results into its output types."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import dtype_name, from_name
from dovetail.plugin.loading import described
from dovetail.text import did_you_mean

from dovetail_kernels.operator_files.entries import OperatorArgument, OperatorEntry, OperatorFile
from dovetail_kernels.operator_files.schemas import attribute_of

if TYPE_CHECKING:
    import onnx


Extent = int | str | None
"""One extent: a number, the name of an open extent, or None if unknown."""


@dataclass(frozen=True, slots=True)
class Meta:
    """Element type and shape of a tensor.

    Attributes:
        dtype: The element type, such as `float32`; empty if unknown.
        shape: The extents; None if the rank is unknown.
    """

    dtype: str
    shape: tuple[Extent, ...] | None = None

    @property
    def rank(self) -> int | None:
        """The rank; None if unknown."""
        return None if self.shape is None else len(self.shape)


def unchanged(x: Meta, *others: object) -> Meta:
    """Infer as `UnchangedInferMeta`: the result is like the first argument."""
    del others
    return x


def elementwise(x: Meta, y: Meta, *others: object) -> Meta:
    """Infer as `ElementwiseInferMeta`: shapes are broadcast, the type is that of the first argument.

    Raises:
        ValueError: The shapes cannot be broadcast.
    """
    del others
    if x.shape is None or y.shape is None:
        return replace(x, shape=None)
    rank = max(len(x.shape), len(y.shape))
    left, right = ((1,) * (rank - len(shape)) + shape for shape in (x.shape, y.shape))
    return replace(x, shape=tuple(_broadcast(one, other, x, y) for one, other in zip(left, right, strict=True)))


def matmul(x: Meta, y: Meta, transpose_x: bool = False, transpose_y: bool = False) -> Meta:
    """Infer as `MatmulInferMeta`: a matrix product with broadcast leading extents.

    Raises:
        ValueError: The shapes are incompatible.
    """
    if x.shape is None or y.shape is None or min(len(x.shape), len(y.shape)) < 2:
        return replace(x, shape=None)
    left, right = _matrix(x.shape, transpose_x), _matrix(y.shape, transpose_y)
    if isinstance(left[-1], int) and isinstance(right[-2], int) and left[-1] != right[-2]:
        raise ValueError(f"matrices of {_text(x.shape)} and {_text(y.shape)} have no product")
    batch = elementwise(replace(x, shape=left[:-2]), replace(y, shape=right[:-2]))
    return replace(x, shape=(*(batch.shape or ()), left[-2], right[-1]))


def concat(x: Sequence[Meta], axis: int = 0) -> Meta:
    """Infer as `ConcatInferMeta`: extents are added along an axis.

    Raises:
        ValueError: There is no such axis, or the ranks differ.
    """
    shapes = [one.shape for one in x if one.shape is not None]
    if len(shapes) < len(x):
        return replace(x[0], shape=None)
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError(f"tensors of {', '.join(map(_text, shapes))} differ in rank")
    axis = _axis(axis, len(shapes[0]))
    extents = [shape[axis] for shape in shapes]
    known = [extent for extent in extents if isinstance(extent, int)]
    total = sum(known) if len(known) == len(extents) else None
    return replace(x[0], shape=(*shapes[0][:axis], total, *shapes[0][axis + 1 :]))


def transpose(x: Meta, axis: Sequence[int]) -> Meta:
    """Infer as `TransposeInferMeta`: extents are permuted.

    Raises:
        ValueError: `axis` is not a permutation.
    """
    if x.shape is None:
        return x
    if sorted(axis) != list(range(len(x.shape))):
        raise ValueError(f"{list(axis)} is no order of {len(x.shape)} axes")
    return replace(x, shape=tuple(x.shape[index] for index in axis))


def reduce(x: Meta, axis: Sequence[int] = (), keep_dim: bool = False) -> Meta:
    """Infer as `ReduceInferMeta`: axes are reduced; all of them if none is named.

    Raises:
        ValueError: There is no such axis.
    """
    if x.shape is None:
        return x
    gone = {_axis(one, len(x.shape)) for one in axis} or set(range(len(x.shape)))
    kept = (1 if index in gone else extent for index, extent in enumerate(x.shape) if keep_dim or index not in gone)
    return replace(x, shape=tuple(kept))


def cast(x: Meta, dtype: str) -> Meta:
    """Infer as `CastInferMeta`: the element type changes."""
    return replace(x, dtype=dtype.lower())


STANDARD: Mapping[str, Callable[..., Meta]] = {
    "CastInferMeta": cast,
    "ConcatInferMeta": concat,
    "ElementwiseInferMeta": elementwise,
    "MatmulInferMeta": matmul,
    "ReduceInferMeta": reduce,
    "TransposeInferMeta": transpose,
    "UnchangedInferMeta": unchanged,
}
"""The standard functions by their names in operator files."""


def _broadcast(one: Extent, other: Extent, x: Meta, y: Meta) -> Extent:
    if one == other or other == 1:
        return one
    if one == 1:
        return other
    if isinstance(one, int) and isinstance(other, int):
        raise ValueError(f"{_text(x.shape)} and {_text(y.shape)} cannot be broadcast")
    # An open extent paired with a number other than 1 equals that number, or the node fails.
    return next((extent for extent in (one, other) if isinstance(extent, int)), None)


def _matrix(shape: tuple[Extent, ...], transposed: bool) -> tuple[Extent, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"there is no axis {axis} of {rank}")
    return axis % rank


def _text(shape: Sequence[Extent] | None) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape or ()) + "]"


Infer = Callable[..., "Meta | Sequence[Meta]"]


def function_named(name: str, file: OperatorFile) -> Infer:
    """Return the standard function of this name, or that of the file's own module.

    Raises:
        ValueError: There is no such function, or the module cannot be imported.
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


def inference_of(entry: OperatorEntry, file: OperatorFile) -> Callable[[Any], None] | None:
    """Return the callback for onnx's shape inference on an operator; None if its file does not describe its outputs.

    Raises:
        ValueError: The function does not exist.
    """
    if entry.infer_meta is None:
        return None
    call = entry.infer_meta.call
    function = function_named(call.function, file)
    names = call.arguments or (entry.kernel.parameters if entry.kernel else ()) or [arg.name for arg in entry.args]
    args = {arg.name: arg for arg in entry.args}
    wanted = [args[name] for name in names]
    title = f"{file.domain}::{entry.name} ({entry.where}): infer_meta {call.function}"

    def infer(context: Any) -> None:
        given = [_argument(arg, entry, context) for arg in wanted]
        if any(meta is None or isinstance(meta, Meta) and not meta.dtype for meta in given[:1]):
            return  # nothing is known of the first input, so nothing can be inferred
        try:
            made = function(*given)
        except Exception as error:
            why = str(error) if isinstance(error, ValueError) else described(error)
            raise DovetailError(f"{_node(context)}: {title}: {why}") from error
        results = [made] if isinstance(made, Meta) else list(made)
        if len(results) < context.get_num_outputs() or not all(isinstance(one, Meta) for one in results):
            count = context.get_num_outputs()
            problem = f"{_node(context)}: {title} returns {made!r}, and the node has {count} outputs"
            raise DovetailError(problem, "return a Meta for each")
        for index in range(context.get_num_outputs()):
            if results[index].dtype:
                context.set_output_type(index, _type_of(results[index], title))

    return infer


def inference_of_body(entry: OperatorEntry, function: onnx.FunctionProto) -> Callable[[Any], None]:
    """Return the callback for onnx's shape inference on a composite, which infers through the decomposition."""

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
        except Exception:  # C++ exceptions of any kind: the outputs stay unknown
            return
        for index, type_ in enumerate(made[: context.get_num_outputs()]):
            if type_.WhichOneof("value"):
                context.set_output_type(index, type_)

    return infer


def _node(context: Any) -> str:
    """Return the node's name for messages; onnx prints it as `node Type[domain] (name)`."""
    shown = str(context.get_display_name())
    name = shown.rpartition(" (")[2].rstrip(")") if shown.endswith(")") else shown
    return f"node '{name}'"


def _argument(arg: OperatorArgument, entry: OperatorEntry, context: Any) -> object:
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


def _type_of(meta: Meta, title: str) -> onnx.TypeProto:
    import onnx

    try:
        dtype = from_name(meta.dtype)
    except KeyError:
        why = f"{title} gives the element type '{meta.dtype}', which there is not"
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
