"""Recover float attributes that OpenVINO's frontend truncates to the type of the data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model

__all__ = ["exact_scalars"]


def exact_scalars(model: Model) -> dict[int, float]:
    """Return the float attributes of all nodes, by the upper 16 bits that remain in bfloat16.

    OpenVINO truncates the lower bits: the slope 1/6 of a HardSigmoid becomes 0.16602, an error in every element.
    Numbers that share their upper bits with another are ambiguous and left out.
    """
    import numpy as np

    found: dict[int, float] = {}
    ambiguous: set[int] = set()
    for number in {number for node in model.nodes() for number in _numbers(node, model.ir.opset_imports)}:
        exact = np.float32(number)
        bits = int(exact.view(np.uint32)) >> 16
        if found.setdefault(bits, float(exact)) != float(exact):
            ambiguous.add(bits)
    return {bits: exact for bits, exact in found.items() if bits not in ambiguous}


def _numbers(node: ir.Node, opsets: dict[str, int]) -> Iterator[float]:
    import onnx_ir as ir

    defaults = _defaults(node.op_type, node.domain, opsets.get(node.domain, 1))
    yield from (number for name, number in defaults if name not in node.attributes)
    for attribute in node.attributes.values():
        if not attribute.is_ref() and attribute.type is ir.AttributeType.FLOAT:
            yield attribute.as_float()


@cache
def _defaults(operator: str, domain: str, opset: int) -> tuple[tuple[str, float], ...]:
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return ()
    floats = onnx.AttributeProto.FLOAT
    defaults = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return tuple((name, value.f) for name, value in defaults if value.type == floats)
