"""Profitability of parts of regions: the saving of an engine against the cost of its border and its launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dovetail.ir import is_onnx

from dovetail_placement.edge_kinds import operator_facts
from dovetail_placement.engine_regions.graph_problem import size_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Reads


Users: TypeAlias = "Mapping[ir.Value, Sequence[ir.Node]]"
"""The users of each value of a node, directly or in their bodies."""


def users_of(reads: Reads) -> Users:
    """Invert the values that every node uses into the users of all values."""
    found: dict[ir.Value, list[ir.Node]] = {}
    for node, values in reads.items():
        for value in values:
            if value.producer() is not None:
                found.setdefault(value, []).append(node)
    return found


@dataclass(frozen=True)
class RegionPart:
    """A connected set of nodes of one region, in graph order.

    Attributes:
        nodes: The nodes.
        gain: The bytes that they read and write, which an engine saves by fusing them.
        border: The bytes that cross between them and nodes outside of the region. Inputs and outputs of the model do
            not count, because they are moved in any case.
        product: Whether a node, or a node in its bodies, is a product.
        open_extents: Whether an extent is unknown, and counts as 1.
    """

    nodes: tuple[ir.Node, ...]
    gain: int
    border: int
    product: bool
    open_extents: bool


class Profitability:
    """Evaluates the parts of regions.

    Args:
        reads: The values that each node of the graph uses.
        users: The nodes that use each value.
        whole: Returns a node with all nodes of its bodies.
        launch: Cost of an engine launch, in bytes.
        border: Weight of a byte that crosses a border.
    """

    def __init__(
        self, reads: Reads, users: Users, whole: Callable[[ir.Node], Sequence[ir.Node]], launch: int, border: int
    ):
        self._reads, self._whole, self._launch, self._border = reads, whole, launch, border
        self._users = users

    def worthless(self, region: Sequence[ir.Node]) -> list[RegionPart]:
        """Return the unprofitable parts of a region, which are better left to other backends.

        A part with a product is always profitable: it saves more arithmetic than any usual border costs. Any other part
        must save more than the bytes that cross its border, and all parts of a region without a product together must
        save more than that and the engine launch. Parts not connected to other nodes have no border, and stay.
        """
        members = set(region)
        parts = [self._part(nodes, members) for nodes in self._connected(region, members)]
        dropped: list[RegionPart] = []
        left: list[RegionPart] = []
        for part in parts:
            worthless = not part.product and part.border and self._saved(part) <= 0
            (dropped if worthless else left).append(part)
        needed = any(part.product or not part.border for part in left)
        if left and not needed and sum(map(self._saved, left)) <= self._launch:
            return parts
        return dropped

    def _saved(self, part: RegionPart) -> int:
        return part.gain - self._border * part.border

    def _connected(self, region: Sequence[ir.Node], members: Collection[ir.Node]) -> Iterator[list[ir.Node]]:
        """Yield sets of connected nodes of the region, which share values computed in it or by an outside node."""
        seen: set[ir.Node] = set()
        home: dict[ir.Node, int] = {}
        count = 0
        for start in region:
            if start in seen:
                continue
            seen.add(start)
            part, values = [start], set()
            for node in part:
                home[node] = count
                for value in (*node.outputs, *self._reads[node]):
                    if value in values or (producer := value.producer()) is None:
                        continue
                    values.add(value)
                    for other in (producer, *self._users.get(value, ())):
                        if other in members and other not in seen:
                            seen.add(other)
                            part.append(other)
            count += 1
        parts: list[list[ir.Node]] = [[] for _ in range(count)]
        for node in region:
            parts[home[node]].append(node)
        yield from parts

    def _part(self, nodes: Sequence[ir.Node], members: Collection[ir.Node]) -> RegionPart:
        products = operator_facts().groups["products"]
        gain, product, unknown = 0, False, False
        crossing: dict[ir.Value, None] = {}
        for node in nodes:
            for inner in self._whole(node):
                product = product or inner.op_type in products and is_onnx(inner)
                moved = [value for value in (*inner.inputs, *inner.outputs) if value is not None and value.name]
                gain += sum(map(size_of, moved))
                unknown = unknown or not all(value.shape is not None and value.shape.is_static() for value in moved)
            for value in self._reads[node]:
                if value.producer() is not None and value.producer() not in members:
                    crossing[value] = None
            for value in node.outputs:
                if any(reader not in members for reader in self._users.get(value, ())):
                    crossing[value] = None
        return RegionPart(tuple(nodes), gain, sum(map(size_of, crossing)), product, unknown)
