"""The `assign-types` pass: choose a float type for every port."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import FLOAT32, FlatGraph, Format, float_format, format_of, name_of
from dovetail.passes import Pass
from dovetail.planning import HOST, Placement, from_source, placement_of, set_placement
from dovetail.planning import Join as PlannedJoin
from dovetail.plugin.loading import calling
from dovetail.text import did_you_mean, pluralize
from dovetail_placement.place import claim_on
from dovetail_placement.regions.form_regions import number_regions
from dovetail_placement.regions.limits import refuse_regions

from dovetail_precision.adopted_conversions import place_qdq
from dovetail_precision.choices import FormatChoice
from dovetail_precision.constraints import holds_bodies
from dovetail_precision.conversions import Conversion, PlannedTypes, before_widening, find_conversions
from dovetail_precision.overrides import remark_overrides, why_overridden
from dovetail_precision.problem import FormatVariable, TypingProblem
from dovetail_precision.problem_builder import build_problem
from dovetail_precision.ranges.overflow import OverflowAnalysis
from dovetail_precision.ranges.range import NARROW
from dovetail_precision.sharing_groups import quantized_forms

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Registry


def check_solver(name: str, registry: Registry) -> None:
    """Check that a solver is registered as `name`, without loading it.

    Raises:
        UsageError: No solver has that name; the error suggests similar names.
    """
    if name not in registry.solver:
        known = ", ".join(registry.solver)
        raise UsageError(f"unknown solver '{name}'{did_you_mean(name, registry.solver)}", f"installed: {known}")


def solve(problem: TypingProblem, name: str, registry: Registry) -> None:
    """Solve `problem` with the solver registered as `name`.

    Raises:
        DovetailError: No solver has that name; or it fails or makes an illegal choice, and the error names its
            distribution.
    """
    check_solver(name, registry)
    solver = registry.solver[name]
    title = registry.solver.title(name)
    with calling(title):
        solver(problem)
    for variable in problem.variables:
        # The input of a Cast accepts any format, whatever the backend's rule says.
        if not (
            isinstance(variable.chosen, FormatChoice) and (variable.takes_any or variable.chosen in variable.choices)
        ):
            raise _illegal(variable, title)


def _illegal(variable: FormatVariable, title: str) -> DovetailError:
    chosen, node = variable.chosen, variable.node
    text = "nothing" if chosen is None else str(chosen.nominal if isinstance(chosen, FormatChoice) else repr(chosen))
    if isinstance(chosen, FormatChoice) and chosen.ports:
        text += "".join(f", {port} {format_}" for port, format_ in chosen.ports.items())
    offered = ", ".join(dict.fromkeys(str(choice.nominal) for choice in variable.choices))
    return DovetailError(
        f"{title} chose {text} for '{node.name}' ({node.op_type}), which may have {offered}",
        "a solver sets `chosen` of every variable to one of its `choices`; name another one with --solver",
    )


_RULE = "assumed-range"
_NARROW = Format.of(NARROW)
_OF_NODE = f"the range of its values is unknown without data; they are assumed to fit {NARROW}"


def remark_assumed_ranges(problem: TypingProblem, model: Model, ctx: Context) -> None:
    """Remark every node that was typed float16 with values of unknown range, and count those values once.

    Does nothing when the request has data: then ranges are measured.
    """
    if ctx.request.data is not None or all(backend.low != NARROW for backend in ctx.backends):
        return
    overflow = ctx.analysis(OverflowAnalysis, model)
    assumed: dict[int, str] = {}
    ranges: dict[int, bool] = {}  # by value: whether its range is known
    for variable in problem.variables:
        if variable.format is not _NARROW or variable.present is _NARROW:
            continue
        around = [*variable.activations, *(value for _, value in variable.outputs)]
        unknown = []
        for value in around:
            known = ranges.get(id(value))
            if known is None:
                known = ranges[id(value)] = overflow.knows(value.source)
            if not known:
                unknown.append(value)
        if unknown:
            assumed.update((id(value), value.name) for value in unknown)
            ctx.remark("analysis", variable.node, _RULE, _OF_NODE, suggest="--data")
    if assumed:
        names = list(assumed.values())
        many = f"{pluralize(len(names), 'value')} (such as '{names[-1]}')"
        why = f"the range of {many} is unknown without --data; they are assumed to fit {NARROW}"
        ctx.remark("analysis", "", _RULE, why, suggest="--data")


class AssignTypes(Pass):
    """Choose a precision for every node and port. Nodes that have no legal type on their backend are placed again.

    Given:  every node has a backend
    Result: every node has a precision, and types for the ports that differ from it; the graph does not change.
    """

    name = "assign-types"
    stage = "type"
    requires = ("place",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Choose a type for every port, or reject nodes without a legal type on their backend."""
        check_solver(ctx.request.solver, ctx.registry)
        problem = build_problem(model, ctx)
        for node, rule, why in problem.impossible:
            _refuse(node, rule, why, ctx)
        refuse_regions(model, ctx)
        if ctx.refusals.fresh:
            return False
        solve(problem, ctx.request.solver, ctx.registry)
        _annotate(problem, model, ctx)
        if any("bytes" in backend.region_maxima for backend in ctx.backends):
            refuse_regions(model, ctx)
            if ctx.refusals.fresh:
                return False
        flat = ctx.analysis(FlatGraph, model)
        forms = quantized_forms(flat, model.ir.opset_imports)
        place_qdq(forms, model, ctx)
        number_regions(model, ctx)
        types = PlannedTypes(model, flat)
        conversions = find_conversions(flat, types, ctx.request.keep_io_types, forms)
        ctx.round.joins = [_join(each) for each in conversions if before_widening(each, types) is None]
        return False


