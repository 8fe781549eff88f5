"""Extents of inputs that a model leaves open become numbers, where a request fixes them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.suggestions import did_you_mean

from dovetail_transforms.canonicalize.shape_option import OPTION, shapes_by_name

if TYPE_CHECKING:
    import onnx
    from dovetail.passes import Context


Extents = list[int | str]
"""Extents of a value: a number, a name, or an empty text where nothing is said."""


def fix_shapes(graph: onnx.GraphProto, ctx: Context, texts: Sequence[str] = ()) -> None:
    """Give inputs the shapes that the request fixes; an extent with a name is the same number everywhere.

    Accelerators whose tools compile for one shape need this; where open extents cost something, placement notes how.

    Args:
        graph: The main graph.
        ctx: Its request has the shapes by name.
        texts: Shapes besides those, `NAME:1x3x224x224`.

    Raises:
        DovetailError: There is no such input, or its shape does not fit what the model says.
    """
    wanted = {**ctx.request.options.get(OPTION, {}), **shapes_by_name(texts)}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    known: dict[str, int] = {}
    for name, shape in wanted.items():
        _check(name, shape, inputs, known)
    for name, shape in wanted.items():
        dims = inputs[name].type.tensor_type.shape.dim
        for _ in range(len(dims), len(shape)):
            dims.add()
        for dim, extent in zip(dims, shape, strict=True):
            dim.dim_value = extent
    for value in (*graph.input, *graph.output, *graph.value_info) if known else ():
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param in known:
                dim.dim_value = known[dim.dim_param]
    if wanted:
        said = ", ".join(f"'{name}' {'x'.join(map(str, shape))}" for name, shape in wanted.items())
        ctx.remark("passed", "", "fixed-shapes", f"inputs have the shapes that --fix-shape gives: {said}")


def _check(name: str, shape: Sequence[int], inputs: Mapping[str, onnx.ValueInfoProto], known: dict[str, int]) -> None:
    text = shlex.join(["--fix-shape", f"{name}:{'x'.join(map(str, shape))}"])
    if name not in inputs:
        listed = ", ".join(inputs) or "none"
        raise DovetailError(f"{text}: the model has no input '{name}'{did_you_mean(name, inputs)}", f"it has {listed}")
    declared = _extents(inputs[name])
    if declared is None:
        return
    if len(declared) != len(shape):
        raise DovetailError(f"{text}: '{name}' has {len(declared)} axes: {_text(declared)}", "give one number per axis")
    for extent, number in zip(declared, shape, strict=True):
        if isinstance(extent, int) and extent != number:
            raise DovetailError(f"{text}: '{name}' is {_text(declared)}", "only extents that are open can be fixed")
        if isinstance(extent, str) and extent and known.setdefault(extent, number) != number:
            other = f"'{extent}' is {known[extent]} elsewhere"
            raise DovetailError(f"{text}: {other}, and {number} here", "give an extent of one name the same number")


def _extents(value: onnx.ValueInfoProto) -> Extents | None:
    """The extents that a model declares; None where it declares no shape.

    Some exporters write -1 for an open extent, or `?` as its name.
    """
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return None
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param.replace("?", "") for dim in declared.shape.dim]


def _text(shape: Sequence[object]) -> str:
    return f"[{', '.join(str(extent) or '?' for extent in shape)}]"
