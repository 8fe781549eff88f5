"""A compilation whose data is divided, so that what judges its result has calibrated nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.planning import HOST
from dovetail.text import pluralize
from dovetail_runtime.data.data_split import DataSplit, Use, split_data
from dovetail_runtime.data.sources import data_digest

from dovetail_verify.accuracy.trials import low_nodes
from dovetail_verify.runners import source_runner

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.compare import OutputVerification

_USE = "data"  # key in the summary of a plan
_FIXED = "fix-shapes"  # the name of the option in a request that gives open extents


@dataclass(frozen=True)
class Divided:
    """The parts of a job's data, and the one that calibrates: one object, for which measurements are kept.

    Attributes:
        split: The parts.
        calibration: What calibrates.
    """

    split: DataSplit
    calibration: object


def divided(job: CompileJob) -> Divided:
    """Return the parts of a job's data, which is divided once.

    Raises:
        DovetailError: The data does not match the model.
    """
    if (known := job.ctx.kept.get(Divided)) is not None:
        return known
    run = source_runner(job.original, job.ctx)
    split = split_data(job.original, job.request.data, run, job.searched, fixed=fixed_shapes(job.request))
    job.ctx.measured.data = calibration = split.part(Use.CALIBRATION)
    return job.ctx.kept.put(Divided(split, calibration))


def judged(job: CompileJob, compiled: CompiledModel) -> OutputVerification:
    """Compare what the engines of a result compute with the original, on the part of the data that judges.

    Raises:
        DovetailError: One of both cannot be run.
    """
    from dovetail_verify.parts import compared

    split = divided(job).split
    judgment = split.part(Use.JUDGMENT)
    found = compared(job.original, compiled, judgment, {}, job.progress, job.ctx)
    if any(node.backend != HOST for node in compiled.plan.nodes):
        found.held_back = split.text
    return found


def data_of_search(job: CompileJob) -> tuple[object, object]:
    """Return what candidates of a search are calibrated with, and what they are compared on.

    Neither is what judges the result of the job. Without verification both are all of the data.

    Raises:
        DovetailError: The data does not match the model.
    """
    if job.keywords.get("verify") is False:
        return job.request.data, job.request.data
    parts = divided(job)
    return parts.calibration, parts.split.part(Use.SEARCH)


def record_use(compiled: CompiledModel, data: object, split: DataSplit | None = None) -> None:
    """Write into the plan which data calibrated a result, and which part of it did not; without parts, all of it did.

    Nothing is written where no node computes in integers or 16-bit floats, since values say nothing about the others.

    Args:
        compiled: The result.
        data: The data that it was compiled with.
        split: Its parts.
    """
    learned = any(node.backend != HOST for node in compiled.plan.nodes) and low_nodes(compiled.plan)
    if not learned or not (digest := data_digest(data)):
        return
    parts = {use.value: split.uses.count(use) for use in Use if use in split.uses} if split is not None else {}
    compiled.plan.summary[_USE] = {"sha256": digest, **({"unit": split.unit, **parts} if split is not None else {})}


def seen_before(compiled: CompiledModel, data: object) -> str:
    """Say that a result was compiled with data that it is measured on; empty if that is other data, or not known."""
    recorded = compiled.plan.summary.get(_USE)
    if not isinstance(recorded, Mapping) or not recorded.get("sha256") or recorded["sha256"] != data_digest(data):
        return ""
    judged = recorded.get(Use.JUDGMENT.value, 0)
    apart = f"; `compile` measured it on the {pluralize(judged, recorded['unit'])} that did not" if judged else ""
    return f"the result was calibrated with this data, so other data may give less{apart}"


def fixed_shapes(request: Request) -> Mapping[str, Sequence[int]]:
    """Return the shapes by name that a request gives to inputs."""
    found: Mapping[str, Sequence[int]] = request.options.get(_FIXED, {})
    return found
