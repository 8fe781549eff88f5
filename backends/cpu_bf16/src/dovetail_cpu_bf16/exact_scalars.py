"""Recover float attributes that OpenVINO's frontend truncates to the type of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    import openvino as ov
    from dovetail.ir.model import Model


def exact_scalars(model: Model) -> dict[str, dict[int, float]]:
    """Return the float attributes of all nodes, by node and by the upper 16 bits that remain in bfloat16.

    OpenVINO truncates the lower bits: the slope 1/6 of a HardSigmoid becomes 0.16602, an error in every element. Two
    numbers of one node that share their upper bits are left out. A node has an entry for its name and one for each of
    its results, since OpenVINO names operations after either.
    """
    import numpy as np

    found: dict[str, dict[int, float]] = {}
    ambiguous: set[tuple[str, int]] = set()
    for node in model.nodes():
        names = {name for name in (node.name, *(output.name for output in node.outputs)) if name}
        for number in _numbers(node, model.ir.opset_imports):
            for exact in (np.float32(number), -np.float32(number)):  # the frontend negates the bound of a Shrink
                bits = int(exact.view(np.uint32)) >> 16
                for name in names:
                    if found.setdefault(name, {}).setdefault(bits, float(exact)) != float(exact):
                        ambiguous.add((name, bits))
    for name, bits in ambiguous:
        del found[name][bits]
    return found


def scalar_of(constant: ov.Node, scalars: Mapping[str, Mapping[int, float]]) -> float | None:
    """Return the number in an attribute that `constant` was made of, or None.

    The frontend names neither the constant nor what it computes of it, up to the operation that gives the result of the
    node: there the search ends.
    """
    import numpy as np

    bits = int(constant.data.view(np.uint16).reshape(-1)[0])
    waiting, seen = [constant], {constant.get_name()}
    while waiting:
        for output in waiting.pop().outputs():
            for reader in (port.get_node() for port in output.get_target_inputs()):
                numbers = _numbers_of(reader.get_friendly_name(), scalars)
                if numbers is not None:
                    return numbers.get(bits)
                if reader.get_name() not in seen:
                    seen.add(reader.get_name())
                    waiting.append(reader)
    return None


def _numbers_of(name: str, scalars: Mapping[str, Mapping[int, float]]) -> Mapping[int, float] | None:
    """Return the numbers of the node that an operation is named after, with or without a suffix."""
    while name not in scalars and "/" in name:
        name = name.rpartition("/")[0]
    return scalars.get(name)


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
