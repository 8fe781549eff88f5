"""Scan of opset 8, which loops over every sample of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from dovetail_transforms.raising.writer import NodeNotRaised, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable


def _batches_of_scans(op: Writer) -> None:
    """Write a Scan over the samples, in whose body a Scan over the sequence stands."""
    lengths, *given = op.node.input
    if lengths:
        raise NodeNotRaised(f"its sequences have lengths of their own ('{lengths}')")
    scanned, body = op.take("num_scan_inputs"), op.attribute("body")
    directions = op.take("directions")
    inner_inputs = [op.fresh(f"sample_{index}") for index in range(len(given))]
    inner_outputs = [op.fresh(f"of_sample_{index}") for index in range(len(op.node.output))]
    one_sample = onnx.helper.make_node("Scan", inner_inputs, inner_outputs, op.fresh("sample"), body=body)
    one_sample.attribute.append(onnx.helper.make_attribute("num_scan_inputs", scanned))
    if directions is not None:
        one_sample.attribute.append(onnx.helper.make_attribute("scan_input_directions", directions))
    samples = onnx.helper.make_graph(
        [one_sample],
        op.fresh("samples"),
        _without_shapes(inner_inputs, body.input),
        _without_shapes(inner_outputs, body.output),
    )
    op.finish("Scan", *given, body=samples, num_scan_inputs=len(given))


def _without_shapes(names: Iterable[str], like: Iterable[onnx.ValueInfoProto]) -> list[onnx.ValueInfoProto]:
    """Return values with the element types of others, of any shape."""
    return [
        onnx.helper.make_tensor_value_info(name, other.type.tensor_type.elem_type, None)
        for name, other in zip(names, like)
    ]


RULES = {"batches-of-scans": _batches_of_scans}
