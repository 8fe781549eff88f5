"""Measurement of every node's error in a result, against the exact model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.planning import get_placement, operator_name
from dovetail_runtime.data.batches import as_given
from dovetail_runtime.nested_graphs import with_nodes

from dovetail_verify.accuracy.baseline import effects_at_outputs
from dovetail_verify.accuracy.streamed import NodeErrors, SideBySide, Streamed
from dovetail_verify.layers import ORDERS, LayerErrors, MeasuredLayer, check_order

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import CompiledModel
    from dovetail_runtime.engines import GuardedEngine

    from dovetail_verify.accuracy.per_node_errors import ErrorSums
    from dovetail_verify.layer_parts import LayerParts


_SAME = 1e-9  # relative difference allowed between sums over the same numbers in different order
RESCALING = ("equalize", "smooth")
"""Refinements that change the scale of values."""

_MEASURED = 10


def find_layer_errors(
    original: Model,
    exact: Model,
    result: CompiledModel,
    data: object,
    engines: Mapping[str, Sequence[GuardedEngine]],
    *,
    by: str = ORDERS[0],
    outputs: int = _MEASURED,
    most: int | None = None,
    parts: LayerParts | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> LayerErrors:
    """Measure every node of a result on all batches.

    Original and result run in lockstep on the host, in small parts. Memory depends neither on the number of batches nor
    on that of nodes; time is linear in both.

    Args:
        original: The model, for its inputs.
        exact: The original after the same preparation as the result, so that its nodes have the plan's names.
        result: The result compiled from it.
        data: See `dovetail_runtime.data.sources.read_data`.
        engines: The host's engines.
        by: The ranking criterion, one of `ORDERS`.
        outputs: Number of nodes, worst alone first, whose effect on the model's outputs is measured. Each takes a run
            of the model per batch.
        most: The most batches to look at; None for all.
        parts: What measures in other processes, on parts of the data; None to measure here.
        progress: Called after every batch.

    Raises:
        UsageError: `by` is not in `ORDERS`.
        DovetailError: The data does not match, or one of the models cannot be run on the host.
    """
    check_order(by)
    model = with_nodes(result)
    refined = result.plan.summary.get("refined", {}).get("changed", {})
    if rescaled := [step for step in RESCALING if refined.get(step)]:
        raise DovetailError(
            f"the refinement '{rescaled[0]}' gave channels other scales: values between layers are not the original's",
            f"look at a result that was compiled without it (--refine {_others(refined)})",
        )
    if model.ir.functions:
        raise DovetailError(
            "the result has regions that are programs of a vendor, so that their nodes cannot be looked at one by one",
            "compile for the backend without its emitter, or look at the outputs alone",
        )
    if not {node.name for node in exact.graph} & {node.name for node in model.graph}:
        raise DovetailError(
            "no node of the result is in the original", "give the model that the result was compiled from"
        )
    _, exact, model = as_given(original, data, exact, model)
    measured = parts or _Here(original, exact, model, engines, data, most, progress)
    found = measured.errors()
    if not found.batches:
        raise DovetailError("the data holds no batch, so no layer was looked at", "give at least one sample")
    layers = _layers(exact, model, found.errors)
    suspects = sorted((one for one in layers if one.badness("alone") > 0), key=lambda one: -one.badness("alone"))
    names = [layer.rounding for layer in suspects[:outputs]]
    if names:
        effects = measured.effects(names)
        worst = {name: min((sums.snr_db for sums in each.values()), default=None) for name, each in effects.items()}
        layers = [_with_effect(layer, worst.get(layer.rounding)) for layer in layers]
    layers.sort(key=lambda layer: -layer.badness(by))
    return LayerErrors(layers, by, found.batches, len(names))


class _Here:
    """Measures the nodes of a result in this process; see `LayerParts` for another way."""

    def __init__(
        self,
        original: Model,
        exact: Model,
        result: Model,
        engines: Mapping[str, Sequence[GuardedEngine]],
        data: object,
        most: int | None,
        progress: Callable[[str, int, int], None] | None,
    ):
        self._original, self._exact, self._engines = original, exact, engines
        self._data, self._most, self._progress = data, most, progress
        self._both = SideBySide(exact, result, engines)

    def errors(self) -> Streamed:
        """Measure every node."""
        return self._both.run(self._original, self._data, self._most, self._progress)

    def effects(self, names: Sequence[str]) -> dict[str, dict[str, ErrorSums]]:
        """Measure the outputs with single nodes low."""
        return effects_at_outputs(
            self._original, self._exact, names, self._both, self._engines, self._data, self._progress, self._most
        )


def _others(steps: Mapping[str, int]) -> str:
    return ",".join(step for step in steps if step not in RESCALING) or "none"


def _layers(exact: Model, model: Model, errors: Mapping[str, NodeErrors]) -> list[MeasuredLayer]:
    """Return the computing nodes in graph order, each with the subsequent nodes that only move its numbers."""
    by_name = {name_of(node): node for node in model.graph}
    heads: dict[str, str] = {}
    members: dict[str, list[ir.Node]] = {}
    for node in exact.graph:
        name = name_of(node)
        if name not in errors or name not in by_name:
            continue
        before = _before(node, errors)
        head = heads[before] if before is not None and _moves(errors[name], errors[before]) else name
        heads[name] = head
        members.setdefault(head, []).append(node)
    return [_layer(nodes, by_name, errors) for nodes in members.values()]


def _before(node: ir.Node, errors: Mapping[str, NodeErrors]) -> str | None:
    """Return the name of the producer of the first measured input; None if there is none."""
    producers = (value.producer() for value in node.inputs if value is not None)
    names = (name_of(found) for found in producers if found is not None)
    return next((name for name in names if name in errors), None)


def _moves(own: NodeErrors, before: NodeErrors) -> bool:
    """Check whether a node adds no error to its producer's."""
    if own.own.elements:
        return own.moves
    one, two = own.accumulated, before.accumulated
    pairs = ((one.noise, two.noise), (one.signal, two.signal))
    return one.elements == two.elements > 0 and all(abs(a - b) <= _SAME * abs(b) for a, b in pairs)


def _layer(nodes: Sequence[ir.Node], by_name: Mapping[str, ir.Node], errors: Mapping[str, NodeErrors]) -> MeasuredLayer:
    head, *moving = nodes
    placement = get_placement(by_name[name_of(head)])
    found = {name: errors[name] for name in map(name_of, nodes)}
    alone = {name: one.own for name, one in found.items() if one.own.elements}
    rounding = max(alone, key=lambda name: alone[name].share, default="")
    accumulated = [one.accumulated for one in found.values() if one.accumulated.elements]
    value = next(value.name for value in head.outputs if value.name)
    return MeasuredLayer(
        name_of(head),
        operator_name(head.domain, head.op_type),
        placement.backend if placement is not None else "",
        str(placement.precision or "") if placement is not None else "",
        value,
        tuple(map(name_of, moving)),
        alone.get(rounding),
        max(accumulated, key=lambda sums: sums.share) if accumulated else None,
        None,
        rounding,
    )


def _with_effect(layer: MeasuredLayer, snr_db: float | None) -> MeasuredLayer:
    return layer if snr_db is None else replace(layer, at_outputs=snr_db)
