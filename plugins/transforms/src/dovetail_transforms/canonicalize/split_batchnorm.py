"""Move a BatchNormalization behind a Concat into its branches, where convolutions take it in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.required import constant_of, input_of, shape_of

from dovetail_transforms.rewriting import Rewrite

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_transforms.rewriting import Replacement


_CONVOLUTIONS = ("Conv", "ConvTranspose")
_CHANNELS = 1


def constant(value: ir.Value) -> bool:
    """Whether the value of an initializer is known; one that is also an input is only a default."""
    return value.is_initializer() and value.const_value is not None and not value.is_graph_input()


def obstacle(convolution: ir.Node) -> str:
    """Why a convolution cannot take in a scale and a shift of its channels; empty if it can."""
    weight, bias = convolution.inputs[1], convolution.inputs[2] if len(convolution.inputs) > 2 else None
    if convolution.op_type == "ConvTranspose" and convolution.attributes.get_int("group", 1) != 1:
        return "the transposed convolution has groups"
    if weight is None or not constant(weight):
        return "its parameters are not constant"
    if bias is not None and not constant(bias):
        return "the convolution's bias is not constant"
    if constant_of(weight).dtype.name not in ("FLOAT", "DOUBLE"):
        return "the weight is stored in a narrow type"
    return ""


def _pattern(op, first, scale, shift, mean, variance):
    return op.BatchNormalization(op.Concat(first, ..., called="joined"), scale, shift, mean, variance)


def _check(node: ir.Node, joined: ir.Node, scale: ir.Value, shift: ir.Value, mean: ir.Value, variance: ir.Value) -> str:
    """Why the branches cannot take the normalization; only those that convolutions compute for this Concat do."""
    if node.attributes.get_int("training_mode", 0) or len(node.outputs) > 1:
        return "it is in training mode"
    if not all(map(constant, (scale, shift, mean, variance))):
        return "its parameters are not constant"
    shape = joined.outputs[0].shape
    if shape is None or joined.attributes.get_int("axis", 0) % len(shape) != _CHANNELS:
        return "the Concat does not join channels"
    for branch in joined.inputs:
        producer = branch.producer() if branch is not None else None
        if branch is None or producer is None or producer.op_type not in _CONVOLUTIONS:
            return "a branch is not computed by a convolution"
        if why := obstacle(producer):
            return why
        if len(branch.uses()) != 1 or branch.is_graph_output():
            return "a branch has other readers"
        if branch.shape is None or not isinstance(branch.shape[_CHANNELS], int):
            return "the channels of a branch are not known"
    return ""


def _split(
    op: Replacement,
    node: ir.Node,
    joined: ir.Node,
    scale: ir.Value,
    shift: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
) -> ir.Value:
    import onnx_ir as ir

    parameters = [constant_of(value).numpy() for value in (scale, shift, mean, variance)]
    branches, start = [], 0
    for index in range(len(joined.inputs)):
        branch = input_of(joined, index)
        channels = shape_of(branch)[_CHANNELS]
        assert isinstance(channels, int)
        end = start + channels
        own = [op.constant(ir.tensor(array[start:end].copy()), "part") for array in parameters]
        branches.append(op.make(node.op_type, (branch, *own), **node.attributes))
        start = end
    return op.like(joined, *branches)


SPLIT = Rewrite("split-batchnorm", _pattern, _split, _check, done="'{node}' is moved into its branches")
