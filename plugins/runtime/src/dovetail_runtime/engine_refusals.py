"""Engine errors at load time, as refusals of nodes in the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dovetail.ir import all_nodes, used_values
from dovetail.planning import Region, Rejection, Remark, extract, key_of
from dovetail.plugin import EngineError
from dovetail.plugin.loading import nodes_of, stands_for_region
from dovetail.text import pluralize

from dovetail_runtime.region_runner import RegionModel, RegionRefusal
from dovetail_runtime.serialize import needs_file

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_runtime.engines import Engines, GuardedEngine


def refuse_nodes(
    refusals: Iterable[RegionRefusal],
    preferred: Mapping[str, str],
    ctx: Context,
    whole: bool = False,
    account: Sequence[Remark] = (),
) -> None:
    """Refuse the nodes of the plan that their backend's engine rejects, so that they are placed elsewhere.

    If an engine names no node of a region, the whole region is refused. Conversions are not in the plan, so the
    neighbors of a refused conversion are refused instead.

    Args:
        refusals: Engine errors from loading regions.
        preferred: The first engine of each backend; refusals of other engines do not count against the backend.
        ctx: The context with the model and its plan; receives the refusals.
        whole: Refuse whole regions, regardless of the node that the engine names.
        account: Remarks on the search for these nodes, which stay as long as the refusals.
    """
    model = cast("Model", ctx.model)
    planned = {node.name for node in (ctx.outcome.plan.nodes if ctx.outcome.plan is not None else model.nodes())}
    for refusal in refusals:
        region = refusal.region
        if preferred.get(region.backend) != refusal.engine:
            continue
        held = [inner for node in region.nodes for inner in nodes_of(model, node)]
        named = None if whole else named_in(held, refusal.error.node)
        nodes = _around(named, held, planned) if named is not None else []
        for node in nodes or [node for node in held if node.name in planned]:
            if account:  # with the first node
                name, why, backend = node.name or "", refusal.error.message, region.backend
                remark = Remark("failed", name, ctx.current_pass, "engine-refused", why, backend=backend)
                ctx.refusals.add(backend, key_of(node), Rejection(why, (*account, remark)))
                account = ()
            ctx.refuse(node, region.backend, refusal.error.message, rule="engine-refused", kind="failed")


def named_in(nodes: Iterable[ir.Node], name: str) -> ir.Node | None:
    """Return the node that an engine names, by its own name or by that of one of its results.

    A name inside a body refers to the control-flow node. Engines also derive names (`conv_1/WithoutBiases`), so the
    parts before the last and before the first slash are tried, too.
    """
    names = [wanted for wanted in (name, name.rpartition("/")[0], name.partition("/")[0]) if wanted]
    for wanted in names:
        for node in nodes:
            parts = all_nodes([node])
            if any(wanted == part.name or wanted in (value.name for value in part.outputs) for part in parts):
                return node
    # Otherwise the name may be an input of the region; then its first reader is refused.
    reads = (node for node in nodes if any(value is not None and value.name in names for value in node.inputs))
    return next(reads, None)


def _around(node: ir.Node, region: Iterable[ir.Node], planned: Collection[str | None]) -> list[ir.Node]:
    if node.name in planned:
        return [node]
    inside = {id(other) for other in region}
    producers = [value.producer() for value in node.inputs if value is not None]
    around = [other for other in producers if other is not None and id(other) in inside and other.name in planned]
    if around:
        return around
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    return [reader for reader in readers if id(reader) in inside and reader.name in planned]


_SHOWN = 80  # characters of a reason in the account of a search
_MOST = 24  # loads per call; each costs as much as loading part of the region


def located_refusals(
    model: Model,
    refusals: Iterable[RegionRefusal],
    engines: Engines,
    preferred: Mapping[str, str],
    account: list[Remark] | None = None,
) -> list[RegionRefusal]:
    """Return the refusals with the nodes they are about, and the further refusals of the same regions.

    If an engine names no node, halves of the region are loaded until one node is left that it refuses alone. If it
    names one, the rest of the region is loaded without it, repeatedly. A region whose parts all load is refused whole.

    Args:
        model: The model whose regions were refused.
        refusals: Refusals of any engines.
        engines: The engines of every backend.
        preferred: The engine of each backend whose refusals count.
        account: Receives a remark on each part that was loaded.
    """
    found: list[RegionRefusal] = []
    waiting = list(refusals)
    trial = _Trial(model, account)
    while waiting:
        refusal = waiting.pop(0)
        name = preferred.get(refusal.region.backend)
        engine = next((each for each in engines[refusal.region.backend] if each.name == name), None)
        if engine is None or engine.name != refusal.engine:
            found.append(refusal)
            continue
        inside = [inner for node in refusal.region.nodes for inner in nodes_of(model, node)]
        all_named = _all_named(refusal, inside)
        # A program loads as a whole or not at all, so its parts are not tried.
        if len(all_named) > 1 or any(map(stands_for_region, refusal.region.nodes)):
            found += all_named or [refusal]
            continue
        named = named_in(refusal.region.nodes, refusal.error.node)
        if named is None:
            parts = list(_located(refusal, engine, trial))
            found += parts or [refusal]
            continue
        found.append(refusal)
        for part in _without(refusal.region, named):
            error = trial.refused(part, engine)
            if error is not None and named_in(part.nodes, error.node) is not None:
                waiting.append(RegionRefusal(part, engine.name, error))
    return found


def _all_named(refusal: RegionRefusal, nodes: Sequence[ir.Node]) -> list[RegionRefusal]:
    """Return a refusal for every node of a region that an engine names; `nodes` includes those inside of programs."""
    error = refusal.error
    found = dict.fromkeys(node for name in error.nodes if (node := named_in(nodes, name)) is not None)
    errors = (EngineError(error.message, error.hint, node.name or "") for node in found)
    return [RegionRefusal(refusal.region, refusal.engine, one) for one in errors]


def _located(refusal: RegionRefusal, engine: GuardedEngine, trial: _Trial) -> Iterator[RegionRefusal]:
    """Yield a refusal for every node of a region that the engine refuses alone, as far as the loads suffice."""
    waiting = [refusal.region]
    while waiting:
        region = waiting.pop()
        middle = len(region.nodes) // 2
        # A region is in topological order, so that both halves are convex.
        for nodes in (region.nodes[:middle], region.nodes[middle:]):
            part = refusal.region.part(nodes)
            error = trial.refused(part, engine) if nodes else None
            if error is None:
                continue
            named = nodes[0] if len(nodes) == 1 else named_in(nodes, error.node)
            if named is None:
                waiting.append(part)
            elif named.name:
                message = str(error.message).replace("the region", f"the node of '{named.name}'", 1)
                yield RegionRefusal(refusal.region, engine.name, EngineError(message, node=named.name))


class _Trial:
    """Loads parts of regions, up to a number of times."""

    def __init__(self, model: Model, account: list[Remark] | None):
        self._model, self._account = model, account
        self._left = _MOST

    def refused(self, part: Region, engine: GuardedEngine) -> EngineError | None:
        """Return why an engine refuses part of a region; None if it loads, or was not tried."""
        taken = extract(self._model, part)
        if self._left == 0 or needs_file(taken):
            return None
        self._left -= 1
        try:
            engine.load(RegionModel(taken), {"spin": False})
        except EngineError as error:
            self._say("refused", part, f": {error.message[:_SHOWN]}")
            return error
        self._say("loaded", part, "")
        return None

    def _say(self, what: str, part: Region, why: str) -> None:
        if self._account is not None:
            first, last = part.nodes[0].name, part.nodes[-1].name
            span = f"'{first}' to '{last}'" if len(part.nodes) > 1 else f"'{first}'"
            text = f"{what}: {pluralize(len(part.nodes), 'node')} of region {part.index}, {span}, alone{why}"
            self._account.append(Remark("analysis", first or "", "load", "part-tried", text))


def _without(region: Region, named: ir.Node) -> Iterator[Region]:
    """Yield a region without one of its nodes, as two convex parts: the transitive users of that node, and the rest."""
    behind: set[ir.Node] = {named}
    for node in region.nodes:
        if any(value.producer() in behind for value in used_values(node)):
            behind.add(node)
    for nodes in (
        [node for node in region.nodes if node not in behind],
        [node for node in region.nodes if node in behind and node is not named],
    ):
        if nodes:
            yield region.part(nodes)
