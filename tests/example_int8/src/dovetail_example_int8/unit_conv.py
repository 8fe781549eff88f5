"""The edit: a 1x1 convolution that changes nothing, an active neighbor for a passive node."""

import numpy as np
import onnx_ir as ir
from dovetail.ir import FreshNames, insert_beside
from dovetail.plugin import DovetailError, Editor


class UnitConv(Editor):
    """Inserts a convolution with an identity matrix before or after a node that works on images."""

    sides = ("before", "after")

    def apply(self, model, node, side, ctx):
        """Insert it.

        Raises:
            DovetailError: There is no image with a known number of channels on that side.
        """
        value = node.outputs[0] if side == "after" else node.inputs[0]
        if value.shape is None or len(value.shape) != 4 or not isinstance(value.shape[1], int):
            raise DovetailError(f"acme-unit-conv: '{value.name}' is no image with a known number of channels")
        if side == "after" and value.is_graph_output():
            raise DovetailError(
                f"acme-unit-conv: '{value.name}' is an output of the model", "insert it before the node"
            )
        names, channels = ctx.analysis(FreshNames, model), value.shape[1]
        kernel = ir.tensor(np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1))
        weight = ir.Value(name=names.fresh(f"{value.name}_unit"), const_value=kernel)
        weight.type, weight.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(kernel.shape)
        model.graph.register_initializer(weight)

        def convolution(read):
            made = ir.node("Conv", [read, weight], name=names.fresh(f"{node.name}_unit"))
            made.outputs[0].name = names.fresh(f"{value.name}_same")
            made.outputs[0].type, made.outputs[0].shape = value.type, value.shape
            return made

        return [insert_beside(node, side, convolution)]
