"""Bounds of extents that have a name: an extent with a name is the same number everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.ir.required import name_of

from dovetail_tensorrt.profiles.bounds import Profile

if TYPE_CHECKING:
    from dovetail.ir.model import Model


def named_extents(model: Model, given: Profile) -> dict[str, tuple[int, int, int]]:
    """The smallest, usual and largest number of every named extent of a model's inputs.

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
