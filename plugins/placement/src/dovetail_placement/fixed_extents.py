"""What fixed extents of a model's inputs would change: the model is prepared with some, and judged again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, name_of
from dovetail.passes import Context, Manager, compose
from dovetail_onnx.frontend import open_inputs
from dovetail_transforms.canonicalize.fix_shapes import OPTION

from dovetail_placement.legality import Judges

if TYPE_CHECKING:
    from dovetail.ir import Model
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
            tried: list[Mapping[str, list[int]]] = []
            for extent in _TRIED:
                wanted = _shapes(claiming.model, shapes, extent)
                if wanted in tried:
                    break
                tried.append(wanted)
                found = _taken(parts, claiming, backend, wanted)
                self._known |= {(backend.name, name): name in found for name in parts}
                if found:
                    break
        return [node for node in nodes if self._known[backend.name, node.name or ""]]


def _taken(
    parts: Mapping[str, Sequence[str]], claiming: Claiming, backend: Backend, shapes: Mapping[str, list[int]]
) -> set[str]:
    """Return the names of nodes that the backend takes, or that are gone, where inputs have these shapes."""
    ctx = claiming.ctx
    options = {**ctx.request.options, OPTION: {**ctx.request.options.get(OPTION, {}), **shapes}}
    # Edits and the ranges of data are in the graph already.
    request = replace(ctx.request, options=options, data=None, plan=None, edits=())
    trial, model = Context(request, registry=ctx.registry), claiming.model.clone()
    try:
        Manager(compose(ctx.registry, ("normalize", "analyze"), request), trial).run(model)
        judge, flat = Judges(model, trial).of(backend), trial.analysis(FlatGraph, model)
        by_name = {node.name: node for node in flat.nodes}
        refused = {flat.outermost(node) for node in flat.nodes if judge(node).ok is False}
    except DovetailError:  # the model does not take these shapes
        return set()
    taken = set()
    for name, members in parts.items():
        left = [flat.outermost(by_name[member]) for member in members if member in by_name]
        if not left or any(node not in refused for node in left):
            taken.add(name)
    return taken


def _shapes(model: Model, known: Mapping[str, tuple[int, ...]], extent: int) -> dict[str, list[int]]:
    """Return a shape for each open input: that of the data, or one sample and one extent for all other axes."""
    inputs = {name_of(value): list(value.shape or (ir.SymbolicDim(None),)) for value in open_inputs(model)}
    inner = {one.value for shape in inputs.values() for one in shape[1:] if not isinstance(one, int) and one.value}

    def guessed(one: int | ir.SymbolicDim, axis: int) -> int:
        if isinstance(one, int) and one > 0:
            return one
        return 1 if axis == 0 and (isinstance(one, int) or one.value not in inner) else extent

    return {
        name: list(known[name]) if name in known else [guessed(one, axis) for axis, one in enumerate(shape)]
        for name, shape in inputs.items()
    }
