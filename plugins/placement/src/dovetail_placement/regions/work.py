"""The work of regions, estimated from the graph, which decides which regions a backend gives up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FlatGraph
from dovetail_transforms.lowering.node_facts import attribute

from dovetail_placement.edge_kinds import operator_facts

if TYPE_CHECKING:
    import onnx_ir as ir


_KERNELS_BY_CHANNEL = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")


class Work(NamedTuple):
    """The work of some nodes; comparable.

    Attributes:
        products: Multiplications and additions of products.
        elements: Elements that all nodes compute.
    """

    products: int
    elements: int

    def __str__(self) -> str:
        if self.products:
            return f"{_short(self.products)} multiplications and additions"
        return f"{_short(self.elements)} computed elements, and no product"


def work_of(nodes: Iterable[ir.Node], flat: FlatGraph) -> Work:
    """Return the work of nodes with their bodies, each run once; unknown extents count as 1."""
    products = elements = 0
    facts = operator_facts()
    for node in (part for outer in nodes for part in (outer, *flat.body_nodes(outer))):
        computed = sum(_elements(value) for value in node.outputs)
        elements += computed
        if facts.is_in("products", node.domain, node.op_type):
            products += 2 * computed * _summed(node)
    return Work(products, elements)


def _summed(node: ir.Node) -> int:
    """Return how many products are added up per element of the result."""
    first, second = (_extents(value) for value in (*node.inputs, None, None)[:2])
    if node.op_type in _KERNELS_BY_CHANNEL:
        return math.prod(second[1:])
    turned = node.op_type == "Gemm" and attribute(node, "transA", 0)
    return first[0 if turned else -1] if first else 1


def _elements(value: ir.Value) -> int:
    return math.prod(_extents(value))


def _extents(value: ir.Value | None) -> list[int]:
    shape = value.shape if value is not None else None
    return [extent if isinstance(extent, int) else 1 for extent in shape or ()]


def _short(number: int) -> str:
    units = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
    return next((f"{number / size:.3g} {unit}" for size, unit in units if number >= size), str(number))
