"""A sample of rows of fixed size, from data of any length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Sample:
    """Rows drawn from all that were offered, each with the same probability; the same for the same data.

    Args:
        size: How many rows it holds at most.
        seed: Of the random numbers.

    Attributes:
        rows: What is kept of each drawn row: arrays whose first axis counts rows; empty before the first offer.
    """

    def __init__(self, size: int, seed: int):
        self._size = size
        self._random = np.random.default_rng(seed)
        self._ranks = np.zeros(0)
        self.rows: tuple[np.ndarray, ...] = ()

    def __len__(self) -> int:
        return len(self._ranks)

    def offer(self, number: int, make: Callable[[np.ndarray], tuple[np.ndarray, ...]]) -> None:
        """Offer rows.

        Args:
            number: How many.
            make: Makes those at some indices.
        """
        ranks = self._random.random(number)
        worst = self._ranks.max() if len(self._ranks) >= self._size else 2.0
        candidates = np.flatnonzero(ranks < worst)
        if len(candidates) > self._size:
            candidates = np.sort(candidates[np.argpartition(ranks[candidates], self._size)[: self._size]])
        if not len(candidates):
            return
        made = make(candidates)
        ranks = np.concatenate([self._ranks, ranks[candidates]])
        rows = tuple(map(np.concatenate, zip(self.rows, made))) if self.rows else made
        if len(ranks) > self._size:
            kept = np.sort(np.argpartition(ranks, self._size)[: self._size])
            ranks, rows = ranks[kept], tuple(part[kept] for part in rows)
        self._ranks, self.rows = ranks, rows
