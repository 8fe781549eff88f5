"""Random inputs, where there is no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.required import name_of

from dovetail_verify.extents import random_shapes

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir.model import Model


def random_batch(
    model: Model, seed: int = 0, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, np.ndarray]:
    """Random inputs for a model, by name.

    Args:
        model: The model.
        seed: The same seed gives the same values.
        shapes: Shapes by input name, where the model leaves them open.

    Raises:
        DovetailError: An input has no rank or no type of which random values can be made.
    """
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    return random_feeds(inputs, random_shapes(inputs, shapes or {}), seed)


def random_feeds(inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Random values for every input, in shapes that were chosen.

    Raises:
        DovetailError: An input has no rank or no type of which random values can be made.
    """
    names = map(name_of, inputs)
    return {name: _random(inputs[at], shapes.get(name), seed + at) for at, name in enumerate(names)}


def _random(value: ir.Value, shape: tuple[int, ...] | None, seed: int) -> np.ndarray:
    """Random values of an input's type: normal floats, small integers that are valid as indices nearly everywhere."""
    import numpy as np

    if value.dtype is None or value.dtype.name == "STRING" or shape is None:
        raise DovetailError(f"no random values can be made for input '{value.name}'", "give --data")
    generator = np.random.default_rng(seed)
    if value.dtype.name == "BOOL":
        return np.asarray(generator.random(shape) < 0.5)
    if value.dtype.is_integer():
        return np.asarray(generator.integers(0, 2, shape), value.dtype.numpy())
    return np.asarray(generator.standard_normal(shape)).astype(value.dtype.numpy())
