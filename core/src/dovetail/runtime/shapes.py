"""Shapes of results against the shapes that a model declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["ShapeMismatch", "shape_mismatches"]


class ShapeMismatch(NamedTuple):
    """A result whose shape the model rules out.

    Attributes:
        node: Name of the node that computes it, or empty.
        text: What is wrong, to follow the name of the engine.
    """

    node: str
    text: str


def shape_mismatches(values: Iterable[ir.Value], results: Mapping[str, object]) -> list[ShapeMismatch]:
    """The results whose rank or known extents are not those that the model declares; sequences have no shape."""
    found = []
    for value in values:
        shape = getattr(results[value.name], "shape", None)
        if shape is None or value.shape is None or _fits(value.shape, shape):
            continue
        producer = value.producer()
        text = f"gives '{value.name}' the shape {list(shape)}, the model declares {value.shape}"
        found.append(ShapeMismatch((producer.name or "") if producer is not None else "", text))
    return found


def _fits(declared: ir.Shape, given: tuple[int, ...]) -> bool:
    return len(declared) == len(given) and all(
        not isinstance(extent, int) or extent < 0 or extent == got for extent, got in zip(declared, given)
    )
