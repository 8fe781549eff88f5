"""Observers that several processes use on parts of the data: what they saw is merged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from dovetail.plugin import Observer

State: TypeAlias = "Mapping[str, np.ndarray]"
"""What an observer saw, as arrays of numbers by name."""


class MergingObserver(Observer):
    """Base class of observers whose parameters do not depend on the order of batches, nor on who saw them."""

    @abstractmethod
    def state(self) -> State:
        """Return what it saw; empty if it saw nothing."""

    @abstractmethod
    def merge(self, state: State) -> None:
        """Add what another observer of the same format and options saw, as if this one had seen it.

        Raises:
            ValueError: The state is not one of such an observer.
        """
