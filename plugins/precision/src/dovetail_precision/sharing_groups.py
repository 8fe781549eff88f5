"""Sharing groups: which uses of quantised values have one set of parameters.

A use is a port of a node in a quantised format. All uses of one value in one format with one observer share their
parameters, and so do the ports of a node that its backend's file marks with `same_scale`. The mark also says whose
numbers decide: those at all of the ports, at the inputs, at the outputs, or what readers of the outputs make of these;
or that inputs have the scale of the output only where no other reader of theirs has one for them.
A value that the source model holds in that format has the parameters of the source model (`source_quantisation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.formats import Format, float_format
from dovetail.planning.placement import get_placement
from dovetail.planning.verdict import ParameterRule, PortRule
from dovetail_onnx.signatures import Signatures, input_name, output_name
from dovetail_placement.place import claim_on

from dovetail_precision.grouping import Grouping, Tie
from dovetail_precision.held import Held, Use
from dovetail_precision.source_quantisation import dequantising, is_atom, quantising

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.flat_graph import FlatGraph
    from dovetail.planning.holdings import Parameters
    from dovetail_onnx.signatures import Opsets


_NO_RULE, _NO_PARAMETERS = PortRule(), ParameterRule()


_Formats = Callable[["ir.Node", str], Iterable[Format]]


def held_values(flat: FlatGraph, opsets: Opsets) -> list[Held]:
    """The quantised forms of all values of a typed model, in graph order, with their sharing groups."""

    def chosen(node: ir.Node, port: str) -> tuple[Format, ...]:
        placement = get_placement(node)
        format_ = placement.port_format(port) if placement is not None else None
        return (format_,) if format_ is not None and format_.quantised else ()

    nodes = [node for node in flat.nodes if _has_quantised_port(node)]
    return _found(nodes, Signatures(opsets), chosen) if nodes else []


def possible_holdings(flat: FlatGraph, opsets: Opsets) -> list[Held]:
    """The quantised forms that values of a placed model may take, before formats are chosen.

    Only formats are looked at in which a value may have several, or those of the source model: in all others, uses of
    one value share their parameters.
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
    """The formats that claims have several rules for; all of them if the source model has its own parameters."""
    rules: dict[Format, set[ParameterRule]] = {}
    seen: dict[int, Mapping[str, PortRule]] = {}
    adopted = False
    for node in flat.nodes:
        claim, adopted = claim_on(node), adopted or is_atom(node)
        if claim is None or id(claim.rules) in seen:
            continue
        seen[id(claim.rules)] = claim.rules
        for rule in claim.rules.values():
            for format_, parameters in rule.parameters.items():
                rules.setdefault(format_, set()).add(parameters)
    return {format_ for format_, known in rules.items() if len(known) > 1 or adopted}


def _has_quantised_port(node: ir.Node) -> bool:
    placement = get_placement(node)
    if placement is None:
        return False
    return bool(placement.ports) or placement.precision is not None and placement.precision.quantised


def _found(nodes: Sequence[ir.Node], signatures: Signatures, formats: _Formats) -> list[Held]:
    found: dict[tuple, Held] = {}
    tied: list[Tie] = []
    computed: dict[tuple[int, Format], PortRule] = {}
    results: dict[tuple[int, Format], Held] = {}
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
                elif key in known:  # a value may have thousands of readers, and each would look at all of them
                    adopted = known[key]
                else:
                    adopted = known[key] = _adopted(value, format_, key[-1])
                # A product of scales belongs to one node.
                kind = (parameters, id(node) if parameters.factors else 0) if adopted is None else (adopted, 0)
                held = found.setdefault((id(value), format_, *kind), Held(value, format_, parameters, adopted=adopted))
                held.uses.append(use)
                if use.is_output:
                    results.setdefault((id(node), format_), held)
                if rule.same_scale:
                    shared.setdefault(format_, Tie(rule.same_scale, [])).members.append((use, held))
        tied += shared.values()
    grouping = Grouping(found.values())
    grouping.tie_all(tied)
    for held in found.values():
        made_by = computed.get((id(held.value), held.format))
        if made_by is not None and made_by.fuses:
            grouping.fuse(held, made_by, results)
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
    """The parameters that the source model has for a value in a format.

    Args:
        value: The value.
        format_: The format.
        computed: Whether its producer computes it in this format.
    """
    qdq = dequantising(value)
    if qdq is None and computed:
        qdq = next((one for one in quantising(value) if one.fits(format_)), None)
    return qdq.parameters if qdq is not None and qdq.fits(format_) else None
