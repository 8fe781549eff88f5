"""Ends of regions other than products."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail_bpu_int8.activations import in_swish, number

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


def scales_by_number(node: ir.Node) -> bool:
    """Check whether a Mul multiplies one image (rank 4, batch 1) by a nonzero constant scalar."""
    if node.op_type != "Mul" or not any(map(number, node.inputs)):
        return False
    shape = node.outputs[0].shape
    return shape is not None and len(shape) == 4 and shape[0] == 1


class TailOperators(NamedTuple):
    """Operators that may form the end of a region.

    Attributes:
        tables: Operators implemented by lookup tables.
        arithmetic: Further operators whose results may be moved to the end.
        trailing: Operators that move these results.
    """

    tables: tuple[str, ...]
    arithmetic: tuple[str, ...]
    trailing: tuple[str, ...]


class Tails:
    """Analysis of the values that nodes at the ends of regions move; each node is visited once."""

    def __init__(self) -> None:
        self._known: dict[ir.Node, bool] = {}

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Tails:
        """Create an empty analysis."""
        return cls()

    def trails(self, node: ir.Node, operators: TailOperators) -> bool:
        """Check whether a node moves only results of tables and arithmetic."""
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
        """Return the producer that prevents a trailing node from ending a region; None for a model input."""
        at: ir.Node | None = node
        while at is not None and at.op_type in operators.trailing:
            at = next((one for one in _moved(at) if one is None or not self._ends(one, operators)), None)
        return at

    def _ends(self, node: ir.Node, operators: TailOperators) -> bool:
        if node.op_type in operators.trailing:
            return self.trails(node, operators)
        return node.op_type in operators.arithmetic or is_table(node, operators.tables)

    def gives_output(self, node: ir.Node, operators: TailOperators) -> bool:
        """Check whether a node at the end of a region yields a model output."""
        if not any(value.is_graph_output() for value in node.outputs):
            return False
        return is_table(node, operators.tables) or self.trails(node, operators)


def is_table(node: ir.Node, tables: tuple[str, ...]) -> bool:
    """Check whether a node is a lookup table, or the Mul of a SiLU, which forms one table with its Sigmoid."""
    if node.op_type in tables:
        return True
    if not tables or node.op_type != "Mul":
        return False
    sources = (value.producer() for value in node.inputs if value is not None)
    return any(one is not None and one.op_type == "Sigmoid" and in_swish(one) for one in sources)


def _moved(node: ir.Node) -> list[ir.Node | None]:
    """Return the producers of the values that a node moves; None for model inputs. Indices and shapes are constants."""
    values = [value for value in node.inputs if value is not None and value.const_value is None]
    return [value.producer() for value in values]
