"""Type equalities of control flow: ports of the node and of its bodies that must have one type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.bodies import bodies
from dovetail.ir.types import float_name

if TYPE_CHECKING:
    import onnx_ir as ir


_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass(frozen=True, slots=True)
class TypeEquality:
    """Ports of a control-flow node and of its bodies that pass one value unchanged.

    Attributes:
        inputs, outputs: Indices of the node's ports.
        body_inputs: The matching inputs of bodies.
        body_outputs: The matching outputs of bodies, as (body, index).
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    body_inputs: tuple[ir.Value, ...] = ()
    body_outputs: tuple[tuple[ir.Graph, int], ...] = ()

    def values(self, node: ir.Node) -> list[ir.Value | None]:
        """Return all values at `node` and in its bodies that share the type."""
        return [
            *(node.inputs[index] for index in self.inputs),
            *(node.outputs[index] for index in self.outputs),
            *self.body_inputs,
            *(graph.outputs[index] for graph, index in self.body_outputs),
        ]


def holds_bodies(node: ir.Node) -> bool:
    """Whether `node` is control flow, which has no type parameters of its own."""
    return node.op_type in _CONTROL and node.domain in ("", "ai.onnx")


def type_equalities(node: ir.Node) -> list[TypeEquality]:
    """Return the equalities of a control-flow node between tensors of one float type.

    A loop-carried value equals its initial value and the matching outputs of body and loop; the results of both
    branches of an If are equal; slices of a Scan equal the scanned tensor. SequenceMap has none: sequences keep their
    type.
    """
    maker = {"If": _of_if, "Loop": _of_loop, "Scan": _of_scan}.get(node.op_type)
    return [equality for equality in maker(node) if _is_one_float_type(equality, node)] if maker else []


def _is_one_float_type(equality: TypeEquality, node: ir.Node) -> bool:
    kinds = {float_name(value) for value in equality.values(node)}
    return len(kinds) == 1 and None not in kinds


def _of_if(node: ir.Node) -> list[TypeEquality]:
    held = bodies(node)
    return [
        TypeEquality(outputs=(index,), body_outputs=tuple((body, index) for body in held))
        for index in range(len(node.outputs))
    ]


def _of_loop(node: ir.Node) -> list[TypeEquality]:
    (body,) = bodies(node)
    carried = len(node.inputs) - 2
    made = [
        TypeEquality((index + 2,), (index,), (body.inputs[index + 2],), ((body, index + 1),))
        for index in range(max(carried, 0))
    ]
    return made + [
        TypeEquality(outputs=(index,), body_outputs=((body, index + 1),)) for index in range(carried, len(node.outputs))
    ]


def _of_scan(node: ir.Node) -> list[TypeEquality]:
    (body,) = bodies(node)
    if len(node.inputs) != len(body.inputs):
        return []  # before opset 9 the first input holds sequence lengths
    states = len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)
    made = [TypeEquality((index,), (index,), (body.inputs[index],), ((body, index),)) for index in range(states)]
    made += [
        TypeEquality(inputs=(index,), body_inputs=(body.inputs[index],)) for index in range(states, len(node.inputs))
    ]
    return made + [
        TypeEquality(outputs=(index,), body_outputs=((body, index),)) for index in range(states, len(node.outputs))
    ]