def _refuse(node: ir.Node, rule: str, why: str, ctx: Context) -> None:
    backend, claim = placement_of(node).backend, claim_on(node)
    if backend == HOST or claim is not None and claim.role == "pinned":
        raise DovetailError(f"node '{node.name}' ({node.op_type}){from_source(node)} cannot be typed: {why}")
    ctx.refuse(node, backend, why, rule=rule)


def _join(conversion: Conversion) -> PlannedJoin:
    shape, size = conversion.value.shape, None
    if shape is not None and shape.is_static():
        size = math.prod(shape.numpy()) * conversion.wanted.dtype.bitwidth // 8
    name = name_of(conversion.value)
    at = conversion.uses[0][0].name or "" if conversion.uses else name
    held, wanted = conversion.held, conversion.wanted
    return PlannedJoin(name, held, wanted, _kind(held, wanted), at, size)


def _annotate(problem: TypingProblem, model: Model, ctx: Context) -> None:
    by_node: dict[int, list[FormatVariable]] = {}
    remark_assumed_ranges(problem, model, ctx)
    for variable in problem.variables:
        by_node.setdefault(id(variable.node), []).append(variable)
        _remark(problem, variable, ctx)
    remark_overrides(problem, ctx)
    counts: Counter[Format | None] = Counter()
    plain: dict[tuple[str, Format | None], Placement] = {}
    for node in ctx.analysis(FlatGraph, model).nodes:
        variables = by_node.get(id(node), ())
        precision = _precision(node, variables)
        chosen = {
            name: variable.chosen.format_of(name)
            for variable in variables
            for name, _ in (*variable.inputs, *variable.outputs)
        }
        if not variables or holds_bodies(node):
            chosen = _ports_without_variable(node) | chosen
        ports = {name: format_ for name, format_ in chosen.items() if format_ is not precision}
        set_placement(node, _placement(placement_of(node).backend, precision, ports, plain))
        counts[precision] += 1
    for precision, number in counts.items():
        if precision is not None:
            ctx.count(str(precision), number)


def _placement(backend: str, precision: Format | None, ports: dict[str, Format], plain: dict) -> Placement:
    """Return a shared placement for nodes whose ports all have the node's format."""
    if ports:
        return Placement(backend, precision, ports)
    return plain.get((backend, precision)) or plain.setdefault((backend, precision), Placement(backend, precision))


def _precision(node: ir.Node, variables) -> Format | None:
    """Return the format that a node computes in: that of its first variable that is not `keep`, else of its results."""
    for variable in variables:
        if variable.policy != "keep":
            return variable.format
    kinds = [value.dtype for value in (*node.outputs, *node.inputs) if value is not None and value.dtype is not None]
    return format_of(kinds[0]) if kinds else None


def _ports_without_variable(node: ir.Node) -> dict[str, Format]:
    """Return the present formats of all float ports, for ports that no variable covers."""
    named = {f"in{index}": value for index, value in enumerate(node.inputs)}
    named |= {f"out{index}": value for index, value in enumerate(node.outputs)}
    return {name: found for name, value in named.items() if (found := float_format(value)) is not None}


