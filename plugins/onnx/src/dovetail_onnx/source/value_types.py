"""Check declared types of graph inputs, outputs and intermediate values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_onnx.tensor_data import element_type

if TYPE_CHECKING:
    import onnx


_DEEPEST = 8  # sequences of optionals of maps ...; real models have two levels


def type_problem(kind: onnx.TypeProto, needed: bool = False) -> str:
    """Return what is wrong with a declared type; empty if nothing is.

    Negative extents, by which some exporters mean "unknown", are cleared.

    Args:
        kind: The type; empty if none is declared.
        needed: The type must be declared, as for inputs of the main graph.
    """
    which = kind.WhichOneof("value")
    for _ in range(_DEEPEST):
        if which is None:
            return "declares no type" if needed else ""
        inner = getattr(kind, which)
        if which in ("tensor_type", "sparse_tensor_type"):
            return _tensor_problem(inner, needed)
        if which == "map_type":
            if element_type(inner.key_type) is None:
                return f"declares a map with keys of an unknown type ({inner.key_type})"
            kind = inner.value_type
        elif which in ("sequence_type", "optional_type"):
            kind = inner.elem_type
        else:
            return f"declares a {which.removesuffix('_type')} type, which is not supported"
        which, needed = kind.WhichOneof("value"), True
    return f"declares a type nested deeper than {_DEEPEST} levels"


def _tensor_problem(kind: onnx.TypeProto.Tensor, needed: bool) -> str:
    number = kind.elem_type
    if element_type(number) is None:
        if number == 0:
            return "declares a tensor without an element type" if needed else ""
        return f"declares an element type that ONNX does not know ({number})"
    for dim in kind.shape.dim:
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
    return ""
