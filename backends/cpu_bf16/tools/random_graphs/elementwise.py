"""Element-wise operators, logic, casts and quantization, in ranges in which they are well-behaved."""

from __future__ import annotations

import numpy as np

from .graph import BOOL, FLOAT, INT32, INT64, Graph, Impossible, Value

__all__ = ["OPERATORS"]

ANYWHERE = (
    "Abs", "Atan", "Asinh", "Celu", "Ceil", "Cos", "Dropout", "Elu", "Erf", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Mish", "Neg", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus",
    "Softsign", "Swish", "Tanh", "ThresholdedRelu",
)  # fmt: skip
BOUNDED = {"Exp": 2.0, "Sinh": 2.0, "Cosh": 2.0, "Tan": 1.0, "Asin": 0.9, "Acos": 0.9, "Atanh": 0.9}
POSITIVE = {"Log": 0.5, "Sqrt": 0.5, "Reciprocal": 0.5, "Acosh": 1.5}
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum")
COMPARE = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
LOGIC = ("And", "Or", "Xor")


def other(g: Graph, value: Value) -> Value:
    """A second operand that broadcasts with `value`: another value, a constant of some shape, or the same again."""
    kind = g.integer(0, 5)
    if kind <= 2:
        try:
            return g.floats(lambda candidate: _broadcasts(candidate.shape, value.shape))
        except Impossible:
            pass
    if kind == 3:
        return value
    shape = tuple(1 if g.chance(0.4) else extent for extent in value.shape)[g.integer(0, value.rank) :]
    return g.weight(*shape)


def _broadcasts(one: tuple, two: tuple) -> bool:
    pairs = zip(reversed(one), reversed(two))
    return max(len(one), len(two)) <= 5 and all(a == b or 1 in (a, b) for a, b in pairs)


