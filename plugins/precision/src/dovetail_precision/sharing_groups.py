"""Sharing groups: the uses of quantized values that share one set of parameters, and the ties between values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import Format, float_format, name_of
from dovetail.planning import ParameterRule, PortRule, get_placement, placement_of
from dovetail_onnx.signatures import Signatures, input_name, output_name
from dovetail_placement.place import claim_on
from dovetail_placement.source_scales import dequantizing, is_qdq, lifted_scale, quantizing

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FlatGraph
    from dovetail.planning import Parameters
    from dovetail_onnx.signatures import Opsets


class Use(NamedTuple):
    """A port of a node in a quantized format.

    Attributes:
        node: The node.
        index: Index of the input, or of the output.
        port: Name of the port.
        is_output: Whether the node computes the value.
    """

    node: ir.Node
    index: int  # type: ignore[assignment]  # it hides the method of tuples
    port: str
    is_output: bool


@dataclass(eq=False)
class QuantizedForm:
    """A value in one quantized format with one set of parameters, before these are known.

    Attributes:
        value: The value.
        format: The format.
        rule: The source of the parameters.
        uses: The ports that compute or read the value in this form.
        adopted: Its parameters in the source model, or None.
        group: All values that share these parameters, including this one.
        follows: Whether the parameters come from other members of the group, if there are any.
        fused: The only user of the value if it is fused with the producer, so that the value is never materialized;
            None for all other values.
    """

    value: ir.Value
    format: Format
    rule: ParameterRule
    uses: list[Use] = field(default_factory=list)
    adopted: Parameters | None = None
    group: list[QuantizedForm] = field(default_factory=list)
    follows: bool = False
    fused: ir.Node | None = None

    @property
    def leaders(self) -> list[QuantizedForm]:
        """The members of the group whose data determines its parameters."""
        return [form for form in self.group if not form.follows] or self.group

    @property
    def name(self) -> str:
        """The name of its sharing group: its first value, with a suffix if the value has several groups."""
        first = self.group[0]
        detail = first.uses[0].node.name if first.rule.factors else str(first.rule.observer)
        return f"{first.value.name}@{detail}" if detail and first.adopted is None else name_of(first.value)

    @property
    def producer(self) -> Use | None:
        """The use that computes it; None if it is only read in this form."""
        return next((use for use in self.uses if use.is_output), None)


FREE = "free"


class Tie(NamedTuple):
    """The quantized ports of a node that share their parameters, and the source of these."""

    mode: str
    members: list[tuple[Use, QuantizedForm]]

    @property
    def gives_result(self) -> bool:
        """Whether a result is among them."""
        return any(use.is_output for use, _ in self.members)

    def read_elsewhere(self, by_form: Mapping[tuple[int, Format], Sequence[QuantizedForm]]) -> list[QuantizedForm]:
        """Return the forms in which the outputs are read, where these differ."""
        outputs = [form for use, form in self.members if use.is_output]
        others = [other for form in outputs for other in by_form[id(form.value), form.format]]
        return [other for other in dict.fromkeys(others) if other not in outputs and not other.rule.factors]


class Grouping:
    """Unites tied values into groups; every other value is a separate group."""

    def __init__(self, found: Iterable[QuantizedForm]):
        self._all = list(found)
        self._by_form: dict[tuple[int, Format], list[QuantizedForm]] = {}
        self._adopted: dict[int, Parameters] = {}
        self._bound: set[int] = set()
        for form in self._all:
            self._add(form)

    def _add(self, form: QuantizedForm) -> None:
        form.group = [form]
        self._by_form.setdefault((id(form.value), form.format), []).append(form)
        if form.adopted is not None:
            self._adopted[id(form.group)] = form.adopted

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
            id(form.group) for form in self._all if any(not use.is_output and use not in moved for use in form.uses)
        }
        for tie in reversed(ties):
            if tie.mode == FREE:
                self._tie_free(tie)

    def _tie_free(self, tie: Tie) -> None:
        """Give the inputs of a node the scale of its output, unless another of their users requires one."""
        result = next((form for use, form in tie.members if use.is_output), None)
        for use, form in tie.members:
            if use.is_output or result is None or id(form.group) in self._bound or form.group is result.group:
                continue
            members, bound = list(form.group), id(result.group) in self._bound
            if self._join(result, form):
                for member in members:
                    member.follows = True
                if bound:
                    self._bound.add(id(result.group))

    def _tie(self, tie: Tie) -> None:
        """Unite the ports of one node."""
        members = tie.members
        if tie.mode == "output" or sum(not use.is_output for use, _ in members) > 1 and self._differ(members):
            members = sorted(members, key=lambda member: not member[0].is_output)
        read = tie.read_elsewhere(self._by_form) if tie.mode == "consumer" else []
        first = members[0][1]
        for use, form in members:
            if not self._join(first, form):
                form = self._separated(use, form)
                self._join(first, form)
            form.follows |= use.is_output if tie.mode == "input" else tie.mode != "all" and not use.is_output
            form.follows |= bool(read)
        for other in read:
            self._join(first, other)

    def _differ(self, members: Sequence[tuple[Use, QuantizedForm]]) -> bool:
        """Check whether the source model has several scales for ports; inputs are then converted to the output's."""
        known = {self._adopted[id(form.group)] for _, form in members if id(form.group) in self._adopted}
        return len(known) > 1

    def fuse(self, form: QuantizedForm, rule: PortRule, results: Mapping[tuple[int, Format], QuantizedForm]) -> None:
        """Let a value follow the result of the node fused with its producer, unless that is in floats."""
        uses = form.value.uses()
        if len(uses) != 1 or form.value.is_graph_output() or form.adopted is not None or form.producer is None:
            return
        (reader, _), producer = next(iter(uses)), form.producer.node
        same = placement_of(reader).backend == placement_of(producer).backend and reader.graph is producer.graph
        result = results.get((id(reader), form.format))
        reads = any(use.node is reader for use in form.uses)
        if not (same and reads and reader.op_type in rule.fuses):
            return
        if result is None:
            form.fused = reader
        elif self._join(result, form):
            form.follows, form.fused = True, reader
            result.follows = False

    def _separated(self, use: Use, form: QuantizedForm) -> QuantizedForm:
        """Give one use parameters that the source model does not have, which requires a requantization."""
        form.uses.remove(use)
        alone = QuantizedForm(form.value, form.format, form.rule, [use])
        self._all.append(alone)
        self._add(alone)
        return alone

    def merged(self) -> list[QuantizedForm]:
        """Return one form per value, format and group; a value that follows a user has that user's form."""
        kept: dict[tuple[int, Format, int], QuantizedForm] = {}
        doubled: dict[int, list[QuantizedForm]] = {}
        for form in self._all:
            if not form.uses:
                doubled[id(form.group)] = form.group
                continue
            first = kept.setdefault((id(form.value), form.format, id(form.group)), form)
            if first is not form:
                first.uses += form.uses
                if first.follows and not form.follows:
                    first.rule, first.follows = form.rule, False
                doubled[id(form.group)] = form.group
        remaining = set(kept.values())
        for group in doubled.values():
            group[:] = [form for form in group if form in remaining]
        return list(kept.values())

    def _join(self, first: QuantizedForm, second: QuantizedForm) -> bool:
        """Unite two groups; return False if the source model has different parameters for them."""
        one, two = sorted((first.group, second.group), key=len, reverse=True)
        if one is two:
            return True
        theirs = [self._adopted[id(group)] for group in (one, two) if id(group) in self._adopted]
        if len(theirs) == 2 and theirs[0] != theirs[1]:
            return False
        one.extend(two)
        for form in two:
            form.group = one
        if theirs:
            self._adopted[id(one)] = theirs[0]
        return True


