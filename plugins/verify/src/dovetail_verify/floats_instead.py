"""Floats instead of integers: what is returned where integers are slower here, in the formats that were asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST, Remark

from dovetail_verify.float_comparison import Comparison, FloatRivals, described

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    Meets = Callable[[Request], CompiledModel | None]

FLOATS_INSTEAD = "floats-instead"
"""The rule of the remark on a result that is in floats because integers are slower."""

_EVERY_NODE = "*"
_WEIGHTS = "weights"  # the source of their scales in a plan
_RAISED = "floats that meet the goal"


@dataclass
class FloatsInstead:
    """The decision between integers and floats, by the clock of this machine.

    A result with integers that is slower than floats is replaced by these, if they are in a format of the request: on
    the host, in the backends without integers that it names, or if it names none of these, in the float types of those
    with integers. Weights alone are in integers for their size, and stay. Whoever asks for all integers, replays a
    plan, or says himself which nodes are low or where they are, keeps the integers.

    Args:
        job: The compilation; its request has data.
        ties: Whether floats also replace integers whose time differs too little to tell.

    Attributes:
        pace: How the latest result compares with floats, as a sentence; empty if it has not been compared.
    """

    job: CompileJob
    ties: bool = False
    pace: str = ""

    def __post_init__(self) -> None:
        self._rivals = FloatRivals(self.job, self._allowed())

    def of(self, compiled: CompiledModel, meets: Meets) -> CompiledModel | None:
        """Return the floats that replace a result; None if it stays.

        Args:
            compiled: The result.
            meets: Compiles one of the requests in floats so that it is accurate enough; None if that is impossible.

        Raises:
            DovetailError: The result cannot be run.
        """
        comparison = self._rivals.compared(compiled)
        self.pace = comparison.text() if comparison is not None else ""
        if comparison is None:
            return None
        if not quantizes_activations(compiled):
            return None
        allowed = [name for name in self._rivals.allowed if name in comparison.times]
        for name in sorted(allowed, key=comparison.milliseconds):
            if not self._gives_way(comparison, name):
                return None
            try:
                floats = meets(self._rivals.allowed[name])
            except DovetailError:
                continue
            if floats is None or self._is_slower(floats, compiled):
                continue
            self.pace = _pace_of_floats(comparison, name)
            floats.plan.remarks.append(_remark(comparison, name))
            return floats
        return None

    def _gives_way(self, comparison: Comparison, name: str) -> bool:
        return not comparison.slower(name, "") if self.ties else comparison.slower("", name)

    def _is_slower(self, floats: CompiledModel, compiled: CompiledModel) -> bool:
        """Check whether floats are no faster than integers once nodes were raised for a goal."""
        if not floats.plan.summary.get("accuracy", {}).get("raised"):
            return False
        comparison = self._rivals.compared(compiled, {_RAISED: floats})
        return comparison is None or not self._gives_way(comparison, _RAISED)

    def _allowed(self) -> dict[str, Request]:
        job, request = self.job, self.job.request
        given = request.plan is not None or request.pins or request.low or job.keywords.get("all_integers")
        if given or any(backend.device != job.ctx.host.device for backend in job.ctx.backends):
            return {}
        integers = {backend.name for backend in job.ctx.backends if backend.has_integers}
        kept = tuple(choice for choice in request.backends if choice.name not in integers)
        found = {HOST: replace(request, backends=(), strategy=None)}
        if kept:
            found[", ".join(choice.name for choice in kept)] = replace(request, backends=kept)
        else:
            found[f"{', '.join(sorted(integers))} in float32"] = replace(request, high=(_EVERY_NODE,))
        return found


def quantizes_activations(compiled: CompiledModel) -> bool:
    """Check whether a result has more in integers than weights."""
    return any(form["source"] != _WEIGHTS for forms in compiled.plan.values.values() for form in forms)


def _remark(comparison: Comparison, name: str) -> Remark:
    slower = "slower" if comparison.slower("", name) else "no faster"
    why = (
        f"nothing is in integers, because they are {slower} here: a run takes {comparison.milliseconds():.3g} ms with "
        f"them, and {comparison.milliseconds(name):.3g} ms in {described(name)}"
    )
    advice = "--all-integers keeps them, as for a result that runs on another machine"
    return Remark("analysis", "", "accuracy", FLOATS_INSTEAD, why, advice=advice)


def _pace_of_floats(comparison: Comparison, name: str) -> str:
    """Say which floats that the request does not allow are faster than those that were taken; empty if none are."""
    fastest = comparison.fastest()
    if fastest == name or not comparison.slower(name, fastest):
        return ""
    ratio = comparison.ratio(fastest, name)
    return f"{described(fastest)} take {ratio:.2f} of the time of this result: `--backend {fastest}` is faster"
