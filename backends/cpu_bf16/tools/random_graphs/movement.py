"""Operators that move, select, resize and reduce."""

from __future__ import annotations

import numpy as np

from .graph import BOOL, FLOAT, INT64, Graph, Impossible, Value

__all__ = ["OPERATORS"]

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
    "ReduceLogSum", "ReduceProd",
)  # fmt: skip


def _some(g: Graph, least: int = 1) -> Value:
    return g.floats(lambda value: value.rank >= least and 0 not in value.shape)


def _reduction(op_type: str):
    def make(g: Graph) -> None:
        value = _some(g)
        if op_type in ("ReduceProd",):
            value = g.squash(value)
        if op_type == "ReduceLogSum":
            value = g.node("Add", [g.node("Abs", [value]), g.constant(np.float32(0.5))], bound=value.bound + 1)
        count = g.integer(1, value.rank)
        axes = sorted(int(axis) for axis in g.rng.choice(value.rank, count, replace=False))
        axes = [axis - value.rank if g.chance(0.3) else axis for axis in axes]
        size = int(np.prod([value.shape[axis] for axis in axes]))
        bound = {"ReduceSum": value.bound * size, "ReduceL1": value.bound * size, "ReduceL2": value.bound * size**0.5}
        bound = bound.get(op_type, value.bound**2 * size if op_type == "ReduceSumSquare" else max(value.bound, 12.0))
        options = {"keepdims": g.integer(0, 1)}
        if g.opset >= (13 if op_type == "ReduceSum" else 18):
            g.node(op_type, [value, g.ints(*axes)], bound=bound, **options)
        else:
            g.node(op_type, [value], bound=bound, axes=axes, **options)

    return make


def _arg(op_type: str):
    def make(g: Graph) -> None:
        value = _some(g)
        g.node(op_type, [value], axis=g.integer(0, value.rank - 1), keepdims=g.integer(0, 1))

    return make


def _cumsum(g: Graph) -> None:
    value = _some(g)
    axis = g.integer(0, value.rank - 1)
    options = {"exclusive": g.integer(0, 1), "reverse": g.integer(0, 1)}
    g.node("CumSum", [value, g.constant(np.int64(axis))], bound=value.bound * value.shape[axis], **options)


def _top_k(g: Graph) -> None:
    value = _some(g)
    axis = g.integer(0, value.rank - 1)
    count = g.integer(1, value.shape[axis])
    g.results("TopK", [value, g.ints(count)], 2, bound=value.bound, axis=axis, largest=g.integer(0, 1))


def _reshape(g: Graph) -> None:
    value = _some(g)
    shape = g.factors(int(np.prod(value.shape)), g.integer(1, 4))
    if g.chance(0.4):
        shape[g.integer(0, len(shape) - 1)] = -1
    g.node("Reshape", [value, g.ints(*shape)], bound=value.bound)


def reshape_like(g: Graph) -> None:
    """Through shape arithmetic."""
    value = _some(g)
    flat = g.node("Reshape", [value, g.ints(-1)], bound=value.bound)
    made = Value(g.fresh("v"), FLOAT, value.shape, value.bound)
    shape = g.node("Shape", [value])
    from onnx import helper

    g.opaque(helper.make_node("Reshape", [flat.name, shape.name], [made.name], made.name), [made])


def _flatten(g: Graph) -> None:
    value = _some(g)
    g.node("Flatten", [value], axis=g.integer(0, value.rank), bound=value.bound)


def _transpose(g: Graph) -> None:
    value = g.pick(g.choose([FLOAT, FLOAT, FLOAT, BOOL, INT64]), lambda v: v.rank >= 2)
    perm = [int(axis) for axis in g.rng.permutation(value.rank)]
    g.node("Transpose", [value], perm=perm, bound=value.bound)


def _squeeze(g: Graph) -> None:
    value = g.floats(lambda v: 1 in v.shape)
    g.node("Squeeze", [value, g.ints(value.shape.index(1))], bound=value.bound)


