"""Steps of a random graph that move data, and compute shapes and positions."""

import numpy as np
from onnx import helper

from .grown_values import axes_form, floats, integers, pick


def concat(g):
    one = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1)
    axis = int(g.rng.integers(g.arrays[one].ndim))
    fits = [
        name for name in g.values(lambda array: array.dtype == g.float and array.ndim == g.arrays[one].ndim)
        if all(a == b for i, (a, b) in enumerate(zip(g.arrays[name].shape, g.arrays[one].shape)) if i != axis)
    ]  # fmt: skip
    g.add("Concat", *([one, str(g.rng.choice(fits))][:: int(g.rng.choice([1, -1]))]), axis=axis)


def split(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim and array.shape[-1] > 2)
    last = g.arrays[value].shape[-1]
    g.add("Split", value, g.whole(1, last - 1), outputs=2, axis=-1)


def slices(g):
    value = pick(g, lambda array: array.dtype.kind in "fi" and array.ndim and max(array.shape) > 2)
    axis = int(np.argmax(g.arrays[value].shape))
    end = int(g.rng.choice([-1, 2**63 - 1, 3]))
    g.add("Slice", value, g.whole(1), g.whole(end), g.whole(axis), g.whole(int(g.rng.choice([1, 2]))))


def pad(g):
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 2)
    rank = g.arrays[value].ndim
    before, after = [0] * (rank - 1) + [1], [0] * (rank - 1) + [2]
    mode = str(g.rng.choice(["constant", "edge", "reflect"]))
    g.add("Pad", value, g.whole(*before, *after), *([g.number(0.5)] if mode == "constant" else []), mode=mode)


def transpose(g):
    value = pick(g, lambda array: array.ndim >= 2 and array.dtype.kind == "f")
    g.add("Transpose", value, perm=g.rng.permutation(g.arrays[value].ndim).tolist())


def reshape(g):
    """To fixed extents, or to those that are computed from the value's own."""
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 2)
    shape = g.arrays[value].shape
    kind = g.rng.integers(4)
    if kind == 0:
        g.add("Reshape", value, g.whole(shape[0], -1))
    elif kind == 1:
        extents = g.add("Shape", value, keep=False)
        batch = g.add("Gather", extents, g.weight(np.int64(0), shared=True), axis=0, keep=False)
        batch = axes_form(g, "Unsqueeze", batch, [0], 13, keep=False)
        g.add("Reshape", value, g.add("Concat", batch, g.whole(-1), axis=0, keep=False))
    elif kind == 2:
        g.add("Flatten", value, axis=1)
    else:
        g.add("Reshape", value, g.whole(0, -1, shape[-1]))


def squeeze(g):
    value = floats(g)
    ones = [axis for axis, extent in enumerate(g.arrays[value].shape) if extent == 1]
    if ones and g.rng.random() < 0.5:
        axes_form(g, "Squeeze", value, ones[:1], 13)
    elif g.arrays[value].ndim < 4:
        axes_form(g, "Unsqueeze", value, [int(g.rng.integers(2)) if g.arrays[value].ndim else 0], 13)


def shape_as_number(g):
    """An extent that is used as a float."""
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1)
    extent = g.add("Gather", g.add("Shape", value, keep=False), g.weight(np.int64(-1), shared=True), keep=False)
    number = g.add("Cast", extent, to=helper.np_dtype_to_tensor_dtype(np.dtype(g.float)), keep=False)
    g.add("Div", value, g.add("Sqrt", number))


def expand(g):
    value = floats(g)
    shape = g.add("Shape", value, keep=False)
    g.add("Mul", value, g.add("Expand", g.number(0.5), shape))


def choose(g):
    """Positions, and what stands there."""
    value = pick(g, lambda array: array.dtype == g.float and array.ndim >= 1 and array.shape[-1] > 2)
    kind = g.rng.integers(4)
    if kind == 0:
        g.add("TopK", value, g.whole(2), outputs=2)
    elif kind == 1:
        g.add("ArgMax", value, axis=-1, keepdims=int(g.rng.integers(2)))
    elif kind == 2:
        g.add("Gather", value, g.whole(2, 0), axis=-1)
    else:
        best = g.add("ArgMax", value, axis=-1, keepdims=1)
        g.add("GatherElements", value, best, axis=-1)


def embedding(g):
    ids = integers(g)
    rows = g.add(
        "Clip", ids, g.weight(np.asarray(0, g.arrays[ids].dtype)), g.weight(np.asarray(9, g.arrays[ids].dtype))
    )
    g.add("Gather", g.normal(10, 6, scale=1.0), rows, axis=0)