_NO_RULE, _NO_PARAMETERS = PortRule(), ParameterRule()


_Formats = Callable[["ir.Node", str], Iterable[Format]]


def quantized_forms(flat: FlatGraph, opsets: Opsets) -> list[QuantizedForm]:
    """Return the quantized forms of all values of a typed model, in graph order, with their sharing groups."""

    def chosen(node: ir.Node, port: str) -> tuple[Format, ...]:
        placement = get_placement(node)
        format_ = placement.port_format(port) if placement is not None else None
        return (format_,) if format_ is not None and format_.quantized else ()

    nodes = [node for node in flat.nodes if _has_quantized_port(node)]
    return _found(nodes, Signatures(opsets), chosen) if nodes else []


def possible_quantized_values(flat: FlatGraph, opsets: Opsets) -> list[QuantizedForm]:
    """Return the quantized forms that values of a placed model may take, before formats are chosen.

    Only formats that a value may have in several forms, or that the source model uses, are considered: in all others,
    uses of one value share their parameters.
    """
    contested = _contested_formats(flat)
    if not contested:
        return []

    def claimed(node: ir.Node, port: str) -> Iterable[Format]:
        claim = claim_on(node)
        return [format_ for format_ in claim.ports.get(port, ()) if format_ in contested] if claim is not None else ()

    nodes = [node for node in flat.nodes if (claim := claim_on(node)) is not None and claim.ports]
    return _found(nodes, Signatures(opsets), claimed)


