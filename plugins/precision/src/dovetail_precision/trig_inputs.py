"""Angles: what is computed from positions for sines and cosines alone, as in rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["find_trig_inputs"]


def find_trig_inputs(
    nodes: Sequence[ir.Node], is_constant: Callable[[ir.Value], bool], is_trig: Callable[[ir.Node], bool]
) -> set[int]:
    """The nodes, by `id`, that turn whole numbers into found, and the trig_nodes, as sines and cosines, of these.

    The error of a sine is the absolute error of its angle: 11 bits of an angle of 1000 leave no digit of its sine, and
    float16 has no odd number above 2048. What regions of PyTorch models exclude from autocast by hand is found by its
    form: all float inputs come from whole numbers and constants, and all readers of the result are such, or trig_nodes.

    Args:
        nodes: All nodes; a node comes after those whose results it reads.
        is_constant: Whether a value is a weight.
        is_trig: Whether a node takes an angle.
    """
    trig_nodes = {id(node) for node in nodes if is_trig(node)}
    if not trig_nodes:
        return set()
    from_positions: set[int] = set()
    for node in nodes:
        floats = [value for value in node.inputs if float_name(value) is not None and not is_constant(value)]
        if _starts(node) or floats and all(id(value.producer()) in from_positions for value in floats):
            from_positions.add(id(node))
    found: set[int] = set()
    for node in reversed(nodes):
        if id(node) in from_positions and (id(node) in trig_nodes or _leads_to(node, found)):
            found.add(id(node))
    return found


def _starts(node: ir.Node) -> bool:
    """Whether `node` makes floats of whole numbers."""
    return node.op_type in ("Cast", "CastLike") and float_name(node.inputs[0]) is None


def _leads_to(node: ir.Node, found: set[int]) -> bool:
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    given = any(value.is_graph_output() for value in node.outputs)
    return bool(readers) and not given and all(id(reader) in found for reader in readers)
