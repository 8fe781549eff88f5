"""Sharing groups: which uses of quantised values have one set of parameters.

A use is a port of a node in a quantised format. All uses of one value in one format with one observer share their
parameters, and so do the ports of a node that its backend's file marks with `same_scale`. The mark also says whose
numbers decide: those at all of the ports, at the inputs, at the outputs, or what readers of the outputs make of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir.formats import float_format
from dovetail.planning.placement import get_placement
from dovetail.planning.verdict import ParameterRule
from dovetail_onnx.signatures import Signatures, input_name, output_name
from dovetail_placement.place import claim_on

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph
    from dovetail.ir.formats import Format
    from dovetail_onnx.signatures import Opsets

__all__ = ["Held", "Use", "held_values"]


class Use(NamedTuple):
    """A port of a node in a quantised format.

    Attributes:
        node: The node.
        index: Index of the input, or of the output.
        port: Name of the port.
        is_output: Whether the node computes the value.
    """

    node: ir.Node
    index: int
    port: str
    is_output: bool


@dataclass(eq=False)
class Held:
    """A value in one quantised format with one set of parameters, before these are known.

    Attributes:
        value: The value.
        format: The format.
        rule: Where the parameters come from.
        uses: Where the value is computed or read so.
        group: All that share these parameters, this one included.
        follows: Whether the parameters come from others of the group, as far as there are others.
    """

    value: ir.Value
    format: Format
    rule: ParameterRule
    uses: list[Use] = field(default_factory=list)
    group: list[Held] = field(default_factory=list)
    follows: bool = False

    @property
    def leaders(self) -> list[Held]:
        """Those of the group whose numbers decide about its parameters."""
        return [held for held in self.group if not held.follows] or self.group

    @property
    def name(self) -> str:
        """The name of its sharing group: the first value in it, and what tells groups of this value apart."""
        first = self.group[0]
        detail = first.uses[0].node.name if first.rule.factors else first.rule.observer
        return f"{first.value.name}@{detail}" if detail else first.value.name

    @property
    def producer(self) -> Use | None:
        """The use that computes it; None if it is only read so."""
        return next((use for use in self.uses if use.is_output), None)


def held_values(flat: FlatGraph, opsets: Opsets) -> list[Held]:
    """The quantised forms of all values of a typed model, in graph order, with their sharing groups."""
    signatures = Signatures(opsets)
    found: dict[tuple, Held] = {}
    tied: list[_Tie] = []
    for node in flat.nodes:
        claim, shared, mode = claim_on(node), [], ""
        for use, value, format_ in _uses(node, signatures):
            rules = claim.rules.get(use.port) if claim is not None else None
            rule = rules.parameters.get(format_, ParameterRule()) if rules is not None else ParameterRule()
            # A product of scales belongs to one node.
            key = (id(value), format_, rule, id(node) if rule.factors else 0)
            held = found.setdefault(key, Held(value, format_, rule))
            held.uses.append(use)
            if rules is not None and rules.same_scale:
                shared.append((use, held))
                mode = rules.same_scale
        if shared:
            tied.append(_Tie(mode, shared))
    _unite(found.values(), tied)
    return _merged(found.values())


def _uses(node: ir.Node, signatures: Signatures) -> Iterator[tuple[Use, ir.Value, Format]]:
    placement = get_placement(node)
    if placement is None or not placement.ports and (placement.precision is None or not placement.precision.quantised):
        return
    signature = signatures(node)
    for is_output, values in ((False, node.inputs), (True, node.outputs)):
        for index, value in enumerate(values):
            if value is None or not value.name or float_format(value) is None:
                continue
            port = output_name(index, signature) if is_output else input_name(index, signature)
            format_ = placement.port_format(port)
            if format_ is not None and format_.quantised:
                yield Use(node, index, port, is_output), value, format_


class _Tie(NamedTuple):
    """The quantised ports of a node that share their parameters, and where these come from."""

    mode: str
    members: list[tuple[Use, Held]]

    def read_elsewhere(self, by_form: Mapping[tuple[int, Format], Sequence[Held]]) -> list[Held]:
        """What readers of the outputs make of these, where that is something else."""
        outputs = [held for use, held in self.members if use.is_output]
        others = [other for held in outputs for other in by_form[id(held.value), held.format]]
        return [other for other in dict.fromkeys(others) if other not in outputs and not other.rule.factors]


def _unite(found: Iterable[Held], ties: Iterable[_Tie]) -> None:
    """Put everything that is tied together into one group; all others are groups of their own."""
    by_form: dict[tuple[int, Format], list[Held]] = {}
    for held in found:
        held.group = [held]
        by_form.setdefault((id(held.value), held.format), []).append(held)
    for tie in ties:
        members = [held for _, held in tie.members]
        read = tie.read_elsewhere(by_form) if tie.mode == "consumer" else []
        for use, held in tie.members:
            held.follows |= use.is_output if tie.mode == "input" else tie.mode != "all" and not use.is_output
            held.follows |= bool(read)
        for other in (*members[1:], *read):
            _join(members[0], other)


def _merged(found: Iterable[Held]) -> list[Held]:
    """One per value, format and group: what follows a reader is held as that reader has it."""
    kept: dict[tuple[int, Format, int], Held] = {}
    doubled: dict[int, list[Held]] = {}
    for held in found:
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


def _join(first: Held, second: Held) -> None:
    one, two = sorted((first.group, second.group), key=len, reverse=True)
    if one is not two:
        one.extend(two)
        for held in two:
            held.group = one
