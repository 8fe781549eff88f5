"""Patterns of nodes whose precision matters: normalization, angles, masks, recurrent state, output tails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import float_name, input_of, is_onnx, name_of

from dovetail_precision.choices import uniform
from dovetail_precision.constraints import follows_readers, legal_format, required_format
from dovetail_precision.def_use import def_use_chains

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_precision.problem import FormatVariable, TypingProblem


_QUOTIENTS = frozenset({"Div", "Mul"})
_ROOTS = frozenset({"Pow", "Sqrt"})
_BETWEEN = frozenset({"Abs", "Add", "Clip", "Div", "Max", "Mul", "Reciprocal"}) | _ROOTS  # with constants
_MEANS = frozenset({"GlobalAveragePool", "ReduceMean", "ReduceSum"})
_LONGEST = 8  # nodes between a mean square and the quotient


def find_normalized(nodes: Sequence[ir.Node], is_constant: Callable[[ir.Value], bool]) -> set[int]:
    """Return the `id` of every node that computes v / sqrt(E[v^2] + e), as layer norms and RMS norms end.

    The deviation needs float32, and so does the quotient. Its result has magnitude one whatever v was, so users in a
    low precision lose no more of it than of any other value, and need not be raised with it.

    Args:
        nodes: All nodes.
        is_constant: Whether a value is a weight.
    """
    if _MEANS.isdisjoint({node.op_type for node in nodes}):
        return set()
    found: set[int] = set()
    for node in nodes:
        if node.op_type not in _QUOTIENTS or not is_onnx(node):
            continue
        one, other = node.inputs
        pairs = ((one, other), (other, one)) if node.op_type == "Mul" else ((one, other),)
        if any(_is_deviation(divisor, value, is_constant) for value, divisor in pairs):
            found.add(id(node))
    return found


def _is_deviation(divisor: ir.Value | None, value: ir.Value | None, is_constant: Callable[[ir.Value], bool]) -> bool:
    """Check whether `divisor` is a root of a mean of the squares of `value`, or its reciprocal."""
    rooted, current = False, divisor
    for _ in range(_LONGEST):
        node = current.producer() if current is not None else None
        if node is None or not is_onnx(node):
            return False
        if node.op_type in _MEANS:
            return rooted and _is_square(input_of(node, 0).producer(), value)
        rooted = rooted or node.op_type in _ROOTS
        varying = [read for read in node.inputs if read is not None and not is_constant(read)]
        if node.op_type not in _BETWEEN or len(varying) != 1:
            return False
        current = varying[0]
    return False


def _is_square(node: ir.Node | None, value: ir.Value | None) -> bool:
    if node is None or not is_onnx(node):
        return False
    if node.op_type == "Pow":
        return node.inputs[0] is value
    return node.op_type == "Mul" and all(read is value for read in node.inputs)


def find_trig_inputs(
    nodes: Sequence[ir.Node], is_constant: Callable[[ir.Value], bool], is_trig: Callable[[ir.Node], bool]
) -> set[int]:
    """Return the `id` of every node that computes an angle from integer positions, and of the sines that read them.

    The absolute error of an angle is the error of its sine. With the 11 significant bits of float16 an angle of 1000
    is off by up to 0.25, and odd integers above 2048 do not exist. Nodes are recognized by data flow: all float inputs
    derive from integers and constants, and all readers are such nodes, or sines and cosines.

    Args:
        nodes: All nodes in topological order.
        is_constant: Whether a value is a weight.
        is_trig: Whether a node takes an angle (`angles:` of the policies file).
    """
    trig_nodes = {id(node) for node in nodes if is_trig(node)}
    if not trig_nodes:
        return set()
    from_positions: set[int] = set()
    for node in nodes:
        floats = [
            value
            for value in node.inputs
            if value is not None and float_name(value) is not None and not is_constant(value)
        ]
        if _starts(node) or floats and all(id(value.producer()) in from_positions for value in floats):
            from_positions.add(id(node))
    found: set[int] = set()
    for node in reversed(nodes):
        if id(node) in from_positions and (id(node) in trig_nodes or _leads_to(node, found)):
            found.add(id(node))
    return found


def _starts(node: ir.Node) -> bool:
    """Check whether `node` converts integers to floats."""
    return node.op_type in ("Cast", "CastLike") and float_name(node.inputs[0]) is None


def _leads_to(node: ir.Node, found: set[int]) -> bool:
    readers = [reader for value in node.outputs for reader, _ in value.uses()]
    given = any(value.is_graph_output() for value in node.outputs)
    return bool(readers) and not given and all(id(reader) in found for reader in readers)


def find_constant_selects(problem: TypingProblem) -> list[FormatVariable]:
    """Return every pick between constants, every constant fill, and the data movement after them, in graph order.

    Like a constant, such a value can take the type of its peers: its constants are then stored in that type.
    """
    found: list[FormatVariable] = []
    values: set[int] = set()
    for variable in problem.variables:
        select = variable.select
        if not select or variable.choices.quantized:
            continue
        fills = select == "fill" and follows_readers(variable)
        picks = select == "pick" or fills
        if not picks and not (values and select == "move"):
            continue
        if not fills and required_format(variable) is not None:
            continue
        read = variable.activations
        if (picks or read) and values.issuperset(map(id, read)):
            found.append(variable)
            values.update(id(value) for _, value in variable.outputs)
    return found


def take_types_of_readers(problem: TypingProblem, selects: list[FormatVariable]) -> list[FormatVariable]:
    """Type a select low if all of its readers, already typed, read it low; return the selects so typed."""
    if not selects:
        return []
    chains = {id(chain.value): chain for chain in def_use_chains(problem)}
    followed = []
    for variable in reversed(selects):  # readers first
        wanted = set().union(*(chains[id(value)].wanted for _, value in variable.outputs))
        if wanted == {variable.low} == {legal_format(problem, variable, variable.low)}:
            variable.chosen, variable.because = uniform(variable.low), ()
            followed.append(variable)
    return followed[::-1]


_BEFORE = frozenset({"past", "old", "prev", "previous", "last", "in", "input", "init", "initial"})
_AFTER = frozenset({"present", "new", "next", "updated", "out", "output"})
_ALONE = frozenset({("past", "present"), ("old", "new"), ("prev", "next"), ("previous", "next")})
_INITIAL_TO_FINAL = {"h0": "hn", "c0": "cn", "h_0": "h_n", "c_0": "c_n"}


def find_recurrent_io(graph: ir.Graph) -> list[tuple[ir.Value, ir.Value]]:
    """Return pairs of input and output of `graph` that carry one state; ambiguous names are skipped."""
    by_rest: dict[tuple[str, ...], list[ir.Value]] = {}
    by_name: dict[str, list[ir.Value]] = {}
    for output in graph.outputs:
        if output.name:
            by_rest.setdefault(_split_name(output.name, _AFTER)[1], []).append(output)
            by_name.setdefault(output.name, []).append(output)
    found: list[tuple[ir.Value, ir.Value]] = []
    taken: dict[int, int] = {}
    for value in graph.inputs:
        name = value.name or ""
        candidates = [
            *by_rest.get(_split_name(name, _BEFORE)[1], ()),
            *by_name.get(_INITIAL_TO_FINAL.get(name, ""), ()),
        ]
        partners = [other for other in candidates if _names_match(name, name_of(other)) and _types_match(value, other)]
        if len(partners) == 1 and float_name(value) is not None and not value.is_initializer():
            found.append((value, partners[0]))
            taken[id(partners[0])] = taken.get(id(partners[0]), 0) + 1
    return [(value, other) for value, other in found if taken[id(other)] == 1]


def _names_match(given: str, result: str) -> bool:
    if _INITIAL_TO_FINAL.get(given) == result:
        return True
    (before, rest), (after, other) = _split_name(given, _BEFORE), _split_name(result, _AFTER)
    if rest != other or before is None and after is None:
        return False
    return bool(rest) or (before, after) in _ALONE


def _split_name(name: str, marks: frozenset[str]) -> tuple[str | None, tuple[str, ...]]:
    """Split `name` into the first word that marks its side (None if there is none) and the other words."""
    text = re.sub(r"(?<=past|sent)_key_values", "", name.lower())
    words = [word for word in re.split(r"[^a-z0-9]+", text) if word]
    mark = next((word for word in words if word in marks), None)
    if mark is not None:
        words.remove(mark)
    return mark, tuple(words)


def _types_match(value: ir.Value, other: ir.Value) -> bool:
    if value is other or value.dtype is None or value.dtype != other.dtype:
        return False
    if value.shape is None or other.shape is None:
        return True
    if len(value.shape) != len(other.shape):
        return False
    return sum(str(ours) != str(theirs) for ours, theirs in zip(value.shape, other.shape, strict=True)) <= 1


def raise_output_tails(problem: TypingProblem) -> None:
    """Keep pass-through nodes that feed only model outputs in float32.

    The cast then precedes such a node instead of following it. This adds no cast, saves some if several of these nodes
    read one value, and avoids rounding the result. A Shape that also reads the value accepts either type.
    """
    takers = _takers_of_any_type(problem)
    tail: set[int] = set()
    for variable in reversed(problem.variables):
        results = problem.results(variable.node)
        readers = [node for node in results.readers if id(node) not in takers]
        ends = readers or results.given or not results.readers
        if results.leaves_body or not ends or not all(id(node) in tail for node in readers):
            continue
        free = variable.policy in ("pass", "promote") and variable.present is variable.high in variable.choices.floats
        free = free and (problem.keeps_io_types or not results.given)
        if variable.format is not variable.high and free and len(variable.activations) <= 1:
            variable.chosen, variable.because = uniform(variable.high), ()
            variable.policy = "tail"
            for taker in (takers[id(node)] for node in results.readers if id(node) in takers):
                taker.chosen, taker.because = uniform(variable.high), (variable.node,)
        if variable.format is variable.high:
            tail.add(id(variable.node))


def _takers_of_any_type(problem: TypingProblem) -> dict[int, FormatVariable]:
    """Return nodes that compute no float and accept any type of their only float input."""
    found: dict[int, FormatVariable] = {}
    others: set[int] = set()
    for variable in problem.variables:
        takes_any = variable.takes_any or variable.policy == "none"
        alone = takes_any and not variable.outputs and len(variable.inputs) == 1
        if alone and variable.high in variable.choices.floats:
            found[id(variable.node)] = variable
        else:
            others.add(id(variable.node))
    return {key: variable for key, variable in found.items() if key not in others}
