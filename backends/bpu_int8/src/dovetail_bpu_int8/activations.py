"""Activations that exporters write as several operators, and that the BPU computes by one table.

Given:  %p = Add(%x, 3); %c = Clip(%p, 0, 6); %m = Mul(%x, %c); %y = Div(%m, 6)
Result: one lookup table from %x to %y; %p, %c and %m are never rounded to integers

Source: logs of the vendor's tools name one HzLut, HzSwish or HzLut2Layer for such a group.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail.ir import input_of
from dovetail.plugin import is_onnx

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


_CURVED = frozenset({"Clip", "Erf", "HardSigmoid", "Relu", "Sigmoid", "Softplus", "Tanh"})
_ELEMENTWISE = _CURVED | {"Add", "Div", "Mul", "Pow", "Sub"}
_MOST = 12  # nodes of one activation; the tanh form of GELU has eight


def in_activation(node: ir.Node) -> bool:
    """Check whether the result of a node is an intermediate value of an activation of several operators.

    Such an activation is the product of a value and a function of this value: SiLU, hard swish, GELU, Mish. A factor
    before or after the product belongs to it.
    """
    at: ir.Node | None = node
    for _ in range(_MOST):
        if at is None or at.op_type not in _ELEMENTWISE:
            return False
        group = _activation(at)
        if group is not None:
            return node is not at and node in group or node is at and _scaled(at)
        at = only_reader(at)
    return False


def in_swish(node: ir.Node) -> bool:
    """Check whether a Sigmoid is part of `x * sigmoid(x)`: its only reader is a Mul that also reads its input."""
    reader = only_reader(node)
    return reader is not None and reader.op_type == "Mul" and node.inputs[0] in reader.inputs


def in_gelu(node: ir.Node) -> bool:
    """Check whether an Erf is part of `x * (1 + erf(x / sqrt(2))) / 2`, halved before or after the product."""
    add = only_reader(node)
    if add is None or add.op_type != "Add" or not any(number(value) == 1 for value in add.inputs):
        return False
    product = only_reader(add)
    scaled = input_of(node, 0).producer()
    if product is None or product.op_type != "Mul" or scaled is None or scaled.op_type not in ("Div", "Mul"):
        return False
    root = number(scaled.inputs[1])
    return root is not None and math.isclose(root if scaled.op_type == "Div" else 1 / root, math.sqrt(2), rel_tol=1e-3)


def divides_by_number(node: ir.Node) -> bool:
    """Check whether a Div divides by a nonzero constant scalar."""
    return node.op_type == "Div" and bool(number(node.inputs[1]))


def only_reader(node: ir.Node) -> ir.Node | None:
    """Return the only reader of a node's first result; None if there are several, or if the model returns it."""
    value = node.outputs[0]
    uses = value.uses()
    return next(iter(uses))[0] if len(uses) == 1 and not value.is_graph_output() else None


def number(value: ir.Value | None) -> float | None:
    """Return the number in a single-element constant; None for any other value."""
    if value is None or value.const_value is None or math.prod(value.const_value.shape.numpy()) != 1:
        return None
    return float(value.const_value.numpy().reshape(()))


def _activation(product: ir.Node) -> set[ir.Node] | None:
    """Return the nodes of the activation that a Mul completes, this one included; None if it completes none."""
    if product.op_type != "Mul" or not is_onnx(product):
        return None
    found = (_between(value, product) for value in _gated(product))
    return next((nodes for nodes in found if nodes is not None), None)


def _gated(product: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a product may gate: its operands, and what is scaled by a number to give one of them."""
    operands = [value for value in product.inputs if value is not None]
    yield from operands
    for value in operands:
        scaling = value.producer()
        if scaling is not None and scaling.op_type in ("Div", "Mul"):
            yield from (other for other in scaling.inputs if other is not None and number(other) is None)


def _between(value: ir.Value, product: ir.Node) -> set[ir.Node] | None:
    """Return the nodes that compute a product of elementwise functions of `value` alone; None if it reads more."""
    nodes = {product}
    waiting = [product]
    reads_value = False
    while waiting:
        for read in waiting.pop().inputs:
            if read is value:
                reads_value = True
            elif read is not None and number(read) is None:
                producer = read.producer()
                known = producer is not None and producer.op_type in _ELEMENTWISE
                if producer is None or not known or only_reader(producer) is None or len(nodes) == _MOST:
                    return None
                if producer not in nodes:
                    nodes.add(producer)
                    waiting.append(producer)
    return nodes if reads_value and any(node.op_type in _CURVED for node in nodes) else None


def _scaled(product: ir.Node) -> bool:
    """Check whether the only reader of a product multiplies or divides it by a number."""
    reader = only_reader(product)
    if reader is None or reader.op_type not in ("Div", "Mul"):
        return False
    return reader.op_type == "Mul" and any(map(number, reader.inputs)) or divides_by_number(reader)
