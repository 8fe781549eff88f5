"""The `fold-batchnorm` pass: fold inference-mode batch normalization into the preceding convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import constant_of, input_of, shape_of
from dovetail.passes import Pass

from dovetail_transforms.rewriting import Rewrite, rewrite_model

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_transforms.rewriting import Replacement


_CONVOLUTIONS = ("Conv", "ConvTranspose")
_CHANNELS = 1


def constant(value: ir.Value) -> bool:
    """Check whether an initializer is constant; one that is also an input is only a default."""
    return value.is_initializer() and value.const_value is not None and not value.is_graph_input()


def obstacle(convolution: ir.Node) -> str:
    """Return why a convolution cannot absorb a scale and a shift of its channels; empty if it can."""
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


def _split_pattern(op, first, scale, shift, mean, variance):
    return op.BatchNormalization(op.Concat(first, ..., called="joined"), scale, shift, mean, variance)


def _check_split(
    node: ir.Node, joined: ir.Node, scale: ir.Value, shift: ir.Value, mean: ir.Value, variance: ir.Value
) -> str:
    """Return why the branches of a Concat cannot absorb the normalization; all must be convolutions used only by it."""
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
        branches.append(op.make(node.op_type, (branch, *own), 1, "", **node.attributes))
        start = end
    return op.like(joined, *branches)


SPLIT = Rewrite("split-batchnorm", _split_pattern, _split, _check_split, done="'{node}' is moved into its branches")


_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1}  # of the weight, for its output channels


class FoldBatchNorm(Pass):
    """Fold BatchNormalization into the convolution before it.

    Given:  %1 = Conv(%x, %w, %b)   %2 = BatchNormalization(%1, scale, shift, mean, var), all but %x constant
    Result: %2 = Conv(%x, %w * k, (%b - mean) * k + shift) with k = scale / sqrt(var + epsilon)

    After a Concat of channels of such convolutions, each absorbs the part for its own channels.

    The new weight is computed lazily while the model is saved; the old one stays for other users.
    """

    name = "fold-batchnorm"
    stage = "normalize"
    after = ("normalize", "fold-constants")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fold every pair; remark pairs that cannot be folded."""
        split = rewrite_model(model, ctx, [SPLIT])
        return rewrite_model(model, ctx, [_FOLD], explain=True) or split


def _fold_pattern(op, x, w, scale, shift, mean, variance, bias=None):
    convolution = op.any_of(*_CHANNEL_AXIS, called="convolution")(x, w, bias)
    return op.BatchNormalization(convolution, scale, shift, mean, variance)


def _check_fold(
    node: ir.Node,
    convolution: ir.Node,
    scale: ir.Value,
    shift: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
) -> str:
    if node.attributes.get_int("training_mode", 0):
        return "it is in training mode"
    if not all(map(constant, (scale, shift, mean, variance))):
        return "its parameters are not constant"
    return obstacle(convolution)


def _folded(
    op: Replacement,
    node: ir.Node,
    convolution: ir.Node,
    x: ir.Value,
    w: ir.Value,
    bias: ir.Value | None,
    scale: ir.Value,
    shift: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
) -> ir.Value:
    import numpy as np
    import onnx_ir as ir

    # In float64, so that weight and bias are rounded only once.
    given = (constant_of(one).numpy().astype(np.float64) for one in (scale, shift, mean, variance))
    k, summand, average, spread = given
    k = k / np.sqrt(spread + node.attributes.get_float("epsilon", 1e-5))
    before = np.zeros_like(average) if bias is None else constant_of(bias).numpy().astype(np.float64)
    old = constant_of(w)
    dtype, axis = old.dtype.numpy(), _CHANNEL_AXIS[convolution.op_type]

    def weight() -> ir.TensorProtocol:
        along = k.reshape([-1 if position == axis else 1 for position in range(len(old.shape))])
        return ir.tensor((old.numpy() * along.astype(dtype)).astype(dtype))

    return op.like(
        convolution,
        x,
        op.constant(ir.LazyTensor(weight, old.dtype, ir.Shape(old.shape.numpy())), "weight"),
        op.constant(ir.tensor(((before - average) * k + summand).astype(dtype)), "bias"),
    )


_FOLD = Rewrite("fold-batchnorm", _fold_pattern, _folded, _check_fold, done="'{node}' is folded into it")
