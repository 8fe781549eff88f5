"""The ends of regions that are no products: tables, and movement of what tables and arithmetic give.

Source: logs of the vendor's tool for X5 and Ultra, where a table ends a region on the BPU, and an output of the model
that is not the sum of a product is held in 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail_bpu_int8.composites import in_swish

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context


class TailOperators(NamedTuple):
    """The operators that ends of regions may be made of.

    Attributes:
        tables: Those that are computed by a table.
        arithmetic: Those whose results may be moved to the end, too.
        trailing: Those that move them.
    """

    tables: tuple[str, ...]
    arithmetic: tuple[str, ...]
    trailing: tuple[str, ...]


class Tails:
    """What nodes at the ends of regions move; an analysis, so that every node is looked at once."""

    def __init__(self) -> None:
        self._known: dict[ir.Node, bool] = {}

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Tails:
        """Start with nothing known."""
        return cls()

    def trails(self, node: ir.Node, operators: TailOperators) -> bool:
        """Whether a node moves what tables and arithmetic give, and nothing else."""
        waiting = [node]
        while waiting:
            at = waiting[-1]
            moved = [] if at in self._known or at.op_type not in operators.trailing else _moved(at)
            unknown = [one for one in moved if one is not None and one not in self._known]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            if at not in self._known:
                self._known[at] = (
                    bool(moved) and all(one is not None and self._known[one] for one in moved)
                    if at.op_type in operators.trailing
                    else at.op_type in operators.arithmetic or is_table(at, operators.tables)
                )
        return node.op_type in operators.trailing and self._known[node]

    def obstacle(self, node: ir.Node, operators: TailOperators) -> ir.Node | None:
        """The node in front of a trailing one because of which it may not end a region; None for an input."""
        at: ir.Node | None = node
        while at is not None and at.op_type in operators.trailing:
            at = next((one for one in _moved(at) if one is None or not self._ends(one, operators)), None)
        return at

    def _ends(self, node: ir.Node, operators: TailOperators) -> bool:
        if node.op_type in operators.trailing:
            return self.trails(node, operators)
        return node.op_type in operators.arithmetic or is_table(node, operators.tables)

    def gives_output(self, node: ir.Node, operators: TailOperators) -> bool:
        """Whether a node gives an output of the model at the end of a region."""
        if not any(value.is_graph_output() for value in node.outputs):
            return False
        return is_table(node, operators.tables) or self.trails(node, operators)


def is_table(node: ir.Node, tables: tuple[str, ...]) -> bool:
    """Whether a node is computed by a table, or is the product of a SiLU, which is one table with its Sigmoid."""
    if node.op_type in tables:
        return True
    if not tables or node.op_type != "Mul":
        return False
    sources = (value.producer() for value in node.inputs if value is not None)
    return any(one is not None and one.op_type == "Sigmoid" and in_swish(one) for one in sources)


def _moved(node: ir.Node) -> list[ir.Node | None]:
    """The nodes that compute what a node moves; None for inputs of the model. Indices and shapes are constants."""
    values = [value for value in node.inputs if value is not None and value.const_value is None]
    return [value.producer() for value in values]
