"""The typing problem: one float type per type parameter of every node.

A variable stands for one type parameter of one node: the ports that the schema binds to it share one type. Hard
constraints (schema, backend file, pins) narrow `allowed`; a solver chooses within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.flat_graph import FlatGraph
from dovetail.ir.formats import FLOAT32, FLOAT_FORMATS, Format, float_format
from dovetail.ir.signatures import Signatures, input_name, output_name
from dovetail.planning.placement import HOST, get_placement
from dovetail_placement.place import claim_on

from dovetail_precision.conditioning.conditions import Conditions
from dovetail_precision.constraints import TAKES_ANY
from dovetail_precision.cost_table import CostTable, table_for
from dovetail_precision.obstacles import Obstacles
from dovetail_precision.overrides import Override, apply_override, find_overrides
from dovetail_precision.port_groups import PortGroup, port_groups
from dovetail_precision.ranges.overflow import OverflowAnalysis
from dovetail_precision.trig_inputs import find_trig_inputs
from dovetail_precision.trip_counts import trip_counts
from dovetail_precision.type_equalities import TypeEquality, holds_bodies, type_equalities
from dovetail_precision.variable import Variable

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.claim import Claim

__all__ = ["TypingProblem"]

# Rounding the scales of a quantised model would change its quantisation grid.
_ATOMS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})


class TypingProblem:
    """The variables and constraints of a placed model.

    Attributes:
        keeps_io_types: Whether the model's inputs and outputs keep their types.
        variables: In graph order; variables of bodies follow those of their control-flow node.
        impossible: Nodes without a legal type on their backend, with the reasons; they must be placed elsewhere.
        equated_outputs: Body outputs that share a variable of the control-flow node, as (`id` of the body, index).
        trip_counts: How often each body runs, by the `id` of its graph.
    """

    def __init__(self, model: Model, ctx: Context):
        self.model = model
        self.keeps_io_types = ctx.request.keep_io_types
        self._ctx = ctx
        self.variables: list[Variable] = []
        self.impossible: list[tuple[ir.Node, str]] = []
        self.equated_outputs: set[tuple[int, int]] = set()
        self._defined_by: dict[int, Variable] = {}
        self._overrides = find_overrides(model, ctx)
        self._signatures = Signatures(model.ir.opset_imports)
        self._backends = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
        self._known_groups: dict[tuple, tuple[PortGroup, ...]] = {}
        self._known_allowed: dict[tuple[int, int], tuple[object, frozenset[Format]]] = {}
        flat = ctx.analysis(FlatGraph, model)
        weights = (value for graph in flat.graphs for value in graph.initializers.values())
        overridable = {id(value) for value in model.graph.inputs}
        self._constants = {id(value) for value in weights if value.const_value is not None} - overridable
        self._conditions = ctx.analysis(Conditions, model)
        self._obstacles = Obstacles(ctx.analysis(OverflowAnalysis, model), self._conditions, self.is_constant)
        self._trig_inputs = find_trig_inputs(flat.nodes, self.is_constant, self._is_trig)
        self._nodes = flat.nodes
        self.trip_counts = trip_counts(flat)
        for node in flat.nodes:
            self._add(node)

    def defined_by(self, value: ir.Value) -> Variable | None:
        """Return the variable that decides the type of `value`; None for inputs and constants."""
        return self._defined_by.get(id(value))

    def is_constant(self, value: ir.Value) -> bool:
        """Whether `value` is a weight that can be stored in any type."""
        return id(value) in self._constants

    @property
    def cost_table(self) -> CostTable:
        """The cost table of the request, for solvers that minimise costs."""
        return table_for(self._ctx)

    def obstacle(self, variable: Variable, format_: Format) -> str:
        """Return the reason against float format `format_` for `variable`: range or conditioning; empty if none."""
        return self._obstacles(variable, format_)

    def ill_conditioned(self, variable: Variable, format_: Format) -> bool:
        """Whether conditioning is the only reason against float format `format_` for `variable`."""
        found = self._obstacles
        return not found.of_values(variable, format_) and bool(found.of_conditioning(variable, format_))

    def conditioning_problem(self, variable: Variable, format_: Format) -> str:
        """Return the conditioning problem of `format_` at the node of `variable`, overrides ignored; empty if none."""
        return self._conditions.against(variable.node, format_.element)

    def _is_trig(self, node: ir.Node) -> bool:
        return self._backends[get_placement(node).backend].takes_angles(node.domain, node.op_type)

    def overridden_nodes(self) -> list[tuple[ir.Node, Override]]:
        """Return the nodes with overrides, in graph order."""
        return [(node, self._overrides[id(node)]) for node in self._nodes if id(node) in self._overrides]

    def _add(self, node: ir.Node) -> None:
        if holds_bodies(node):
            for equality in type_equalities(node):
                self._add_equality(node, equality)
            return
        groups = self._groups(node)
        if not groups:
            return
        claim, backend = claim_on(node), self._backends[get_placement(node).backend]
        policy = ""
        if claim is not None and (backend.name != HOST or claim.role == "pinned"):
            policy = claim.role
            if policy != "pinned" and node.op_type in _ATOMS:
                policy = "keep"
            elif policy != "pinned" and id(node) in self._trig_inputs:
                policy = "angle"
        for group in groups:
            allowed = self._narrowed(group, claim)
            if not allowed:
                self.impossible.append((node, f"no type fits its ports {', '.join(sorted(group.names))}"))
                allowed = frozenset({group.present})
            variable = Variable(
                node,
                backend.name,
                self._policy_of(group, node, claim, policy),
                group.present,
                Format.of(backend.low) if backend.low else group.present,
                Format.of(backend.high) if backend.high else group.present,
                allowed,
                claim.source if claim is not None else "",
                [(name, node.inputs[index]) for index, name in group.inputs],
                [(name, node.outputs[index]) for index, name in group.outputs],
            )
            if id(node) in self._overrides:
                against = apply_override(variable, self._overrides[id(node)], group.allowed, claim)
                if against:
                    self.impossible.append((node, against))
            self.variables.append(variable)
            for _, value in variable.outputs:
                self._defined_by[id(value)] = variable

    def _policy_of(self, group: PortGroup, node: ir.Node, claim: Claim | None, policy: str) -> str:
        if claim is not None and claim.keep >= group.names:
            return "keep"
        return "pass" if policy == "follow-consumer" and node.op_type in TAKES_ANY and not group.outputs else policy

    def _add_equality(self, node: ir.Node, equality: TypeEquality) -> None:
        """Add one variable for the ports of `node` and of its bodies that must have one type."""
        claim, backend = claim_on(node), self._backends[get_placement(node).backend]
        sig, present = self._signatures(node), float_format(equality.values(node)[0])
        given = [graph.outputs[index] for graph, index in equality.body_outputs]
        # A weight that a body returns unchanged has no reader for which a version could be stored.
        free = present is FLOAT32 and backend.name != HOST and not any(value.is_initializer() for value in given)
        free = free and not (id(node) in self._overrides and self._overrides[id(node)].side == "high")
        inputs = [(input_name(index, sig), node.inputs[index]) for index in equality.inputs]
        outputs = [(output_name(index, sig), node.outputs[index]) for index in equality.outputs]
        name = (inputs or outputs)[0][0]
        variable = Variable(
            node,
            backend.name,
            "recurse",
            present,
            Format.of(backend.low) if backend.low else present,
            Format.of(backend.high) if backend.high else present,
            frozenset(FLOAT_FORMATS) if free else frozenset({present}),
            claim.source if claim is not None else "",
            inputs + [(name, value) for value in given],
            [(name, value) for name, value in outputs if value.name]
            + [(name, value) for value in equality.body_inputs],
        )
        self.variables.append(variable)
        self.equated_outputs.update((id(graph), index) for graph, index in equality.body_outputs)
        for _, value in variable.outputs:
            self._defined_by[id(value)] = variable

    def _groups(self, node: ir.Node) -> tuple[PortGroup, ...]:
        """Return the float ports of `node` by type parameter; cached per operator, version and port types."""
        inputs = tuple([float_format(value) for value in node.inputs])
        outputs = tuple([float_format(value) if value.name else None for value in node.outputs])
        key = (node.domain, node.op_type, node.version, inputs, outputs)
        if key not in self._known_groups:
            self._known_groups[key] = port_groups(self._signatures(node), inputs, outputs)
        return self._known_groups[key]

    def _narrowed(self, group: PortGroup, claim: Claim | None) -> frozenset[Format]:
        """Return the formats that schema and claim both allow; cached, as claims on equal nodes share their ports."""
        if claim is None or not claim.ports:
            return group.allowed
        key = (id(group), id(claim.ports))
        known = self._known_allowed.get(key)
        if known is None or known[0] is not claim.ports:
            allowed = group.allowed
            for name in group.names & claim.ports.keys():
                allowed &= frozenset(claim.ports[name])
            known = self._known_allowed[key] = (claim.ports, allowed)
        return known[1]
