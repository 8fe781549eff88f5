"""Whether programs compute what the plan says, where their emitter claims it: measured on the data's first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import Remark
from dovetail.plugin import Emitter
from dovetail.plugin.loading import artifact_of, class_of

from dovetail_verify.metrics import decibels_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.plugin import CompiledModel, CompileJob

_LEAST = 60.0  # decibels: rounding at other places in the same types is below
_RULE = "matches-plan"


def unmatched_programs(job: CompileJob, compiled: CompiledModel) -> Iterator[Remark]:
    """Yield a remark for each emitter whose `matches_plan` is not true of its programs, or cannot be measured.

    A search for a goal runs the nodes of such a backend in place of its programs, and would search for another result.

    Args:
        job: The compilation, with data.
        compiled: Its result, which engines have loaded.
    """
    claims = dict(_claims(job, compiled))
    if not claims or job.ctx.try_engines is False or not any(map(artifact_of, compiled.model.graph)):
        return
    from dovetail_verify.functions import program_errors

    data, plugins = job.request.data, job.ctx.plugins
    try:
        found = program_errors(job.original, compiled, data, most=1, passes=job.passes, plugins=plugins)
    except DovetailError as error:
        why = f"{', '.join(claims.values())} says that programs match the plan, which was not measured: {error.message}"
        yield Remark("analysis", "", "compile", _RULE, why, advice=_MEASURE)
        return
    for backend, emitter in claims.items():
        own = [one for one in found.programs if one.backend == backend and not one.problem]
        worst = min(own, key=lambda one: one.snr_db, default=None)
        if worst is not None and worst.snr_db < _LEAST:
            why = (
                f"{emitter} says that its programs compute what the plan says (matches_plan), and that of "
                f"{worst.region} is at {decibels_text(worst.snr_db)}, below {_LEAST:g} dB: a search for a goal looks "
                f"at other numbers"
            )
            advice = f"leave `matches_plan = True` out of its class; {_MEASURE}"
            yield Remark("analysis", "", "compile", _RULE, why, backend=backend, advice=advice)


_MEASURE = "`dovetail verify MODEL OUT --data FILE --programs` measures every program"


def _claims(job: CompileJob, compiled: CompiledModel) -> Iterator[tuple[str, str]]:
    """Yield each backend with an emitter that says that its programs match the plan, and the title of that."""
    table = job.ctx.registry.emitter
    for backend in compiled.backends:
        for name in backend.artifacts:
            if class_of(table[name], table.title(name), Emitter).matches_plan:
                yield backend.name, table.title(name)
