"""Inputs whose extents a model leaves open, and the option that fixes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


UNKNOWN = "N"
"""Stands in an option for an extent that only the user knows."""


def open_inputs(model: Model) -> list[ir.Value]:
    """The inputs of a model with an extent that is no number; initializers are none."""
    return [value for value in model.graph.inputs if not value.is_initializer() and _is_open(value)]


def fixing_option(inputs: Iterable[ir.Value], known: Mapping[str, Sequence[int]] | None = None) -> tuple[str, bool]:
    """The option that fixes inputs, ready to copy, and whether nothing in it is left to fill in.

    Args:
        inputs: The inputs.
        known: Shapes of some of them. Of others, a first extent is one: it counts samples in most models, and backends
            that take fixed shapes are fed one sample at a time.
    """
    words, complete = [], True
    for value in inputs:
        guessed = [_guess(extent, axis) for axis, extent in enumerate(value.shape or (UNKNOWN,))]
        shape = (known or {}).get(name_of(value)) or guessed
        complete &= UNKNOWN not in shape
        words += ["--fix-shape", f"{value.name}:{'x'.join(map(str, shape))}"]
    return shlex.join(words), complete


def shape_text(value: ir.Value) -> str:
    """The shape of a value as text: `[N, 3, ?]`."""
    if value.shape is None:
        return "of unknown rank"
    texts = (str(extent) if isinstance(extent, int) else extent.value or "?" for extent in value.shape)
    return f"[{', '.join(texts)}]"


def _guess(extent: object, axis: int) -> object:
    return extent if isinstance(extent, int) and extent > 0 else 1 if axis == 0 else UNKNOWN


def _is_open(value: ir.Value) -> bool:
    import onnx_ir as ir

    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return False
    return value.shape is None or any(not isinstance(extent, int) or extent < 0 for extent in value.shape)
