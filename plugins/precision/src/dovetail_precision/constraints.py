"""Hard constraints of typing: the choices that policies, pins and constants leave to a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import FLOAT32, FLOAT_FORMATS, Format, bodies, float_name, is_onnx

from dovetail_precision.choices import FormatChoice, uniform

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import FormatVariable, TypingProblem


_AS_PRESENT = ("keep", "high", "follow-consumer")
_HIGH = ("fp32", "fp32-accumulate", "fp32-round-trip", "angle")
_LOW = ("lower", "active", "manual")


def required_format(variable: FormatVariable) -> Format | None:
    """Return the float format that policy or pin requires for `variable`; None if the solver may choose."""
    policy, present = variable.policy, variable.present
    if policy == "pinned":
        floats = variable.choices.floats
        return next(iter(floats)) if len(floats) == 1 else present
    # A type other than float32 in the source model is deliberate.
    if present is not FLOAT32 or policy in _AS_PRESENT:
        return present
    if policy == "lower":
        return variable.low
    if policy in _HIGH:
        return variable.high
    return None


def required_choice(problem: TypingProblem, variable: FormatVariable) -> FormatChoice | None:
    """Return the choice that policy or pin requires for `variable`; None if the solver may choose.

    Among quantized choices, pins and the low policies take the first.
    """
    if variable.choices.quantized:
        if variable.policy == "pinned" or variable.policy in _LOW:
            return next(iter(variable.choices))
        if not variable.choices.floats:
            return None
    wanted = required_format(variable)
    return None if wanted is None else uniform(legal_format(problem, variable, wanted))


def legal_format(problem: TypingProblem, variable: FormatVariable, wanted: Format) -> Format:
    """Return the legal float format closest to `wanted`.

    This is `wanted` if it is allowed and has no obstacle, else the smallest allowed format that holds it, else the
    widest allowed format.
    """
    allowed = variable.choices.floats
    if wanted.is_float and problem.obstacle(variable, wanted):
        wanted = wanted.join(variable.high)
    if wanted in allowed:
        return wanted
    known = [format_ for format_ in FLOAT_FORMATS if format_ in allowed]
    return next((format_ for format_ in known if wanted.fits_in(format_)), known[-1])


def legal_choice(problem: TypingProblem, variable: FormatVariable, wanted: Format) -> FormatChoice:
    """Return the legal choice closest to `wanted`, the format in which the first activation arrives.

    A quantized format is kept if the variable can read it; otherwise, its expressed type decides.
    """
    choices = variable.choices
    if not choices.quantized:
        expressed = Format.of(wanted.computes_in) if wanted.quantized else wanted
        return uniform(legal_format(problem, variable, expressed))
    if wanted.quantized or not choices.floats:
        port = next((port for port, value in variable.inputs if not value.constant), "")
        reading = (choice for choice in choices if port and choice.format_of(port) is wanted)
        found = next(reading, None) or choices.with_nominal(wanted)
        if found is not None or not choices.floats:
            return found or next(iter(choices))
        wanted = wanted.join(variable.high)
    return uniform(legal_format(problem, variable, wanted))


def candidates(problem: TypingProblem, variable: FormatVariable) -> tuple[FormatChoice, ...]:
    """Return the choices that an optimizing solver may give `variable`, the lowest first; one if it has no choice.

    A float variable has two if no policy requires a format (`pass`, `promote`, `none` or no policy) and both the low
    format of the backend and float32 are legal. The inputs may all be weights, as in the Gather of an embedding.
    Quantized choices come first, in the order of preference.
    """
    choices = variable.choices
    if choices.quantized and variable.policy in _LOW:
        return choices.quantized
    required = required_choice(problem, variable)
    if required is not None:
        return (required,)
    if not choices.floats:
        return choices.quantized
    low, high = variable.low, legal_format(problem, variable, variable.present)
    if variable.inputs and low in choices.floats and legal_format(problem, variable, low) is low and low is not high:
        floats = (low, high) if high is variable.present else (high,)
    else:
        floats = (high,)
    return (*choices.quantized, *map(uniform, floats))


def reads_any_type(problem: TypingProblem, variable: FormatVariable) -> bool:
    """Check whether `variable` is an input that any type may enter, and that has a choice."""
    return variable.takes_any and not variable.outputs and len(candidates(problem, variable)) > 1


def follows_readers(variable: FormatVariable) -> bool:
    """Check whether an attribute or a scale of the node decides its type, so that it may take that of its readers."""
    return (
        variable.type_attribute
        and all(value.constant for _, value in variable.inputs)
        and not variable.override
        and variable.policy in ("follow-consumer", "pass")
        and variable.present is FLOAT32
        and variable.low is not variable.present
        and variable.low in variable.choices.floats
    )


_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


class TypeEquality(NamedTuple):
    """Ports of a control-flow node and of its bodies that pass one value unchanged.

    Attributes:
        inputs, outputs: Indices of the node's ports.
        body_inputs: The matching inputs of bodies.
        body_outputs: The matching outputs of bodies, as (body, index).
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    body_inputs: tuple[ir.Value, ...] = ()
    body_outputs: tuple[tuple[ir.Graph, int], ...] = ()

    def values(self, node: ir.Node) -> list[ir.Value | None]:
        """Return all values at `node` and in its bodies that share the type."""
        return [
            *(node.inputs[index] for index in self.inputs),
            *(node.outputs[index] for index in self.outputs),
            *self.body_inputs,
            *(graph.outputs[index] for graph, index in self.body_outputs),
        ]


