"""A weight in integers, computed when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from dovetail_quantize.integers import quantised

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters


class QuantisedTensor(ir.LazyTensor):
    """`source` in the integers of a format.

    Attributes:
        source: The tensor of real numbers.
    """

    def __init__(self, source: ir.TensorProtocol, format_: Format, parameters: Parameters, name: str):
        super().__init__(self._whole, format_.dtype, ir.Shape(source.shape.numpy()), name=name)
        self.source = source
        self._format, self._parameters = format_, parameters

    def _whole(self) -> ir.Tensor:
        integers = quantised(self.source.numpy(), self._format, self._parameters)
        return ir.Tensor(integers, dtype=self.dtype, name=self.name)
