"""Mixtures of experts whose weights are not those that their router and attributes need.

Without this check, a model whose export lost experts would compile, and fail or give nonsense where it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from dovetail.ir import Model

_DOMAIN = "com.microsoft"
_ROUTER, _FIRST = 1, 2  # inputs: the scores of the router, and the first weights
_SECOND = {"MoE": 4, "QMoE": 5}  # the weights that read what the experts computed first
_KEEPING = ("Add", "Cast", "Identity", "Reshape", "Softmax")  # with the scores of a token in one row
_DEEPEST = 8  # nodes between a router's product and its mixture
_AGAIN = "export the model again, with all of its experts"


def check_experts(model: Model, path: Path) -> None:
    """Check the weights of every mixture of experts.

    Args:
        model: The model.
        path: Its file, for messages.

    Raises:
        DovetailError: Weights, scales or biases are those of another number of experts than the router chooses among,
            more experts are chosen than there are, or the two layers of an expert do not fit.
    """
    for node in model.nodes():
        if node.domain == _DOMAIN and node.op_type in _SECOND and (why := _why_wrong(node)):
            raise DovetailError(f"{path}: node '{node.name}' ({node.op_type}): {why}", _AGAIN)


def _why_wrong(node: ir.Node) -> str:
    held = [(value, shape) for value in node.inputs[_FIRST:] if value is not None and (shape := _shape(value))]
    known, whose = _scores(node.inputs[_ROUTER]), "the router chooses among"
    if known is None:
        if not held:
            return ""
        # The first weights count: without the router, nobody knows which of them are whole.
        known, whose = held[0][1][0], f"'{name_of(held[0][0])}' is that of"
    for value, shape in held:
        if shape[0] != known:
            return f"'{name_of(value)}' {shape} has {shape[0]} experts, and {whose} {known}"
    chosen = node.attributes.get_int("k", 1) or 1
    if chosen > known:
        return f"k is {chosen}, and there are {known} experts"
    return _why_layers_do_not_fit(node)


def _scores(router: ir.Value | None) -> int | None:
    """Return the number of scores that a router gives to a token; None if that is not known before shapes are."""
    value = router
    for _ in range(_DEEPEST):
        if value is None:
            return None
        if value.shape is not None and len(value.shape) and isinstance(value.shape[-1], int):
            return int(value.shape[-1])
        node = value.producer()
        if node is None:
            return None
        if node.op_type == "MatMulNBits":
            return node.attributes.get_int("N", 0) or None
        weight = _shape(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
        if node.op_type == "MatMul" and weight:
            return weight[-1]
        if node.op_type == "Gemm" and weight:
            return weight[0 if node.attributes.get_int("transB", 0) else -1]
        if node.op_type not in _KEEPING or not node.inputs:
            return None
        value = node.inputs[0]
    return None


def _why_layers_do_not_fit(node: ir.Node) -> str:
    """Return why the second layer does not read what the first gives; empty if it does, or if that is not known."""
    values = [node.inputs[index] if index < len(node.inputs) else None for index in (_FIRST, _SECOND[node.op_type])]
    first, second = (_shape(value) if value is not None else None for value in values)
    if first is None or second is None or len(first) != 3 or len(second) != 3 or values[1] is None:
        return ""
    if node.attributes.get_int("weights_prepacked", -1) == 1:  # in the layout of one kernel
        return ""
    bits = node.attributes.get_int("fc2_expert_weight_bits", 0) or node.attributes.get_int("expert_weight_bits", 4) or 4
    inner = first[1] // (2 if node.attributes.get_int("swiglu_fusion", 0) else 1)
    read = second[2] * 8 // bits if node.op_type == "QMoE" else second[2]
    if inner == read:
        return ""
    return f"'{name_of(values[1])}' {second} reads {read} numbers, and the first layer gives {inner}"


def _shape(value: ir.Value) -> list[int] | None:
    return [int(extent) for extent in value.const_value.shape] if value.const_value is not None else None  # type: ignore[arg-type]
