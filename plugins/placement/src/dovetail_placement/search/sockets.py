"""Sockets: what each port of a node carries, and which outputs are computed from the numbers of which inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.types import float_name
from dovetail_onnx.signatures import Port, Signatures, input_name, output_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail_onnx.signatures import Opsets
    from dovetail_schemas import OperatorFacts

__all__ = ["Sockets"]


class Sockets:
    """The ports of a model's nodes, looked up once per version of an operator.

    Args:
        facts: What is true of operators on every backend.
        opsets: What the model imports.
    """

    def __init__(self, facts: OperatorFacts, opsets: Opsets):
        self._facts = facts
        self._signatures = Signatures(opsets)
        self._inputs: dict[tuple, str] = {}
        self._links: dict[tuple, bool] = {}

    def input_kind(self, node: ir.Node, index: int) -> str:
        """What flows into input `index`: `data`, `state`, `index` or `shape`."""
        integer = not carries_numbers(node.inputs[index])
        key = (node.domain, node.op_type, node.version, index, integer)
        known = self._inputs.get(key)
        if known is None:
            port = input_name(index, self._signatures(node))
            known = self._facts.input_kind(node.domain, node.op_type, port, integer=integer)
            self._inputs[key] = known
        return known

    def links(self, node: ir.Node, source: int, target: int) -> bool:
        """Whether output `target` is computed from the numbers of input `source`.

        A value that is no float has no numbers in this sense: it is never quantised.
        """
        if not carries_numbers(node.inputs[source]) or not carries_numbers(node.outputs[target]):
            return False
        key = (node.domain, node.op_type, node.version, source, target)
        known = self._links.get(key)
        if known is None:
            signature = self._signatures(node)
            into = _port(signature and signature.input(source), input_name(source, signature))
            out = _port(signature and signature.output(target), output_name(target, signature))
            known = self._facts.carries(node.domain, node.op_type, into, out, integer=False)
            self._links[key] = known
        return known


def carries_numbers(value: ir.Value | None) -> bool:
    """Whether a value is a float, or of a type that nobody knows."""
    return value is not None and (value.dtype is None or float_name(value) is not None)


def _port(formal: Port | None, name: str) -> str:
    """The name of a port in the schema; all elements of a variadic port have one there."""
    return formal.name if formal else name
