"""Rules for activations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dovetail_paddle.lowering.op import OpNotLowered
from dovetail_paddle.lowering.rules.elementwise import unary

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_paddle.lowering.emitter import GraphEmitter
    from dovetail_paddle.lowering.op import PdOp


def relu6(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Clip to [0, 6]."""
    return emit("Clip", [op["x"], emit.scalar(0, op.dtype("x")), emit.scalar(6, op.dtype("x"))])


def hardtanh(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Clip to two bounds."""
    bounds = [emit.scalar(op.attr(name), op.dtype("x")) for name in ("t_min", "t_max")]
    return emit("Clip", [op["x"], *bounds])


def swish(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x * sigmoid(x)`."""
    return emit("Mul", [op["x"], emit("Sigmoid", [op["x"]])])


def hardsigmoid(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `slope * x + offset`, clipped to [0, 1]."""
    return emit("HardSigmoid", [op["x"]], {"alpha": op.attr("slope"), "beta": op.attr("offset")})


def leaky_relu(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply negative elements by a slope."""
    return emit("LeakyRelu", [op["x"]], {"alpha": op.attr("negative_slope")})


def with_alpha(onnx_name: str):
    """Create the rule of an activation with one factor."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        return emit(onnx_name, [op["x"]], {"alpha": op.attr("alpha")})

    return rule


def selu(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `scale * x`, or `scale * alpha * (exp(x) - 1)` for negative elements."""
    return emit("Selu", [op["x"]], {"alpha": op.attr("alpha"), "gamma": op.attr("scale")})


def gelu(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x * phi(x)` with the error function, or with its tanh approximation."""
    x, dtype = op["x"], op.dtype("x")
    half = emit("Mul", [x, emit.scalar(0.5, dtype)])
    if op.attr("approximate"):
        cube = emit("Mul", [emit("Mul", [x, x]), x])
        inner = emit("Add", [x, emit("Mul", [cube, emit.scalar(0.044715, dtype)])])
        inner = emit("Tanh", [emit("Mul", [inner, emit.scalar(math.sqrt(2 / math.pi), dtype)])])
    else:
        inner = emit("Erf", [emit("Div", [x, emit.scalar(math.sqrt(2), dtype)])])
    return emit("Mul", [half, emit("Add", [inner, emit.scalar(1, dtype)])])


def softplus(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `log(1 + exp(beta * x)) / beta`, and `x` itself above the threshold."""
    x, dtype, beta = op["x"], op.dtype("x"), op.attr("beta")
    scaled = x if beta == 1 else emit("Mul", [x, emit.scalar(beta, dtype)])
    soft = emit("Softplus", [scaled])
    if beta != 1:
        soft = emit("Div", [soft, emit.scalar(beta, dtype)])
    # Above a threshold of 20 both are equal in float32.
    if op.attr("threshold") >= 20:
        return soft
    return emit("Where", [emit("Greater", [scaled, emit.scalar(op.attr("threshold"), dtype)]), x, soft])


def mish(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x * tanh(softplus(x))`."""
    return emit("Mul", [op["x"], emit("Tanh", [emit("Softplus", [op["x"]])])])


def tanh_shrink(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `x - tanh(x)`."""
    return emit("Sub", [op["x"], emit("Tanh", [op["x"]])])


def hardshrink(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Replace elements within the threshold by 0."""
    return emit("Shrink", [op["x"]], {"bias": 0.0, "lambd": op.attr("threshold")})


def softshrink(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Shift elements toward zero by the threshold."""
    return emit("Shrink", [op["x"]], {"bias": op.attr("threshold"), "lambd": op.attr("threshold")})


def thresholded_relu(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Replace elements up to the threshold by a value."""
    above = emit("Greater", [op["x"], emit.scalar(op.attr("threshold"), op.dtype("x"))])
    return emit("Where", [above, op["x"], emit.scalar(op.attr("value"), op.dtype("x"))])


def logsigmoid(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `-softplus(-x)`."""
    return emit("Neg", [emit("Softplus", [emit("Neg", [op["x"]])])])


def stanh(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `b * tanh(a * x)`."""
    first, second = (emit.scalar(op.attr(name), op.dtype("x")) for name in ("scale_a", "scale_b"))
    return emit("Mul", [emit("Tanh", [emit("Mul", [op["x"], first])]), second])


def logit(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `log(x / (1 - x))`, with `x` clipped away from 0 and 1."""
    x, dtype, eps = op["x"], op.dtype("x"), op.attr("eps")
    if eps:
        x = emit("Clip", [x, emit.scalar(eps, dtype), emit.scalar(1 - eps, dtype)])
    return emit("Log", [emit("Div", [x, emit("Sub", [emit.scalar(1, dtype), x])])])


def prelu(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Multiply negative elements by alpha: one for all, per channel or per element."""
    mode, rank = op.attr("mode"), op.rank("x")
    if mode == "all":
        form = [1] * rank
    elif mode == "channel":
        last = op.attr("data_format").endswith("C")
        form = [-1] if last else [-1, *[1] * (rank - 2)]
    else:
        return emit("PRelu", [op["x"], op["alpha"]])
    return emit("PRelu", [op["x"], emit("Reshape", [op["alpha"], emit.ints(form)])])


def softmax(onnx_name: str):
    """Create the rule of a softmax."""

    def rule(op: PdOp, emit: GraphEmitter) -> ir.Value:
        if op.shape("x") == ():  # a single element is the whole sum
            difference = emit("Sub", [op["x"], op["x"]])
            return difference if onnx_name == "LogSoftmax" else emit("Exp", [difference])
        return emit(onnx_name, [op["x"]], {"axis": op.attr("axis")})

    return rule


def swiglu(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute `silu(x) * y`, where `y` may be the second half of `x`."""
    x, y = op["x"], op.get("y")
    if y is None:
        x, y = emit("Split", [x], {"axis": -1, "num_outputs": 2}, outputs=2)
    return emit("Mul", [emit("Mul", [x, emit("Sigmoid", [x])]), y])


def dropout(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None]:
    """Return the input; the older implementation scales it at inference."""
    value = op["x"]
    if op.attr("mode") == "downgrade_in_infer":
        kept = 1 - op.number("p")
        value = emit("Mul", [value, emit.scalar(kept, op.dtype("x"))]) if kept != 1 else value
    return value, None


def rrelu(op: PdOp, emit: GraphEmitter) -> tuple[ir.Value, None]:
    """Use the mean of the slopes that training draws from."""
    if not op.attr("is_test"):
        raise OpNotLowered("it draws random slopes, as in training: export it in inference mode")
    return emit("LeakyRelu", [op["x"]], {"alpha": (op.attr("lower") + op.attr("upper")) / 2}), None


def label_smooth(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Smooth labels toward a distribution, uniform by default."""
    dtype, share = op.dtype("label"), op.attr("epsilon")
    value = emit("Mul", [op["label"], emit.scalar(1 - share, dtype)])
    prior = op.get("prior_dist")
    if prior is not None:
        return emit("Add", [value, emit("Mul", [prior, emit.scalar(share, dtype)])])
    classes = (op.shape("label") or (None,))[-1]
    if classes is None:
        raise OpNotLowered("the number of its classes is open")
    return emit("Add", [value, emit.scalar(share / classes, dtype)])


def maxout(op: PdOp, emit: GraphEmitter) -> ir.Value:
    """Compute the maximum of each group of adjacent channels."""
    axis, groups, inner = op.axis(op.attr("axis"), "x"), op.attr("groups"), op.known_shape("x", 1)
    extent = op.ranked_shape("x")[axis]
    if extent is None or inner is None:
        raise OpNotLowered("the extents of its input are open")
    parts = [-1, *inner]
    parts[axis : axis + 1] = [extent // groups, groups]
    split = emit("Reshape", [op["x"], emit.ints(parts)])
    return emit("ReduceMax", [split, emit.ints([axis + 1])], {"keepdims": 0})


RULES = {
    "relu": unary("Relu"), "sigmoid": unary("Sigmoid"), "tanh": unary("Tanh"), "hardswish": unary("HardSwish"),
    "softsign": unary("Softsign"), "relu6": relu6, "hardtanh": hardtanh, "swish": swish, "silu": swish,
    "hardsigmoid": hardsigmoid, "leaky_relu": leaky_relu, "elu": with_alpha("Elu"), "celu": with_alpha("Celu"),
    "selu": selu, "gelu": gelu, "softplus": softplus, "mish": mish, "tanh_shrink": tanh_shrink,
    "hardshrink": hardshrink, "softshrink": softshrink, "thresholded_relu": thresholded_relu,
    "logsigmoid": logsigmoid, "stanh": stanh, "logit": logit, "prelu": prelu, "softmax": softmax("Softmax"),
    "log_softmax": softmax("LogSoftmax"), "swiglu": swiglu, "dropout": dropout, "maxout": maxout,
    "rrelu": rrelu, "label_smooth": label_smooth,
}  # fmt: skip
