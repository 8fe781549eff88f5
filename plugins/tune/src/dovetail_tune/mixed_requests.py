"""Requests for mixed plans: every node where the candidate of its segment has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dovetail
from dovetail.planning import HOST, PlannedNode

from dovetail_tune.candidates import Candidate

if TYPE_CHECKING:
    from dovetail.planning import Plan
    from dovetail.plugin import PluginSet

    from dovetail_tune.segments import Segment
    from dovetail_tune.trial_runner import TrialRunner

_MIXED = "mixed"
_WEIGHTS = "weights"  # the source of their scales in a plan


class MixedRequests:
    """Makes one request of those of several candidates, by pins.

    Args:
        runner: Has the candidates' own results, which say where their nodes are.
        plugins: The plugins.
    """

    def __init__(self, runner: TrialRunner, plugins: PluginSet):
        self._runner, self._plugins = runner, plugins
        self._plans: dict[str, Plan] = {}

    def of(self, segments: Sequence[Segment], candidates: Sequence[Candidate]) -> Candidate:
        """Return the request for a plan.

        A backend whose strategy decides which values are in integers claims its nodes itself, in front of the others: a
        node that is pinned to it would have the integers of its own, and not those that its neighbors read.

        Args:
            segments: The segments.
            candidates: A candidate for each of them.
        """
        members = list(dict.fromkeys(candidates))
        claiming = next((one for one in members if self.quantizes(one) and not one.high), None)
        ordered = sorted(members, key=lambda one: one is not claiming)
        backends = tuple(dict.fromkeys(name for one in ordered for name in one.backends if name != HOST))
        pins: list[str] = []
        for segment, candidate in zip(segments, candidates):
            placed = self._placed(candidate)
            there = [(name, placed.get(name, HOST)) for name in segment.nodes]
            pins += [f"{name}={at}" for name, at in there if candidate is not claiming or at == HOST]
        letters = {one: chr(ord("a") + number) for number, one in enumerate(members)}
        what = ", ".join(f"{letter} {one.name}" for one, letter in letters.items())
        parts = "".join(letters[one] for one in candidates)
        threads = members[0].threads  # all have those of the baseline
        why = "predicted to be faster than each of its candidates alone"
        return Candidate(f"{_MIXED} {parts} ({what})", backends, (), tuple(pins), threads=threads, why=why)

    def quantizes(self, candidate: Candidate) -> bool:
        """Check whether values between a candidate's nodes are in integers, rather than weights alone."""
        if candidate.is_baseline:
            return False
        values = self._plan_of(candidate).values.values()
        return any(form["source"] != _WEIGHTS for forms in values for form in forms)

    def _placed(self, candidate: Candidate) -> dict[str, str]:
        """Return the backend of every node in the candidate's own result, as a pin has it.

        Its precision follows from the backend's policies, except where everything is high.
        """
        if candidate.is_baseline:
            return {}
        return {node.name: _pinned(node, bool(candidate.high)) for node in self._plan_of(candidate).nodes}

    def _plan_of(self, candidate: Candidate) -> Plan:
        """Return the plan of a candidate's own result."""
        if candidate.name not in self._plans:
            result = dovetail.load(self._runner.folder_of(candidate), self._plugins)
            self._plans[candidate.name] = result.plan
        return self._plans[candidate.name]


def _pinned(node: PlannedNode, is_high: bool) -> str:
    precision = node.precision
    pins_type = is_high and node.backend != HOST and precision is not None and precision.is_float
    return f"{node.backend}/{precision}" if pins_type else node.backend
