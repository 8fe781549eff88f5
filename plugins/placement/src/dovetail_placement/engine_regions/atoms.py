"""Atoms: nodes that an engine computes together, so that a border between them costs more than its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail_placement.edge_kinds import operator_facts

if TYPE_CHECKING:
    import onnx_ir as ir


def atoms_of(nodes: Sequence[ir.Node], legal: Collection[ir.Node]) -> list[tuple[ir.Node, ...]]:
    """The atoms among the legal nodes of a graph.

    These are: a product with what is computed element by element from its result alone, such as bias and activation;
    and an operator with the DequantizeLinear before and the QuantizeLinear behind it. The groups of operators are those
    of `ops/onnx.yaml`. Shape arithmetic stays with its readers because of what its values weigh (`graph_problem`).

    Args:
        nodes: The nodes of the graph.
        legal: Those that may be in regions.
    """
    groups = operator_facts().groups
    found: list[tuple[ir.Node, ...]] = []
    for node in nodes:
        if node not in legal:
            continue
        if _is(node, groups["products"]):
            found.append((node, *_fused_behind(node, legal, groups["fused"])))
        if not _is(node, groups["quantizers"]) and not _is(node, groups["dequantizers"]):
            found.append(_quantised(node, legal, groups["quantizers"], groups["dequantizers"]))
    return [atom for atom in found if len(atom) > 1]


def _is(node: ir.Node, group: Collection[str]) -> bool:
    return node.op_type in group and node.domain in ("", "ai.onnx")


def _readers(node: ir.Node) -> dict[ir.Node, None]:
    """The readers of a node in its own graph."""
    return dict.fromkeys(reader for value in node.outputs for reader, _ in value.uses() if reader.graph is node.graph)


def _fused_behind(node: ir.Node, legal: Collection[ir.Node], fused: Collection[str]) -> Iterator[ir.Node]:
    """The chain behind a product of nodes that read nothing else but constants."""
    while True:
        readers = list(_readers(node))
        if len(readers) != 1 or node.outputs[0].is_graph_output():
            return
        (reader,) = readers
        others = [value for value in reader.inputs if value is not None and value.producer() is not node]
        if reader not in legal or not _is(reader, fused) or not all(value.is_initializer() for value in others):
            return
        yield reader
        node = reader


def _quantised(
    node: ir.Node, legal: Collection[ir.Node], quantizers: Collection[str], dequantizers: Collection[str]
) -> tuple[ir.Node, ...]:
    producers = dict.fromkeys(value.producer() for value in node.inputs if value is not None)
    before = [p for p in producers if p is not None and p in legal and _is(p, dequantizers)]
    behind = [reader for reader in _readers(node) if reader in legal and _is(reader, quantizers)]
    return (*before, node, *behind)
