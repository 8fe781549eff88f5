"""Model that runs on the host in small parts and exposes the values in between."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dovetail.ir import float_name, name_of
from dovetail.planning import get_placement, given_regions
from dovetail_runtime.data.batches import fitted

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail_runtime.engines import GuardedEngine


OPTIONS = {"optimize": "none", "share_weights": True}
"""Engine options: no fusion may hide a value, and sessions share their weights."""


class Watched:
    """A copy of a model that runs in parts and returns intermediate floats.

    Args:
        model: The model.
        number: The part of each planned node; a conversion joins the part at its position, that of a weight the part of
            its first reader.
        engines: The host's engines.
        wanted: Names of the values to return; None for all floats.
    """

    def __init__(
        self,
        model: Model,
        number: Mapping[str, int],
        engines: Mapping[str, Sequence[GuardedEngine]],
        wanted: Collection[str] | None = None,
    ):
        from dovetail_runtime.executor import RegionExecutor

        self._model = work = model.clone()
        parts = _parts(work.graph, number)
        floats = (value for node in work.graph for value in node.outputs if value.name and float_name(value))
        values = [value for value in floats if wanted is None or value.name in wanted]
        outputs = dict.fromkeys((*(value for value in work.graph.outputs if value.producer() is not None), *values))
        work.graph.outputs[:] = list(outputs)
        work.touch()
        keys = sorted(parts)
        regions = given_regions(work.graph, [parts[key] for key in keys])
        self._part = dict(zip((region.index for region in regions), keys))
        self._executor = RegionExecutor(work, engines, OPTIONS, regions=regions)

    def steps(self, feeds: Mapping[str, np.ndarray]) -> Iterator[tuple[int, Mapping[str, np.ndarray]]]:
        """Run part by part; yield the number of each part, and the live values."""
        for runner, values in self._executor.steps(fitted(self._model, feeds)):
            yield self._part[runner.index], values


def _parts(graph: ir.Graph, number: Mapping[str, int]) -> dict[int, list[ir.Node]]:
    """Return the nodes of each part, in graph order."""
    of_node: dict[int, int] = {}
    constant: list[ir.Node] = []
    part = 0
    for node in graph:
        name = name_of(node)
        if name not in number and all(value is None or value.is_initializer() for value in node.inputs):
            constant.append(node)
            continue
        part = max(part, number.get(name, part))
        of_node[id(node)] = part
    for node in constant:
        readers = [of_node[id(user)] for value in node.outputs for user, _ in value.uses() if id(user) in of_node]
        of_node[id(node)] = min(readers, default=part)
    parts: dict[int, list[ir.Node]] = {}
    for node in graph:
        parts.setdefault(of_node[id(node)], []).append(node)
    return parts


def first_float(node: ir.Node) -> ir.Value | None:
    """Return the first float result of a node; None if there is none."""
    return next((value for value in node.outputs if value.name and float_name(value)), None)


def float_of(node: ir.Node) -> ir.Value:
    """Return the first float result of a node that has one."""
    return cast("ir.Value", first_float(node))


def is_quantized(node: ir.Node) -> bool:
    """Check whether a node computes in a quantized format, or one of its ports has one."""
    placement = get_placement(node)
    if placement is None:
        return False
    formats = (placement.precision, *placement.ports.values())
    return any(format_ is not None and format_.quantized for format_ in formats)


def seen_by_readers(value: ir.Value, planned: Collection[str]) -> list[ir.Node]:
    """Return the conversions that round a node's result for its readers; empty if they read it directly.

    Args:
        value: The first float result of a node.
        planned: Names of the planned nodes; all others are conversions.
    """
    chain: list[ir.Node] = []
    while not chain or float_name(chain[-1].outputs[0]) is None:
        at = chain[-1].outputs[0] if chain else value
        found = next((user for user, index in at.uses() if index == 0 and user.name not in planned), None)
        if found is None or not chain and float_name(found.outputs[0]) is not None:
            return []  # a cast belongs to its reader
        chain.append(found)
    return chain
