"""Place the conversions of the source model that a plan adopts beside the nodes whose integers they make or read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir.formats import Format
from dovetail.ir.required import dtype_of
from dovetail.ir.types import dtype_name
from dovetail.planning.placement import HOST, placement_of, set_placement
from dovetail_placement.conversion_placement import ConversionPlacement

from dovetail_precision.source_quantisation import QdqNode, dequantising, qdq_of, quantising

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.backend import Border

    from dovetail_precision.held import Held


def place_qdq(held_values: Iterable[Held], model: Model, ctx: Context) -> None:
    """Move adopted conversions from the host to the backend at their integers, if that takes both types.

    Where `border` of a backend says that floats cross it, the conversion at the other end goes with them.
    """
    places = ConversionPlacement(model, ctx)
    borders = {backend.name: backend.border for backend in ctx.backends}
    for held in held_values:
        _remark_other_scheme(held, ctx)
        for qdq, backend in _wanted(held, borders):
            if placement_of(qdq.node).backend != HOST:
                continue
            integers, floats = Format.of(qdq.element), Format.of(dtype_name(dtype_of(qdq.floats)))
            reads_integers = qdq.node.op_type == "DequantizeLinear"
            source, target = (integers, floats) if reads_integers else (floats, integers)
            end = getattr(borders.get(backend), "out" if held.producer is not None else "into", "")
            crossing = floats if end == "inside" else integers
            chosen = places.choose(qdq.node, source, target, (backend,), crossing)
            if chosen != HOST:
                set_placement(qdq.node, replace(placement_of(qdq.node), backend=chosen))
                what = f"a conversion of the source model, beside '{_beside(held).name}' whose integers it has"
                ctx.remark("passed", qdq.node, "adopted", what, because=(_beside(held),))


def _wanted(held: Held, borders: dict[str, Border | None]) -> Iterator[tuple[QdqNode, str]]:
    """The conversions that a holding adopts, with the backend that should run each."""
    producer = held.producer
    if producer is not None:
        home = placement_of(producer.node).backend
        for qdq in quantising(held.value):
            if held.adopted == qdq.parameters and qdq.fits(held.format):
                yield qdq, home
                if (border := borders.get(home)) is not None and border.out == "inside":
                    yield from ((back, home) for node, _ in qdq.integers.uses() if (back := _dequantise(node)))
        return
    own = dequantising(held.value)
    if own is None or not own.fits(held.format) or held.adopted is None and not held.rule.factors:
        return
    reader = placement_of(held.uses[0].node).backend
    yield own, reader
    before = qdq_of(own.integers.producer())
    if before is not None and (border := borders.get(reader)) is not None and border.into == "inside":
        yield before, reader


def _remark_other_scheme(held: Held, ctx: Context) -> None:
    """Say where the source model has integers of another kind: its conversions stay beside those of the plan."""
    if held.adopted is not None or held.rule.factors:
        return
    qdq = dequantising(held.value)
    if qdq is None and held.producer is not None:
        qdq = next(quantising(held.value), None)
    if qdq is None or qdq.fits(held.format) or qdq.integers.const_value is not None:
        return
    node = held.uses[0].node
    why = (
        f"the source model has '{held.value.name}' in {qdq.element} with another scheme or granularity than "
        f"{held.format}; both conversions are carried out"
    )
    ctx.remark("missed", node, "other-scheme", why, suggest="compile the model as it was before it was quantised")


def _dequantise(node: ir.Node) -> QdqNode | None:
    return qdq_of(node) if node.op_type == "DequantizeLinear" else None


def _beside(held: Held) -> ir.Node:
    return held.uses[0].node
