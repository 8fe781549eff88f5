"""What is known of a tensor before it is computed, and the standard functions that infer it for results.

The functions have the names that Paddle's files use; an operator file may name them, or functions of its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

Extent = int | str | None
"""One extent: a number, the name of an open one, or None where nothing is known."""


@dataclass(frozen=True, slots=True)
class Meta:
    """Element type and shape of a tensor.

    Attributes:
        dtype: The element type, as `float32`; empty if it is not known.
        shape: The extents; None if not even their number is known.
    """

    dtype: str
    shape: tuple[Extent, ...] | None = None

    @property
    def rank(self) -> int | None:
        """The number of extents; None if it is not known."""
        return None if self.shape is None else len(self.shape)


def unchanged(x: Meta, *others: object) -> Meta:
    """`UnchangedInferMeta`: the result is like the first argument."""
    del others
    return x


def elementwise(x: Meta, y: Meta, *others: object) -> Meta:
    """`ElementwiseInferMeta`: shapes are broadcast, the type is that of the first argument.

    Raises:
        ValueError: The shapes do not fit.
    """
    del others
    if x.shape is None or y.shape is None:
        return replace(x, shape=None)
    rank = max(len(x.shape), len(y.shape))
    left, right = ((1,) * (rank - len(shape)) + shape for shape in (x.shape, y.shape))
    return replace(x, shape=tuple(_broadcast(one, other, x, y) for one, other in zip(left, right, strict=True)))


def matmul(x: Meta, y: Meta, transpose_x: bool = False, transpose_y: bool = False) -> Meta:
    """`MatmulInferMeta`: the product of matrices, with broadcast leading extents.

    Raises:
        ValueError: The shapes do not fit.
    """
    if x.shape is None or y.shape is None or min(len(x.shape), len(y.shape)) < 2:
        return replace(x, shape=None)
    left, right = _matrix(x.shape, transpose_x), _matrix(y.shape, transpose_y)
    if isinstance(left[-1], int) and isinstance(right[-2], int) and left[-1] != right[-2]:
        raise ValueError(f"matrices of {_text(x.shape)} and {_text(y.shape)} have no product")
    batch = elementwise(replace(x, shape=left[:-2]), replace(y, shape=right[:-2]))
    return replace(x, shape=(*(batch.shape or ()), left[-2], right[-1]))


def concat(x: Sequence[Meta], axis: int = 0) -> Meta:
    """`ConcatInferMeta`: the sum of extents along an axis.

    Raises:
        ValueError: There is no such axis, or the ranks differ.
    """
    shapes = [one.shape for one in x if one.shape is not None]
    if len(shapes) < len(x):
        return replace(x[0], shape=None)
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError(f"tensors of {', '.join(map(_text, shapes))} differ in rank")
    axis = _axis(axis, len(shapes[0]))
    extents = [shape[axis] for shape in shapes]
    known = [extent for extent in extents if isinstance(extent, int)]
    total = sum(known) if len(known) == len(extents) else None
    return replace(x[0], shape=(*shapes[0][:axis], total, *shapes[0][axis + 1 :]))


def transpose(x: Meta, axis: Sequence[int]) -> Meta:
    """`TransposeInferMeta`: extents in another order.

    Raises:
        ValueError: `axis` is no permutation.
    """
    if x.shape is None:
        return x
    if sorted(axis) != list(range(len(x.shape))):
        raise ValueError(f"{list(axis)} is no order of {len(x.shape)} axes")
    return replace(x, shape=tuple(x.shape[index] for index in axis))


def reduce(x: Meta, axis: Sequence[int] = (), keep_dim: bool = False) -> Meta:
    """`ReduceInferMeta`: axes are taken together; all of them if none is named.

    Raises:
        ValueError: There is no such axis.
    """
    if x.shape is None:
        return x
    gone = {_axis(one, len(x.shape)) for one in axis} or set(range(len(x.shape)))
    kept = (1 if index in gone else extent for index, extent in enumerate(x.shape) if keep_dim or index not in gone)
    return replace(x, shape=tuple(kept))


def cast(x: Meta, dtype: str) -> Meta:
    """`CastInferMeta`: another element type."""
    return replace(x, dtype=dtype.lower())


STANDARD: Mapping[str, Callable[..., Meta]] = {
    "CastInferMeta": cast,
    "ConcatInferMeta": concat,
    "ElementwiseInferMeta": elementwise,
    "MatmulInferMeta": matmul,
    "ReduceInferMeta": reduce,
    "TransposeInferMeta": transpose,
    "UnchangedInferMeta": unchanged,
}
"""The standard functions by the names in operator files."""


def _broadcast(one: Extent, other: Extent, x: Meta, y: Meta) -> Extent:
    if one == other or other == 1:
        return one
    if one == 1:
        return other
    if isinstance(one, int) and isinstance(other, int):
        raise ValueError(f"{_text(x.shape)} and {_text(y.shape)} cannot be broadcast")
    # An open extent beside a number other than 1 is that number, or the node fails.
    return next((extent for extent in (one, other) if isinstance(extent, int)), None)


def _matrix(shape: tuple[Extent, ...], transposed: bool) -> tuple[Extent, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"there is no axis {axis} of {rank}")
    return axis % rank


def _text(shape: Sequence[Extent] | None) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape or ()) + "]"
