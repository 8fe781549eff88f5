"""The conversion `cast`, between floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.planning.conversion import NodeMaker, Step


class Cast:
    """One node `Cast` to the type of the target format."""

    def build(self, op: NodeMaker, value: ir.Value, step: Step) -> ir.Value:
        """Return `value` in the type of the target."""
        import onnx_ir as ir

        assert step.target is not None
        dtype = step.target.dtype
        result = op.make("Cast", (value,), to=dtype.value)
        assert isinstance(result, ir.Value)
        result.type, result.shape = ir.TensorType(dtype), value.shape
        return result
