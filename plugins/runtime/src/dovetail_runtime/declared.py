"""What a model declares about its values, looked up once for the checks that every call makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir.required import dtype_of

from dovetail_runtime.tensors import matches, value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Declared:
    """Name, type and shape of a value.

    Attributes:
        name: The value's name.
        type: Name of its element type; empty where it has none or is no tensor.
        dtype: The same as NumPy has it; None for strings, whose arrays are of several kinds.
        shape: As the model declares it, for messages; None where it does not.
        extents: The extent of every axis, None where it varies; None where the rank is not known.
        node: Name of the node that computes it, or empty.
    """

    name: str
    type: str
    dtype: np.dtype | None
    shape: ir.Shape | None
    extents: tuple[int | None, ...] | None
    node: str

    def has_type_of(self, array: np.ndarray) -> bool:
        """Whether an array holds elements of the declared type; anything does where none is declared."""
        # Types of NumPy compare quickly; only another byte order or a string needs the names.
        if self.dtype is not None and array.dtype == self.dtype:
            return True
        return not self.type or matches(array, self.type)

    def has_shape(self, shape: Sequence[int]) -> bool:
        """Whether the declared shape allows this one."""
        extents = self.extents
        if extents is None or extents == shape:
            return True
        return len(extents) == len(shape) and all(want is None or want == got for want, got in zip(extents, shape))


class ShapeMismatch(NamedTuple):
    """A result whose shape the model rules out.

    Attributes:
        node: Name of the node that computes it, or empty.
        text: What is wrong, to follow the name of the engine.
    """

    node: str
    text: str


def declared(value: ir.Value) -> Declared:
    """What the model declares about `value`."""
    type_, shape, producer = value_type(value), value.shape, value.producer()
    extents = None
    if shape is not None:
        extents = tuple(extent if isinstance(extent, int) and extent >= 0 else None for extent in shape)
    return Declared(
        name=value.name or "",
        type=type_,
        dtype=dtype_of(value).numpy() if type_ and type_ != "string" else None,
        shape=shape,
        extents=extents,
        node=(producer.name or value.name or "") if producer is not None else "",
    )


def shape_mismatches(values: Sequence[Declared], results: Mapping[str, object]) -> list[ShapeMismatch]:
    """The results whose rank or known extents are not those that the model declares; sequences have no shape."""
    found = []
    for value in values:
        shape = getattr(results[value.name], "shape", None)
        if shape is None or value.has_shape(shape):
            continue
        text = f"gives '{value.name}' the shape {list(shape)}, the model declares {value.shape}"
        found.append(ShapeMismatch(value.node, text))
    return found