def _remark(problem: TypingProblem, variable: FormatVariable, ctx: Context) -> None:
    if variable.backend == HOST or not variable.policy:
        return
    went_low = variable.chosen.quantized or variable.format is variable.low
    if variable.policy in ("keep", "none") or variable.policy == "pass" and not variable.inputs:
        return
    if (
        variable.policy in ("pass", "passive")
        and not variable.outputs
        and all(one.constant for _, one in variable.inputs)
    ):
        return  # scales of a Resize and the like, which follow nothing
    if variable.policy == "recurse" and not went_low:
        return  # control flow keeps its types unless a solver decides otherwise
    ctx.remark(
        "passed" if went_low or _as_asked(variable) else "missed",
        variable.node,
        f"policy-{variable.policy}",
        _why(problem, variable),
        because=variable.because,
        source=variable.source,
    )


def _as_asked(variable: FormatVariable) -> bool:
    """Check whether a pin or `--high` asked for the chosen type."""
    return variable.policy == "pinned" or variable.policy == "high" and variable.format is variable.present


def _why(problem: TypingProblem, variable: FormatVariable) -> str:
    chosen, policy = variable.format, variable.policy
    if policy == "pinned":
        return f"{chosen}, as pinned{_conditioning_warning(problem, variable)}"
    if variable.present is not FLOAT32:
        return f"stays {chosen}: the source model uses {variable.present} here"
    if variable.override:
        return why_overridden(variable, _why_high(problem, variable)) + _conditioning_warning(problem, variable)
    if variable.why:
        return variable.why
    if policy in ("lower", "pass", "promote") and chosen is variable.high is not variable.low:
        forced = _why_high(problem, variable)
        if forced:
            return f"computed in {chosen}: {forced}"
    return _BY_POLICY.get(policy, "computed in {chosen}").format(chosen=chosen, low=variable.low)


_BY_POLICY = {
    "fp32": "computed in {chosen}: its policy is fp32",
    "fp32-accumulate": "computed in {chosen}: its sums lose digits in {low}",
    "fp32-round-trip": "computed in {chosen}, its result is cast back to the type of its input",
    "angle": "computed in {chosen}: {low} is too coarse for an angle computed from positions",
    "promote": "{chosen}, the widest type among its inputs",
    "pass": "{chosen}, the type of its input",
    "passive": "{chosen}, the type of its input",
    "follow-consumer": "stays {chosen}",
    "tail": "{chosen}, the type of the model output that it feeds",
}
"""Why a variable has its format, by its policy; under all others it is computed in it."""


def _conditioning_warning(problem: TypingProblem, variable: FormatVariable) -> str:
    """Return a clause with the conditioning problem of a type that the user asked for; usually empty."""
    against = problem.reasons.warning(variable, variable.format)
    return f"; conditioning warns: {against}" if against else ""


def _why_high(problem: TypingProblem, variable: FormatVariable) -> str:
    """Return why the low type is impossible regardless of its inputs; empty if it is possible."""
    if variable.low not in variable.choices.floats:
        claim = claim_on(variable.node)
        if claim is not None and claim.because and not claim.pinned:
            return claim.because
        if not variable.low.is_float:
            return f"{variable.backend} takes {variable.node.op_type} in floats only"
        return f"{variable.node.op_type} does not take {variable.low} on {variable.backend} at this opset"
    return problem.obstacle(variable, variable.low)


def set_backend_attributes(nodes: Iterable[ir.Node], ctx: Context) -> bool:
    """Set the attributes listed in the claim of every node that was typed low.

    Returns:
        Whether any attribute changed.
    """
    from onnx_ir.convenience import convert_attribute

    low = {backend.name: backend.low for backend in ctx.backends}
    changed = False
    for node in nodes:
        claim = claim_on(node)
        if claim is None or not claim.set:
            continue
        placement = placement_of(node)
        if placement.precision is None or placement.precision.element != low.get(placement.backend):
            continue
        for name, value in claim.set.items():
            before = node.attributes.get(name)
            if before is None or before.value != value:
                node.attributes[name] = convert_attribute(name, value)
                why = f"{name} is {value}, as the file of {placement.backend} asks for in {placement.precision}"
                ctx.remark("passed", node, "set-attribute", why, source=claim.source)
                changed = True
    return changed


def _kind(held: Format, wanted: Format) -> str:
    """Return the kind of the conversion between two formats: `cast`, `quantize`, `dequantize` or `requantize`."""
    if held.quantized:
        return "requantize" if wanted.quantized else "dequantize"
    return "quantize" if wanted.quantized else "cast"
