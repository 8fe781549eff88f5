"""A parallel map over a stream that keeps the order and bounds the items in flight."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_THREADS = min(4, os.cpu_count() or 1)  # more threads saturate memory bandwidth
_AHEAD = 2 * _THREADS


def ordered_map(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `function(item)` for all `items` in order, computed by threads; `function` should release the GIL.

    At most a few results exist at a time. A stream of one item starts no thread.
    """
    stream = iter(items)
    first = list(islice(stream, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[R]] = deque()
        for item in chain(first, stream):
            waiting.append(pool.submit(function, item))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
