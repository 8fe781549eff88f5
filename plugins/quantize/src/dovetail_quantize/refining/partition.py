"""Blocks of a model in which layers are refined: readers of a refined layer are in a later block."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import used_values

if TYPE_CHECKING:
    import onnx_ir as ir

_MOST = 256
"""Maximum blocks of one model: engines load each block again, so their number must not grow with the model."""


def blocks_of(nodes: Sequence[ir.Node], refined: Collection[ir.Node]) -> list[list[ir.Node]]:
    """Partition nodes into blocks, by the number of refined layers on the longest path to each.

    Readers of a refined layer are in a later block, so that each layer is refined for the output of the refined
    layers before it. If a path has more than 256 of these, a block holds several.

    Args:
        nodes: The nodes of a main graph, in graph order.
        refined: The layers to refine among them.

    Returns:
        Nodes by block, each in graph order.
    """
    refined = set(refined)
    behind: dict[ir.Value, int] = {}
    levels: list[int] = []
    for node in nodes:
        level = max((behind.get(value, 0) for value in used_values(node)), default=0)
        levels.append(level)
        behind.update(dict.fromkeys(node.outputs, level + (node in refined)))
    together = -(-(max(levels, default=0) + 1) // _MOST)
    blocks: dict[int, list[ir.Node]] = {}
    for node, level in zip(nodes, levels):
        blocks.setdefault(level // together, []).append(node)
    return [blocks[number] for number in sorted(blocks)]


def same_blocks(graph: ir.Graph, block_of: Mapping[ir.Node, int], number: int) -> list[list[ir.Node]]:
    """Return the blocks of a graph with additional nodes: each of these joins the block that reads it first.

    Args:
        graph: The graph.
        block_of: The block number of every original node.
        number: Number of blocks.
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
