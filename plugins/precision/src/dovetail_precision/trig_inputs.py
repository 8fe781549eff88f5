"""Find the computation of angles from positions, as in rotary embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import onnx_ir as ir


def find_trig_inputs(
    nodes: Sequence[ir.Node], is_constant: Callable[[ir.Value], bool], is_trig: Callable[[ir.Node], bool]
) -> set[int]:
    """Return the `id` of every node that computes an angle from integer positions, and of the sines that read them.

    The absolute error of an angle is the error of its sine. With the 11 significant bits of float16 an angle of 1000
    is off by up to 0.25, and odd integers above 2048 do not exist. Nodes are recognised by data flow: all float inputs
    derive from integers and constants, and all readers are such nodes, or sines and cosines.

    Args:
        nodes: All nodes in topological order.
        is_constant: Whether a value is a weight.
        is_trig: Whether a node takes an angle (`angles:` of the policies file).
    """
    trig_nodes = {id(node) for node in nodes if is_trig(node)}
    if not trig_nodes:
        return set()
    from_positions: set[int] = set()
    for node in nodes:
        floats = [
            value
            for value in node.inputs
            if value is not None and float_name(value) is not None and not is_constant(value)
        ]
        if _starts(node) or floats and all(id(value.producer()) in from_positions for value in floats):
            from_positions.add(id(node))
    found: set[int] = set()
    for node in reversed(nodes):
        if id(node) in from_positions and (id(node) in trig_nodes or _leads_to(node, found)):
            found.add(id(node))
    return found


def _starts(node: ir.Node) -> bool:
    """Whether `node` converts integers to floats."""
    return node.op_type in ("Cast", "CastLike") and float_name(node.inputs[0]) is None


def _leads_to(node: ir.Node, found: set[int]) -> bool:
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    given = any(value.is_graph_output() for value in node.outputs)
    return bool(readers) and not given and all(id(reader) in found for reader in readers)
