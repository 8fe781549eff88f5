"""The accelerator keeps images with the channels last: conversions of the layout at the border of its programs."""

import onnx_ir as ir


class ChannelsLast:
    """From batch, channels, height, width to batch, height, width, channels; other tensors stay as they are."""

    order = (0, 2, 3, 1)

    def build(self, op, value, step):
        """Make the transposition of an image."""
        if value.shape is None or len(value.shape) != 4:
            return value
        result = op.Transpose(value, perm=self.order)
        result.type = ir.TensorType(value.dtype)
        result.shape = ir.Shape([value.shape[axis] for axis in self.order])
        return result


class ChannelsFirst(ChannelsLast):
    """Back again."""

    order = (0, 3, 1, 2)
