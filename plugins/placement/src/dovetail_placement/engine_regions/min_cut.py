"""Minimum cuts of small networks, with a work limit."""

from __future__ import annotations

from collections import deque

SOURCE, SINK = 0, 1

INFINITE = 1 << 60
"""Capacity of an arc that no cut may contain; exceeds the bytes of any model."""


class Network:
    """A flow network: arcs with capacities between source, sink and added vertices."""

    def __init__(self) -> None:
        self._arcs: list[list[int]] = [[], []]
        self._head: list[int] = []
        self._left: list[int] = []

    def vertex(self) -> int:
        """Add a vertex."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> None:
        """Add an arc; the cut contains it if `tail` is on the source's side and `head` on the sink's."""
        if tail == head:
            return
        for start, end, left in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[start].append(len(self._head))
            self._head.append(end)
            self._left.append(left)

    def cut(self, effort: int) -> tuple[int, list[bool], int] | None:
        """Return the capacity of a minimum cut, whether each vertex is on the sink's side, and the remaining `effort`.

        Of all minimum cuts, this is the one with the fewest vertices on the source's side, which is independent of the
        order of vertices and arcs.

        Args:
            effort: Budget of arcs to visit; None is returned if it is exceeded.
        """
        flow = 0
        while True:
            distance, seen = self._distances()
            effort -= seen
            if distance[SINK] < 0:
                return flow, [found < 0 for found in distance], effort
            pointers = [0] * len(self._arcs)
            while pushed := self._push(distance, pointers):
                flow += pushed[0]
                effort -= pushed[1]
                if effort < 0:
                    return None
            if effort < 0:
                return None

    def _distances(self) -> tuple[list[int], int]:
        """Return the distance of every vertex from the source over residual arcs (-1 if unreachable), and effort."""
        distance, seen = [-1] * len(self._arcs), 0
        distance[SOURCE] = 0
        queue = deque([SOURCE])
        while queue:
            vertex = queue.popleft()
            seen += len(self._arcs[vertex])
            for arc in self._arcs[vertex]:
                head = self._head[arc]
                if self._left[arc] and distance[head] < 0:
                    distance[head] = distance[vertex] + 1
                    queue.append(head)
        return distance, seen

    def _push(self, distance: list[int], pointers: list[int]) -> tuple[int, int] | None:
        """Augment along one shortest path; return the flow and the arcs visited, or None if no path is left."""
        path: list[int] = []
        vertex, seen = SOURCE, 0
        while vertex != SINK:
            arcs = self._arcs[vertex]
            while pointers[vertex] < len(arcs):
                seen += 1
                arc = arcs[pointers[vertex]]
                if self._left[arc] and distance[self._head[arc]] == distance[vertex] + 1:
                    break
                pointers[vertex] += 1
            else:
                if vertex == SOURCE:
                    return None
                # Dead end: do not retry the arc that led here.
                vertex = self._head[path.pop() ^ 1]
                pointers[vertex] += 1
                continue
            path.append(arc)
            vertex = self._head[arc]
        pushed = min(self._left[arc] for arc in path)
        for arc in path:
            self._left[arc] -= pushed
            self._left[arc ^ 1] += pushed
        return pushed, seen + len(path)
