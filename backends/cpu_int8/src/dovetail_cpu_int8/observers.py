"""The observers of cpu-int8: `signed-symmetric` for activations, and `reduced-range` for weights of 7 bits."""

from __future__ import annotations

import numpy as np
from dovetail.plugin import Format, Parameters
from dovetail_quantize import MeanSquaredError, MinMax

from dovetail_cpu_int8.saturation import LARGEST

_ALL = 127  # the largest integer of a symmetric int8
_WORTH_IT = 0.75  # of the step with a zero point in the middle


class SignedSymmetric(MeanSquaredError):
    """Minimizes the squared error, with a zero point at an end, in the middle, or where that would waste steps.

    A value without negative numbers, such as the result of a Relu, has its zero point at the lowest integer, and so all
    integers for its range. Any other value has it in the middle: the integers of int8, held as uint8 with 128 added.
    x86 kernels take both without a correction per element, which any other zero point costs. It is worth that where
    the middle leaves integers unused: a range with one long side, such as the result of a HardSwish or of a LeakyRelu,
    has the zero point that covers it if its steps are then smaller by a quarter, which are 2.5 dB.

    Args:
        format_: An asymmetric format of 8 bits without a sign, one scale per tensor.
    """

    def __init__(self, format_: Format):
        super().__init__(format_)
        self._symmetric = Format.of(f"{format_.element}[symmetric,expressed={format_.expressed}]")

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        covering = super().parameters()
        low, _ = self._seen.range()
        if np.all(low >= 0):
            return covering
        signed = MeanSquaredError(self._symmetric)
        signed.share(self)
        middle = signed.parameters()
        saves = all(one <= _WORTH_IT * other for one, other in zip(covering.scale, middle.scale, strict=True))
        return covering if saves else middle


class ReducedRange(MinMax):
    """The scales of `minmax` for integers from -64 to 64, of the 255 of int8.

    Source: option `reduce_range` of ONNX Runtime's quantizers.

    Args:
        format_: A symmetric format of 8 bits with a sign.
    """

    def parameters(self) -> Parameters:
        """Return the parameters for the numbers seen so far.

        Raises:
            ValueError: No number was seen.
        """
        scales, zeros = super().parameters()
        return Parameters(tuple(scale * _ALL / LARGEST for scale in scales), zeros)
