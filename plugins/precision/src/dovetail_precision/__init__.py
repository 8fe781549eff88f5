"""Passes that measure ranges, choose a precision per node, insert casts, and convert weights; and cost tables."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register passes, a conversion, policies, a cost table, and solvers."""
    registry.pass_("measure-ranges", "dovetail_precision.ranges.measure:MeasureRanges")
    registry.pass_("widen-floats", "dovetail_precision.widen_floats:WidenFloats")
    registry.pass_("assign-types", "dovetail_precision.assign_types:AssignTypes")
    registry.pass_("join", "dovetail_precision.join:JoinFormats")
    registry.pass_("float-borders", "dovetail_precision.float_borders:FloatBorders")
    registry.pass_("predict-times", "dovetail_precision.predicted_times:PredictTimes")
    registry.invariant("typed", "dovetail_precision.invariants:Typed")
    registry.invariant("joined", "dovetail_precision.invariants:Joined")
    registry.conversion("cast", "dovetail_precision.join:Cast")
    registry.policy("fp16", "dovetail_schemas:policies/fp16.yaml")
    registry.policy("fp16-lean", "dovetail_schemas:policies/fp16_lean.yaml")
    registry.policy("bf16", "dovetail_schemas:policies/bf16.yaml")
    registry.policy("bf16-lean", "dovetail_schemas:policies/bf16_lean.yaml")
    registry.cost_table("default", "dovetail_schemas:costs/default.yaml")
    registry.solver("forward", "dovetail_precision.solvers.forward:solve_forward")
    registry.solver("fixpoint", "dovetail_precision.solvers.fixpoint:solve_fixpoint")
    registry.solver("min-cut", "dovetail_precision.solvers.min_cut:solve_min_cut")
