"""Minimize a binary energy with unary and pairwise terms, exactly, by a minimum cut."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.errors import DovetailError

# SciPy computes in int32 and wraps silently; a residual capacity may be the sum of both directions.
_LARGEST = 2**30 - 1


def low_side(
    vertices: Sequence[int],
    bias: Sequence[int | float],
    caps: Sequence[dict[int, int | float]],
    largest: int = _LARGEST,
) -> list[int]:
    """Return the `vertices` that are low at the minimum; ties go high.

    Args:
        vertices: The vertices, closed under neighborhood.
        bias: Per vertex, the cost of high minus that of low.
        caps: Per vertex, its neighbors with the cost of the vertex being low while the neighbor is high.
        largest: The largest capacity. Larger costs are scaled down and rounded: the cut is then optimal up to half a
            divisor per cost.

    Raises:
        DovetailError: SciPy is not installed.
    """
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow
    except ImportError as error:
        raise DovetailError("the solver min-cut needs SciPy", "pip install scipy") from error
    import numpy as np

    # All low and all high are both feasible, so no cut costs more than the cheaper of them.
    bound = 1 + min(sum(bias[v] for v in vertices if bias[v] > 0), -sum(bias[v] for v in vertices if bias[v] < 0))
    divisor = -(-2 * bound // largest)

    def capacity(cost: int | float) -> int | float:
        if cost > bound:
            return largest
        return cost if divisor == 1 else (2 * cost + divisor) // (2 * divisor)

    number = {vertex: index for index, vertex in enumerate(vertices)}
    source, sink = len(vertices), len(vertices) + 1
    arcs = []
    for vertex in vertices:
        own = number[vertex]
        if bias[vertex] > 0:
            arcs.append((source, own, capacity(bias[vertex])))
        elif bias[vertex] < 0:
            arcs.append((own, sink, capacity(-bias[vertex])))
        arcs.extend((own, number[other], capacity(cost)) for other, cost in caps[vertex].items() if cost)
    if not arcs:
        return []
    rows, columns, capacities = (np.array(part, np.int32) for part in zip(*arcs, strict=True))
    network = csr_array((capacities, (rows, columns)), shape=(sink + 1, sink + 1))
    rest = network - maximum_flow(network, source, sink).flow
    rest.eliminate_zeros()
    reached = breadth_first_order(rest, source, return_predecessors=False)
    return [vertices[index] for index in sorted(reached.tolist()) if index < source]


INF = float("inf")  # integers stay exact beside it


class Energy:
    """A sum of costs over vertices that are low or high.

    Attributes:
        bias: Per vertex, the cost of high less that of low.
        caps: Per vertex, its neighbors with the cost of the vertex being low while the neighbor is high.
    """

    def __init__(self):
        self.bias: list[int | float] = []
        self.caps: list[dict[int, int | float]] = []

    def add(self, bias: int = 0) -> int:
        """Add a vertex and return its number."""
        self.bias.append(bias)
        self.caps.append({})
        return len(self.bias) - 1

    def add_pairwise(self, low: int, high: int, cost: int | float) -> None:
        """Add `cost` for vertex `low` being low while vertex `high` is high; no effect if both are one vertex."""
        if cost and low != high:
            self.caps[low][high] = self.caps[low].get(high, 0) + cost
            self.caps[high].setdefault(low, 0)

    def minimize(self) -> list[bool]:
        """Return whether each vertex is low at the minimum; ties go high. Consumes the energy."""
        order = self._eliminate()
        gone = {vertex for vertex, _ in order}
        rest = [vertex for vertex in range(len(self.bias)) if vertex not in gone]
        low = [False] * len(self.bias)
        for vertex in low_side(rest, self.bias, self.caps) if rest else ():
            low[vertex] = True
        for vertex, around in reversed(order):
            as_low = sum(out for other, out, _ in around if not low[other])
            as_high = self.bias[vertex] + sum(into for other, _, into in around if low[other])
            low[vertex] = as_low < as_high
        return low

    def _eliminate(self) -> list[tuple[int, list[tuple[int, int | float, int | float]]]]:
        """Eliminate vertices of degree two or less; return them in order, with their neighbors and pairwise costs."""
        queue = [vertex for vertex, caps in enumerate(self.caps) if len(caps) <= 2][::-1]
        order, gone = [], set()
        while queue:
            vertex = queue.pop()
            if vertex in gone:
                continue
            gone.add(vertex)
            around = [(other, out, self.caps[other].pop(vertex)) for other, out in self.caps[vertex].items()]
            order.append((vertex, around))
            if len(around) == 1:
                self._fold_leaf(vertex, *around[0])
            elif around:
                self._fold_link(vertex, *around)
            queue.extend(other for other, _, _ in around if len(self.caps[other]) <= 2)
        return order

    def _fold_leaf(self, vertex: int, other: int, out: int | float, into: int | float) -> None:
        bias = self.bias[vertex]
        self.bias[other] += min(out, bias) - min(0, bias + into)

    def _fold_link(self, vertex: int, one: tuple, two: tuple) -> None:
        """Replace the vertex between p and q by a pairwise term of (p, q)."""
        bias, (p, to_p, from_p), (q, to_q, from_q) = self.bias[vertex], one, two
        both_low, both_high = min(0, bias + from_p + from_q), min(to_p + to_q, bias)
        only_p_low, only_q_low = min(to_q, bias + from_p), min(to_p, bias + from_q)
        # Any split of the bias between p and q is valid if both pairwise costs stay non-negative.
        shift = max(both_high - only_p_low, min(0, only_q_low - both_low))
        rest = both_high - both_low - shift
        self.bias[p] += shift
        self.bias[q] += rest
        self.add_pairwise(p, q, only_p_low - both_low - rest)
        self.add_pairwise(q, p, only_q_low - both_low - shift)
