"""What the front end knows of ONNX models and core does not: their source check, their text, what bodies pass on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_onnx.body_flows import body_flows

if TYPE_CHECKING:
    from dovetail.ir.model import Model

    from dovetail_onnx.source.snapshot import Source

__all__ = ["OnnxDialect"]


class OnnxDialect:
    """The dialect of ONNX models; see `dovetail.plugin.Dialect`."""

    def snapshot(self, model: Model, checked: bool) -> Source:
        """Record a model before any pass; checks it unless it was checked when it was opened."""
        from dovetail_onnx.source.snapshot import Source

        return Source.of(model, checked)

    def text(self, model: Model) -> str:
        """Print a model as ONNX text; see `dovetail_onnx.printer`."""
        from dovetail_onnx.printer import print_model

        return print_model(model)

    body_flows = staticmethod(body_flows)
    """The values that an If, a Loop or a Scan passes to its bodies and takes from them."""
