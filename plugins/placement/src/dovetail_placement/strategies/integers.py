"""Base class of the strategies for integers, which differ in the nodes that they select."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.planning import Claim, Claims, claim_of
from dovetail.plugin import Strategy

from dovetail_placement.edge_kinds import Facts
from dovetail_placement.reasons import refused_part, remark_refusal
from dovetail_placement.search import DOWN, SearchGraph, ShapeArithmetic
from dovetail_placement.search.graph import carries_numbers

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import Backend, View

    from dovetail_placement.search.graph import Direction


class IntegerCandidates:
    """The nodes that a backend supports in integers.

    Attributes:
        view: The strategy's view.
        graph: The edges that searches follow.
        facts: Operator facts, from `ops/onnx.yaml` and from operator files.
    """

    def __init__(self, view: View):
        self.view = view
        self.graph = view.analysis(SearchGraph)
        self.facts = view.analysis(Facts).facts
        self.shape_arithmetic = view.analysis(ShapeArithmetic).nodes
        self._offered = set(view.nodes())

    @cached_property
    def taken(self) -> frozenset[ir.Node]:
        """The nodes that the backend's file accepts in integers, excluding those that must not be quantized.

        Nodes that are pinned or claimed by other backends are included: a choice for one node affects neither the paths
        through it nor the treatment of the others.
        """
        # Verdicts on equal nodes share their types; keep these alive so that their ids are not reused.
        known: dict[int, tuple[object, bool]] = {}
        return frozenset(node for node in self.graph.nodes if self._judged(node, known))

    def takes(self, node: ir.Node) -> bool:
        """Check whether a node is in `taken`."""
        return node in self.taken

    def _judged(self, node: ir.Node, known: dict[int, tuple[object, bool]]) -> bool:
        if node in self.shape_arithmetic or not any(map(carries_numbers, node.outputs)):
            return False
        if node not in self._offered and self.view.claimed(node) is None:  # rejected in an earlier round
            return False
        if not self.accepts(node):
            return False
        types = self.view.verdict(node).types
        found = known.get(id(types))
        if found is None:
            quantized = any(format_.quantized for formats in types.values() for format_ in formats)
            found = known[id(types)] = types, quantized
        return found[1]

    def accepts(self, node: ir.Node) -> bool:
        """Check whether the backend's file accepts a node in any type; control flow is excluded, with its bodies."""
        return len(self.view.whole(node)) == 1 and self.view.verdict(node).ok is not False

    def is_product(self, node: ir.Node) -> bool:
        """Check whether a node is a multiply-accumulate operator, where integers save the most."""
        return self.is_in("products", node)

    def is_index_source(self, node: ir.Node) -> bool:
        """Check whether a node converts numbers to extents or indices."""
        return self.is_in("index-sources", node)

    def is_in(self, group: str, node: ir.Node) -> bool:
        """Check whether the operator of a node belongs to a group."""
        return self.facts.is_in(group, node.domain, node.op_type)

    @property
    def products(self) -> str:
        """The operators that are products, for messages."""
        return ", ".join(sorted(self.facts.groups["products"]))

    def producer(self, node: ir.Node) -> ir.Node | None:
        """Return the producer of the first input; None for a model input or a constant."""
        return next((edge.source for edge in self.graph.producers[node] if edge.input == 0), None)


