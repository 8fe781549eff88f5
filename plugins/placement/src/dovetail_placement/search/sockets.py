"""Sockets: what each port of a node carries, and which outputs are computed from the numbers of which inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import float_name
from dovetail_onnx.signatures import Port, Signature, Signatures, input_name, output_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail_onnx.signatures import Opsets
    from dovetail_schemas import OperatorFacts


class Sockets:
    """The ports of a model's nodes, looked up once per version of an operator.

    Args:
        facts: What is true of operators on every backend.
        opsets: What the model imports.
    """

    def __init__(self, facts: OperatorFacts, opsets: Opsets):
        self._facts = facts
        self._signatures = Signatures(opsets)
        self._known: dict[tuple, dict[tuple, tuple[str, tuple[int, ...]]]] = {}

    def at(self, node: ir.Node, index: int, numbers: bool) -> tuple[str, tuple[int, ...]]:
        """What flows into an input, and positions of the outputs that are computed from its numbers.

        Args:
            node: The node.
            index: Position of the input.
            numbers: The value there carries numbers; see `carries_numbers`.
        """
        sockets = self._known.setdefault((node.op_type, node.domain, node.version), {})
        key = (index, numbers, len(node.outputs))
        known = sockets.get(key)
        if known is None:
            known = sockets[key] = self._looked_up(node, index, numbers)
        return known

    def _looked_up(self, node: ir.Node, index: int, numbers: bool) -> tuple[str, tuple[int, ...]]:
        signature = self._signatures(node)
        ends = (node.domain, node.op_type)
        kind = self._facts.input_kind(*ends, input_name(index, signature), integer=not numbers)
        port = _port(signature.input(index) if signature is not None else None, input_name(index, signature))
        linked = [
            position
            for position in range(len(node.outputs) if numbers else 0)
            if self._facts.carries(*ends, port, _output(signature, position), integer=False)
        ]
        return kind, tuple(linked)


def carries_numbers(value: ir.Value | None) -> bool:
    """Whether a value is a float, or of a type that nobody knows; what is no float is never quantised."""
    return value is not None and (float_name(value) is not None or value.dtype is None)


def _output(signature: Signature | None, position: int) -> str:
    return _port(signature.output(position) if signature is not None else None, output_name(position, signature))


def _port(formal: Port | None, name: str) -> str:
    """The name of a port in the schema; all elements of a variadic port have one there."""
    return formal.name if formal else name
