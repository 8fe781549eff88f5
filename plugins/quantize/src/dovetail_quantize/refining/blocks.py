"""Blocks: runs of nodes in which no layer that is refined depends on another, as far as their number allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail_transforms.regions.regions import used_values

if TYPE_CHECKING:
    import onnx_ir as ir


_MOST = 256
"""Blocks of one model: engines load each of them three times, so that their number must not grow with the model."""


def blocks_of(nodes: Sequence[ir.Node], refined: Collection[ir.Node]) -> list[list[ir.Node]]:
    """Cut nodes in graph order into blocks.

    A block ends before a layer that depends on one of the same block, so that each layer is refined for what the
    refined ones before it compute. In models with more than 256 such steps, blocks are longer.

    Args:
        nodes: The nodes of a main graph.
        refined: The layers among them.
    """
    refined = set(refined)
    shortest = -(-len(nodes) // _MOST)
    blocks: list[list[ir.Node]] = [[]]
    behind: set[ir.Value] = set()
    for node in nodes:
        depends = any(value in behind for value in used_values(node))
        if depends and node in refined and len(blocks[-1]) >= shortest:
            blocks.append([])
            behind.clear()
            depends = False
        if depends or node in refined:
            behind.update(node.outputs)
        blocks[-1].append(node)
    return [block for block in blocks if block]


def same_blocks(graph: ir.Graph, block_of: Mapping[ir.Node, int], number: int) -> list[list[ir.Node]]:
    """The blocks of a graph that has more nodes: each further node is in the block that reads it first.

    Args:
        graph: The graph.
        block_of: The block of every node that has one.
        number: How many blocks there are.
    """
    found: dict[ir.Node, int] = {}
    for node in graph:
        producers = (value.producer() for value in used_values(node))
        behind = max((found[producer] for producer in producers if producer in found), default=0)
        found[node] = block_of.get(node, behind)
    for node in reversed(graph):
        if node not in block_of:
            readers = [found[use.node] for value in node.outputs for use in value.uses() if use.node in found]
            found[node] = min(readers, default=found[node])
    blocks: list[list[ir.Node]] = [[] for _ in range(number)]
    for node in graph:
        blocks[found[node]].append(node)
    return blocks
