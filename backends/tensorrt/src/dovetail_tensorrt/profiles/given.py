"""Profile of a model's inputs: from the user, from a replayed plan, or from data."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from dovetail.plugin import input_data

from dovetail_tensorrt.profiles.bounds import ExtentBounds, Profile, bounds_from
from dovetail_tensorrt.profiles.option import OPTION, PROFILES

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_runtime import RereadableData


_SUMMARY = "profiles"
_LARGEST_SHAPE_INPUT = 16  # elements


def given_profile(model: Model, ctx: Context) -> Profile:
    """Return bounds of inputs with open extents, and of integers that may be used as extents.

    Bounds from data are recorded in the plan, so that a replay needs no data.

    Raises:
        DovetailError: The data does not match the model.
    """
    found = (ctx.kept.get(_Given) or ctx.kept.put(_Given(_given(model, ctx)))).bounds
    if found and ctx.outcome.plan is not None:
        ctx.outcome.plan.summary[_SUMMARY] = {name: bounds.entry() for name, bounds in found.items()}
    return found


@dataclass(frozen=True)
class _Given:
    bounds: dict[str, ExtentBounds]


def _given(model: Model, ctx: Context) -> dict[str, ExtentBounds]:
    asked = {**ctx.request.options.get(OPTION, {}).get(PROFILES, {})}
    replayed = ctx.request.plan.summary.get(_SUMMARY, {}) if ctx.request.plan is not None else {}
    found = {name: bounds_from(name, entry) for name, entry in {**replayed, **asked}.items()}
    open_inputs = [value.name for value in model.graph.inputs if _is_open(value) and value.name not in found]
    if open_inputs and ctx.request.data is not None:
        seen = _seen(model, ctx.request.data)
        found |= {name: bounds for name, bounds in seen.items() if name not in found}
        said = ", ".join(f"'{name}' {':'.join(seen[name].texts())}" for name in open_inputs if name in seen)
        ctx.remark("analysis", "", "profile", f"engines are built for the extents in the data: {said}")
    return found


def _is_open(value: Any) -> bool:
    """Check whether a profile may constrain an input."""
    if value.shape is None or not value.shape.is_static():
        return True
    return (
        value.dtype is not None
        and value.dtype.name in ("INT64", "INT32")
        and math.prod(value.shape) <= _LARGEST_SHAPE_INPUT
    )


def _seen(model: Model, data: object) -> dict[str, ExtentBounds]:
    shapes: dict[str, Counter[tuple[int, ...]]] = {}
    numbers: dict[str, Counter[tuple[int, ...]]] = {}
    given = cast("RereadableData", input_data(data)).everything  # the contract lacks the parameter `whole`
    # `run` passes arrays whole, verification may split them. The engine must accept both.
    for feeds, _ in chain(given.batches(model), given.batches(model, whole=True)):
        for name, array in feeds.items():
            if not hasattr(array, "shape"):
                continue
            shapes.setdefault(name, Counter())[tuple(array.shape)] += 1
            if _may_be_extents(array):
                numbers.setdefault(name, Counter())[tuple(map(int, array.reshape(-1)))] += 1
    found = {}
    for name, counts in shapes.items():
        whole = sum(numbers.get(name, Counter()).values()) == sum(counts.values())
        values = _summary(numbers[name]) if whole else None
        if len({len(shape) for shape in counts}) == 1 and (found_shapes := _summary(counts)) is not None:
            found[name] = ExtentBounds(found_shapes, values)
    return found


def _may_be_extents(array: np.ndarray) -> bool:
    return array.dtype.kind == "i" and array.ndim <= 1 and 0 < array.size <= _LARGEST_SHAPE_INPUT and array.min() >= 0


def _summary(counts: Counter[tuple[int, ...]]) -> Any:
    """Return the smallest, the most common and the largest shape, axis by axis."""
    if len({len(shape) for shape in counts}) != 1:
        return None
    per_axis = []
    for axis in range(len(next(iter(counts)))):
        extents: Counter[int] = Counter()
        for shape, number in counts.items():
            extents[shape[axis]] += number
        most_common = min(extents, key=lambda extent: (-extents[extent], -extent))
        per_axis.append((min(extents), most_common, max(extents)))
    return tuple(tuple(axis[point] for axis in per_axis) for point in range(3))
