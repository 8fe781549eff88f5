"""Put quantised values that are tied together into one sharing group.

Ties of the mode `free` come last, readers first: an input has the scale of the output if nothing that computes reads
it, or what moves or joins its numbers; otherwise it keeps its own, and the node requantises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dovetail.planning.placement import placement_of

from dovetail_precision.held import Held, Use

if TYPE_CHECKING:
    from dovetail.ir.formats import Format
    from dovetail.planning.holdings import Parameters
    from dovetail.planning.verdict import PortRule


FREE = "free"


class Tie(NamedTuple):
    """The quantised ports of a node that share their parameters, and where these come from."""

    mode: str
    members: list[tuple[Use, Held]]

    @property
    def gives_result(self) -> bool:
        """Whether a result is among them."""
        return any(use.is_output for use, _ in self.members)

    def read_elsewhere(self, by_form: Mapping[tuple[int, Format], Sequence[Held]]) -> list[Held]:
        """What readers of the outputs make of these, where that is something else."""
        outputs = [held for use, held in self.members if use.is_output]
        others = [other for held in outputs for other in by_form[id(held.value), held.format]]
        return [other for other in dict.fromkeys(others) if other not in outputs and not other.rule.factors]


class Grouping:
    """Puts everything that is tied together into one group; all others are groups of their own."""

    def __init__(self, found: Iterable[Held]):
        self._all = list(found)
        self._by_form: dict[tuple[int, Format], list[Held]] = {}
        self._adopted: dict[int, Parameters] = {}
        self._bound: set[int] = set()
        for held in self._all:
            self._add(held)

    def _add(self, held: Held) -> None:
        held.group = [held]
        self._by_form.setdefault((id(held.value), held.format), []).append(held)
        if held.adopted is not None:
            self._adopted[id(held.group)] = held.adopted

    def tie_all(self, ties: Sequence[Tie]) -> None:
        """Unite the ports of nodes.

        Args:
            ties: One for every node and format, in the order of the graph.
        """
        for tie in ties:
            if tie.mode != FREE:
                self._tie(tie)
        moved = {use for tie in ties if tie.gives_result for use, _ in tie.members}
        self._bound = {
            id(held.group) for held in self._all if any(not use.is_output and use not in moved for use in held.uses)
        }
        for tie in reversed(ties):
            if tie.mode == FREE:
                self._tie_free(tie)

    def _tie_free(self, tie: Tie) -> None:
        """Give the inputs of one node the scale of its output, where no other reader of theirs wants one."""
        result = next((held for use, held in tie.members if use.is_output), None)
        for use, held in tie.members:
            if use.is_output or result is None or id(held.group) in self._bound or held.group is result.group:
                continue
            members, bound = list(held.group), id(result.group) in self._bound
            if self._join(result, held):
                for member in members:
                    member.follows = True
                if bound:
                    self._bound.add(id(result.group))

    def _tie(self, tie: Tie) -> None:
        """Unite the ports of one node."""
        members = tie.members
        if tie.mode == "output":
            members = sorted(members, key=lambda member: not member[0].is_output)
        read = tie.read_elsewhere(self._by_form) if tie.mode == "consumer" else []
        first = members[0][1]
        for use, held in members:
            if not self._join(first, held):
                held = self._separated(use, held)
                self._join(first, held)
            held.follows |= use.is_output if tie.mode == "input" else tie.mode != "all" and not use.is_output
            held.follows |= bool(read)
        for other in read:
            self._join(first, other)

    def fuse(self, held: Held, rule: PortRule, results: Mapping[tuple[int, Format], Held]) -> None:
        """Let a value follow the result of the node that is computed together with its producer, if there is one."""
        uses = held.value.uses()
        if len(uses) != 1 or held.value.is_graph_output() or held.adopted is not None or held.producer is None:
            return
        (reader, _), producer = next(iter(uses)), held.producer.node
        same = placement_of(reader).backend == placement_of(producer).backend and reader.graph is producer.graph
        result = results.get((id(reader), held.format))
        reads = any(use.node is reader for use in held.uses)
        if same and reads and result is not None and reader.op_type in rule.fuses and self._join(result, held):
            held.follows, held.fused = True, reader
            result.follows = False

    def _separated(self, use: Use, held: Held) -> Held:
        """Let one use have parameters that the source model does not have: a requantisation stands between."""
        held.uses.remove(use)
        alone = Held(held.value, held.format, held.rule, [use])
        self._all.append(alone)
        self._add(alone)
        return alone

    def merged(self) -> list[Held]:
        """One per value, format and group: what follows a reader is held as that reader has it."""
        kept: dict[tuple[int, Format, int], Held] = {}
        doubled: dict[int, list[Held]] = {}
        for held in self._all:
            if not held.uses:
                doubled[id(held.group)] = held.group
                continue
            first = kept.setdefault((id(held.value), held.format, id(held.group)), held)
            if first is not held:
                first.uses += held.uses
                if first.follows and not held.follows:
                    first.rule, first.follows = held.rule, False
                doubled[id(held.group)] = held.group
        remaining = set(kept.values())
        for group in doubled.values():
            group[:] = [held for held in group if held in remaining]
        return list(kept.values())

    def _join(self, first: Held, second: Held) -> bool:
        """Unite two groups; return False if the source model has different parameters for them."""
        one, two = sorted((first.group, second.group), key=len, reverse=True)
        if one is two:
            return True
        theirs = [self._adopted[id(group)] for group in (one, two) if id(group) in self._adopted]
        if len(theirs) == 2 and theirs[0] != theirs[1]:
            return False
        one.extend(two)
        for held in two:
            held.group = one
        if theirs:
            self._adopted[id(one)] = theirs[0]
        return True
