"""Activations and arithmetic, element by element."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nets.registry import net


@net(x="f32[?2,8,5]")
def activations(x):
    return (
        F.relu(x),
        F.relu6(x * 4),
        F.elu(x, 0.7),
        F.selu(x),
        F.celu(x, 1.5),
        F.gelu(x),
        F.gelu(x, approximate=True),
        F.hardshrink(x),
        F.softshrink(x, 0.3),
        F.tanhshrink(x),
        F.hardsigmoid(x * 4),
        F.hardswish(x * 4),
        F.hardtanh(x * 2, -0.7, 1.2),
        F.leaky_relu(x, 0.2),
        F.log_sigmoid(x),
        F.mish(x),
        F.silu(x),
        F.swish(x),
        F.softsign(x),
        F.thresholded_relu(x, 0.4),
    )


@net(x="f32[?2,8,5]")
class activations_more(nn.Layer):
    def __init__(self):
        super().__init__()
        self.one = nn.PReLU(init=0.3)
        self.each = nn.PReLU(8, init=0.1)
        self.random = nn.RReLU(0.1, 0.3)
        self.drop = nn.Dropout(0.4)
        self.old = nn.Dropout(0.4, mode="downscale_in_infer")
        self.alpha = nn.AlphaDropout(0.3)

    def forward(self, x):
        y = self.alpha(self.old(self.drop(self.random(self.each(self.one(x))))))
        return (
            y,
            F.softplus(x * 9, beta=2, threshold=5),
            F.softplus(x),
            F.softmax(x, axis=1),
            F.log_softmax(x, -1),
            F.softmax(x, dtype="float64"),
            F.glu(x, axis=1),
            F.maxout(x.unsqueeze(-1), 2, axis=1),
            paddle.stanh(x, 0.5, 1.5),
            paddle.tanh(x),
            F.sigmoid(x),
            paddle.logit(F.sigmoid(x), 1e-3),
            F.softmax(paddle.sum(x)),
            F.swiglu(x[:, :, :4]),
            F.hardswish(x[0, 0, 0]),
        )


@net(x="f32[?3,4]", y="f32[4]")
def arithmetic(x, y):
    p = paddle.abs(x) + 0.5
    return (
        paddle.exp(x),
        paddle.expm1(x),
        paddle.log(p),
        paddle.log1p(p),
        paddle.log2(p),
        paddle.log10(p),
        paddle.sqrt(p),
        paddle.rsqrt(p),
        paddle.square(x),
        paddle.reciprocal(p),
        paddle.sin(x),
        paddle.cos(x),
        paddle.tan(x * 0.3),
        paddle.atan(x),
        paddle.asin(x * 0.1),
        paddle.sinh(x),
        paddle.cosh(x),
        paddle.erf(x),
        paddle.floor(x),
        paddle.ceil(x),
        paddle.round(x * 3),
        paddle.trunc(x * 3),
        paddle.frac(x),
        paddle.sign(x),
        paddle.pow(p, 1.7),
        paddle.pow(p, y),
        x % y,
        paddle.mod(x, 0.7),
        x // 0.3,
        paddle.fmax(x, y),
        paddle.fmin(x, y),
        paddle.maximum(x, y),
        paddle.lerp(x, y, 0.3),
        paddle.clip(x, -0.5, 0.5),
        paddle.clip(x, min=0.1),
        paddle.nan_to_num(x / (y - y)),
        paddle.rad2deg(x),
        paddle.log(p + 1),
        3 - x,
        2.0 / p,
        2**x,
        -x,
        paddle.neg(y),
    )


@net(x="f32[3,4]", y="f32[4]")
def arithmetic_rare(x, y):
    return (
        paddle.atan2(x, y),
        paddle.hypot(x, y),
        paddle.logaddexp(x, y),
        paddle.copysign(x, y),
        paddle.heaviside(x, y),
        paddle.ldexp(x, paddle.to_tensor([2])),
        paddle.sinc(x),
        paddle.signbit(x),
    )


@net(x="f32[3,3]")
def beyond_onnx(x):
    """Functions that ONNX has no operators for."""
    p = paddle.abs(x) + 0.5
    return paddle.erfinv(x * 0.1), paddle.lgamma(p), paddle.digamma(p), paddle.i0(x), paddle.linalg.inv(x)


@net(x="i64[?3,4]<9", y="i64[4]<7", z="i32[3,4]<9")
def integers(x, y, z):
    a, b, c = x - 4, y - 9, z - 4
    return (
        a + b,
        a * b,
        a // b,
        a % b,
        a / b,
        c // 3,
        c % 3,
        c // -3,
        c / 2,
        paddle.floor_divide(c, c * 0 + 2),
        paddle.abs(a),
        paddle.sign(c),
        paddle.maximum(a, b),
        paddle.pow(a, 2),
        c**2,
        paddle.clip(a, -2, 3),
        paddle.sum(c),
        paddle.sum(a, 1),
        paddle.mean(a.astype("float32")),
        a & b,
        a | b,
        a ^ b,
        ~a,
        x << 2,
        paddle.bitwise_right_shift(a, a * 0 + 1),
        paddle.max(c, 0),
        paddle.prod(a, -1),
    )


@net(x="f32[?3,4]", y="f32[?3,4]", a="b[?3,4]", b="b[?3,4]")
def logic(x, y, a, b):
    z = paddle.where(a, x, y)
    return (
        z,
        x < y,
        x <= y,
        x > 0,
        x >= y,
        z == x,
        z != x,
        a & b,
        a | b,
        a ^ b,
        ~a,
        paddle.logical_and(a, b),
        paddle.logical_not(x > 0.5),
        paddle.logical_or(a, b),
        paddle.logical_xor(a, b),
        paddle.all(a),
        paddle.any(b, 1),
        paddle.all(a, -1, keepdim=True),
        paddle.equal_all(x, x),
        paddle.isnan((x - x) / (x - x)),
        paddle.isinf(x / (y - y)),
        paddle.isfinite(x),
        paddle.allclose(x, x + 1e-9),
        paddle.isclose(x, z),
        a == b,
        a != b,
        paddle.where(a, 1.0, x),
        paddle.logical_and(x, y),
        a.astype("int32") + 1,
        paddle.cast(b, "float32") * x,
        a < b,
    )


@net(x="f32[?3,4]", n="i32[4]<9", a="b[4]", d="f64[4]")
def casts(x, n, a, d):
    h = x.astype("float16")
    return (
        h,
        (h * 2).astype("float32"),
        x.astype("int64"),
        (x * 4).astype("int32"),
        x.astype("bool"),
        (paddle.abs(x) * 50).astype("uint8"),
        (x * 50).astype("int8"),
        n.astype("float64") + d,
        n.astype("float16").astype("float32") + x[0],
        a.astype("float32"),
        d.astype("float32") + x,
        a.astype("int64").sum(),
        n + a.astype("int32"),
        n.astype("int64") * 3,
        d.astype("int64"),
        n * 1.5,
        (x > 0).astype("float64") * d,
    )
