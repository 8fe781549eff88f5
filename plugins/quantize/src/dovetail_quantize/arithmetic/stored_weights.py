"""Weights in the form that integer operators read, computed when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Sequence


class UnsignedTensor(ir.LazyTensor):
    """The integers of a weight in uint8, a signed type moved by 128, in another layout.

    Attributes:
        source: The weight in integers.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        shape: Sequence[int],
        layout: Callable[[np.ndarray], np.ndarray] | None = None,
        signed: bool = True,
    ):
        super().__init__(self._whole, ir.DataType.UINT8, ir.Shape(shape), name=source.name)
        self.source = source
        self._layout, self._signed = layout, signed

    def _whole(self) -> ir.Tensor:
        integers = self.source.numpy()
        if self._layout is not None:
            integers = self._layout(integers)
        if self._signed:
            integers = integers.astype(np.int8, copy=False).view(np.uint8) ^ np.uint8(128)
        return ir.Tensor(np.ascontiguousarray(integers.astype(np.uint8, copy=False)), name=self.name)
