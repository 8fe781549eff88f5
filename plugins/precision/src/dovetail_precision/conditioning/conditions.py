"""All findings of conditioning, by node."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail_placement.place import claim_on

from dovetail_precision.conditioning.amplification import THRESHOLDS, find_amplified
from dovetail_precision.conditioning.complements import find_complements
from dovetail_precision.conditioning.epsilon_guards import find_epsilon_guards
from dovetail_precision.conditioning.finding import Finding
from dovetail_precision.conditioning.magnitudes import Magnitudes
from dovetail_precision.conditioning.statistics import find_statistics
from dovetail_precision.ranges.intervals import Intervals
from dovetail_precision.ranges.measure import measured_ranges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context


class Conditions:
    """Ill-conditioned nodes, which should compute high whatever their policy: `ctx.analysis(Conditions, model)`."""

    def __init__(self, findings: Iterable[Finding]):
        self._known: dict[tuple[int, str], str] = {}
        for finding in findings:
            for name in finding.types:
                for node in finding.nodes:
                    self._known.setdefault((id(node), name), finding.why)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Conditions:
        """Run all rules on the current revision of `model`."""
        nodes, intervals = ctx.analysis(FlatGraph, model).nodes, ctx.analysis(Intervals, model)
        measured = {key: known for key, (_, known) in measured_ranges(model).items()}
        magnitudes = Magnitudes(measured, intervals)
        low = THRESHOLDS.keys() & {backend.low for backend in ctx.backends}
        findings = [
            find_statistics(nodes, intervals.of, measured),
            find_epsilon_guards(nodes, intervals, measured),
            find_complements(nodes, intervals, _is_product),
            *(find_amplified(nodes, magnitudes, _is_product, name) for name in sorted(low)),
        ]
        return cls(chain.from_iterable(findings))

    def against(self, node: ir.Node, name: str) -> str:
        """Return why `node` is ill-conditioned in float type `name`, in one clause; empty if it is not."""
        return self._known.get((id(node), name), "")


def _is_product(node: ir.Node) -> bool:
    """Whether the policy of `node` is `lower`: the compute-bound operators."""
    claim = claim_on(node)
    return claim is not None and claim.role == "lower"
