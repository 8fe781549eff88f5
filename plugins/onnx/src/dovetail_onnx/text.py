"""Checks before onnx's text parser, and completion of its result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

from dovetail_onnx.wire import SPARSE_BYTES

if TYPE_CHECKING:
    import onnx


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


def fill_declared(model: onnx.ModelProto, name: str) -> None:
    """Fill tensors declared without data with zeros: initializers of static shape, and tensors in attributes.

    Raises:
        DovetailError: The zeros would need too much memory.
    """
    filling = _Filling(name)
    filling.graph(model.graph, set())
    for function in model.functions:
        filling.nodes(function.node, {*function.input})


class _Filling:
    """Fills the tensors of one model and counts their bytes."""

    def __init__(self, name: str):
        self._name = name
        self._size = 0

    def graph(self, graph: onnx.GraphProto, outside: set[str]) -> None:
        """Fill declared but undefined values of `graph`; names in `outside` are defined in outer scopes."""
        defined = outside | {output for node in graph.node for output in node.output}
        defined.update(value.name for value in (*graph.input, *graph.initializer))
        filled = set()
        for value in graph.value_info:
            kind = value.type.tensor_type
            known = all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in kind.shape.dim)
            if value.name in defined or not known or not kind.elem_type:
                continue
            filled.add(value.name)
            tensor = graph.initializer.add(name=value.name, data_type=kind.elem_type)
            tensor.dims.extend(dim.dim_value for dim in kind.shape.dim)
            self._fill(tensor, f"initializer '{value.name}'")
        kept = [value for value in graph.value_info if value.name not in filled]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for tensor in graph.initializer:
            if _is_empty(tensor):
                self._fill(tensor, f"initializer '{tensor.name}'")
        self.nodes(graph.node, defined | filled)

    def nodes(self, nodes: Iterable[onnx.NodeProto], defined: set[str]) -> None:
        """Fill the tensors in the attributes of `nodes`, and in their bodies."""
        for node in nodes:
            for attribute in node.attribute:
                tensors = [attribute.t] if attribute.HasField("t") else list(attribute.tensors)
                for tensor in tensors:
                    if _is_empty(tensor):
                        self._fill(tensor, f"attribute '{attribute.name}' of node '{node.name}'")
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    self.graph(body, defined)

    def _fill(self, tensor: onnx.TensorProto, what: str) -> None:
        import onnx
        import onnx_ir as ir

        elements, text = math.prod(tensor.dims), tensor.data_type == onnx.TensorProto.STRING
        bits = 8 if text else ir.DataType(tensor.data_type).bitwidth
        needed = (elements * bits + 7) // 8
        self._size += needed
        if self._size > 4 * SPARSE_BYTES:
            extents = list(tensor.dims)
            raise DovetailError(f"{self._name}: {what} is declared as {extents}, which is too large for text")
        if text:
            tensor.string_data.extend([b""] * elements)
        else:
            tensor.raw_data = bytes(needed)


def _is_empty(tensor: onnx.TensorProto) -> bool:
    """Check whether a tensor has elements according to its extents, but no data."""
    held = {field.name for field, _ in tensor.ListFields()} - {"dims", "data_type", "name"}
    return not held and bool(tensor.dims) and math.prod(tensor.dims) > 0
