"""Which parts of regions are worth an engine: what they save, against their border and the start of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dovetail_placement.edge_kinds import operator_facts
from dovetail_placement.engine_regions.graph_problem import size_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail_transforms.regions.regions import Reads


Users: TypeAlias = "Mapping[ir.Value, Sequence[ir.Node]]"
"""The nodes of a graph that use each value of a node, themselves or in their bodies."""


def users_of(reads: Reads) -> Users:
    """The users of all values, from what every node uses."""
    found: dict[ir.Value, list[ir.Node]] = {}
    for node, values in reads.items():
        for value in values:
            if value.producer() is not None:
                found.setdefault(value, []).append(node)
    return found


@dataclass(frozen=True)
class Part:
    """Nodes of one region that are connected with each other, in graph order.

    Attributes:
        nodes: The nodes.
        gain: The bytes that they read and write, which an engine that fuses them need not move.
        border: The bytes that cross between them and nodes outside of the region; values that the model takes or gives
            do not count, because they have to be moved in any case.
        product: One of them is a product, or has one in its bodies.
        open_extents: An extent is unknown, and counts as 1.
    """

    nodes: tuple[ir.Node, ...]
    gain: int
    border: int
    product: bool
    open_extents: bool


class Profitability:
    """Judges the parts of regions.

    Args:
        reads: The values that each node of the graph uses.
        users: The nodes that use each value.
        whole: A node with those of its bodies.
        launch: What starting an engine costs, in bytes.
        border: How often a byte that crosses a border counts.
    """

    def __init__(
        self, reads: Reads, users: Users, whole: Callable[[ir.Node], Sequence[ir.Node]], launch: int, border: int
    ):
        self._reads, self._whole, self._launch, self._border = reads, whole, launch, border
        self._users = users

    def worthless(self, region: Sequence[ir.Node]) -> list[Part]:
        """The parts of a region that are better left to others.

        A part with a product is always worth it: what it saves in arithmetic exceeds the price of any usual border.
        Another one has to save more than what crosses its border, and all parts of a region without a product together
        more than that and the start of an engine. Parts from and to which no other node leads have no border, and stay.
        """
        members = set(region)
        parts = [self._part(nodes, members) for nodes in self._connected(region, members)]
        dropped: list[Part] = []
        left: list[Part] = []
        for part in parts:
            worthless = not part.product and part.border and self._saved(part) <= 0
            (dropped if worthless else left).append(part)
        needed = any(part.product or not part.border for part in left)
        if left and not needed and sum(map(self._saved, left)) <= self._launch:
            return parts
        return dropped

    def _saved(self, part: Part) -> int:
        return part.gain - self._border * part.border

    def _connected(self, region: Sequence[ir.Node], members: Collection[ir.Node]) -> Iterator[list[ir.Node]]:
        """The nodes of a region in sets that share values: computed in it, or read from a node outside."""
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

    def _part(self, nodes: Sequence[ir.Node], members: Collection[ir.Node]) -> Part:
        products = operator_facts().groups["products"]
        gain, product, unknown = 0, False, False
        crossing: dict[ir.Value, None] = {}
        for node in nodes:
            for inner in self._whole(node):
                product = product or inner.op_type in products and inner.domain in ("", "ai.onnx")
                moved = [value for value in (*inner.inputs, *inner.outputs) if value is not None and value.name]
                gain += sum(map(size_of, moved))
                unknown = unknown or not all(value.shape is not None and value.shape.is_static() for value in moved)
            for value in self._reads[node]:
                if value.producer() is not None and value.producer() not in members:
                    crossing[value] = None
            for value in node.outputs:
                if any(reader not in members for reader in self._users.get(value, ())):
                    crossing[value] = None
        return Part(tuple(nodes), gain, sum(map(size_of, crossing)), product, unknown)
