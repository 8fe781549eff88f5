"""Profile of a region: the bounds of its inputs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import name_of
from dovetail.plugin import Evaluator
from dovetail_transforms import evaluator_of

from dovetail_tensorrt.profiles.bounds import ExtentBounds, Profile, named_extents, read_attribute
from dovetail_tensorrt.profiles.extents import Extents, Point, extents_at
from dovetail_tensorrt.profiles.given import given_profile

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


_EVALUATOR = "reference"
_INTEGERS = ("INT64", "INT32")


class KnownBounds:
    """Analysis: bounds of the values in a model's main graph.

    Attributes:
        given: The profile of its inputs.
    """

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> KnownBounds:
        """Infer the bounds from the profile of the request, or from its data."""
        return cls(model, given_profile(model, ctx), evaluator_of(ctx.registry, _EVALUATOR))

    def __init__(self, model: Model, given: Profile, evaluator: Evaluator | None = None):
        self.given = given
        self._values = {value.name: value for value in model.graph.inputs}
        self._values |= {value.name: value for node in model.graph for value in node.outputs if value.name}
        named = named_extents(model, given)
        points: list[Point] = []
        for at in range(3):
            shapes = {name: bounds.shapes[at] for name, bounds in given.items()}
            extents = {name: numbers[at] for name, numbers in named.items()}
            numbers = {name: bounds.values[at] for name, bounds in given.items() if bounds.values is not None}
            same = at and all(bounds.is_static for bounds in given.values())
            points.append(points[0] if same else extents_at(model, shapes, extents, numbers, evaluator))
        self._points = points

    def of(self, name: str) -> ExtentBounds | None:
        """Return the bounds of a value; None if an extent stays open."""
        shapes = [self._shape(point, name) for point in self._points]
        if any(shape is None or None in shape for shape in shapes):
            return None
        return ExtentBounds(_three(shapes), self._numbers(name))

    def open_axes(self, name: str) -> str:
        """Describe the extents of a value that stay open."""
        for point in self._points:
            shape = self._shape(point, name)
            if shape is None:
                return "its rank"
            if axes := [str(axis) for axis, extent in enumerate(shape) if extent is None]:
                return f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(axes)}"
        return ""

    def lost(self, name: str) -> ir.Value | None:
        """Return the value that causes open extents of another one.

        This is an input of the model, or a result whose extents depend on the content of operands with known extents.
        """
        value, seen = self._values.get(name), set()
        while value is not None and (node := value.producer()) is not None and node not in seen:
            seen.add(node)
            read = (one for one in node.inputs if one is not None and not _is_constant(one))
            unknown = next((one for one in read if self.of(name_of(one)) is None), None)
            if unknown is None:
                return value
            value = unknown
        return value

    def text(self, name: str, letters: Sequence[str]) -> list[str]:
        """Format the extents of a value, once with each of `letters` in place of open ones: `["MINx3", "MAXx3"]`."""
        shape = self._shape(self._points[0], name)
        return ["x".join(letter if one is None else str(one) for one in shape) for letter in letters] if shape else []

    def _shape(self, point: Point, name: str) -> Extents | None:
        shape = point.shapes.get(name)
        if shape is None and name in point.numbers:
            return tuple(point.numbers[name].shape)
        return shape

    def _numbers(self, name: str) -> tuple | None:
        """Return the content of integers that depend only on extents, or that the profile gives."""
        value = self._values.get(name)
        if value is not None and value.is_graph_input():
            return self.given[name].values if name in self.given else None
        if value is None or value.dtype is not None and value.dtype.name not in _INTEGERS:
            return None
        arrays = [array for point in self._points if (array := point.numbers.get(name)) is not None]
        if len(arrays) < len(self._points) or any(array.ndim > 1 or array.dtype.kind != "i" for array in arrays):
            return None
        return _three([tuple(map(int, array.reshape(-1))) for array in arrays])


def _three(points: list) -> tuple:
    """Return the minimum, optimum and maximum of each axis; an extent that shrinks as inputs grow is reordered."""
    if len({len(point) for point in points}) != 1:
        return tuple(points)
    axes = list(zip(*points, strict=True))
    return tuple(map(min, axes)), tuple(points[1]), tuple(map(max, axes))


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and value.producer() is None


ATTRIBUTES = ("min_shapes", "opt_shapes", "max_shapes")
"""Attributes of an engine operator with its profile: one text per input, `name:1x3x224x224`."""


@dataclass(frozen=True)
class RegionProfile:
    """Bounds of a region's inputs.

    Attributes:
        bounds: Bounds by input name, in order, without inputs with open extents.
        lost: Why extents of inputs stay open, one sentence each; if empty, an engine can be built.
        suggest: What to add to the command line; empty if that would not help.
    """

    bounds: dict[str, ExtentBounds]
    lost: tuple[str, ...] = field(default=())
    suggest: str = ""

    def attributes(self) -> dict[str, list[str]]:
        """Return the attributes for the profile; empty if it is incomplete, or the region has no inputs."""
        if self.lost or not self.bounds:
            return {}
        texts = [[f"{name}:{point}" for point in bounds.texts()] for name, bounds in self.bounds.items()]
        return {name: list(column) for name, column in zip(ATTRIBUTES, zip(*texts, strict=True), strict=True)}


def region_profile(region: Model, model: Model | None, ctx: Context | None) -> RegionProfile:
    """Derive the profile of a region from that of the model.

    Args:
        region: The region as a separate model.
        model: The model that contains it.
        ctx: The context of the compilation; without one, only declared extents are known.

    Raises:
        DovetailError: The profile contradicts itself, or the data does not match.
    """
    inputs = [value for value in region.graph.inputs if not value.is_initializer()]
    found = {name_of(value): _declared(value) for value in inputs}
    integers = any(value.dtype is not None and value.dtype.name in ("INT32", "INT64") for value in inputs)
    if ctx is None or model is None or not integers and None not in found.values():
        lost = tuple(f"nobody says the extents of '{name}'" for name, bounds in found.items() if bounds is None)
        return RegionProfile({name: bounds for name, bounds in found.items() if bounds is not None}, lost)
    known = ctx.analysis(KnownBounds, model)
    open_: list[str] = []
    suggest = ""
    for name, declared in found.items():
        bounds = known.of(name)
        found[name] = bounds if bounds is not None else declared
        if found[name] is None:
            open_.append(_why_open(name, known))
            suggest = suggest or _suggestion(name, known)
    return RegionProfile({name: bounds for name, bounds in found.items() if bounds is not None}, tuple(open_), suggest)


def recorded_profile(call: ir.Node, inputs: list[str]) -> dict[str, ExtentBounds]:
    """Return the profile recorded in a call of a region's function, by current input names.

    Args:
        call: The call.
        inputs: The names of its inputs, without weights, in order.
    """
    columns = [call.attributes[name].value for name in ATTRIBUTES if name in call.attributes]
    if len(columns) != len(ATTRIBUTES):
        return {}
    bounds = read_attribute(zip(*columns, strict=True)).values()
    return dict(zip(inputs, bounds, strict=False))


def _declared(value: ir.Value) -> ExtentBounds | None:
    if value.shape is None or not value.shape.is_static():
        return None
    shape = tuple(value.shape.numpy())
    return ExtentBounds((shape, shape, shape))


def _why_open(name: str, known: KnownBounds) -> str:
    axes, lost = known.open_axes(name), known.lost(name)
    node = lost.producer() if lost is not None else None
    if lost is not None and node is not None:
        decides = "it" if lost.name == name else f"that of '{lost.name}'"
        return f"{axes} of '{name}' is not known: node '{node.name}' ({node.op_type}) decides {decides} by numbers"
    where = "" if lost is None or lost.name == name else f", because input '{lost.name}' leaves extents open"
    return f"{axes} of '{name}' stays open{where}"


def _suggestion(name: str, known: KnownBounds) -> str:
    lost = known.lost(name)
    if lost is None:
        return ""
    points = known.text(name_of(lost), ("MIN", "OPT", "MAX"))
    return shlex.join(["--profile", f"{lost.name}:{':'.join(points)}"]) if points else ""
