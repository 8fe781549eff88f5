"""The problem of choosing a candidate per segment: times and noise that add up, and borders between neighbors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class PlanProblem:
    """Units with choices; the cost of a plan is the sum of its units and borders.

    Attributes:
        seconds: Per unit, the time of each choice; infinite for one that failed.
        noise: Per unit and choice, the noise energy at each output relative to its signal.
        borders: Per pair of neighbors, the time that each pair of their choices takes in addition; it may be negative,
            because two neighbors that run as one save a call.
        budget: The noise that each output may have; infinite without a goal.
        pairs: Per two choices (unit and choice) of different units, the noise at each output that they have in
            addition; negative where their errors cancel.
    """

    seconds: Sequence[Sequence[float]]
    noise: Sequence[Sequence[Sequence[float]]]
    borders: Mapping[tuple[int, int], Sequence[Sequence[float]]] = field(default_factory=dict)
    budget: Sequence[float] = ()
    pairs: Mapping[tuple[tuple[int, int], tuple[int, int]], Sequence[float]] = field(default_factory=dict)

    def time_of(self, plan: Sequence[int]) -> float:
        """Return the predicted seconds of a plan: a choice per unit."""
        units = sum(times[choice] for times, choice in zip(self.seconds, plan))
        return units + sum(costs[plan[one]][plan[other]] for (one, other), costs in self.borders.items())

    def noise_of(self, plan: Sequence[int]) -> list[float]:
        """Return the predicted noise at each output."""
        found = [
            sum(noise[choice][output] for noise, choice in zip(self.noise, plan)) for output in range(len(self.budget))
        ]
        for ((one, choice), (other, second)), more in self.pairs.items():
            if plan[one] == choice and plan[other] == second:
                found = [total + part for total, part in zip(found, more)]
        return [max(0.0, total) for total in found]

    def is_feasible(self, plan: Sequence[int]) -> bool:
        """Whether no output has more noise than its budget."""
        return all(noise <= most * (1 + 1e-9) for noise, most in zip(self.noise_of(plan), self.budget))

    def plans(self) -> Iterator[tuple[int, ...]]:
        """Yield every plan; their number is exponential."""
        return itertools.product(*(range(len(times)) for times in self.seconds))
