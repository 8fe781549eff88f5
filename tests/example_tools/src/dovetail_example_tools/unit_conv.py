"""The edit `unit-conv`: a convolution that changes nothing, next to a node that gives or reads an image."""

from dovetail.plugin import DovetailError, Editor


class UnitConv(Editor):
    """Some accelerators fuse a convolution into what stands before it, and so compute a Concat without a copy."""

    sides = ("before", "after")

    def apply(self, model, node, side, ctx):
        import numpy as np
        import onnx_ir as ir
        from dovetail.ir import FreshNames, insert_beside

        value = node.outputs[0] if side == "after" else node.inputs[0]
        if value is None or value.shape is None or len(value.shape) != 4 or not isinstance(value.shape[1], int):
            raise DovetailError(f"unit-conv: '{node.name}' has no image with a known number of channels {side} it")
        if side == "after" and value.is_graph_output():
            raise DovetailError(f"unit-conv: '{value.name}' is an output of the model", "edit before the node instead")
        names, channels = ctx.analysis(FreshNames, model), value.shape[1]
        kernel = np.eye(channels, dtype=value.dtype.numpy()).reshape(channels, channels, 1, 1)
        weight = ir.Value(name=names.fresh(f"{value.name}_unit"), const_value=ir.tensor(kernel))
        weight.type, weight.shape = ir.TensorType(value.dtype), ir.Shape(kernel.shape)
        model.graph.initializers.add(weight)

        def convolution(read):
            made = ir.node("Conv", [read, weight], name=names.fresh(f"{node.name}_unit_conv"))
            made.outputs[0].name = names.fresh(f"{value.name}_same")
            made.outputs[0].type, made.outputs[0].shape = value.type, value.shape
            return made

        return [insert_beside(node, side, convolution)]
