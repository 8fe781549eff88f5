"""The `fold-batchnorm` pass: fold inference-mode batch normalisation into the preceding convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir.required import constant_of
from dovetail.passes import Pass

from dovetail_transforms.canonicalize.split_batchnorm import SPLIT, constant, obstacle
from dovetail_transforms.rewriting import Rewrite, rewrite_model

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_transforms.rewriting import Replacement


_CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1}  # of the weight, for its output channels


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Fold BatchNormalization into the convolution before it.

    Given:  %1 = Conv(%x, %w, %b)   %2 = BatchNormalization(%1, scale, shift, mean, var), all but %x constant
    Result: %2 = Conv(%x, %w * k, (%b - mean) * k + shift) with k = scale / sqrt(var + epsilon)

    Behind a Concat of channels that convolutions alone compute, each gets the channels of its own.

    The new weight is computed lazily while the model is saved; the old one stays for other readers.
    """

    name = "fold-batchnorm"
    stage = "normalise"
    after = ("normalise", "fold-constants")

    def run(self, model: Model, ctx: Context) -> bool:
        """Fold every pair; remark pairs that cannot be folded."""
        split = rewrite_model(model, ctx, [SPLIT])
        return rewrite_model(model, ctx, [_FOLD], explain=True) or split


def _pattern(op, x, w, scale, shift, mean, variance, bias=None):
    convolution = op.any_of(*_CHANNEL_AXIS, called="convolution")(x, w, bias)
    return op.BatchNormalization(convolution, scale, shift, mean, variance)


def _check(
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


_FOLD = Rewrite("fold-batchnorm", _pattern, _folded, _check, done="'{node}' is folded into it")
