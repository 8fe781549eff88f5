"""Maximum pools after convolutions, which OpenVINO fuses with the operator after them in the wrong order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_cpu_bf16.decompositions import fusion_barrier

if TYPE_CHECKING:
    import openvino as ov


UNFUSED = frozenset({
    "Concat", "Convert", "Convolution", "FakeQuantize", "GroupConvolution", "MatMul", "MaxPool", "Relu", "Reshape",
    "Result", "Transpose",
})  # fmt: skip
"""Readers of a pool that are not fused with what is before it, or that keep the order of numbers."""

_KEEP_ORDER = frozenset({"Clamp", "Elu", "Exp", "HardSigmoid", "Sigmoid", "SoftPlus", "Tanh"})


def separate_pools(operations: list[ov.Node]) -> None:
    """Insert a fusion barrier after every MaxPool with a reader that may change the order of numbers.

    OpenVINO fuses an operator after a MaxPool into the convolution before it, in every precision, and so computes the
    maximum of f(x) in place of f of the maximum. That differs unless f keeps the order of numbers: for Abs, and for
    HardSwish, which falls before it rises.
    """
    for node in operations:
        if node.get_type_name() == "MaxPool" and is_read_by_others(node, UNFUSED | _KEEP_ORDER):
            insert_barrier_after(node)


def is_read_by_others(node: ov.Node, kinds: frozenset[str]) -> bool:
    """Check whether the first result of a node has a reader of a kind that is not among `kinds`."""
    return any(port.get_node().get_type_name() not in kinds for port in node.output(0).get_target_inputs())


def insert_barrier_after(node: ov.Node) -> None:
    """Insert a fusion barrier between a node's first result and all of its readers; a model's result stays as it is."""
    readers = list(node.output(0).get_target_inputs())
    if any(port.get_node().get_type_name() == "Result" for port in readers):
        return
    barrier = fusion_barrier(node.output(0))
    for port in readers:
        port.replace_source_output(barrier.output(0))