def holds_bodies(node: ir.Node) -> bool:
    """Check whether `node` is control flow, which has no type parameters of its own."""
    return node.op_type in _CONTROL and is_onnx(node)


def type_equalities(node: ir.Node) -> list[TypeEquality]:
    """Return the equalities of a control-flow node between tensors of one float type.

    A loop-carried value equals its initial value and the matching outputs of body and loop; the results of both
    branches of an If are equal; slices of a Scan equal the scanned tensor. SequenceMap has none: sequences keep their
    type.
    """
    maker = {"If": _of_if, "Loop": _of_loop, "Scan": _of_scan}.get(node.op_type)
    return [equality for equality in maker(node) if _is_one_float_type(equality, node)] if maker else []


def _is_one_float_type(equality: TypeEquality, node: ir.Node) -> bool:
    kinds = {float_name(value) for value in equality.values(node)}
    return len(kinds) == 1 and None not in kinds


def _of_if(node: ir.Node) -> list[TypeEquality]:
    held = bodies(node)
    return [
        TypeEquality(outputs=(index,), body_outputs=tuple((body, index) for body in held))
        for index in range(len(node.outputs))
    ]


def _of_loop(node: ir.Node) -> list[TypeEquality]:
    (body,) = bodies(node)
    carried = len(node.inputs) - 2
    made = [
        TypeEquality((index + 2,), (index,), (body.inputs[index + 2],), ((body, index + 1),))
        for index in range(max(carried, 0))
    ]
    return made + [
        TypeEquality(outputs=(index,), body_outputs=((body, index + 1),)) for index in range(carried, len(node.outputs))
    ]


def _of_scan(node: ir.Node) -> list[TypeEquality]:
    (body,) = bodies(node)
    if len(node.inputs) != len(body.inputs):
        return []  # before opset 9 the first input holds sequence lengths
    states = len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)
    made = [TypeEquality((index,), (index,), (body.inputs[index],), ((body, index),)) for index in range(states)]
    made += [
        TypeEquality(inputs=(index,), body_inputs=(body.inputs[index],)) for index in range(states, len(node.inputs))
    ]
    return made + [
        TypeEquality(outputs=(index,), body_outputs=((body, index),)) for index in range(states, len(node.outputs))
    ]
