"""Build the typing problem of a placed model: a variable per type parameter of every node, and the values between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from dovetail.ir import FLOAT32, FLOAT_FORMATS, FlatGraph, Format, float_format, is_onnx
from dovetail.planning import HOST, placement_of
from dovetail.plugin.loading import asking
from dovetail_onnx.signatures import Signatures, input_name, output_name
from dovetail_placement.node_requests import ASKED
from dovetail_placement.pins import Pins
from dovetail_placement.place import claim_on

from dovetail_precision.choices import NodeChoices, SharedFormat, float_choices
from dovetail_precision.constraints import TypeEquality, holds_bodies, type_equalities
from dovetail_precision.costs import CostModel, MovedBytes, table_for
from dovetail_precision.def_use import trip_counts
from dovetail_precision.float_borders import gives_high
from dovetail_precision.graph_patterns import find_normalized, find_recurrent_io, find_trig_inputs
from dovetail_precision.obstacles import Conditions, Obstacles
from dovetail_precision.overrides import apply_override, find_overrides
from dovetail_precision.port_groups import PortGroup, port_groups
from dovetail_precision.problem import FormatVariable, Results, TypingProblem, Value
from dovetail_precision.ranges.overflow import OverflowAnalysis
from dovetail_precision.sharing_groups import possible_quantized_values
from dovetail_precision.type_attributes import TAKES_ANY, holds_type, rounds_integers, select_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Claim
    from dovetail.plugin import Backend


_NO_TYPE = "no-type"


class ProblemValues:
    """Creates one `Value` per float value of a model, on first use."""

    def __init__(self, model: Model, flat: FlatGraph, keeps_io_types: bool):
        self._model = model
        self._flat = flat
        self._keeps_io_types = keeps_io_types
        self._equated: set[tuple[int, int]] = set()
        self._known: dict[int, Value] = {}
        weights = (value for graph in flat.graphs for value in graph.initializers.values())
        overridable = {id(value) for value in model.graph.inputs}
        self._constants = {id(value) for value in weights if value.const_value is not None} - overridable

    def is_constant(self, value: ir.Value) -> bool:
        """Check whether `value` is a weight that can be stored in any type."""
        return id(value) in self._constants

    def of(self, value: ir.Value | None) -> Value:
        """Return the `Value` of `value`."""
        key = id(value)
        known = self._known.get(key)
        if known is None:
            assert value is not None
            present = cast(Format, float_format(value))
            known = Value(value.name or "", present, key in self._constants, source=value)
            self._known[key] = known
        return known

    def equate(self, outputs: Iterable[tuple[ir.Graph, int]]) -> None:
        """Record that a variable decides the types of these outputs of bodies, given as body and index."""
        self._equated.update((id(graph), index) for graph, index in outputs)

    def finish(self, typed: set[int]) -> None:
        """Mark the values that are also read in their present format, and the inputs whose type is free.

        Args:
            typed: The `id` of every node that has a variable; all others read the present format.
        """
        for value in self._kept(typed):
            known = self._known.get(id(value))
            if known is not None:
                known.kept = True
        if not self._keeps_io_types:
            self._free_inputs()

    def _kept(self, typed: set[int]) -> list[ir.Value | None]:
        kept = [value for node in self._flat.nodes if id(node) not in typed for value in node.inputs]
        main = self._flat.graphs[0]
        for graph in self._flat.graphs:
            free = graph is main and not self._keeps_io_types
            for index, value in enumerate(graph.outputs):
                if (id(graph), index) not in self._equated and (not free or self.is_constant(value)):
                    kept.append(value)
        return kept

    def _free_inputs(self) -> None:
        """Let model inputs follow their readers, and a recurrent output be read like its input."""
        graph = self._model.graph
        for value in graph.inputs:
            known = self._known.get(id(value))
            if known is not None and not value.is_initializer() and not value.is_graph_output():
                known.free = True
        for value, output in find_recurrent_io(graph):
            known, back = self._known.get(id(value)), self._known.get(id(output))
            if known is not None and back is not None:
                back.input_of_state = known


# Rounding the scales of a quantized model would change its quantization grid.
_ATOMS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_TYPED_ATOMS = frozenset({"pinned", "follow-consumer", "promote"})
"""Policies under which conversions of the source model are typed like other nodes; otherwise they stay unchanged."""


def build_problem(model: Model, ctx: Context) -> TypingProblem:
    """Return the typing problem of `model`, whose nodes are placed.

    Raises:
        DovetailError: `--low`, `--high` and pins contradict each other.
    """
    return _Builder(model, ctx).build()


class _Builder:
    def __init__(self, model: Model, ctx: Context):
        self._model = model
        self._ctx = ctx
        self._flat = ctx.analysis(FlatGraph, model)
        self._values = ProblemValues(model, self._flat, ctx.request.keep_io_types)
        self._overrides = find_overrides(model, ctx)
        self._signatures = Signatures(model.ir.opset_imports)
        self._backends = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
        self._precisions = {
            name: tuple(Format.of(kind) if kind else None for kind in (backend.low, backend.high))
            for name, backend in self._backends.items()
        }
        self._pins: Pins | None = None  # of control flow, whose backends list no ports
        self._known_groups: dict[tuple, tuple[PortGroup, ...]] = {}
        self._choices = NodeChoices()
        self._takes_angles: dict[tuple[str, str, str], bool] = {}
        self._trig_inputs = find_trig_inputs(self._flat.nodes, self._values.is_constant, self._is_trig)
        self._normalized = find_normalized(self._flat.nodes, self._values.is_constant)
        self._problem = TypingProblem(
            keeps_io_types=ctx.request.keep_io_types,
            reasons=Obstacles(ctx.analysis(OverflowAnalysis, model), ctx.analysis(Conditions, model)),
            cost_model=self._costs,
        )

    def build(self) -> TypingProblem:
        problem = self._problem
        for node in self._flat.nodes:
            self._add(node)
        self._share()
        typed = {id(variable.node) for variable in problem.variables}
        self._values.finish(typed)
        problem.results_of = _results_of(self._model, typed)
        problem.overridden = [
            (node, self._overrides[id(node)]) for node in self._flat.nodes if id(node) in self._overrides
        ]
        return problem

    def _share(self) -> None:
        """Separate the sharing groups of one value and format, and record the integers of the source model."""
        found = possible_quantized_values(self._flat, self._model.ir.opset_imports)
        several = Counter((id(held.value), held.format) for held in found)
        groups: dict[int, dict[tuple[str, Format], SharedFormat]] = {}
        for held in found:
            shared: Format | SharedFormat = held.format
            if several[id(held.value), held.format] > 1:
                shared = SharedFormat(held.format)
                for use in held.uses:
                    groups.setdefault(id(use.node), {})[use.port, held.format] = shared
            if held.adopted is not None:
                self._values.of(held.value).adopted |= {shared}
        for variable in self._problem.variables if groups else ():
            variable.groups = groups.get(id(variable.node))

    def _costs(self) -> CostModel:
        return MovedBytes(table_for(self._ctx), trip_counts(self._flat))

    def _is_trig(self, node: ir.Node) -> bool:
        """Check whether a node takes an angle on its backend, which is asked once per operator."""
        backend = self._backend_of(node)
        key = (backend.name, node.domain, node.op_type)
        known = self._takes_angles.get(key)
        if known is None:
            with asking(self._ctx.registry, backend):
                known = self._takes_angles[key] = backend.takes_angles(node.domain, node.op_type)
        return known

    def _backend_of(self, node: ir.Node) -> Backend:
        return self._backends[placement_of(node).backend]

    def _add(self, node: ir.Node) -> None:
        if holds_bodies(node):
            for equality in type_equalities(node):
                self._add_equality(node, equality)
            return
        groups = self._groups(node)
        if not groups:
            return
        claim, backend = claim_on(node), self._backend_of(node)
        policy = ""
        if claim is not None and (backend.name != HOST or claim.role == "pinned"):
            policy = claim.role
            if policy not in _TYPED_ATOMS and node.op_type in _ATOMS:
                policy = "keep"
            elif policy != "pinned" and id(node) in self._trig_inputs:
                policy = "angle"
        low, high = self._precisions[backend.name]
        for group, choices in self._choices.of(groups, claim):
            if not len(choices):
                self._problem.impossible.append((node, _NO_TYPE, self._choices.obstacle(group, claim)))
                choices = float_choices(frozenset({group.present}))
            if rounds_integers(node):
                choices = float_choices(frozenset({group.present}))
            empty = _without_elements(group, node) if choices.quantized else ()
            if empty:
                choices = choices.with_floats_at(empty)
                if not len(choices):
                    why = f"quantizes {', '.join(empty)}, which has no elements"
                    self._problem.impossible.append((node, _NO_TYPE, why))
                    choices = float_choices(frozenset({group.present}))
            variable = FormatVariable(
                node,
                choices,
                [(name, self._values.of(node.inputs[index])) for index, name in group.inputs],
                [(name, self._values.of(node.outputs[index])) for index, name in group.outputs],
                _policy_of(group, node, claim, policy),
                group.present,
                low or group.present,
                high or group.present,
                backend.name,
                claim.source if claim is not None else "",
            )
            if node.op_type in TAKES_ANY:
                variable.takes_any = is_onnx(node) and not group.outputs
            variable.high_border = gives_high(backend)
            variable.select = select_of(node)
            variable.normalizes = id(node) in self._normalized
            if not group.inputs:
                variable.type_attribute = holds_type(node, variable.low)
            elif node.op_type in _ATOMS and variable.policy == "follow-consumer":
                variable.type_attribute = bool(group.outputs)  # its scale has that type
            if id(node) in self._overrides:
                against = apply_override(variable, self._overrides[id(node)], group.allowed, claim)
                if against:
                    self._problem.impossible.append((node, ASKED, against))
            self._problem.variables.append(variable)

    def _add_equality(self, node: ir.Node, equality: TypeEquality) -> None:
        """Add one variable for the ports of `node` and of its bodies that must have one type."""
        claim, backend = claim_on(node), self._backend_of(node)
        sig, present = self._signatures(node), float_format(equality.values(node)[0])
        assert present is not None, "equalities are between floats"
        given = [graph.outputs[index] for graph, index in equality.body_outputs]
        # A weight that a body returns unchanged has no reader for which a version could be stored.
        free = present is FLOAT32 and backend.name != HOST and not any(value.is_initializer() for value in given)
        free = free and not (id(node) in self._overrides and self._overrides[id(node)].precision == "high")
        inputs = [(input_name(index, sig), node.inputs[index]) for index in equality.inputs]
        outputs = [(output_name(index, sig), node.outputs[index]) for index in equality.outputs]
        name = (inputs or outputs)[0][0]
        pinned = self._pinned_format(node, name) if free else None
        formats = frozenset({pinned}) if pinned is not None else frozenset(FLOAT_FORMATS) if free else None
        read = inputs + [(name, value) for value in given]
        computed = [(name, value) for name, value in outputs if value.name]
        computed += [(name, value) for value in equality.body_inputs]
        low, high = self._precisions[backend.name]
        self._problem.variables.append(
            FormatVariable(
                node,
                float_choices(formats or frozenset({present})),
                [(name, self._values.of(value)) for name, value in read],
                [(name, self._values.of(value)) for name, value in computed],
                "recurse" if pinned is None else "pinned",
                present,
                low or present,
                high or present,
                backend.name,
                claim.source if claim is not None else "",
            )
        )
        self._values.equate(equality.body_outputs)

    def _pinned_format(self, node: ir.Node, port: str) -> Format | None:
        """Return the float format that a pin or a replayed plan asks for at a port of a control-flow node."""
        if self._pins is None:
            self._pins = Pins(self._model, self._ctx)
        pin = self._pins.of(node)
        wanted = pin.request.formats.get(port, pin.request.formats.get("")) if pin is not None else None
        return wanted if wanted in FLOAT_FORMATS else None

    def _groups(self, node: ir.Node) -> tuple[PortGroup, ...]:
        """Return the float ports of `node` by type parameter; cached per operator, version and port types."""
        inputs = tuple([float_format(value) for value in node.inputs])
        outputs = tuple([float_format(value) if value.name else None for value in node.outputs])
        key = (node.domain, node.op_type, node.version, inputs, outputs)
        if key not in self._known_groups:
            self._known_groups[key] = port_groups(self._signatures(node), inputs, outputs)
        return self._known_groups[key]


def _without_elements(group: PortGroup, node: ir.Node) -> list[str]:
    """Return the ports whose values are known to have no elements.

    Nothing can be measured there, and integer kernels misread them: ONNX Runtime's MatMulInteger leaves a sum of no
    products as the memory was.
    """
    ports = [(node.inputs[index], name) for index, name in group.inputs]
    ports += [(node.outputs[index], name) for index, name in group.outputs]
    return [name for value, name in ports if value is not None and value.shape is not None and 0 in value.shape]


def _policy_of(group: PortGroup, node: ir.Node, claim: Claim | None, policy: str) -> str:
    if claim is not None and claim.keep >= group.names:
        return "keep"
    return "pass" if policy == "follow-consumer" and node.op_type in TAKES_ANY and not group.outputs else policy


def _results_of(model: Model, typed: set[int]) -> Callable[[ir.Node], Results]:
    ends = {id(value) for value in model.graph.outputs}

    def results(node: ir.Node) -> Results:
        values = node.outputs
        readers = [reader for value in values for reader, _ in value.uses() if id(reader) in typed]
        given = any(id(value) in ends for value in values)
        leaves = any(value.is_graph_output() and id(value) not in ends for value in values)
        return Results(readers, given, leaves)

    return results
