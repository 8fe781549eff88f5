"""Search for the nodes at fault in a region that an emitter refuses without naming any.

Halves of the region are compiled alone, then halves of those that are refused, until single nodes are left. So a node
that the tools of a backend do not know is left to others by itself, and the rest of its region stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.planning import Region, decided_key, key_of
from dovetail.text import pluralize

from dovetail_placement.artifacts.emitters import NotEmitted

if TYPE_CHECKING:
    import onnx_ir as ir

_MOST = 24  # compilations of parts per compilation of a model
_LONGEST = 600.0  # seconds after which no further part is compiled
_SHOWN = 80  # characters of a reason in the account of the search


class Fault(NamedTuple):
    """Nodes to refuse, and why."""

    nodes: Sequence[ir.Node]
    why: str


@dataclass
class Search:
    """What is left of the effort for all searches of one compilation, and what they found.

    Attributes:
        left: How many parts may still be compiled.
        seconds: How long compiling parts may still take.
        known: The nodes that were refused alone, by backend and key, with the reason. Later trials and rounds, in which
            such a node is on the backend again, need no search.
    """

    left: int = _MOST
    seconds: float = _LONGEST
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether no further part is compiled."""
        return self.left <= 0 or self.seconds <= 0

    def faults(
        self,
        region: Region,
        refused: NotEmitted,
        goes_along: bool,
        compiled: Callable[[Region], NotEmitted | None],
        say: Callable[[ir.Node, str], None],
    ) -> list[Fault]:
        """Return the nodes of a region that its emitter refuses, as far as the effort suffices.

        Of a part in which no node was found, all nodes are refused. If both halves of a part are compiled, it is too
        much as a whole: then the node between its halves is refused, if there is only one, so that two regions remain.

        Args:
            region: The region, which was refused without a name.
            refused: The refusal.
            goes_along: Whether conversions to integers belong to their readers, rather than to their producers.
            compiled: Compiles part of the region, and returns why that is refused; None if it is not.
            say: Receives the first node of every part, and what became of it.
        """
        earlier = [node for node in region.nodes if (region.backend, key_of(node)) in self.known]
        if earlier:
            return [Fault([node], self.known[region.backend, key_of(node)]) for node in earlier]
        owners = _owners(region, goes_along)
        decided = [node for node in region.nodes if decided_key(node)]
        found: list[Fault] = []
        waiting = [(decided, refused)]
        while waiting:
            nodes, why = waiting.pop()
            if len(nodes) == 1 and len(decided) > 1:
                self.known[region.backend, key_of(nodes[0])] = why.why
            if len(nodes) < 2 or self.is_over:
                found.append(Fault(nodes, why.why))
                continue
            middle = (len(nodes) + 1) // 2
            halves = (nodes[:middle], nodes[middle:])
            answers = [self._try(region, half, owners, compiled, say) for half in halves]
            for half, answer in zip(halves, answers):
                if answer is None:
                    continue
                named = [node for node in half if answer.nodes & {node.name, key_of(node)}]
                if named:
                    found += [Fault([node], answer.why) for node in named]
                else:
                    waiting.append((half, answer))
            if not any(answers):
                found.append(_too_much(nodes, halves, why))
        return found

    def _try(
        self,
        region: Region,
        nodes: Sequence[ir.Node],
        owners: dict[ir.Node, ir.Node],
        compiled: Callable[[Region], NotEmitted | None],
        say: Callable[[ir.Node, str], None],
    ) -> NotEmitted | None:
        """Compile some nodes of a region with their conversions; return why they are refused, None if they are not."""
        what = f"{pluralize(len(nodes), 'node')} of region {region.index}, {_ends(nodes)}, alone"
        if self.is_over:
            answer: NotEmitted | None = NotEmitted("it was not tried alone: too many parts were compiled already")
            say(nodes[0], f"not tried: {what}")
            return answer
        inside = set(nodes)
        part = region.part([node for node in region.nodes if owners.get(node) in inside])
        began = time.monotonic()
        answer = compiled(part)
        self.left, self.seconds = self.left - 1, self.seconds - (time.monotonic() - began)
        say(nodes[0], f"compiled: {what}" if answer is None else f"refused: {what}: {answer.why[:_SHOWN]}")
        return answer


def _owners(region: Region, goes_along: bool) -> dict[ir.Node, ir.Node]:
    """Return the decided node that each node of a region stays with: itself, or for a conversion its neighbor.

    A conversion from integers stays with its first reader, one to integers with its producer: integers cross between
    parts. With `goes_along`, both stay with the reader, and floats cross.
    """
    inside = set(region.nodes)
    owners = {node: node for node in region.nodes if decided_key(node)}
    place = {node: position for position, node in enumerate(region.nodes)}
    for node in region.nodes if not goes_along else ():
        if node not in owners and node.op_type != "DequantizeLinear":
            producers = (value.producer() for value in node.inputs if value is not None)
            owner = next((owners[made] for made in producers if made is not None and made in owners), None)
            if owner is not None:
                owners[node] = owner
    for node in reversed(region.nodes):
        if node not in owners:
            readers = [user for value in node.outputs for user, _ in value.uses() if user in inside and user in owners]
            if readers:
                owners[node] = owners[min(readers, key=lambda user: place[owners[user]])]
    for node in region.nodes:  # what nothing inside reads
        if node not in owners:
            producers = (value.producer() for value in node.inputs if value is not None)
            owner = next((owners[made] for made in producers if made is not None and made in owners), None)
            owners[node] = owner or next(iter(owners), node)
    return owners


def _too_much(nodes: Sequence[ir.Node], halves: tuple[Sequence[ir.Node], Sequence[ir.Node]], why: NotEmitted) -> Fault:
    """Return the node between two halves that are compiled alone, or all nodes if there are several."""
    behind = set(halves[1])
    first = set(halves[0])
    seen: set[ir.Node] = set()
    between: dict[ir.Node, None] = {}
    waiting = [(node, user) for node in halves[0] for value in node.outputs for user, _ in value.uses()]
    while waiting:  # through the conversions between them
        node, user = waiting.pop()
        if user in behind:
            between[node] = None
        elif user not in first and not decided_key(user) and user not in seen:
            seen.add(user)
            waiting += [(node, other) for value in user.outputs for other, _ in value.uses()]
    alone = f"{why.why} (both halves of these {len(nodes)} nodes are compiled alone"
    if len(between) == 1:
        return Fault(list(between), f"{alone}; this node is between them, so that they become two regions)")
    return Fault(nodes, f"{alone}; `region: {{limits: {{nodes: ..{len(halves[0])}}}}}` in its file divides them)")


def _ends(nodes: Sequence[ir.Node]) -> str:
    return f"'{nodes[0].name}'" if len(nodes) == 1 else f"'{nodes[0].name}' to '{nodes[-1].name}'"