def _unsqueeze(g: Graph) -> None:
    value = g.floats(lambda v: v.rank <= 3)
    g.node("Unsqueeze", [value, g.ints(g.integer(0, value.rank))], bound=value.bound)


def _concat(g: Graph) -> None:
    value = _some(g)
    axis = g.integer(0, value.rank - 1)

    def same(other: Value) -> bool:
        pairs = enumerate(zip(other.shape, value.shape))
        return other.rank == value.rank and all(a == b for i, (a, b) in pairs if i != axis)

    parts = [value, *(g.floats(same) for _ in range(g.integer(1, 2)))]
    axis = axis - value.rank if g.chance(0.3) else axis
    g.node("Concat", parts, axis=axis, bound=max(part.bound for part in parts))


def _split(g: Graph) -> None:
    value = g.floats(lambda v: any(extent >= 2 for extent in v.shape))
    axis = g.choose([i for i, extent in enumerate(value.shape) if extent >= 2])
    first = g.integer(1, value.shape[axis] - 1)
    sizes = g.ints(first, value.shape[axis] - first)
    g.results("Split", [value, sizes], 2, bound=value.bound, axis=axis)


def _slice_(g: Graph) -> None:
    value = g.floats(lambda v: any(extent >= 2 for extent in v.shape))
    axis = g.choose([i for i, extent in enumerate(value.shape) if extent >= 2])
    extent = value.shape[axis]
    if g.chance(0.2):
        ends = (extent - 1, -extent - 1, -1)
    else:
        start = g.integer(0, extent - 1)
        ends = (start, g.integer(start + 1, extent), g.integer(1, 2))
    parts = [g.ints(number) for number in (*ends[:2], axis - value.rank if g.chance(0.3) else axis, ends[2])]
    g.node("Slice", [value, *parts], bound=value.bound)


def _indices(g: Graph, extent: int, shape) -> np.ndarray:
    low = -extent if g.chance(0.3) else 0
    return g.rng.integers(low, extent, shape).astype(np.int64)


def _gather(g: Graph) -> None:
    value = _some(g)
    axis = g.integer(0, value.rank - 1)
    shape = g.choose([(), (2,), (1, 3)])
    g.node("Gather", [value, g.constant(_indices(g, value.shape[axis], shape))], axis=axis, bound=value.bound)


def _gather_elements(g: Graph) -> None:
    value = _some(g)
    axis = g.integer(0, value.rank - 1)
    shape = list(value.shape)
    shape[axis] = g.integer(1, 3)
    index = g.constant(_indices(g, value.shape[axis], shape))
    g.node("GatherElements", [value, index], axis=axis, bound=value.bound)


def _gather_nd(g: Graph) -> None:
    value = _some(g)
    depth = g.integer(1, value.rank)
    rows = np.stack([_indices(g, value.shape[axis], 3) for axis in range(depth)], axis=1)
    g.node("GatherND", [value, g.constant(rows)], bound=value.bound)


def _scatter_elements(g: Graph) -> None:
    value = _some(g)
    axis = g.integer(0, value.rank - 1)
    shape = list(value.shape)
    shape[axis] = 1
    index = g.constant(_indices(g, value.shape[axis], shape))
    options = {"axis": axis}
    if g.opset >= 18 and g.chance(0.5):
        options["reduction"] = g.choose(["add", "mul", "max", "min"])
    g.node("ScatterElements", [value, index, g.weight(*shape)], bound=value.bound * 2, **options)


def _scatter_nd(g: Graph) -> None:
    value = _some(g)
    rows = g.rng.permutation(value.shape[0])[: g.integer(1, value.shape[0])].astype(np.int64)[:, None]
    options = {"reduction": g.choose(["add", "max"])} if g.opset >= 18 and g.chance(0.4) else {}
    updates = g.weight(len(rows), *value.shape[1:])
    g.node("ScatterND", [value, g.constant(rows), updates], bound=value.bound + 3, **options)


