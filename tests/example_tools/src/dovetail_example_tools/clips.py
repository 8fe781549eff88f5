"""The pass `relu-to-clip`, for tools that know no Relu: a rewrite, with an option."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from dovetail.plugin import Pass
from dovetail_transforms import Rewrite, rewrite_model


@dataclass(frozen=True)
class ReluToClip(Pass):
    """Replace Relu by Clip.

    Given:   y = Relu(x)
    Result:  y = Clip(x, 0)

    Options:
        bound: The upper bound of the Clip; none by default.
    """

    name = "relu-to-clip"

    bound: float | None = None

    def run(self, model, ctx):
        return rewrite_model(model, ctx, [Rewrite("relu-is-clip", pattern, self.replacement, check)])

    def replacement(self, op, x):
        def limit(number, name):
            return op.constant(ir.tensor(np.array(number, x.dtype.numpy())), name)

        upper = () if self.bound is None else (limit(self.bound, "upper"),)
        return op.Clip(x, limit(0, "lower"), *upper)


def pattern(op, x):
    return op.Relu(x)


def check(x):
    return "" if x.dtype is not None else "the type of its input is unknown"
