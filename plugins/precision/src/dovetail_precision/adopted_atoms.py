"""Place the conversions of the source model that a plan adopts beside the nodes whose integers they make or read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.ir.formats import Format, format_of
from dovetail.planning.placement import HOST, get_placement, set_placement
from dovetail_placement.conversion_placement import ConversionPlacement

from dovetail_precision.source_quantisation import Atom, atom_of, dequantising, quantising

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context

    from dovetail_precision.held import Held


def place_atoms(held_values: Iterable[Held], model: Model, ctx: Context) -> None:
    """Move adopted conversions from the host to the backend at their integers, if that takes both types.

    Where `border` of a backend says that floats cross it, the conversion at the other end goes with them.
    """
    places = ConversionPlacement(model, ctx)
    borders = {backend.name: backend.border for backend in ctx.backends}
    for held in held_values:
        _remark_other_scheme(held, ctx)
        for atom, backend in _wanted(held, borders):
            if get_placement(atom.node).backend != HOST:
                continue
            integers, floats = Format.of(atom.element), format_of(atom.floats.dtype)
            reads_integers = atom.node.op_type == "DequantizeLinear"
            source, target = (integers, floats) if reads_integers else (floats, integers)
            end = getattr(borders.get(backend), "out" if held.producer is not None else "into", "")
            crossing = floats if end == "inside" else integers
            chosen = places.choose(atom.node, source, target, (backend,), crossing)
            if chosen != HOST:
                set_placement(atom.node, replace(get_placement(atom.node), backend=chosen))
                what = f"a conversion of the source model, beside '{_beside(held).name}' whose integers it has"
                ctx.remark("passed", atom.node, "adopted", what, because=(_beside(held),))


def _wanted(held: Held, borders: dict[str, object]) -> Iterator[tuple[Atom, str]]:
    """The conversions that a holding adopts, with the backend that should run each."""
    producer = held.producer
    if producer is not None:
        home = get_placement(producer.node).backend
        for atom in quantising(held.value):
            if held.adopted == atom.parameters and atom.fits(held.format):
                yield atom, home
                if (border := borders.get(home)) is not None and border.out == "inside":
                    yield from ((back, home) for node, _ in atom.integers.uses() if (back := _dequantise(node)))
        return
    atom = dequantising(held.value)
    if atom is None or not atom.fits(held.format) or held.adopted is None and not held.rule.factors:
        return
    reader = get_placement(held.uses[0].node).backend
    yield atom, reader
    before = atom_of(atom.integers.producer())
    if before is not None and (border := borders.get(reader)) is not None and border.into == "inside":
        yield before, reader


def _remark_other_scheme(held: Held, ctx: Context) -> None:
    """Say where the source model has integers of another kind: its conversions stay beside those of the plan."""
    if held.adopted is not None or held.rule.factors:
        return
    atom = dequantising(held.value)
    if atom is None and held.producer is not None:
        atom = next(quantising(held.value), None)
    if atom is None or atom.fits(held.format) or atom.integers.const_value is not None:
        return
    node = held.uses[0].node
    why = (
        f"the source model has '{held.value.name}' in {atom.element} with another scheme or granularity than "
        f"{held.format}; both conversions are carried out"
    )
    ctx.remark("missed", node, "other-scheme", why, suggest="compile the model as it was before it was quantised")


def _dequantise(node: ir.Node) -> Atom | None:
    return atom_of(node) if node.op_type == "DequantizeLinear" else None


def _beside(held: Held) -> ir.Node:
    return held.uses[0].node
