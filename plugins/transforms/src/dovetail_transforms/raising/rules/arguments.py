"""Attributes that became inputs with a type of their own, or another kind of number."""

from __future__ import annotations

import numpy as np
import onnx

from dovetail_transforms.raising.writer import NodeNotRaised, Writer


def _bounds_to_inputs(op: Writer) -> None:
    """Clip: give the bounds as inputs, in the type of the data.

    Without attributes they are the largest floats of 32 bits, in float64 too.
    """
    data = op.node.input[0]
    largest = float(np.finfo(np.float32).max) if op.element_type(data) == onnx.TensorProto.DOUBLE else None
    for name, default in (("min", largest and -largest), ("max", largest)):
        bound = op.take(name, default)
        op.node.input.append("" if bound is None else op.number_like(bound, data, name))
    while len(op.node.input) > 1 and not op.node.input[-1]:
        op.node.input.pop()
    op.keep()


def _pads_to_inputs(op: Writer) -> None:
    """Pad: give the pads as an input, and the constant value, unless it is zero, in the type of the data."""
    op.node.input.append(op.integers(op.take("pads"), "pads"))
    if value := op.take("value", 0.0):
        op.node.input.append(op.number_like(value, op.node.input[0], "value"))
    op.keep()


def _bounds_of_slices(op: Writer) -> None:
    """Slice: give starts, ends and axes as inputs."""
    starts, ends, axes = op.take("starts"), op.take("ends"), op.take("axes")
    op.node.input.extend([op.integers(starts, "starts"), op.integers(ends, "ends")])
    if axes is not None:
        op.node.input.append(op.integers(axes, "axes"))
    op.keep()


def _sizes_to_attribute(op: Writer) -> None:
    """Split of the first opset takes the sizes as an input, too, as that of opset 13 does."""
    if len(op.node.input) < 2 or not op.node.input[1]:
        del op.node.input[1:]
        op.keep()
        return
    sizes = op.values.constant(op.node.input[1])
    if sizes is not None:
        del op.node.input[1:]
        op.write(split=sizes.astype(np.int64).tolist())
        op.keep()
    elif op.wanted >= _SIZES_ARE_INPUTS:
        op.node.input[1] = op.add("Cast", op.node.input[1], to=onnx.TensorProto.INT64, hint="sizes")
        op.keep(version=_SIZES_ARE_INPUTS)
    else:
        raise NodeNotRaised("the sizes of its parts are not constant")


_SIZES_ARE_INPUTS = 13


def _number_of_parts(op: Writer) -> None:
    """Split: say how many equal parts there are, where no sizes say it."""
    if len(op.node.input) < 2 or not op.node.input[1]:
        op.write(num_outputs=len(op.node.output))
    op.keep()


def _type_by_number(op: Writer) -> None:
    """Cast: give the type as a number instead of a name."""
    name = op.take("to")
    try:
        op.write(to=onnx.TensorProto.DataType.Value(name.upper()))
    except ValueError:
        raise NodeNotRaised(f"there is no type '{name}'") from None
    op.keep()


def _integer_norm(op: Writer) -> None:
    """LpPool: give the order of the norm as an integer."""
    order = op.take("p", 2.0)
    if order != int(order):
        raise NodeNotRaised(f"its norm is of order {order}, which is no integer")
    op.write(p=int(order))
    op.keep()


def _repeats_of_one_axis(op: Writer) -> None:
    """Tile: give the number of tiles along one axis as a list with a number for every axis."""
    x, tiles, axis = op.node.input
    rank = op.rank(x)
    if rank is None:
        raise NodeNotRaised(f"the rank of '{x}' is unknown")
    known = op.values.constant(axis)
    if known is None:
        raise NodeNotRaised(f"its axis ('{axis}') is not constant")
    position = int(known.reshape(-1)[0]) % rank
    one = op.integers([1], "one")
    count = op.add("Reshape", op.add("Cast", tiles, to="INT64", version=1, hint="tiles"), one, version=5, hint="count")
    op.finish("Tile", x, op.add("Concat", *[count if i == position else one for i in range(rank)], axis=0, hint="all"))


def _dft_axis(op: Writer) -> None:
    """DFT: give the axis as an input; its default changed."""
    while len(op.node.input) < 2:
        op.node.input.append("")
    op.node.input.append(op.integers(op.take("axis", 1), "axis"))
    op.keep()


_INTEGERS = frozenset(
    onnx.TensorProto.DataType.Value(name)
    for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
)


def _integers_through_floats(op: Writer) -> None:
    """Compute integers, which the newer version does not take, as floats, and cut the result off."""
    kind = op.values.element_type(op.node.input[0])
    if kind not in _INTEGERS:
        op.keep()
        return
    result, op.node.output[0] = op.node.output[0], op.fresh("float_result")
    op.node.input[0] = op.add("Cast", op.node.input[0], to=onnx.TensorProto.DOUBLE, hint="float")
    op.keep()
    op.add_named(result, "Cast", op.node.output[0], to=kind)


RULES = {
    "bounds-of-slices": _bounds_of_slices,
    "bounds-to-inputs": _bounds_to_inputs,
    "dft-axis": _dft_axis,
    "integer-norm": _integer_norm,
    "integers-through-floats": _integers_through_floats,
    "number-of-parts": _number_of_parts,
    "pads-to-inputs": _pads_to_inputs,
    "repeats-of-one-axis": _repeats_of_one_axis,
    "sizes-to-attribute": _sizes_to_attribute,
    "type-by-number": _type_by_number,
}
