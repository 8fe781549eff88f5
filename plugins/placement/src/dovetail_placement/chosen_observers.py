"""Observers that a request chooses for a backend, in the verdicts of its judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail_onnx.signatures import Signatures, input_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin import Judge, ObserverChoice, PortRule, Verdict
    from dovetail_onnx.signatures import Opsets


def with_observer(judge: Judge, observer: ObserverChoice, opsets: Opsets) -> Judge:
    """A judge whose verdicts name this observer for everything that is calibrated on data; weights keep theirs."""
    signatures = Signatures(opsets)
    # Nodes of one rule go on having one mapping, which others compare by identity.
    known: dict[tuple[int, frozenset[str]], tuple[Mapping[str, PortRule], Mapping[str, PortRule]]] = {}

    def asked(node: ir.Node, region: Mapping[str, object] | None = None) -> Verdict:
        verdict = judge(node, region)
        if not verdict.rules:
            return verdict
        signature = signatures(node)
        weights = frozenset(
            input_name(index, signature) for index, value in enumerate(node.inputs) if _is_weight(value)
        )
        key = id(verdict.rules), weights
        if key not in known:
            rules = {port: rule if port in weights else _of(rule, observer) for port, rule in verdict.rules.items()}
            known[key] = verdict.rules, rules  # the first one keeps its identity from being used again
        return replace(verdict, rules=known[key][1])

    return asked


def _of(rule: PortRule, observer: ObserverChoice) -> PortRule:
    parameters = {
        format_: found if found.factors else found._replace(observer=observer)
        for format_, found in rule.parameters.items()
    }
    return replace(rule, parameters=parameters)


def _is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or computed by one node from constants alone, as a dequantised weight is."""
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    if producer is None:
        return value.const_value is not None
    return all(one is None or one.producer() is None and not one.is_graph_input() for one in producer.inputs)
