"""Minimum cut by SciPy's maximum flow."""

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
        vertices: The vertices, closed under neighbourhood.
        bias: Per vertex, the cost of high minus that of low.
        caps: Per vertex, its neighbours with the cost of the vertex being low while the neighbour is high.
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
