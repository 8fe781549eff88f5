"""The strategy `quantized-inputs`: products read integers, and other operators only for the sake of products."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.planning import Claims
from dovetail_onnx import Signatures, input_name, output_name
from dovetail_placement import Autocast, Facts, NodeRequests, SearchGraph, ShapeArithmetic

from dovetail_cpu_int8.thin_products import is_thin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir
    from dovetail.planning import Claim
    from dovetail.plugin import Backend, Format, View
    from dovetail_placement import Edge


_ACTIVE, _PASSIVE, _FLOAT = "active", "passive", "pass"
_ACCUMULATOR = "int32"
_NOT_WANTED = "not every reader of its results wants integers"
_IN_BODY = "numbers in bodies of control flow are not quantized"
_NO_NUMBERS = "it computes extents or indices, which are never quantized"
_THIN = "its weight is so thin that converting what it reads and gives costs more than integers save"


class QuantizedInputs(Autocast):
    """Claims every node that the backend's file accepts, and decides which of them read and compute integers.

    Active operators read integers wherever the file accepts them so. Passive ones, which move, add or average numbers,
    do where every reader of their results wants integers. An activation that the file fuses with the node before it
    (`fuses`) passes that demand on. A result that all of its readers want in integers is quantized where it is
    computed. Any other stays a float; that of a product is its sum, which is never rounded to 8 bits.

    So QuantizeLinear comes before operators that compute in integers, and a value that is never multiplied, such as the
    residual stream of a transformer, keeps its digits. A product with a thin weight (`thin_products`) reads floats,
    unless `--low` asks for integers.
    """

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`, with one precision for every port."""
        claims = super().claim(view, backend)
        demand = _Demand(view, {claim.node: claim for claim in claims.claims})
        _remark_products_in_bodies(view, [claim.node for claim in claims.claims if demand.is_product_in_body(claim)])
        return Claims([demand.settled(claim) for claim in claims.claims], claims.edits)


class _Demand:
    """Which nodes compute in integers, and whose results are wanted in integers; one walk against the data flow."""

    def __init__(self, view: View, claims: Mapping[ir.Node, Claim]):
        self._graph = view.analysis(SearchGraph)
        self._facts = view.analysis(Facts).facts
        self._signatures = Signatures(view.model.ir.opset_imports)
        self._main, self._extents = view.model.graph, view.analysis(ShapeArithmetic).nodes
        requests = view.analysis(NodeRequests)
        self._thin = {node for node in claims if is_thin(node)} - requests.lowered()
        # What raised nodes read and give is not rounded to 8 bits, either.
        left_out = self._extents | self._thin | requests.raised()
        self._claims = {
            node: claim
            for node, claim in claims.items()
            if claim.role in (_ACTIVE, _PASSIVE) and node not in left_out and any(map(_integers, claim.ports.values()))
        }
        self._computed: set[ir.Node] = set()
        self._wanted: set[ir.Node] = set()
        for node in reversed(self._graph.nodes):
            if self._all_readers_want(node):
                self._wanted.add(node)
            claim = self._claims.get(node)
            if claim is not None and (claim.role == _ACTIVE or node in self._wanted and self._may_follow(node)):
                self._computed.add(node)

    def settled(self, claim: Claim) -> Claim:
        """Return a claim with the formats that were decided for its ports."""
        node = claim.node
        if node not in self._computed:
            if claim.role not in (_ACTIVE, _PASSIVE):
                return claim
            floats = {port: found for port, formats in claim.ports.items() if (found := _floats(formats))}
            return replace(claim, ports=floats, rules={}, role=_FLOAT, because=self._why_floats(claim))
        signature = self._signatures(node)
        results = {output_name(index, signature) for index in range(len(node.outputs))}
        ports = {}
        for port, formats in claim.ports.items():
            wanted = _integers(formats)
            if port in results and node not in self._wanted:
                wanted = _sums(formats) or (wanted if claim.role == _ACTIVE else _floats(formats))
            ports[port] = wanted or formats
        return replace(claim, ports=ports, role=_ACTIVE, settled=frozenset(ports))

    def is_product_in_body(self, claim: Claim) -> bool:
        """Check whether a node would compute in integers if it were not in a body of control flow."""
        return (
            claim.role == _ACTIVE and claim.node.graph is not self._main and any(map(_integers, claim.ports.values()))
        )

    def _why_floats(self, claim: Claim) -> str:
        """Return why a node that the file accepts in integers computes in floats; empty if the file accepts none."""
        if not any(map(_integers, claim.ports.values())):
            return ""
        if claim.node.graph is not self._main:
            return _IN_BODY
        if claim.node in self._extents:
            return _NO_NUMBERS
        return _THIN if claim.node in self._thin else _NOT_WANTED

    def _all_readers_want(self, node: ir.Node) -> bool:
        """Check whether every reader of a node's results reads them in integers; a model output is read in floats."""
        edges = self._graph.readers[node]
        if not edges or any(value.is_graph_output() for value in node.outputs):
            return False
        return all(edge.target in self._computed and self._reads_integers(edge) for edge in edges)

    def _reads_integers(self, edge: Edge) -> bool:
        port = input_name(edge.input, self._signatures(edge.target))
        return bool(_integers(self._claims[edge.target].ports.get(port, ())))

    def _may_follow(self, node: ir.Node) -> bool:
        """Check whether a passive node can read integers: an activation can if it is fused with its producer."""
        if not self._facts.is_in("activations", node.domain, node.op_type):
            return True
        producer = next((edge.source for edge in self._graph.producers[node] if edge.input == 0), None)
        claim = self._claims.get(producer) if producer is not None else None
        if claim is None or producer is None or len(self._graph.readers[producer]) != 1:
            return False
        alone = not any(value.is_graph_output() for value in producer.outputs)
        return alone and any(node.op_type in rule.fuses for rule in claim.rules.values())


def _remark_products_in_bodies(view: View, nodes: Sequence[ir.Node]) -> None:
    if nodes:
        what = f"'{nodes[0].name}' ({nodes[0].op_type})" + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
        why = f"{what}, in bodies of control flow, {'computes' if len(nodes) == 1 else 'compute'} in floats: {_IN_BODY}"
        suggest = "cpu-int8:weights=int8 stores their weights in 8 bits; or export an LSTM for a loop over steps"
        view.remark("analysis", "", "bodies-in-floats", why, suggest=suggest)


def _integers(formats: Sequence[Format]) -> tuple[Format, ...]:
    """Return the formats of 8 bits, or the product of scales where a port has nothing else, as a bias."""
    quantized = tuple(format_ for format_ in formats if format_.quantized)
    narrow = tuple(format_ for format_ in quantized if format_.element != _ACCUMULATOR)
    return narrow or quantized


def _sums(formats: Sequence[Format]) -> tuple[Format, ...]:
    """Return the formats of the sum of a product, which is not rounded to 8 bits."""
    return tuple(format_ for format_ in formats if format_.element == _ACCUMULATOR)


def _floats(formats: Sequence[Format]) -> tuple[Format, ...]:
    return tuple(format_ for format_ in formats if not format_.quantized)
