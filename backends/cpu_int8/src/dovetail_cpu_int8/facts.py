"""Facts about nodes for the limits of `cpu-int8`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.plugin import is_onnx

if TYPE_CHECKING:
    import onnx_ir as ir


_MOVES = frozenset({"Cast", "Concat", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
_ROTARY = "RotaryEmbedding"
_NORMALIZATION = 12  # nodes
_MOST_READERS = 64
"""Readers visited per node, which keeps the cost of the fact linear in the model's size."""


def dequantizes(node: ir.Node) -> bool:
    """Check whether a node reads what the source model has in integers, with a scale of its own.

    Another scale would round such numbers once more: a weight with a scale per channel would get one for all of them.
    Engines read the source's conversions as they are.
    """
    producers = (value.producer() for value in node.inputs if value is not None)
    return any(one is not None and one.op_type == "DequantizeLinear" and is_onnx(one) for one in producers)


def turns_values(node: ir.Node) -> bool:
    """Check whether the rows of a table multiply computed values, as the cosines and sines of positions do.

    Their rounding errors would reach every query and key, and such tables are small compared to the weights. The rows
    of a table of tokens are added, normalized (also by a product with the reciprocal of their own magnitude), or
    multiplied by a constant.
    """
    waiting, visited = list(node.outputs), 0
    while waiting and visited < _MOST_READERS:
        value = waiting.pop()
        for reader, index in value.uses():
            visited += 1
            if reader.op_type == _ROTARY and index > 0:
                return True
            if reader.op_type == "Mul" and is_onnx(reader):
                other = reader.inputs[1 - index]
                if other is not None and not other.is_initializer() and not _follows(other, value):
                    return True
            elif reader.op_type in _MOVES and is_onnx(reader):
                waiting.extend(reader.outputs)
    return False


def _follows(value: ir.Value, source: ir.Value) -> bool:
    """Check whether a value is another one, or is computed of it by the few nodes of a written-out normalization."""
    waiting, visited = [value], 0
    while waiting and visited < _NORMALIZATION:
        found = waiting.pop()
        if found is source:
            return True
        visited, producer = visited + 1, found.producer()
        if producer is not None:
            waiting += [given for given in producer.inputs if given is not None]
    return False
