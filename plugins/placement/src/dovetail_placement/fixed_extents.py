"""What fixed extents of a model's inputs would change: the model is prepared with some, and judged again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, name_of
from dovetail.passes import Context, Manager, compose
from dovetail_onnx.frontend import open_inputs
from dovetail_transforms.canonicalize.fix_shapes import OPTION

from dovetail_placement.legality import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import Backend

    from dovetail_placement.claiming import Claiming

_TRIED = (64, 224)
"""Extents tried where neither the model nor the data says any: of text and small images, and of images."""


class FixedExtents:
    """Finds the nodes that files would take if extents were fixed; kept over rounds, whose graphs differ little."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}

    def helped(
        self, nodes: Sequence[ir.Node], claiming: Claiming, backend: Backend, shapes: Mapping[str, tuple[int, ...]]
    ) -> list[ir.Node]:
        """Return those of `nodes` that the file of a backend takes once extents are fixed.

        A control-flow node counts if any part of it is taken then: its condition may have become constant.

        Args:
            nodes: Nodes of the main graph that the file refuses because of open extents.
            claiming: The claims of the round.
            backend: The backend.
            shapes: Shapes that the data has, by input name.
        """
        if any((backend.name, node.name or "") not in self._known for node in nodes):
            flat = claiming.flat
            parts = {node.name or "": [part.name or "" for part in (node, *flat.body_nodes(node))] for node in nodes}
            for extent in _TRIED:
                found = _taken(parts, claiming, backend, shapes, extent)
                self._known |= {(backend.name, name): name in found for name in parts}
                if found:
                    break
        return [node for node in nodes if self._known[backend.name, node.name or ""]]


def _taken(
    parts: Mapping[str, Sequence[str]],
    claiming: Claiming,
    backend: Backend,
    shapes: Mapping[str, tuple[int, ...]],
    extent: int,
) -> set[str]:
    """Return the names of nodes that the backend takes, or that are gone, with one extent for all unknown axes."""
    ctx = claiming.ctx
    wanted = {name_of(value): _shape(value, shapes, extent) for value in open_inputs(claiming.model)}
    options = {**ctx.request.options, OPTION: {**ctx.request.options.get(OPTION, {}), **wanted}}
    # Edits and the ranges of data are in the graph already.
    request = replace(ctx.request, options=options, data=None, plan=None, edits=())
    trial, model = Context(request, registry=ctx.registry), claiming.model.clone()
    try:
        Manager(compose(ctx.registry, ("normalize", "analyze"), request), trial).run(model)
        judge, flat = Judges(model, trial).of(backend), trial.analysis(FlatGraph, model)
        by_name = {node.name: node for node in flat.nodes}
        refused = {flat.outermost(node) for node in flat.nodes if judge(node).ok is False}
    except DovetailError:  # the model does not take this extent
        return set()
    taken = set()
    for name, members in parts.items():
        left = [flat.outermost(by_name[member]) for member in members if member in by_name]
        if not left or any(node not in refused for node in left):
            taken.add(name)
    return taken


def _shape(value: ir.Value, shapes: Mapping[str, tuple[int, ...]], extent: int) -> list[int]:
    known = shapes.get(name_of(value))
    if known is not None:
        return list(known)
    declared = value.shape or (None,)
    return [
        one if isinstance(one, int) and one > 0 else 1 if axis == 0 else extent for axis, one in enumerate(declared)
    ]
