"""Checks before, and completion after, onnx's parser of ONNX text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.limits import SPARSE_BYTES

if TYPE_CHECKING:
    import onnx

__all__ = ["deepest_bracket", "fill_declared"]


def deepest_bracket(text: str) -> int:
    """Return the nesting depth of brackets in `text`, outside of quoted strings and comments.

    The parser recurses without a limit: enough open brackets crash the process.
    """
    depth = deepest = 0
    quoted = comment = escaped = False
    for character in text:
        if comment:
            comment = character != "\n"
        elif quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character == "#":
            comment = True
        elif character in "([{<":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}>":
            depth -= 1
    return deepest


def fill_declared(graph: onnx.GraphProto, name: str) -> None:
    """Add initializers of zeros for declared values of static shape that are not defined.

    Raises:
        DovetailError: The zeros would need too much memory.
    """
    import onnx
    import onnx_ir as ir

    defined = {output for node in graph.node for output in node.output}
    defined.update(value.name for value in (*graph.input, *graph.initializer))
    size, filled = 0, set()
    for value in graph.value_info:
        kind = value.type.tensor_type
        extents = [dim.dim_value for dim in kind.shape.dim]
        known = all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in kind.shape.dim)
        if value.name in defined or not known or kind.elem_type in (0, onnx.TensorProto.STRING):
            continue
        filled.add(value.name)
        bits = ir.DataType(kind.elem_type).bitwidth
        needed = (math.prod(extents) * bits + 7) // 8
        size += needed
        if size > 4 * SPARSE_BYTES:
            raise DovetailError(
                f"{name}: initializer '{value.name}' is declared as {extents}, which is too large for text"
            )
        tensor = graph.initializer.add(name=value.name, data_type=kind.elem_type, dims=extents)
        tensor.raw_data = bytes(needed)
    kept = [value for value in graph.value_info if value.name not in filled]
    del graph.value_info[:]
    graph.value_info.extend(kept)
