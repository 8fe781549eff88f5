"""The ends of regions that are no products, and activations of several operators that one table computes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import input_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


def in_swish(node: ir.Node) -> bool:
    """Whether a Sigmoid is a part of `x * sigmoid(x)`: one Mul reads it, and what it reads."""
    reader = _only_reader(node)
    return reader is not None and reader.op_type == "Mul" and node.inputs[0] in reader.inputs


def in_gelu(node: ir.Node) -> bool:
    """Whether an Erf is a part of `x * (1 + erf(x / sqrt(2))) / 2`, with the half before or behind the product."""
    add = _only_reader(node)
    if add is None or add.op_type != "Add" or not any(_number(value) == 1 for value in add.inputs):
        return False
    product = _only_reader(add)
    scaled = input_of(node, 0).producer()
    if product is None or product.op_type != "Mul" or scaled is None or scaled.op_type not in ("Div", "Mul"):
        return False
    root = _number(scaled.inputs[1])
    return root is not None and math.isclose(root if scaled.op_type == "Div" else 1 / root, math.sqrt(2), rel_tol=1e-3)


def scales_by_number(node: ir.Node) -> bool:
    """Whether a Mul multiplies one image, four axes of batch 1, by one constant number that is not zero."""
    if node.op_type != "Mul" or not any(map(_number, node.inputs)):
        return False
    shape = node.outputs[0].shape
    return shape is not None and len(shape) == 4 and shape[0] == 1


def divides_by_number(node: ir.Node) -> bool:
    """Whether a Div divides by one constant number, which is not zero."""
    return node.op_type == "Div" and bool(_number(node.inputs[1]))


def _only_reader(node: ir.Node) -> ir.Node | None:
    value = node.outputs[0]
    uses = value.uses()
    return next(iter(uses))[0] if len(uses) == 1 and not value.is_graph_output() else None


def _number(value: ir.Value | None) -> float | None:
    """The number that a constant of one element holds; None for everything else."""
    if value is None or value.const_value is None or math.prod(value.const_value.shape.numpy()) != 1:
        return None
    return float(value.const_value.numpy().reshape(()))


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
