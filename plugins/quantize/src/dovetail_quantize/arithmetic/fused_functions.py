"""Functions of one quantized value that several nodes compute without rounding in between: one table each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dovetail.ir import is_onnx
from dovetail.planning import get_placement

from dovetail_quantize.arithmetic.lowering import Lowering, NotIntegerError
from dovetail_quantize.arithmetic.ports import integers_of
from dovetail_quantize.arithmetic.tables import FUNCTIONS, look_up

if TYPE_CHECKING:
    import onnx_ir as ir


_ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Div": np.divide,
    "Mul": np.multiply,
    "Sub": np.subtract,
}
_DIVISIONS = ("Div",)  # integers have no division of their own
_MOST = 16  # nodes; bounds the search, so that its time does not grow with the graph


class FusedFunction(NamedTuple):
    """An elementwise function of one quantized value.

    Given:  %p = Add(%x, 3); %c = Clip(%p, 0, 6); %m = Mul(%x, %c); %y = Div(%m, 6); only %x and %y are quantized
    Result: one lookup from the integers of %x to those of %y

    Attributes:
        nodes: The nodes that compute it, operands first; the result of the last one is quantized.
        source: The dequantized value that it reads.
    """

    nodes: tuple[ir.Node, ...]
    source: ir.Value

    def evaluate(self, numbers: np.ndarray) -> np.ndarray:
        """Evaluate the function in float64.

        Raises:
            NotIntegerError: A constant is not one number.
        """
        known: dict[ir.Value, np.ndarray] = {}
        for node in self.nodes:
            at = Lowering(node)
            operands = [_operand(at, index, numbers, known) for index in range(len(node.inputs))]
            if node.op_type in _ARITHMETIC:
                result = _ARITHMETIC[node.op_type](*operands)
            else:
                result = FUNCTIONS[node.op_type](at, operands[0])
            known[node.outputs[0]] = result
        return known[self.nodes[-1].outputs[0]]


def fused_functions(nodes: Iterable[ir.Node], backends: Collection[str]) -> list[FusedFunction]:
    """Return the fused functions of several nodes among `nodes`, which are placed on one of `backends`."""
    found = []
    for node in nodes:
        last = node.inputs[0].producer() if node.op_type == "QuantizeLinear" and node.inputs[0] is not None else None
        if last is not None and _backend(last) in backends:
            function = _ending_at(last)
            if function is not None:
                found.append(function)
    return found


def lower_fused(at: Lowering, function: FusedFunction) -> list[ir.Value]:
    """Lower the last node of a fused function to a table lookup.

    Raises:
        NotIntegerError: Its operand or its result has a scale per channel, or a constant is not one number.
    """
    held = integers_of(function.source)
    if held is None:
        raise NotIntegerError(f"'{function.source.name}' is not dequantized by constants")
    return [look_up(at, held, function.evaluate)]


def _ending_at(last: ir.Node) -> FusedFunction | None:
    """Return the function that ends at a node; None if it reads several values, or has a lowering of its own."""
    nodes, waiting = {last: None}, [last]
    source: ir.Value | None = None
    integers: ir.Value | None = None
    while waiting:
        node = waiting.pop()
        if not is_onnx(node) or node.op_type not in FUNCTIONS and node.op_type not in _ARITHMETIC:
            return None
        for value in node.inputs:
            if value is None or _is_constant(value):
                continue
            held = integers_of(value)
            if held is not None:
                if held.tensor is None and integers is not None and integers is not held.value:
                    return None
                if held.tensor is None:
                    source, integers = value, held.value
                continue
            producer = value.producer()
            if producer is None or len(value.uses()) != 1 or value.is_graph_output():
                return None
            if _backend(producer) != _backend(last) or len(nodes) == _MOST:
                return None
            # Every interior value has one reader, so no node is found twice, and operands come after their readers.
            nodes[producer] = None
            waiting.append(producer)
    if source is None or len(nodes) == 1 and last.op_type not in _DIVISIONS:
        return None
    return FusedFunction(tuple(reversed(nodes)), source)


def _operand(at: Lowering, index: int, numbers: np.ndarray, known: dict[ir.Value, np.ndarray]) -> np.ndarray:
    value = at.node.inputs[index]
    if value is None:
        return np.zeros(0)
    if value in known:
        return known[value]
    constant = at.constant(index)
    if constant is None:
        return numbers
    if constant.size != 1:
        raise NotIntegerError(f"its input '{value.name}' is not one constant number")
    return constant.astype(np.float64).reshape(())


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and not value.is_graph_input()


def _backend(node: ir.Node) -> str:
    placement = get_placement(node)
    return placement.backend if placement is not None else ""