def _expand(g: Graph) -> None:
    value = g.floats(lambda v: 1 <= v.rank <= 4 and int(np.prod(v.shape)) <= 400)
    shape = [g.integer(2, 3) if extent == 1 and g.chance(0.7) else extent for extent in value.shape]
    if value.rank < 4 and g.chance(0.3):
        shape.insert(0, 2)
    g.node("Expand", [value, g.ints(*shape)], bound=value.bound)


def _tile(g: Graph) -> None:
    value = g.floats(lambda v: v.rank >= 1 and int(np.prod(v.shape)) <= 400)
    g.node("Tile", [value, g.ints(*(g.integer(1, 2) for _ in value.shape))], bound=value.bound)


def _pad(g: Graph) -> None:
    value = _some(g)
    mode = g.choose(["constant", "constant", "edge", "reflect"])
    most = [min(2, extent - 1) if mode == "reflect" else 2 for extent in value.shape]
    least = [0 if extent < 3 else -1 if mode == "constant" and g.chance(0.1) else 0 for extent in value.shape]
    pads = [g.integer(a, b) if g.chance(0.5) else 0 for a, b in zip(least * 2, most * 2)]
    filler = g.constant(np.float32(g.choose([0.0, 0.5]))) if mode == "constant" and g.chance(0.6) else None
    g.node("Pad", [value, g.ints(*pads), filler], mode=mode, bound=value.bound)


def _depth_to_space(g: Graph) -> None:
    value = g.floats(lambda v: v.rank == 4 and v.shape[1] % 4 == 0)
    g.node("DepthToSpace", [value], blocksize=2, mode=g.choose(["DCR", "CRD"]), bound=value.bound)


def _space_to_depth(g: Graph) -> None:
    value = g.floats(lambda v: v.rank == 4 and v.shape[2] % 2 == 0 and v.shape[3] % 2 == 0)
    g.node("SpaceToDepth", [value], blocksize=2, bound=value.bound)


def _trilu(g: Graph) -> None:
    value = _some(g, 2)
    offset = g.constant(np.int64(g.integer(-1, 1))) if g.chance(0.5) else None
    g.node("Trilu", [value, offset], upper=g.integer(0, 1), bound=value.bound)


def _reverse_sequence(g: Graph) -> None:
    value = _some(g, 2)
    lengths = g.constant(g.rng.integers(1, value.shape[0] + 1, value.shape[1]).astype(np.int64))
    g.node("ReverseSequence", [value, lengths], time_axis=0, batch_axis=1, bound=value.bound)


def _center(g: Graph) -> None:
    value = _some(g)
    shape = [max(1, extent + g.integer(-1, 2)) for extent in value.shape]
    g.node("CenterCropPad", [value, g.ints(*shape)], bound=value.bound)


def _one_hot(g: Graph) -> None:
    index = g.pick(INT64, lambda v: v.rank <= 2)
    index = g.node("Mod", [g.node("Abs", [index]), g.constant(np.int64(4))])
    ends = g.constant(np.array([0.0, 1.5], np.float32))
    g.node("OneHot", [index, g.constant(np.int64(4)), ends], axis=-1, bound=1.5)


def _eye_like(g: Graph) -> None:
    g.node("EyeLike", [g.ranked(2)], k=g.integer(-1, 1), dtype=FLOAT, bound=1.0)


def positions(g: Graph) -> None:
    """Range, Cast and a sum."""
    value = _some(g)
    extent = value.shape[-1]
    ends = [g.constant(np.int64(number)) for number in (0, extent, 1)]
    counted = g.node("Range", ends)
    if counted.shape == (None,):
        g.ends.remove(counted)
        counted = Value(counted.name, INT64, (extent,), float(extent))
        g.values.append(counted)
    number = g.node("Cast", [counted], to=FLOAT, bound=float(extent))
    g.node("Add", [value, number], bound=value.bound + extent)