class IntegerStrategy(Strategy):
    """Claims nodes that a backend's file accepts in integers; subclasses select them.

    Nodes that compute extents or indices are never claimed in integers, nor is control flow. With `follow`, a Relu or
    Clip goes to the backend of its producer, and so do Shape, TopK and NonMaxSuppression; a LeakyRelu follows a
    producer that the backend fuses with it (`fuses`), since the value between them is never represented in integers.
    Once all backends have claimed, followers whose producer went elsewhere are withdrawn.
    """

    follow = True
    """Whether activations and index sources go to the backend of their producer, selected or not."""

    @abc.abstractmethod
    def select(self, candidates: IntegerCandidates) -> set[ir.Node]:
        """Return the nodes to have in integers; those that the backend does not support are dropped afterwards."""

    @abc.abstractmethod
    def why_not(self, candidates: IntegerCandidates) -> Reasons:
        """Return a function that explains why a supported node was not selected, and because of which nodes."""

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim the selected nodes of `view` for `backend`."""
        candidates = IntegerCandidates(view)
        selected = {node for node in self.select(candidates) if candidates.takes(node)}
        if self.follow:
            selected = _with_followers(candidates, selected)
        claims = Claims()
        why_not: Reasons | None = None
        for node in view.nodes():
            if node in selected:
                claims.claims.append(claim_of(node, view.verdict(node)))
            elif not _remarked(candidates, node, self.follow):
                why_not = why_not or self.why_not(candidates)
                why, because = why_not(node)
                view.remark("missed", node, "not-selected", why, because=because, backend=backend.name)
        return claims

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """Withdraw nodes that follow a producer which is not on the backend."""
        candidates = IntegerCandidates(view)
        kept: list[Claim] = []
        gone: set[ir.Node] = set()
        for claim in claims.claims:
            away = self._left_behind(claim, candidates, gone)
            if away is None:
                kept.append(claim)
            else:
                gone.add(claim.node)
                owner = (view.claimed(away) or ("the host",))[0] if away not in gone else "given back"
                where = owner if owner == "given back" else f"on {owner}"
                why = f"it goes where '{away.name}' ({away.op_type}) goes, which is {where}"
                view.remark("missed", claim.node, "follows", why, because=(away,), backend=view.backend.name)
        return Claims(kept)

    def _left_behind(self, claim: Claim, candidates: IntegerCandidates, gone: set[ir.Node]) -> ir.Node | None:
        """Return the producer that a claimed node follows, if the backend did not get it."""
        node = claim.node
        if claim.pinned or not (_follows(candidates, node) or self.follow and _fused(candidates, node)):
            return None
        producer = candidates.producer(node)
        if producer is None:
            return None
        owner = candidates.view.claimed(producer)
        here = owner is not None and owner[0] == candidates.view.backend.name and producer not in gone
        # Without `follow`, an activation after a node that cannot be in integers was selected on its own.
        return None if here or not (self.follow or candidates.takes(producer)) else producer


def _fused(candidates: IntegerCandidates, node: ir.Node) -> bool:
    """Check whether the backend fuses a node with its producer, a product, without loss of accuracy."""
    producer = candidates.producer(node) if candidates.is_in("bent", node) else None
    if producer is None or len(producer.outputs) != 1 or len(producer.outputs[0].uses()) != 1:
        return False
    if producer.outputs[0].is_graph_output() or not (candidates.takes(node) and candidates.takes(producer)):
        return False
    return any(node.op_type in rule.fuses for rule in candidates.view.verdict(producer).rules.values())


def _follows(candidates: IntegerCandidates, node: ir.Node) -> bool:
    return candidates.is_in("activations", node) or candidates.is_index_source(node)


def _with_followers(candidates: IntegerCandidates, selected: set[ir.Node]) -> set[ir.Node]:
    """Add or remove activations and index sources to match their producers, in graph order."""
    found = set(selected)
    for node in candidates.graph.nodes:
        if not _follows(candidates, node):
            if node not in found and _fused(candidates, node) and candidates.producer(node) in found:
                found.add(node)
            continue
        producer = candidates.producer(node)
        if producer not in found:
            found.discard(node)
        elif candidates.takes(node) or candidates.is_index_source(node) and candidates.accepts(node):
            found.add(node)
    return found


def _remarked(candidates: IntegerCandidates, node: ir.Node, follow: bool) -> bool:
    """Remark why a node is excluded; return False if the strategy decides."""
    view, because = candidates.view, tuple["ir.Node", ...]()
    if _is_shape_arithmetic(candidates, node, follow):
        rule, why = SHAPE_ARITHMETIC
    elif (refused := refused_part(view, node)) is not None:
        remark_refusal(view, node, refused)
        return True
    elif len(view.whole(node)) > 1:
        rule, why = CONTROL_FLOW
    elif follow and _follows(candidates, node):
        producer = candidates.producer(node)
        where = f"'{producer.name}' ({producer.op_type}) goes" if producer else "an input of the model is"
        rule, why = "follows", f"it goes where {where}, which is elsewhere"
        because = (producer,) if producer else ()
    elif not any(map(carries_numbers, node.outputs)):
        rule, why = "no-floats", "it computes integers or truth values, which are never quantized"
    elif not candidates.takes(node):
        rule, why = "not-in-integers", f"{view.backend.name} takes {node.op_type} in floats only"
    else:
        return False
    view.remark("missed", node, rule, why, because=because, backend=view.backend.name)
    return True


SHAPE_ARITHMETIC = "shape-arithmetic", "it computes extents or indices, which are never quantized"
CONTROL_FLOW = "control-flow", "numbers in bodies are not quantized"
"""Rules of remarks on nodes that no strategy for integers claims, each with the reason."""


def _is_shape_arithmetic(candidates: IntegerCandidates, node: ir.Node, follow: bool) -> bool:
    """Check for shape arithmetic, or a node that turns its input into it and does not follow its producer."""
    if node in candidates.shape_arithmetic:
        return True
    if not follow:
        return candidates.view.kind(node) == "shape"
    return candidates.is_index_source(node) and candidates.producer(node) in candidates.shape_arithmetic


Reasons = Callable[["ir.Node"], tuple[str, tuple["ir.Node", ...]]]
"""Returns why a node was not selected, and the nodes that caused it."""


def obstacles(candidates: IntegerCandidates, direction: Direction) -> dict[ir.Node, ir.Node]:
    """Return the nearest node that is not in integers before each node (`DOWN`) or after it (`UP`), if there is one.

    One walk: the obstacle of a node is a neighbor that is one, or the obstacle of its first neighbor that has one.
    """
    graph, taken = candidates.graph, candidates.taken
    found: dict[ir.Node, ir.Node] = {}
    for node in graph.nodes if direction == DOWN else reversed(graph.nodes):
        if direction == DOWN:
            near = [edge.source for edge in graph.producers[node] if edge.carries]
        else:  # a node that turns numbers into indices is an obstacle, too
            near = [edge.target for edge in graph.readers[node] if edge.kind == "data"]
        obstacle = None
        for other in near:
            if other not in taken:
                obstacle = other
                break
            obstacle = obstacle or found.get(other)
        if obstacle is not None:
            found[node] = obstacle
    return found
