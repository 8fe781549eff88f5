"""The prepared model compared with the source, before anything is decided.

Preparing rewrites a model: functions are inlined, opsets raised, constants and scales folded. Its results must
stay the same up to rounding; a mistake would otherwise look like an effect of low precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.planning import Remark

from dovetail_verify.accuracy.groups import work_of
from dovetail_verify.runners import weights_within
from dovetail_verify.unchanged import is_unchanged

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.plugin import CompileJob

# Without data the rest of a compilation runs nothing, so that only models that take a tenth of its time are run.
_MOST_NODES = 300
_LARGEST_WEIGHTS = 1 << 24  # bytes
_MOST_WORK = 3e8  # multiply-adds


class PreparationCheck:
    """Compares the prepared model of a job with the source on one batch, both on the host.

    A prepared model with the same nodes and constants as the source is not run: an engine would compute the same.

    Args:
        job: The compilation.
        shapes: Shapes of random inputs that the model leaves open, by name.

    Attributes:
        remarks: What was found.
    """

    def __init__(self, job: CompileJob, shapes: Mapping[str, Sequence[int]]):
        self._job, self._shapes = job, shapes
        self.remarks: list[Remark] = []

    def __call__(self, prepared: Model) -> None:
        """Compare, and leave a remark.

        Raises:
            DovetailError: The prepared model computes something else; the message names the pass and the node.
        """
        source, data = self._job.original, self._job.request.data
        if data is None and not _runs_quickly(prepared):
            return
        given = "random inputs" if data is None else "the first batch"
        if not is_unchanged(source, prepared):
            # Importing what runs and compares models takes longer than compiling a small one.
            from dovetail_verify.prepared_outputs import NotComparedError, PreparedOutputs

            try:
                PreparedOutputs(self._job, self._shapes, given).compare(prepared)
            except NotComparedError as error:
                self._remark("analysis", f"the prepared model was not compared with the source: {error.message}")
                return
        self._remark("passed", f"computes on {given} what the source computes, up to rounding")

    def _remark(self, kind: Any, text: str) -> None:
        self.remarks.append(Remark(kind, "", "check-prepare", "prepared", text))


def _runs_quickly(prepared: Model) -> bool:
    if prepared.node_count() > _MOST_NODES or not weights_within(prepared, _LARGEST_WEIGHTS):
        return False
    return sum(work_of(node, {}) for node in prepared.graph) <= _MOST_WORK
