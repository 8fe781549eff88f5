"""Random inputs if there is no data, with extents where a model leaves them open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail_runtime.data.independent_rows import extent_name
from dovetail_runtime.feeds import given_inputs

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model


CANDIDATES = (16, 64, 224, 640, 8, 1)
"""Extents to try along open axes, in order: text, small images, images, few elements, one."""

_LARGEST = 1 << 16  # elements; a longer axis of random data has no benefit
_LONGEST = 200  # characters of a formula
_TOKEN = re.compile(r"\s*(?:(?P<number>\d{1,9})|(?P<name>[A-Za-z_][\w.]*)|(?P<mark>//|[-+*/%()]))")


def random_shapes(
    inputs: Sequence[ir.Value], given: Mapping[str, Sequence[int]], candidate: int = CANDIDATES[0]
) -> dict[str, tuple[int, ...]]:
    """Choose a shape for every input of known rank.

    Extents of one name are equal everywhere. An extent name on a first axis is a batch, and becomes 1.

    Args:
        inputs: The inputs of a model.
        given: Shapes chosen by the user, by input name; they also fix extents of the same name elsewhere.
        candidate: Extent of the other open axes.
    """
    ranked = {name_of(value): value.shape for value in inputs if value.shape is not None}
    known: dict[str, int] = {}
    for input_name, shape in ranked.items():
        for extent, chosen in zip(shape, given.get(input_name, ())):
            if name := extent_name(extent):
                known.setdefault(name, chosen)
    names = [(extent_name(extent), axis) for shape in ranked.values() for axis, extent in enumerate(shape)]
    plain = {name for name, _ in names if name and len(list(_tokens(name))) <= 1}
    for name, axis in names:
        if name in plain and axis == 0:
            known.setdefault(name, 1)
    for name in plain:
        known.setdefault(name, candidate)
    return {
        input_name: tuple(given[input_name])
        if input_name in given
        else tuple(_extent(extent, axis, known, candidate) for axis, extent in enumerate(shape))
        for input_name, shape in ranked.items()
    }


def _extent(extent: object, axis: int, known: Mapping[str, int], candidate: int) -> int:
    if isinstance(extent, int) and extent >= 0:
        return extent
    name = extent_name(extent)
    if name in known:
        return known[name]
    computed = _Formula(name, known, candidate).value() if name else None
    return computed if computed is not None else 1 if axis == 0 else candidate


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each token; a text that is not a formula ends with a token of kind `other`."""
    position = 0
    text = text.rstrip() if len(text) <= _LONGEST else "?"
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            yield "other", text[position:]
            return
        yield str(found.lastgroup), found.group().strip()
        position = found.end()


class _Formula:
    """Arithmetic formula in the name of an extent: `past + 1`, `N // 2`, `2*(H - 1)`."""

    def __init__(self, text: str, known: Mapping[str, int], unknown: int):
        self._tokens = [*_tokens(text), ("end", "")]
        self._next = 0
        self._known = known
        self._unknown = unknown

    def value(self) -> int | None:
        """Evaluate the formula; None if the text is not one, or its value is not a valid extent."""
        try:
            found = self._sum()
        except (ValueError, ZeroDivisionError):
            return None
        at_end = self._tokens[self._next][0] == "end"
        return int(found) if at_end and found == int(found) and 0 < found <= _LARGEST else None

    def _take(self, *marks: str) -> str:
        kind, text = self._tokens[self._next]
        if kind != "mark" or text not in marks:
            return ""
        self._next += 1
        return text

    def _sum(self) -> float:
        found = self._product()
        while sign := self._take("+", "-"):
            right = self._product()
            found = found + right if sign == "+" else found - right
        return found

    def _product(self) -> float:
        found = self._factor()
        while sign := self._take("*", "/", "//", "%"):
            right = self._factor()
            found = {"*": lambda a, b: a * b, "/": lambda a, b: a / b, "//": lambda a, b: a // b,
                     "%": lambda a, b: a % b}[sign](found, right)  # fmt: skip
            if abs(found) > _LARGEST:
                raise ValueError("no extent")
        return found

    def _factor(self) -> float:
        if self._take("-"):
            return -self._factor()
        if self._take("("):
            found = self._sum()
            if not self._take(")"):
                raise ValueError("a bracket is not closed")
            return found
        kind, text = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            return int(text)
        if kind == "name":
            return self._known.get(text, self._unknown)
        raise ValueError("no operand")


def random_batch(
    model: Model, seed: int = 0, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, np.ndarray]:
    """Create random inputs for a model, by name.

    Args:
        model: The model.
        seed: The same seed gives the same values.
        shapes: Shapes by input name, where the model leaves them open.

    Raises:
        DovetailError: An input has unknown rank, or a type without random values.
    """
    inputs = given_inputs(model.graph, shapes or ())
    return random_feeds(inputs, random_shapes(inputs, shapes or {}), seed)


def random_feeds(inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Create random values for every input in the given shapes.

    Raises:
        DovetailError: An input has unknown rank, or a type without random values.
    """
    names = map(name_of, inputs)
    return {name: _random(inputs[at], shapes.get(name), seed + at) for at, name in enumerate(names)}


def _random(value: ir.Value, shape: tuple[int, ...] | None, seed: int) -> np.ndarray:
    """Create random values of an input's type: normal floats, or small integers that are usually valid indices."""
    import numpy as np

    if value.dtype is None or value.dtype.name == "STRING" or shape is None:
        raise DovetailError(f"no random values can be made for input '{value.name}'", "give --data")
    generator = np.random.default_rng(seed)
    if value.dtype.name == "BOOL":
        return np.asarray(generator.random(shape) < 0.5)
    if value.dtype.is_integer():
        return np.asarray(generator.integers(0, 2, shape), value.dtype.numpy())
    return np.asarray(generator.standard_normal(shape)).astype(value.dtype.numpy())
