"""Segments: consecutive parts of a model that few values join, the smallest parts whose times add up."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.ir import bodies, name_of, used_values
from dovetail.planning import extract, given_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import Region

MOST = 10  # segments of a model: each is compiled once per candidate
_WIDEST = 4  # values between two segments
_ENOUGH = 4  # segments; for more of them, no wider borders are needed
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SMALL = 64  # elements of an integer constant that counts by value: shapes, axes, pads


@dataclass(frozen=True)
class Segment:
    """A part of a model with few values from the parts in front of it.

    Attributes:
        index: Its position.
        nodes: Names of its nodes.
        model: The part as a model of its own; weights are shared with the whole.
        rest: What follows it, likewise; None for the last one.
        key: Hash of its structure: segments of equal keys take the same time.
    """

    index: int
    nodes: tuple[str, ...]
    model: Model
    rest: Model | None
    key: str


def segments_of(model: Model, most: int = MOST) -> list[Segment]:
    """Cut a model into at most `most` segments of similar work. Linear in nodes and edges.

    It is cut at single values, and where these are too few, where two to four values cross.

    Args:
        model: A prepared model, whose values have types.
        most: The most segments.
    """
    nodes = list(model.graph)
    crossings, bounds = crossings_of(model), [(0, len(nodes))]
    for width in range(1, _WIDEST + 1):
        cuts = [position for position, values in enumerate(crossings) if 0 < values <= width]
        found = list(_balanced(nodes, cuts, most))
        bounds = found if len(found) > len(bounds) else bounds
        if len(bounds) >= min(_ENOUGH, most):
            break
    groups = [nodes[begin:end] for begin, end in bounds]
    regions = given_regions(model.graph, groups)
    segments = []
    for region in regions:
        after = [node for group in groups[region.index + 1 :] for node in group]
        rest = None
        if after:
            head = [node for group in groups[: region.index + 1] for node in group]
            rest = extract(model, given_regions(model.graph, [head, after])[1])
        names = tuple(node.name or "" for node in region.nodes)
        segments.append(Segment(region.index, names, extract(model, region), rest, structural_key(region)))
    return segments


def crossings_of(model: Model) -> list[int]:
    """Return how many values cross each position between nodes, in graph order; 0 in front of all and behind.

    Constants do not cross. A model's output crosses only as far as a node reads it.
    """
    nodes = list(model.graph)
    last: dict[ir.Value, int] = {}
    for position, node in enumerate(nodes):
        for value in used_values(node):
            if not value.is_initializer():
                last[value] = position
    ends = [0] * (len(nodes) + 1)
    live = 0
    for value in model.graph.inputs:
        if value in last:
            live += 1
            ends[last[value]] += 1
    crossings = [0]
    for position, node in enumerate(nodes):
        live -= ends[position]
        for value in node.outputs:
            if value in last:
                live += 1
                ends[last[value]] += 1
        crossings.append(live)
    return crossings


def structural_key(region: Region) -> str:
    """Hash operators, attributes, connections and shapes; of constants only type and shape, unless they are shapes."""
    found = hashlib.sha256()
    number = {output: (i, o) for i, node in enumerate(region.nodes) for o, output in enumerate(node.outputs)}
    for node in region.nodes:
        parts = [node.domain, node.op_type, str(len(node.outputs))]
        parts += [str(number[v]) if v in number else _described(v) for v in node.inputs if v is not None]
        parts += [f"{a.name}={a.value}" for a in sorted(node.attributes.values(), key=lambda a: a.name)]
        if any(True for _ in bodies(node)):
            parts.append(node.name or "")  # bodies are not compared
        found.update("|".join(parts).encode())
    return found.hexdigest()[:24]


def _described(value: ir.Value) -> str:
    constant = value.const_value
    if constant is not None and constant.dtype.is_integer() and constant.size <= _SMALL:
        return f"{value.dtype}{constant.numpy().tolist()}"
    return f"{value.dtype}{value.shape}"


def _balanced(nodes: Sequence[ir.Node], cuts: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Choose among the cuts so that segments have similar work; yield first and last position plus one."""
    work = [_work(node) for node in nodes]
    share = sum(work) / most
    begin, held, previous = 0, 0.0, 0
    left = most
    for cut in cuts:
        held += sum(work[previous:cut])
        previous = cut
        if held >= share and left > 1:
            yield begin, cut
            begin, held, left = cut, 0.0, left - 1
    if begin < len(nodes):
        yield begin, len(nodes)


def _work(node: ir.Node) -> float:
    """Estimate the operations of a node: multiplications of a product, else elements."""
    elements = sum(map(_elements, node.outputs))
    if node.op_type in _PRODUCTS and len(node.inputs) > 1 and node.inputs[1] is not None:
        weight = node.inputs[1]
        rows = weight.shape[0] if weight.shape is not None and len(weight.shape) else 1
        return float(elements * max(1, _elements(weight) // max(1, rows if isinstance(rows, int) else 1)))
    return float(elements)


def _elements(value: ir.Value) -> int:
    return 1 if value.shape is None else math.prod(d for d in value.shape if isinstance(d, int)) if value.shape else 1


def names_of_inputs(model: Model) -> list[str]:
    """Return the names of the inputs that are no constants."""
    return [name_of(value) for value in model.graph.inputs if not value.is_initializer()]
