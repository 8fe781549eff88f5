"""Activations that exporters write as several operators.

Sources of the forms: the exporters of PyTorch, Paddle and TensorFlow, and the definitions of the operators in ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dovetail_transforms.fusions.fusion import Fusion
from dovetail_transforms.lowering.node_facts import attribute
from dovetail_transforms.rewriting import Rewrite, number_of

if TYPE_CHECKING:
    import onnx_ir as ir


def _one_shape(node: ir.Node, x: ir.Value) -> str:
    """Return why a function of `x` alone cannot be replaced: it is no float, or a constant adds an axis."""
    if x.dtype is not None and not x.dtype.is_floating_point():
        return "its input holds no floats"
    result = node.outputs[0].shape
    if result is not None and x.shape is not None and len(result) != len(x.shape):
        return "a constant gives the result another rank"
    return ""


def _rewrites(
    name: str, patterns: Iterator[Callable], replacement: Callable, check: Callable = _one_shape
) -> tuple[Rewrite, ...]:
    return tuple(Rewrite(name, pattern, replacement, check, commutes=True) for pattern in patterns)


def _relu6(op: Any, x: Any) -> Any:
    """Return the pattern of `clip(x + 3, 0, 6)`."""
    return op.Clip(op.Add(x, op.number(3)), op.number(0), op.number(6))


def _hard_sigmoid_of_numbers(op: Any, x: ir.Value, alpha: ir.Value, beta: ir.Value) -> ir.Value:
    return op.HardSigmoid(x, alpha=number_of(alpha), beta=number_of(beta))


def _hard_sigmoid_of_quotient(op: Any, x: ir.Value, divisor: ir.Value, beta: ir.Value) -> ir.Value:
    return op.HardSigmoid(x, alpha=1 / (number_of(divisor) or 1), beta=number_of(beta))


def _divides(node: ir.Node, x: ir.Value, divisor: ir.Value) -> str:
    return _one_shape(node, x) or ("" if number_of(divisor) else "it divides by zero")


def _line(op: Any, slope: Any) -> Any:
    """Return the pattern of `clip(slope + beta, 0, 1)`."""
    return op.Clip(op.Add(slope, op.number(called="beta")), op.number(0), op.number(1))


def _hard_sigmoid(op: Any, x: ir.Value) -> ir.Value:
    return op.HardSigmoid(x, alpha=1 / 6, beta=0.5)


def _hard_sigmoids() -> Iterator[Rewrite]:
    def rewrite(pattern: Callable, replacement: Callable, check: Callable = _one_shape) -> Rewrite:
        return Rewrite("fuse-hardsigmoid", pattern, replacement, check, commutes=True)

    yield rewrite(lambda op, x: op.Div(_relu6(op, x), op.number(6)), _hard_sigmoid)
    yield rewrite(lambda op, x: op.Mul(_relu6(op, x), op.number(1 / 6)), _hard_sigmoid)
    yield rewrite(lambda op, x: _line(op, op.Mul(x, op.number(called="alpha"))), _hard_sigmoid_of_numbers)
    yield rewrite(lambda op, x: _line(op, op.Div(x, op.number(called="divisor"))), _hard_sigmoid_of_quotient, _divides)


class FuseHardSigmoid(Fusion):
    """`clip(x + 3, 0, 6) / 6`, or `clip(alpha * x + beta, 0, 1)`, as HardSigmoid."""

    name, operator, opset = "fuse-hardsigmoid", "HardSigmoid", 6
    rewrites = tuple(_hard_sigmoids())


def _sixth(op: Any, value: Any) -> Any:
    return op.either(op.Div(value, op.number(6)), op.Mul(value, op.number(1 / 6)))


def _hard_swishes() -> Iterator[Callable]:
    yield lambda op, x: op.Mul(x, op.HardSigmoid(x, called="gate"))
    yield lambda op, x: op.Mul(x, _sixth(op, _relu6(op, x)))
    yield lambda op, x: op.Mul(_sixth(op, x), _relu6(op, x))
    yield lambda op, x: op.Div(op.Mul(x, _relu6(op, x)), op.number(6))
    yield lambda op, x: op.Mul(op.Mul(x, _relu6(op, x)), op.number(1 / 6))


def _of_a_swish(node: ir.Node, x: ir.Value, gate: ir.Node) -> str:
    alpha, beta = attribute(gate, "alpha", 0.2), attribute(gate, "beta", 0.5)
    if not (math.isclose(alpha, 1 / 6, rel_tol=1e-5) and math.isclose(beta, 0.5, rel_tol=1e-5)):
        return "its HardSigmoid has another slope or offset than that of HardSwish"
    return _one_shape(node, x)


class FuseHardSwish(Fusion):
    """`x * clip(x + 3, 0, 6) / 6`, in any order, or `x * HardSigmoid(x)`, as HardSwish."""

    name, operator, opset = "fuse-hardswish", "HardSwish", 14
    rewrites = tuple(
        Rewrite(
            "fuse-hardswish",
            pattern,
            lambda op, x: op.HardSwish(x),
            _one_shape if number else _of_a_swish,
            commutes=True,
        )
        for number, pattern in enumerate(_hard_swishes())
    )


def _swish_with_alpha(op: Any, x: ir.Value, alpha: ir.Value) -> ir.Value:
    return op.Swish(x, alpha=number_of(alpha))


class FuseSwish(Fusion):
    """`x * Sigmoid(alpha * x)`, also called SiLU and quick GELU, as Swish."""

    name, operator, opset = "fuse-swish", "Swish", 24
    rewrites = (
        Rewrite(
            "fuse-swish",
            lambda op, x: op.Mul(x, op.Sigmoid(x)),
            lambda op, x: op.Swish(x, alpha=1.0),
            _one_shape,
            commutes=True,
        ),
        Rewrite(
            "fuse-swish",
            lambda op, x: op.Mul(x, op.Sigmoid(op.Mul(x, op.number(called="alpha")))),
            _swish_with_alpha,
            _one_shape,
            commutes=True,
        ),
    )


def _mishes() -> Iterator[Callable]:
    yield lambda op, x: op.Mul(x, op.Tanh(op.Softplus(x)))
    yield lambda op, x: op.Mul(x, op.Tanh(op.Log(op.Add(op.Exp(x), op.number(1)))))


class FuseMish(Fusion):
    """`x * Tanh(Softplus(x))` as Mish."""

    name, operator, opset = "fuse-mish", "Mish", 18
    rewrites = _rewrites("fuse-mish", _mishes(), lambda op, x: op.Mish(x))


def _halved(factor: Callable) -> Iterator[Callable]:
    """Yield the patterns of `x * factor / 2`, halved before, between or after the product."""
    yield lambda op, x: op.Mul(op.Mul(x, factor(op, x)), op.number(0.5))
    yield lambda op, x: op.Div(op.Mul(x, factor(op, x)), op.number(2))
    yield lambda op, x: op.Mul(op.Mul(x, op.number(0.5)), factor(op, x))
    yield lambda op, x: op.Mul(op.Div(x, op.number(2)), factor(op, x))
    yield lambda op, x: op.Mul(x, op.Mul(factor(op, x), op.number(0.5)))


def _erf_factor(op: Any, x: Any) -> Any:
    root = math.sqrt(2)
    scaled = op.either(op.Div(x, op.number(root)), op.Mul(x, op.number(1 / root)))
    return op.Add(op.Erf(scaled), op.number(1))


def _tanh_factor(op: Any, x: Any) -> Any:
    outer, inner = op.number(math.sqrt(2 / math.pi)), op.number(0.044715)
    square = op.Mul(x, x)
    cube = op.either(op.Pow(x, op.number(3)), op.Mul(square, x))
    cubic = op.either(op.Mul(cube, inner), op.Mul(op.Mul(x, inner), square))
    quadratic = op.either(op.Mul(square, inner), op.Mul(op.Mul(x, inner), x))
    one_plus = op.Add(quadratic, op.number(1))
    argument = op.either(
        op.Mul(op.Add(x, cubic), outer), op.Mul(op.Mul(x, outer), one_plus), op.Mul(op.Mul(x, one_plus), outer)
    )
    return op.Add(op.Tanh(argument), op.number(1))


class FuseGelu(Fusion):
    """`x * (1 + Erf(x / sqrt(2))) / 2`, and the approximation with Tanh, as Gelu."""

    name, operator, opset = "fuse-gelu", "Gelu", 20
    rewrites = (
        *_rewrites("fuse-gelu", _halved(_erf_factor), lambda op, x: op.Gelu(x)),
        *_rewrites("fuse-gelu", _halved(_tanh_factor), lambda op, x: op.Gelu(x, approximate="tanh")),
    )
