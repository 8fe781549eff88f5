"""Patterns of rewrites: small trees of operators that are matched against the producers of a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir


_MANY = 64  # uses, from which a value counts as widely read


@dataclass(frozen=True)
class AnyValue:
    """A pattern input that matches any value, bound to the name of the pattern's parameter.

    Attributes:
        name: The parameter.
        optional: Whether the input may be absent: the parameter has the default None.
    """

    name: str
    optional: bool


@dataclass(frozen=True)
class AnyNumber:
    """A pattern input that matches a constant with one element; only in rewrites that commute.

    Attributes:
        near: The number that it holds, up to the digits of its type; None for any.
        called: The name that its value is bound to; empty for none.
    """

    near: float | None = None
    called: str = ""


@dataclass(frozen=True, eq=False)
class Operator:
    """A pattern node.

    Attributes:
        op_types: The operators that match.
        domain: Their domain; empty for the default one.
        inputs: Patterns of its inputs; a final ellipsis matches any further ones.
        called: The name that it is bound to, and its name in messages; empty for that of its operator.
    """

    op_types: tuple[str, ...]
    domain: str
    inputs: tuple[Operator | Output | AnyValue | AnyNumber | Either | Any, ...]
    called: str = ""

    def is_operator_of(self, node: ir.Node) -> bool:
        """Check whether `node` has one of its operators."""
        return node.op_type in self.op_types and (node.domain or "ai.onnx") == (self.domain or "ai.onnx")


@dataclass(frozen=True, eq=False)
class Output:
    """A later output of a pattern node; only in rewrites that commute.

    Attributes:
        operator: The node.
        index: The position of the output.
    """

    operator: Operator
    index: int


@dataclass(frozen=True, eq=False)
class Either:
    """Several patterns of one input, of which one must match; only in rewrites that commute.

    Attributes:
        parts: The patterns, in the order in which they are tried.
    """

    parts: tuple[Operator | Output | AnyValue | AnyNumber, ...]


class _Operators:
    """The first argument of a pattern: `op.Conv(x, w)`, `op.any_of("Conv", "Gemm", called="product")(x, w)`."""

    def number(self, near: float | None = None, called: str = "") -> AnyNumber:
        """Return a pattern of a constant with one element."""
        return AnyNumber(near, called)

    def either(self, *parts: Operator | Output | AnyValue | AnyNumber) -> Either:
        """Return a pattern that matches if one of several patterns does."""
        return Either(parts)

    def output(self, operator: Operator, index: int) -> Output:
        """Return a pattern of the output `index` of an operator."""
        return Output(operator, index)

    def any_of(self, *op_types: str, domain: str = "", called: str = "") -> Callable[..., Operator]:
        return lambda *inputs: Operator(op_types, domain, inputs, called)

    def __getattr__(self, op_type: str) -> Callable[..., Operator]:
        return lambda *inputs, domain="", called="": Operator((op_type,), domain, inputs, called)


def pattern_of(function: Callable[..., Any]) -> Operator:
    """Call a pattern function with variables for its parameters after the first, and return the root.

    Raises:
        TypeError: It returns something other than an operator.
    """
    _, *parameters = inspect.signature(function).parameters.values()
    root = function(_Operators(), *(AnyValue(one.name, one.default is None) for one in parameters))
    if not isinstance(root, Operator):
        raise TypeError(f"the pattern {function.__qualname__} returns {root!r}, which is no operator")
    return root


def required_operators(part: Any) -> frozenset[str]:
    """Return the operators without which a pattern matches nowhere; of alternatives, those that all of them need."""
    if isinstance(part, Either):
        return frozenset.intersection(*map(required_operators, part.parts))
    if isinstance(part, Output):
        return required_operators(part.operator)
    if not isinstance(part, Operator):
        return frozenset()
    own = frozenset(part.op_types) if len(part.op_types) == 1 else frozenset()
    return own.union(*map(required_operators, part.inputs))


@dataclass
class Match:
    """The result of matching a pattern.

    Attributes:
        bound: Values by parameter, nodes by their name in the pattern; `node` is the root.
        nodes: The matched nodes, users before producers.
        why: Why the match failed; empty if it succeeded.
    """

    bound: dict[str, Any] = field(default_factory=dict)
    nodes: list[ir.Node] = field(default_factory=list)
    why: str = ""


def match(root: Operator, node: ir.Node, widely_read: set[int]) -> Match:
    """Match the pattern rooted at `root` against `node`.

    Args:
        root: A pattern.
        node: The node that computes its result.
        widely_read: The `id`s of values with many uses; a cache, because counting uses is slow.
    """
    found = Match({"node": node})
    found.why = _match_operator(root, node, found, widely_read)
    return found


def _match_operator(wanted: Operator, node: ir.Node, found: Match, widely_read: set[int]) -> str:
    found.nodes.append(node)
    if wanted.called:
        found.bound[wanted.called] = node
    open_ended = bool(wanted.inputs) and wanted.inputs[-1] is ...
    inputs = wanted.inputs[:-1] if open_ended else wanted.inputs
    if not open_ended and any(value is not None for value in node.inputs[len(inputs) :]):
        return f"it has more than {len(inputs)} inputs"
    for index, part in enumerate(inputs):
        if not isinstance(part, Operator | AnyValue):
            raise TypeError(f"only rewrites with commutes=True may have a {type(part).__name__} in their patterns")
        value = node.inputs[index] if index < len(node.inputs) else None
        why = (
            _match_variable(part, value, index, found)
            if isinstance(part, AnyValue)
            else _match_producer(part, value, node, found, widely_read)
        )
        if why:
            return why
    return ""


def _match_variable(part: AnyValue, value: ir.Value | None, index: int, found: Match) -> str:
    if value is None and not part.optional:
        return f"its input {index} ({part.name}) is absent"
    if found.bound.setdefault(part.name, value) is not value:
        return f"its input {index} is another value than {part.name}"
    return ""


def _match_producer(part: Operator, value: ir.Value | None, node: ir.Node, found: Match, widely_read: set[int]) -> str:
    name = part.called or " or ".join(part.op_types)
    producer = value.producer() if value is not None else None
    if producer is None or producer.graph is not node.graph or not part.is_operator_of(producer):
        return f"its input is not computed by a {name}"
    for output in producer.outputs:
        readers = _MANY if id(output) in widely_read else len(output.uses())
        if readers >= _MANY:
            widely_read.add(id(output))
        if readers > (output is value) or output.is_graph_output():
            return f"the {name} has other readers"
    return _match_operator(part, producer, found, widely_read)
