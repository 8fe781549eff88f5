"""The strategy `weights-alone`: products with constant weights read these in few bits, and all else in floats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.planning import Claims
from dovetail_onnx import Signatures, input_name
from dovetail_placement import Autocast, NodeRequests
from dovetail_quantize import scale_shape

from dovetail_cpu_int8.size_budget import BudgetedWeight, WeightBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from dovetail.planning import Claim
    from dovetail.plugin import Backend, Format, View


_ACTIVE, _PASSIVE = "active", "passive"
_WHY_FLOAT = "no format of the backend's file fits the weight"


@dataclass(frozen=True)
class WeightsAlone(Autocast):
    """Claims every node that the backend's file accepts, and chooses one format for every weight.

    That is the first in the file whose blocks fit the weight. With a budget (`--max-size`), weights get more bits where
    the squared error falls most for the bytes. Products that read the same value, such as those of queries, keys and
    values, have one format; so have all readers of a weight.
    """

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`, with one format for every weight."""
        claims = super().claim(view, backend)
        signatures = Signatures(view.model.ir.opset_imports)
        raised = view.analysis(NodeRequests).raised()
        found = {c.node: [] if c.node in raised else _ports_of(c, signatures) for c in claims.claims}
        shared: dict[ir.Value, BudgetedWeight] = {}
        readers: list[tuple[ir.Node, str, int, BudgetedWeight]] = []
        packed = backend.chosen["kernel"] == "nbits"
        scale_bytes = 2 if backend.chosen["scales"] == "float16" else 4
        for claim in claims.claims:
            formats = _fitting(claim, found[claim.node])
            for name, index in found[claim.node] if formats else ():
                value = claim.node.inputs[index]
                assert value is not None, "a port with formats has a value"
                weight = shared.setdefault(value, BudgetedWeight(value, formats, claim.node, scale_bytes, packed))
                common = tuple(format_ for format_ in weight.formats if format_ in formats)
                if common:  # else it is read along different axes: its first reader decides, this one reads floats
                    weight.formats = common
                    readers.append((claim.node, name, index, weight))
        weights: dict[ir.Node, dict[str, BudgetedWeight]] = {}
        for node, name, _, weight in readers:
            weights.setdefault(node, {})[name] = weight
        groups: dict[tuple[int, ...], list[BudgetedWeight]] = {}
        for node, _, index, weight in readers:
            reads = (id(node.inputs[0]),) if index else (0, id(weight.value))
            members = groups.setdefault((*reads, *map(id, weight.formats)), [])
            if weight not in members:
                members.append(weight)
        view.analysis(WeightBudget).choose(list(groups.values()), view)
        return Claims([_settled(claim, found, weights) for claim in claims.claims], claims.edits)


def _ports_of(claim: Claim, signatures: Signatures) -> list[tuple[str, int]]:
    """Return names and indices of the ports at which a node may read integers."""
    names = [name for name, formats in claim.ports.items() if any(format_.quantized for format_ in formats)]
    if not names or claim.pinned or claim.role != _ACTIVE:
        return []
    signature = signatures(claim.node)
    given = [index for index, value in enumerate(claim.node.inputs) if value is not None]
    return [(name, index) for index in given if (name := input_name(index, signature)) in names]


def _fitting(claim: Claim, ports: Sequence[tuple[str, int]]) -> tuple[Format, ...]:
    """Return the quantized formats whose blocks divide the weights at all ports: those of experts have one format."""
    fitting = []
    for format_ in claim.ports[ports[0][0]] if ports else ():
        try:
            for _, index in ports:
                value = claim.node.inputs[index]
                scale_shape(format_, None if value is None else value.shape)
        except ValueError:
            continue
        if format_.quantized and all(format_ in claim.ports[name] for name, _ in ports):
            fitting.append(format_)
    return tuple(fitting)


def _settled(
    claim: Claim, found: dict[ir.Node, list[tuple[str, int]]], weights: dict[ir.Node, dict[str, BudgetedWeight]]
) -> Claim:
    if claim.node in weights:
        chosen = {name: (weight.chosen,) for name, weight in weights[claim.node].items()}
        return replace(claim, ports={**claim.ports, **chosen}, settled=frozenset(claim.ports))
    if claim.pinned or claim.role not in (_ACTIVE, _PASSIVE):
        return claim
    floats = {name: kept for name, formats in claim.ports.items() if (kept := _floats(formats))}
    because = _WHY_FLOAT if found[claim.node] else ""
    return replace(claim, ports=floats, rules={}, role="pass", because=because)


def _floats(formats: Sequence[Format]) -> tuple[Format, ...]:
    return tuple(format_ for format_ in formats if not format_.quantized)
