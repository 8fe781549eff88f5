"""Floats instead of integers, and float32 instead of low floats: what is returned where these are slower here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import HOST, Remark

from dovetail_verify.float_comparison import (
    Comparison,
    FloatRivals,
    described,
    has_integers_here,
    has_low_floats_here,
)

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    Meets = Callable[[Request], CompiledModel | None]

FLOATS_INSTEAD = "floats-instead"
"""The rule of the remark on a result that is in floats, or in float32, because integers or low floats are slower."""

_EVERY_NODE = "*"
_WEIGHTS = "weights"  # the source of their scales in a plan
_RAISED = "floats that meet the goal"


@dataclass
class FloatsInstead:
    """The decision between integers, low floats and float32, by the clock of this machine.

    A result with integers that is slower than floats is replaced by these, if they are in a format of the request: on
    the host, in the backends without integers that it names, in their low types or in float32, or if it names none of
    these, in the float types of those with integers. Low floats that miss a goal, or that meet it with nodes raised,
    are replaced by float32 that is faster, on the host or in the same backends. Weights alone are in integers for their
    size, and stay. Whoever asks for all integers, replays a plan, or says himself which nodes are low or where they
    are, keeps what he asked for.

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
        allowed = self._allowed()
        self._float32 = {name for name, request in allowed.items() if name == HOST or request.high}
        self._rivals = FloatRivals(self.job, allowed)

    def of(self, compiled: CompiledModel, meets: Meets, searched: bool = False) -> CompiledModel | None:
        """Return the floats that replace a result; None if it stays.

        Args:
            compiled: The result.
            meets: Compiles one of the requests in floats so that it is accurate enough; None if that is impossible.
            searched: Whether nodes of the result are raised for a goal, or have to be.

        Raises:
            DovetailError: The result cannot be run.
        """
        self.pace = ""
        integers = has_integers_here(self.job, compiled)
        if not integers and not (searched and self._float32 and has_low_floats_here(self.job, compiled)):
            return None
        comparison = self._rivals.compared(compiled)
        if comparison is None:
            return None
        allowed = [name for name in self._rivals.allowed if name in comparison.times]
        # The backends' low types are what a result without integers is in already.
        choices = allowed if integers else [name for name in allowed if name in self._float32]
        missing: list[str] = []
        if not integers or quantizes_activations(compiled):
            for name in sorted(choices, key=comparison.milliseconds):
                if not self._gives_way(comparison, name):
                    break
                if (floats := self._met_by(name, meets)) is None:
                    missing.append(name)
                elif not self._is_slower(floats, compiled):
                    self.pace = _pace_of_floats(comparison, name, missing)
                    floats.plan.remarks.append(_remark(comparison, name, integers, compiled))
                    return floats
        self.pace = comparison.text(missing) if integers else comparison.text_of_floats(choices)
        return None

    def _gives_way(self, comparison: Comparison, name: str) -> bool:
        return not comparison.slower(name, "") if self.ties else comparison.slower("", name)

    def _met_by(self, name: str, meets: Meets) -> CompiledModel | None:
        try:
            return meets(self._rivals.allowed[name])
        except DovetailError:
            return None

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
            names = ", ".join(choice.name for choice in kept)
            found[names] = replace(request, backends=kept)
            found[f"{names} in float32"] = replace(request, backends=kept, high=(_EVERY_NODE,))
        else:
            found[f"{', '.join(sorted(integers))} in float32"] = replace(request, high=(_EVERY_NODE,))
        return found


def quantizes_activations(compiled: CompiledModel) -> bool:
    """Check whether a result has more in integers than weights."""
    return any(form["source"] != _WEIGHTS for forms in compiled.plan.values.values() for form in forms)


def _remark(comparison: Comparison, name: str, integers: bool, compiled: CompiledModel) -> Remark:
    """Say how long a result took, and on which engine: on another one it may be the faster one."""
    engines = ", ".join(dict.fromkeys(one.engine for one in compiled.regions if one.backend != HOST))
    formats = "integers" if integers else "16-bit floats"
    slower = "slower" if comparison.slower("", name) else "no faster"
    why = (
        f"nothing is in {formats}, because they are {slower} here: a run takes {comparison.milliseconds():.3g} ms with "
        f"them on {engines or 'no engine'}, and {comparison.milliseconds(name):.3g} ms in {described(name)}"
    )
    kept = "--all-integers" if integers else "--no-compare-floats"
    advice = f"{kept} keeps them, as for a result that runs elsewhere; `dovetail tune` also measures other engines"
    return Remark("analysis", "", "accuracy", FLOATS_INSTEAD, why, advice=advice)


def _pace_of_floats(comparison: Comparison, name: str, missing: Collection[str]) -> str:
    """Say which floats that the request does not allow are faster than those that were taken; empty if none are.

    Args:
        comparison: The times.
        name: The floats that were taken.
        missing: Floats that are not accurate enough.
    """
    fastest = comparison.fastest([other for other in comparison.times if other not in missing])
    if fastest == name or not comparison.slower(name, fastest):
        return ""
    ratio = comparison.ratio(fastest, name)
    return f"{described(fastest)} take {ratio:.2f} of the time of this result: `--backend {fastest}` is faster"
