"""Remove strides that have no effect, which mislead OpenVINO's convolution.

OpenVINO 2026.4 computes a convolution of one channel wrongly if its last axis has a stride but only one position, and
the axis before has several: the rows of the result are computed from rows of the data that the stride misplaces. With
one position the stride does not matter, so it becomes 1, and what lies behind the window is cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


def remove_idle_strides(operations: list[ov.Node]) -> None:
    """Replace the convolutions among `operations` that have one channel, a stride and one position in the last axis."""
    for node in operations:
        if node.get_type_name() != "Convolution" or node.get_attributes()["strides"][-1] == 1:
            continue
        data, filters = node.input(0).get_partial_shape(), node.input(1).get_partial_shape()
        if data.rank.is_dynamic or data.rank.get_length() < 4 or filters.is_dynamic or filters.to_shape()[1] != 1:
            continue
        positions = node.output(0).get_partial_shape()[data.rank.get_length() - 1]
        if positions.is_static and positions.get_length() > 1:
            continue
        if not _remove_stride(node):
            _add_channel(node)


def _remove_stride(node: ov.Node) -> bool:
    """Give `node` the stride 1 along its last axis, with padding and data that end with the window.

    Returns:
        Whether that is possible: the extents are known, and the window reads data.
    """
    import numpy as np
    from openvino import opset13

    attributes, shape = node.get_attributes(), list(node.input(0).get_partial_shape())
    padded_by_extent = attributes["auto_pad"].startswith("same")
    if any(extent.is_dynamic for extent in (shape[2:] if padded_by_extent else shape[-1:])):
        return False
    begins, ends = list(attributes["pads_begin"]), list(attributes["pads_end"])
    window = (node.input(1).get_shape()[-1] - 1) * attributes["dilations"][-1] + 1
    extent, read = shape[-1].get_length(), window - begins[-1]
    if read < 1:
        return False
    data = node.input_value(0)
    if read < extent:
        bounds = (np.array([number], np.int64) for number in (0, read, 1, -1))
        data = opset13.slice(data, *(opset13.constant(bound) for bound in bounds)).output(0)
    ends[-1] = max(read - extent, 0)
    _replace(node, data, node.input_value(1), [*attributes["strides"][:-1], 1], begins, ends, "explicit")
    return True


def _add_channel(node: ov.Node) -> None:
    """Give `node` a second channel of zeros: its last extent is not known, and may leave one position."""
    import numpy as np
    from openvino import opset13

    rank = node.input(0).get_partial_shape().rank.get_length()
    zero = opset13.convert_like(opset13.constant(np.float32(0)), node.input_value(0))
    none, one = (opset13.constant(np.array([0, extra, *[0] * (rank - 2)], np.int64)) for extra in (0, 1))
    data, filters = (opset13.pad(node.input_value(i), none, one, "constant", zero).output(0) for i in (0, 1))
    was = node.get_attributes()
    _replace(node, data, filters, was["strides"], was["pads_begin"], was["pads_end"], was["auto_pad"])


def _replace(
    node: ov.Node, data: ov.Output, filters: ov.Output, strides: list, begins: list, ends: list, kind: str
) -> None:
    from openvino import opset13

    dilations = node.get_attributes()["dilations"]
    made = opset13.convolution(data, filters, strides, begins, ends, dilations, kind)
    made.set_friendly_name(node.get_friendly_name())
    made.output(0).set_names(node.output(0).get_names())
    node.output(0).replace(made.output(0))
