"""Bounds of a value: minimum, optimum and maximum of its extents, or of its content if that is used as extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of

if TYPE_CHECKING:
    from dovetail.ir import Model


Three: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]"
_POINTS = ("min", "opt", "max")
_VALUES = "="


class ExtentBounds(NamedTuple):
    """Bounds of one value.

    Attributes:
        shapes: Its smallest, usual and largest extents.
        values: Its smallest, usual and largest content if that is used as extents; else None.
    """

    shapes: Three
    values: Three | None = None

    @property
    def is_static(self) -> bool:
        """Whether there is only one shape, and one content."""
        return len(set(self.shapes)) == 1 and (self.values is None or len(set(self.values)) == 1)

    def texts(self) -> tuple[str, str, str]:
        """Return each point as text: `1x3x224x224`, or `=1,192` for content."""
        if self.values is not None:
            return tuple(_VALUES + ",".join(map(str, numbers)) for numbers in self.values)  # type: ignore[return-value]  # three
        return tuple("x".join(map(str, shape)) for shape in self.shapes)  # type: ignore[return-value]  # three

    def entry(self) -> dict[str, list[list[int]]]:
        """Return plain data for a request or a plan."""
        found = {"shapes": [list(shape) for shape in self.shapes]}
        return found | ({"values": [list(numbers) for numbers in self.values]} if self.values is not None else {})

    def excludes(self, shape: Sequence[int]) -> str:
        """Describe the extents of a shape that are out of bounds; empty if none is."""
        low, high = self.shapes[0], self.shapes[2]
        if len(shape) != len(low):
            return f"it has {len(shape)} axes, the profile {len(low)}"
        wrong = [
            f"extent {extent} of axis {axis} is not in {least}..{most}"
            for axis, (extent, least, most) in enumerate(zip(shape, low, high, strict=True))
            if not least <= extent <= most
        ]
        return ", ".join(wrong)


Profile: TypeAlias = "Mapping[str, ExtentBounds]"
"""Bounds by value name."""


def parse_profile(text: str) -> tuple[str, ExtentBounds]:
    """Parse a value and its bounds from `NAME:MIN:OPT:MAX`, with `1x3x224x224` or `=1,192` for each point.

    Raises:
        UsageError: The text is malformed, or contradicts itself.
    """
    parts = text.rsplit(":", 3)
    if len(parts) != 4 or not parts[0]:
        raise UsageError(
            f"--profile {text!r} is not NAME:MIN:OPT:MAX", "such as --profile x:1x3x224x224:4x3x224x224:8x3x224x224"
        )
    name, *points = parts
    return name, bounds_from(name, points)


def bounds_from(name: str, given: Any) -> ExtentBounds:
    """Convert the user's bounds of a value: three shapes, or a mapping with three `shapes` or `values`.

    Raises:
        UsageError: They are malformed, or not in ascending order.
    """
    values = None
    if isinstance(given, Mapping):
        values, given = given.get("values"), given.get("shapes")
    shapes = None if given is None else _three(name, given)
    if isinstance(shapes, ExtentBounds):
        return shapes
    numbers = None if values is None else _ordered(name, [_numbers(name, point) for point in values], 0)
    if shapes is None:
        if numbers is None:
            raise UsageError(f"the profile of '{name}' has neither shapes nor values", _HINT)
        shapes = ((len(numbers[0]),),) * 3
    return ExtentBounds(shapes, numbers)


_HINT = "give three shapes: (1, 3, 224, 224), (4, 3, 224, 224), (8, 3, 224, 224)"


def read_attribute(texts: Iterable[Sequence[str]]) -> dict[str, ExtentBounds]:
    """Read the bounds from the attributes of an engine operator.

    Args:
        texts: For each input its smallest, usual and largest point, each `name:1x3x224x224` or `name:=1,192`.
    """
    found = {}
    for points in texts:
        name = points[0].rpartition(":")[0]
        found[name] = bounds_from(name, [point.rpartition(":")[2] for point in points])
    return found


def _three(name: str, given: Any) -> Three | ExtentBounds:
    points = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
    if len(points) != 3:
        raise UsageError(f"the profile of '{name}' is {given!r}", _HINT)
    if all(isinstance(point, str) and point.startswith(_VALUES) for point in points):
        numbers = [_numbers(name, point.removeprefix(_VALUES).split(",")) for point in points]
        return ExtentBounds(((len(numbers[0]),),) * 3, _ordered(name, numbers, 0))
    return _ordered(name, [_numbers(name, _split(point)) for point in points], 0)


def _split(point: Any) -> Any:
    return [part for part in point.split("x") if part] if isinstance(point, str) else point


def _numbers(name: str, given: Any) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in given)
    except (TypeError, ValueError):
        raise UsageError(f"the profile of '{name}' has {given!r}, which is no shape", _HINT) from None


def _ordered(name: str, points: Sequence[tuple[int, ...]], least: int) -> Three:
    if len({len(point) for point in points}) > 1:
        said = ", ".join("x".join(map(str, point)) for point in points)
        raise UsageError(f"the profile of '{name}' has shapes of different rank: {said}", "give one number per axis")
    for axis, numbers in enumerate(zip(*points, strict=True)):
        if min(numbers) < least:
            raise UsageError(f"the profile of '{name}' has {min(numbers)} on axis {axis}", "extents are not negative")
        for (one, low), (other, high) in zip(zip(_POINTS, numbers), zip(_POINTS[1:], numbers[1:])):
            if low > high:
                raise UsageError(
                    f"the profile of '{name}' contradicts itself: axis {axis} has {one} {low} and {other} {high}",
                    "write the smallest shape first, then the usual and the largest one",
                )
    return points[0], points[1], points[2]


def named_extents(model: Model, given: Profile) -> dict[str, tuple[int, int, int]]:
    """Return the smallest, usual and largest value of every named extent of a model's inputs.

    Raises:
        DovetailError: Two inputs contradict each other.
    """
    found: dict[str, tuple[tuple[int, int, int], str]] = {}
    for value in model.graph.inputs:
        read = name_of(value)
        bounds = given.get(read)
        if bounds is None or value.shape is None or len(value.shape) != len(bounds.shapes[0]):
            continue
        for axis, extent in enumerate(value.shape):
            name = None if isinstance(extent, int) else extent.value
            if not name:
                continue
            own = cast("tuple[int, int, int]", tuple(point[axis] for point in bounds.shapes))
            known, first = found.setdefault(name, (own, read))
            if known != own:
                one, other = (":".join(map(str, numbers)) for numbers in (known, own))
                where = f"{one} in '{first}' and {other} in '{value.name}'"
                raise DovetailError(
                    f"the profile contradicts itself: extent '{name}' is {where}",
                    "give an extent of one name the same bounds everywhere",
                )
    return {name: bounds for name, (bounds, _) in found.items()}
