"""What may be raised: the nodes of the main graph that the request computes in a low precision."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.bodies import all_nodes, body_nodes
from dovetail.ir.required import name_of
from dovetail.planning.identity import operator_name
from dovetail.planning.placement import get_placement
from dovetail.planning.selectors import parse_pin, select

from dovetail_verify.accuracy.work import border_of, work_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiled import CompiledModel
    from dovetail.ir.model import Model
    from dovetail.passes.request import Request

    from dovetail_verify.accuracy.streamed import Streamed


@dataclass(frozen=True, slots=True)
class Unit:
    """A node that may be raised; one that holds bodies stands for all that is in them.

    Attributes:
        name: Its name.
        operator: Its operator, as selectors write it.
        work: How much it computes, relative to other units.
        border: What converting its results costs, in the same measure.
        follows: It rounds nothing that is not rounded before it, so it stays with the unit in front of it.
    """

    name: str
    operator: str
    work: float
    border: float
    follows: bool = False


def locked_nodes(model: Model, request: Request) -> dict[str, str]:
    """The nodes of the main graph that no goal may raise, by name, with what keeps them as they are.

    Raises:
        DovetailError: A selector matches nothing.
    """
    if request.plan is not None:
        return dict.fromkeys(map(name_of, model.graph), "the plan that is replayed")
    found: dict[str, str] = {}
    holders = {id(inner): name_of(node) for node in model.graph for inner in body_nodes(node)}
    lists = [(f"--low {shlex.quote(selector)}", selector) for selector in request.low]
    pins = ((f"--pin {shlex.quote(pin)}", parse_pin(pin)) for pin in request.pins)
    lists += [(text, selector) for text, (selector, _, precision) in pins if precision]
    for text, selector in lists:
        for node in select(model, selector):
            found.setdefault(holders.get(id(node), name_of(node)), text)
    return found


class Candidates:
    """What may be raised of a request.

    Args:
        low: The request, compiled as it is.
        locked: Nodes that may not be raised.

    Attributes:
        names: The nodes of the main graph that the plan knows and nothing locks; conversions are not in it.
    """

    def __init__(self, low: CompiledModel, locked: Mapping[str, str]):
        planned = {node.name for node in low.plan.nodes}
        self._low = {
            node.name: _types(node) for node in low.model.graph if node.name in planned and node.name not in locked
        }
        self.names = list(self._low)

    def units(self, high: CompiledModel, looked: Streamed) -> list[Unit]:
        """The nodes that have other types where all are raised, in graph order.

        Args:
            high: The request with all raised.
            looked: What a streamed run found.
        """
        shapes = looked.shapes
        return [
            Unit(
                node.name,
                operator_name(node.domain, node.op_type),
                work_of(node, shapes),
                border_of(node, shapes),
                node.name in looked.errors and looked.errors[node.name].moves,
            )
            for node in high.model.graph
            if node.name in self._low and _types(node) != self._low[node.name]
        ]


def _types(node: ir.Node) -> tuple[object, ...]:
    placements = map(get_placement, all_nodes([node]))
    return tuple((p.precision, *sorted(p.ports.items())) for p in placements if p is not None)