def _contested_formats(flat: FlatGraph) -> set[Format]:
    """Return the formats with several rules in claims; all formats if the source model has parameters of its own."""
    rules: dict[Format, set[ParameterRule]] = {}
    seen: dict[int, Mapping[str, PortRule]] = {}
    adopted = False
    for node in flat.nodes:
        claim, adopted = claim_on(node), adopted or is_qdq(node) or _has_lifted_scale(node)
        if claim is None or id(claim.rules) in seen:
            continue
        seen[id(claim.rules)] = claim.rules
        for rule in claim.rules.values():
            for format_, parameters in rule.parameters.items():
                rules.setdefault(format_, set()).add(parameters)
    return {format_ for format_, known in rules.items() if len(known) > 1 or adopted}


def _has_lifted_scale(node: ir.Node) -> bool:
    return any(value is not None and lifted_scale(value) is not None for value in (*node.inputs, *node.outputs))


def _has_quantized_port(node: ir.Node) -> bool:
    placement = get_placement(node)
    if placement is None:
        return False
    return bool(placement.ports) or placement.precision is not None and placement.precision.quantized


def _found(nodes: Sequence[ir.Node], signatures: Signatures, formats: _Formats) -> list[QuantizedForm]:
    found: dict[tuple, QuantizedForm] = {}
    tied: list[Tie] = []
    computed: dict[tuple[int, Format], PortRule] = {}
    results: dict[tuple[int, Format], QuantizedForm] = {}
    known: dict[tuple[int, Format, bool], Parameters | None] = {}
    for node in nodes:
        claim = claim_on(node)
        shared: dict[Format, Tie] = {}
        for use, value in _floats_at(node, signatures):
            rule = (claim.rules.get(use.port) if claim is not None else None) or _NO_RULE
            for format_ in formats(node, use.port):
                if use.is_output:
                    computed[id(value), format_] = rule
                parameters = rule.parameters.get(format_, _NO_PARAMETERS)
                key = (id(value), format_, (id(value), format_) in computed)
                if parameters.factors:
                    adopted = None
                elif key in known:  # a value may have thousands of users, and each would visit all of them
                    adopted = known[key]
                else:
                    adopted = known[key] = _adopted(value, format_, key[-1])
                # A product of scales belongs to one node.
                kind = (parameters, id(node) if parameters.factors else 0) if adopted is None else (adopted, 0)
                form = found.setdefault(
                    (id(value), format_, *kind), QuantizedForm(value, format_, parameters, adopted=adopted)
                )
                form.uses.append(use)
                if use.is_output:
                    results.setdefault((id(node), format_), form)
                if rule.same_scale:
                    shared.setdefault(format_, Tie(rule.same_scale, [])).members.append((use, form))
        tied += shared.values()
    grouping = Grouping(found.values())
    grouping.tie_all(tied)
    for form in found.values():
        made_by = computed.get((id(form.value), form.format))
        if made_by is not None and made_by.fuses:
            grouping.fuse(form, made_by, results)
    return grouping.merged()


def _floats_at(node: ir.Node, signatures: Signatures) -> Iterator[tuple[Use, ir.Value]]:
    signature = signatures(node)
    for is_output, values in ((False, node.inputs), (True, node.outputs)):
        for index, value in enumerate(values):
            if value is None or not value.name or float_format(value) is None:
                continue
            port = output_name(index, signature) if is_output else input_name(index, signature)
            yield Use(node, index, port, is_output), value


def _adopted(value: ir.Value, format_: Format, computed: bool) -> Parameters | None:
    """Return the parameters of a value in a format of the source model, or None.

    Args:
        value: The value.
        format_: The format.
        computed: Whether its producer computes it in this format.
    """
    lifted = lifted_scale(value)
    if lifted is not None:
        return lifted.parameters_in(format_, value)
    qdq = dequantizing(value)
    if qdq is None and computed:
        qdq = next((one for one in quantizing(value) if one.fits(format_)), None)
    return qdq.parameters if qdq is not None and qdq.fits(format_) else None