def _anywhere(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats()
        options: dict = {}
        if op_type == "Gelu" and g.chance(0.5):
            options["approximate"] = "tanh"
        if op_type in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Swish") and g.chance(0.5):
            options["alpha"] = 0.5
        if op_type == "Shrink":
            options.update(lambd=0.5, bias=0.25 if g.chance(0.5) else 0.0)
        g.node(op_type, [value], bound=max(value.bound, 2.0), **options)

    return make


def _bounded(op_type: str, largest: float):
    def make(g: Graph) -> None:
        value = g.floats()
        if value.bound > largest:
            value = g.node("Mul", [g.squash(value), g.constant(np.float32(largest))], bound=largest)
        g.node(op_type, [value], bound=8.0)

    return make


def positive_value(g: Graph, value: Value, least: float = 0.5) -> Value:
    """`value` made positive, at least `least`."""
    return g.node("Add", [g.node("Abs", [value]), g.constant(np.float32(least))], bound=value.bound + least)


def _positive(op_type: str, least: float):
    def make(g: Graph) -> None:
        g.node(op_type, [positive_value(g, g.floats(), least)], bound=max(3.0, 1 / least))

    return make


def _binary(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats()
        second = other(g, value)
        pair = [value, second] if g.chance(0.5) else [second, value]
        if op_type in ("Max", "Min", "Mean", "Sum") and g.chance(0.3):
            pair.append(other(g, value))
        bound = value.bound * second.bound if op_type == "Mul" else sum(v.bound for v in pair)
        g.node(op_type, pair, bound=bound)

    return make


def _div(g: Graph) -> None:
    value = g.floats()
    g.node("Div", [value, positive_value(g, other(g, value))], bound=value.bound * 2)


def _power(g: Graph) -> None:
    value = g.floats()
    exponent = g.choose([2.0, 3.0, 0.5, -1.0, 1.5])
    base = value if exponent in (2.0, 3.0) else positive_value(g, value)
    base = g.squash(base, 2.0) if base.bound > 3 and exponent == 3.0 else base
    g.node("Pow", [base, g.constant(np.float32(exponent))], bound=max(base.bound**exponent, 2.0))


def _prelu(g: Graph) -> None:
    value = g.floats()
    g.node("PRelu", [value, other_one_way(g, value)], bound=value.bound * 3)


def other_one_way(g: Graph, value: Value) -> Value:
    """An operand that broadcasts to the shape of `value`."""
    if g.chance(0.4):
        try:
            return g.floats(lambda candidate: candidate.shape == value.shape)
        except Impossible:
            pass
    shape = tuple(1 if g.chance(0.4) else extent for extent in value.shape)[g.integer(0, value.rank) :]
    return g.weight(*shape)


def _clip(g: Graph) -> None:
    ends = [g.constant(np.float32(g.rng.uniform(-2, -0.1))), g.constant(np.float32(g.rng.uniform(0.1, 2)))]
    missing = g.integer(0, 3)
    if missing < 2:
        ends[missing] = None
    g.node("Clip", [g.floats(), *ends])


def _compare(op_type: str):
    def make(g: Graph) -> None:
        value = g.floats()
        g.node(op_type, [value, other(g, value)])

    return make


def _logic(op_type: str):
    def make(g: Graph) -> None:
        value = g.pick(BOOL)
        g.node(op_type, [value, g.pick(BOOL, lambda second: _broadcasts(second.shape, value.shape))])

    return make


def _negate(g: Graph) -> None:
    g.node("Not", [g.pick(BOOL)])


def _is_what(op_type: str):
    def make(g: Graph) -> None:
        g.node(op_type, [g.floats()])

    return make


def _where(g: Graph) -> None:
    value = g.floats()
    second = other(g, value)
    condition = g.pick(BOOL, lambda flag: _broadcasts(flag.shape, value.shape))
    g.node("Where", [condition, value, second], bound=max(value.bound, second.bound))


def cast(g: Graph) -> None:
    """To integers, flags or float16 and, at times, back."""
    kind = g.choose([FLOAT, INT32, INT64, BOOL, 10, 16])
    source = g.choose([FLOAT, FLOAT, BOOL, INT64, INT32])
    value = g.pick(source)
    result = g.node("Cast", [value], to=kind)
    if kind in (10, 16):
        g.values.remove(result)
        g.node("Cast", [result], to=FLOAT)


def _cast_like(g: Graph) -> None:
    g.node("CastLike", [g.pick(g.choose([FLOAT, INT64, BOOL])), g.floats()])


def _integers(op_type: str):
    def make(g: Graph) -> None:
        dtype = g.choose([INT64, INT32])
        value = g.pick(dtype)
        array = np.asarray(g.integer(2, 5), np.int64 if dtype == INT64 else np.int32)
        result = g.node(op_type, [value, g.constant(array)])
        if op_type in ("Mul", "Add", "Sub"):
            g.values.remove(result)
            g.node("Mod", [result, g.constant(np.asarray(11, array.dtype))])

    return make


def _bitwise(op_type: str):
    def make(g: Graph) -> None:
        try:
            value = g.pick(INT32)
        except Impossible:
            value = g.node("Cast", [g.pick(INT64)], to=INT32)
        if op_type == "BitwiseNot":
            g.node(op_type, [value])
        else:
            g.node(op_type, [value, g.constant(np.int32(g.integer(1, 7)))])

    return make


def _bit_shift(g: Graph) -> None:
    value = g.node("Cast", [g.node("Abs", [g.floats()])], to=2)
    shifted = g.node("BitShift", [value, g.constant(np.uint8(g.integer(1, 3)))], direction=g.choose(["LEFT", "RIGHT"]))
    g.node("Cast", [shifted], to=g.choose([FLOAT, INT32]), bound=255.0)


def quantize(g: Graph) -> None:
    """QuantizeLinear and DequantizeLinear, per tensor or per axis."""
    value, dtype = g.floats(), g.choose([np.int8, np.uint8])
    options: dict = {}
    shape: tuple = ()
    if value.rank and g.chance(0.3):
        options["axis"] = g.integer(0, value.rank - 1)
        shape = (value.shape[options["axis"]],)
    scale = g.constant(g.rng.uniform(0.01, 0.05, shape).astype(np.float32))
    zero = g.constant(np.full(shape, 0 if dtype is np.int8 else 128, dtype))
    low = g.node("QuantizeLinear", [value, scale, zero], **options)
    if g.chance(0.2):
        low = g.node(g.choose(["Identity", "Flatten"]), [low])
        if options and low.shape[options["axis"] :][:1] != shape:
            raise Impossible
    g.node("DequantizeLinear", [low, scale, zero], **options)


def _dynamic_quantize(g: Graph) -> None:
    low, scale, zero = g.results("DynamicQuantizeLinear", [g.floats(lambda value: value.rank > 0)], 3)
    g.node("DequantizeLinear", [low, scale, zero])


OPERATORS = {
    **{name: _anywhere(name) for name in ANYWHERE},
    **{name: _bounded(name, largest) for name, largest in BOUNDED.items()},
    **{name: _positive(name, least) for name, least in POSITIVE.items()},
    **{name: _binary(name) for name in BINARY},
    **{name: _compare(name) for name in COMPARE},
    **{name: _logic(name) for name in LOGIC},
    **{name: _is_what(name) for name in ("IsNaN", "IsInf")},
    **{f"{name} of integers": _integers(name) for name in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")},
    **{name: _bitwise(name) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")},
    "BitShift": _bit_shift,
    "Cast": cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Div": _div,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Not": _negate,
    "PRelu": _prelu,
    "Pow": _power,
    "QuantizeLinear": quantize,
    "Where": _where,
}
"""Functions that add an operator to a graph, by name."""
