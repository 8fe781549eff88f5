"""What an engine also refuses in a region that it refused for one node: engines name one node at a time.

Without looking further, every such node costs a round of deciding, in which the whole model is placed and loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail_transforms.regions.extraction import extract
from dovetail_transforms.regions.regions import Region, used_values

from dovetail_runtime.engine_refusals import named_in
from dovetail_runtime.region_runner import Refusal, RegionModel
from dovetail_runtime.serialise import needs_file

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.plugin import EngineError

    from dovetail_runtime.engines import Engines
    from dovetail_runtime.guard import GuardedEngine


_MOST = 24  # loads per call; each takes what loading a part of the region takes


def further_refusals(model: Model, refusals: Iterable[Refusal], engines: Engines) -> list[Refusal]:
    """Load what is left of refused regions without the named nodes, again and again, and return what is refused then.

    Args:
        model: The model whose regions were refused.
        refusals: What was refused, of whichever engine.
        engines: The engines of every backend; the first is the one that a backend is made for.
    """
    found: list[Refusal] = []
    waiting = list(refusals)
    loads = 0
    while waiting:
        refusal = waiting.pop(0)
        engine = engines[refusal.region.backend][0]
        named = named_in(refusal.region.nodes, refusal.error.node)
        if named is None or engine.name != refusal.engine:
            continue
        for part in _without(model, refusal.region, named):
            if loads == _MOST:
                return found
            loads += 1
            error = _refused(model, part, engine)
            if error is not None and named_in(part.nodes, error.node) is not None:
                further = Refusal(part, engine.name, error)
                found.append(further)
                waiting.append(further)
    return found


def _refused(model: Model, part: Region, engine: GuardedEngine) -> EngineError | None:
    from dovetail.plugin import EngineError

    taken = extract(model, part)
    if needs_file(taken):
        return None
    try:
        engine.load(RegionModel(taken), {"spin": False})
    except EngineError as error:
        return error
    return None


def _without(model: Model, region: Region, named: ir.Node) -> Iterator[Region]:
    """A region without one of its nodes: what depends on it, and the rest; both are convex."""
    behind: set[ir.Node] = {named}
    for node in region.nodes:
        if any(value.producer() in behind for value in used_values(node)):
            behind.add(node)
    for nodes in (
        [node for node in region.nodes if node not in behind],
        [node for node in region.nodes if node in behind and node is not named],
    ):
        if nodes:
            yield _part(model, region, nodes)


def _part(model: Model, region: Region, nodes: Sequence[ir.Node]) -> Region:
    inside = set(nodes)
    computed = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in used_values(node))
    inputs = [value for value in read if value not in computed and not value.is_initializer()]
    leaving = [
        value
        for value in computed
        if value.is_graph_output() or any(reader not in inside for reader, _ in value.uses())
    ]
    order: Mapping[str | None, int] = {
        value.name: at for at, value in enumerate(v for node in nodes for v in node.outputs)
    }
    outputs = sorted(leaving, key=lambda value: order[value.name])
    return replace(region, nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs))
