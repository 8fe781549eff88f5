"""The dialect of models that begin as programs of Paddle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_onnx.dialect import OnnxDialect

if TYPE_CHECKING:
    from dovetail.ir.model import Model


class PaddleDialect(OnnxDialect):
    """ONNX with the domains of Paddle: everything is the same, except that engines run the lowered model."""

    def runnable(self, model: Model) -> Model:
        """The model if it is lowered already, else a lowered copy."""
        from dovetail_paddle.lowering.lower_paddle import lowered_copy

        return lowered_copy(model)