def _fill(g: Graph) -> None:
    from onnx import helper

    value = _some(g)
    shape = g.node("Shape", [value])
    made = Value(g.fresh("v"), FLOAT, value.shape, 0.25)
    node = helper.make_node("ConstantOfShape", [shape.name], [made.name], made.name)
    node.attribute.append(helper.make_attribute("value", helper.make_tensor("value", FLOAT, [1], [0.25])))
    g.opaque(node, [made])
    g.node("Add", [value, made], bound=value.bound + 0.25)


def extents(g: Graph) -> None:
    """Numbers made of a shape."""
    value = g.floats()
    if g.chance(0.5):
        g.node("Cast", [g.node("Size", [value])], to=FLOAT, bound=float(np.prod(value.shape)))
    else:
        g.node("Cast", [g.node("Shape", [value])], to=FLOAT, bound=float(max(value.shape, default=0)))


def _resize(g: Graph) -> None:
    value = g.ranked(3, 4, 4)
    mode = g.choose(["nearest", "linear", "cubic"] if value.rank == 4 else ["nearest", "linear"])
    where = g.choose(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    options = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        options["nearest_mode"] = g.choose(["floor", "round_prefer_floor", "ceil", "round_prefer_ceil"])
    factors = [1.0, 1.0, *(g.choose([0.5, 1.0, 1.5, 2.0]) for _ in value.shape[2:])]
    factors = [1.0 if extent == 1 else factor for extent, factor in zip(value.shape, factors)]
    sizes = [max(1, int(extent * factor)) for extent, factor in zip(value.shape, factors)]
    if g.chance(0.5) or where == "align_corners":
        g.node("Resize", [value, None, None, g.ints(*sizes)], bound=value.bound * 1.3, **options)
    else:
        scales = g.constant(np.array(factors, np.float32))
        g.node("Resize", [value, None, scales], bound=value.bound * 1.3, **options)


def _col2im(g: Graph) -> None:
    value = g.ranked(2)
    rows, columns = value.shape
    blocks = g.node("Reshape", [value, g.ints(1, rows, columns)], bound=value.bound)
    g.node("Col2Im", [blocks, g.ints(1, columns), g.ints(1, 1)], bound=value.bound)


def _depends_on_data(op_type: str):
    def make(g: Graph) -> None:
        value = _some(g)
        if op_type == "Compress":
            flags = g.constant(g.rng.random(value.shape[0]) < 0.6)
            g.node("Compress", [value, flags], axis=0)
        elif op_type == "NonZero":
            g.node("NonZero", [g.node("Greater", [value, g.constant(np.float32(0.1))])])
        else:
            whole = g.node("Round", [value])
            g.node("Unique", [whole], sorted=1)

    return make


def _affine_grid(g: Graph) -> None:
    if g.opset < 20:
        raise Impossible
    theta = g.floats(lambda v: v.shape[1:] == (2, 3))
    g.node("AffineGrid", [theta, g.ints(theta.shape[0], 1, 2, 3)], align_corners=g.integer(0, 1), bound=theta.bound * 3)


OPERATORS = {
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: _depends_on_data(name) for name in ("Compress", "NonZero", "Unique")},
    "CumSum": _cumsum,
    "TopK": _top_k,
    "Reshape": _reshape,
    "Reshape to a shape": reshape_like,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice_,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _trilu,
    "ReverseSequence": _reverse_sequence,
    "CenterCropPad": _center,
    "OneHot": _one_hot,
    "EyeLike": _eye_like,
    "Range": positions,
    "ConstantOfShape": _fill,
    "Shape": extents,
    "Resize": _resize,
    "Col2Im": _col2im,
    "AffineGrid": _affine_grid,
}
"""Functions that add an operator to a graph, by name."""
