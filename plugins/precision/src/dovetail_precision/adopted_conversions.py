"""Adoption of the source model's QDQ nodes by the backend whose integers they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir import Format, dtype_name, dtype_of
from dovetail.planning import HOST, placement_of, set_placement
from dovetail_placement.conversions import ConversionPlacement
from dovetail_placement.source_scales import QdqNode, dequantizing, lifted_scale, qdq_of, quantizing

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Border

    from dovetail_precision.sharing_groups import QuantizedForm


def place_qdq(quantized_forms: Iterable[QuantizedForm], model: Model, ctx: Context) -> None:
    """Move adopted conversions from the host to the backend of their integers, if it supports both types.

    If `border` of a backend lets floats cross, the conversion at the other end moves with them. Remarks that such a
    conversion is not there, because the backend's file does not list it, are dropped.
    """
    adopted: set[tuple[str, str]] = set()
    places = ConversionPlacement(model, ctx)
    borders = {backend.name: backend.border for backend in ctx.backends}
    for form in quantized_forms:
        _remark_other_scheme(form, ctx)
        for qdq, backend in _wanted(form, borders):
            if placement_of(qdq.node).backend != HOST:
                continue
            integers, floats = Format.of(qdq.element), Format.of(dtype_name(dtype_of(qdq.floats)))
            reads_integers = qdq.node.op_type == "DequantizeLinear"
            source, target = (integers, floats) if reads_integers else (floats, integers)
            end = getattr(borders.get(backend), "out" if form.producer is not None else "into", "")
            crossing = floats if end == "inside" else integers
            chosen = places.choose(qdq.node, source, target, (backend,), crossing)
            if chosen != HOST:
                set_placement(qdq.node, replace(placement_of(qdq.node), backend=chosen))
                what = f"a conversion of the source model, beside '{_beside(form).name}' whose integers it has"
                ctx.remark("passed", qdq.node, "adopted", what, because=(_beside(form),))
                adopted.add((qdq.node.name or "", chosen))
    if adopted:
        ctx.remarks[:] = [
            one for one in ctx.remarks if one.kind != "missed" or (one.node, one.backend) not in adopted or one.format
        ]


def _wanted(form: QuantizedForm, borders: dict[str, Border | None]) -> Iterator[tuple[QdqNode, str]]:
    """Yield the conversions that a quantized value adopts, with the backend that should run each."""
    producer = form.producer
    if producer is not None:
        home = placement_of(producer.node).backend
        for qdq in quantizing(form.value):
            if form.adopted == qdq.parameters and qdq.fits(form.format):
                yield qdq, home
                if (border := borders.get(home)) is not None and border.out == "inside":
                    yield from ((back, home) for node, _ in qdq.integers.uses() if (back := _dequantize(node)))
        return
    own = dequantizing(form.value)
    if own is None or not own.fits(form.format) or form.adopted is None and not form.rule.factors:
        return
    reader = placement_of(form.uses[0].node).backend
    yield own, reader
    before = qdq_of(own.integers.producer())
    if before is not None and (border := borders.get(reader)) is not None and border.into == "inside":
        yield before, reader


def _remark_other_scheme(form: QuantizedForm, ctx: Context) -> None:
    """Remark where the source model uses another scheme: its conversions stay beside those of the plan."""
    if form.adopted is not None or form.rule.factors:
        return
    if (scale := lifted_scale(form.value)) is None:
        qdq = dequantizing(form.value)
        if qdq is None and form.producer is not None:
            qdq = next(quantizing(form.value), None)
        if qdq is None or qdq.fits(form.format) or qdq.scale.integers is not None:
            return
        scale, then = qdq.scale, "both conversions are carried out"
    else:
        then = "its numbers are rounded anew"
    node = form.uses[0].node
    why = (
        f"the source model has '{form.value.name}' in {scale.element} with another scheme or granularity than "
        f"{form.format}; {then}"
    )
    ctx.remark("missed", node, "other-scheme", why, suggest="compile the model as it was before it was quantized")


def _dequantize(node: ir.Node) -> QdqNode | None:
    return qdq_of(node) if node.op_type == "DequantizeLinear" else None


def _beside(form: QuantizedForm) -> ir.Node:
    return form.uses[0].node
