"""Resizing: before opset 11 the first pixels of input and output lie on each other."""

from __future__ import annotations

import numpy as np

from dovetail_transforms.raising.writer import NodeNotRaised, Writer


def _scales_of_images(op: Writer) -> None:
    """Write the factors for height and width as scales of all four axes."""
    height, width = op.take("height_scale"), op.take("width_scale")
    op.write(scales=[1.0, 1.0, height, width])
    if op.attribute("mode") == "bilinear":
        op.write(mode="linear")
    op.keep()


def _scales_to_input(op: Writer) -> None:
    op.node.input.append(op.constant(np.array(op.take("scales"), np.float32), "scales"))
    op.keep()


def _asymmetric_resize(op: Writer) -> None:
    """Resize without a shift by half a pixel.

    The nearest pixel is the one before when an axis grows, and the one after when it shrinks, as in ONNX Runtime and
    in the operator tests of opset 10. Where scales of both kinds, or unknown ones, are possible, one Resize grows and a
    second one shrinks.
    """
    x, scales = op.node.input
    roi = op.constant(np.zeros(0, np.float32), "roi") if op.wanted < _ROI_IS_OPTIONAL else ""
    op.write(coordinate_transformation_mode="asymmetric")
    if op.attribute("mode", "nearest") != "nearest":
        _set_inputs(op, x, roi, scales)
        op.keep()
        return
    known = op.values.constant(scales)
    if known is not None and (known >= 1).all():
        op.write(nearest_mode="floor")
        _set_inputs(op, x, roi, scales)
        op.keep()
        return
    if known is None or (known > 1).any():
        up, scales = _both_ways(op, scales, known)
        x = op.add(
            "Resize", x, roi, up, hint="up",
            mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric",
        )  # fmt: skip
    op.write(nearest_mode="ceil")
    _set_inputs(op, x, roi, scales)
    op.keep()


_ROI_IS_OPTIONAL = 13


def _both_ways(op: Writer, scales: str, known: np.ndarray | None) -> tuple[str, str]:
    """Return the scales of axes that grow, and of those that shrink, with one for all others."""
    if known is not None:
        up, down = np.maximum(known, 1), np.minimum(known, 1)
        return op.constant(up, "scales_up"), op.constant(down, "scales_down")
    one = op.constant(np.ones(1, np.float32), "one")
    return op.add("Max", scales, one, hint="scales_up"), op.add("Min", scales, one, hint="scales_down")


def _set_inputs(op: Writer, *names: str) -> None:
    del op.node.input[:]
    op.node.input.extend(names)


# Nearest pixels at (x + 0.5) / scale are those at half_pixel's (x + 0.5) / scale - 0.5, rounded another way.
_ROUNDED_ANEW = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


def _half_pixels_of_tensorflow(op: Writer) -> None:
    """Replace `tf_half_pixel_for_nn`, which opset 13 removed, and leave out the scales where sizes are given."""
    if len(op.node.input) > 3 and op.node.input[3]:
        op.node.input[2] = ""
    if op.attribute("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        mode, rounding = op.attribute("mode", "nearest"), op.attribute("nearest_mode", "round_prefer_floor")
        if mode != "nearest" or rounding not in _ROUNDED_ANEW:
            raise NodeNotRaised(f"it has no tf_half_pixel_for_nn for mode {mode} and nearest_mode {rounding}")
        op.write(coordinate_transformation_mode="half_pixel", nearest_mode=_ROUNDED_ANEW[rounding])
    op.keep()


RULES = {
    "asymmetric-resize": _asymmetric_resize,
    "half-pixels-of-tensorflow": _half_pixels_of_tensorflow,
    "scales-of-images": _scales_of_images,
    "scales-to-input": _scales_to_input,
}
