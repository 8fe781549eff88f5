"""The profile of one region: the bounds of its inputs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of

from dovetail_tensorrt.profiles.bounds import Bounds, read_attribute
from dovetail_tensorrt.profiles.propagation import KnownBounds

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context


ATTRIBUTES = ("min_shapes", "opt_shapes", "max_shapes")
"""The attributes of an engine operator that hold its profile: one text per input, `name:1x3x224x224`."""


@dataclass(frozen=True)
class RegionProfile:
    """The bounds of a region's inputs.

    Attributes:
        bounds: By name of the input, in order; without those that stay open.
        lost: Why extents of inputs stay open, one sentence each; without any, an engine can be built.
        suggest: What to add to the command line; empty if that would not help.
    """

    bounds: dict[str, Bounds]
    lost: tuple[str, ...] = field(default=())
    suggest: str = ""

    def attributes(self) -> dict[str, list[str]]:
        """The attributes that hold it; empty where it is not whole, or the region has no input."""
        if self.lost or not self.bounds:
            return {}
        texts = [[f"{name}:{point}" for point in bounds.texts()] for name, bounds in self.bounds.items()]
        return {name: list(column) for name, column in zip(ATTRIBUTES, zip(*texts, strict=True), strict=True)}


def region_profile(region: Model, model: Model | None, ctx: Context | None) -> RegionProfile:
    """The profile of a region's inputs, as it follows from that of the model.

    Args:
        region: The region as a model of its own.
        model: The model that it is a part of.
        ctx: The context of the compilation; without one, only extents that the region declares are known.

    Raises:
        DovetailError: The profile contradicts itself, or the data does not fit.
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


def recorded_profile(call: ir.Node, inputs: list[str]) -> dict[str, Bounds]:
    """The profile that a call of a region's function records, by the names that its inputs have now.

    Args:
        call: The call.
        inputs: The names of its inputs, without weights, in order.
    """
    columns = [call.attributes[name].value for name in ATTRIBUTES if name in call.attributes]
    if len(columns) != len(ATTRIBUTES):
        return {}
    bounds = read_attribute(zip(*columns, strict=True)).values()
    return dict(zip(inputs, bounds, strict=False))


def _declared(value: ir.Value) -> Bounds | None:
    if value.shape is None or not value.shape.is_static():
        return None
    shape = tuple(value.shape.numpy())
    return Bounds((shape, shape, shape))


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
