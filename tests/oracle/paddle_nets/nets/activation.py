"""Activations and arithmetic."""

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


@net(x="f32[?3,4,5]", m="b[?3,4,5]")
def reductions(x, m):
    return (
        paddle.sum(x),
        paddle.sum(x, [0, -1]),
        paddle.mean(x, 1, keepdim=True),
        paddle.max(x, [1, 2]),
        paddle.min(x, -1),
        paddle.prod(x, 1),
        paddle.amax(x, 0),
        paddle.amin(x, [0, 1], keepdim=True),
        paddle.logsumexp(x, [1, 2]),
        paddle.logsumexp(x),
        paddle.std(x, 1),
        paddle.var(x, [1, 2], unbiased=False),
        paddle.var(x),
        paddle.argmax(x),
        paddle.argmax(x, -1, keepdim=True),
        paddle.argmin(x, 1, dtype="int32"),
        paddle.count_nonzero(m, 1),
        paddle.nansum(x, 1),
        paddle.nanmean(x),
        paddle.median(x, 2),
        paddle.median(x, 1, keepdim=True),
        paddle.any(m, [1, 2]),
        paddle.sum(m, 1),
        paddle.sum(x, 0, dtype="float64"),
        paddle.quantile(x, 0.3, 2),
        x.mean([]),
        paddle.max(x, keepdim=True),
    )


@net(x="f32[3,4,6]", k="i32[1]<4")
def sorting(x, k):
    top, index = paddle.topk(x, 3, axis=1)
    low, _ = paddle.topk(x, 2, largest=False)
    computed, _ = paddle.topk(x, paddle.clip(k, 2, 2))
    middle, at = paddle.kthvalue(x, 2, axis=1)
    return (
        top,
        index,
        low,
        computed,
        middle,
        at,
        paddle.sort(x, 0, descending=True),
        paddle.argsort(x, -1),
        paddle.argsort(x, 1, descending=True),
    )


@net(x="f32[3,4,6]", k="i64[7]<4")
def counting(x, k):
    return (
        paddle.searchsorted(paddle.arange(6).astype("float32") - 3, x),
        paddle.bucketize(x, paddle.to_tensor([-1.0, 0.0, 0.5])),
        paddle.histogram(x, 5, -2, 2),
        paddle.bincount(k, minlength=6),
        paddle.unique(k),
        paddle.unique_consecutive(k),
        paddle.sort(x[0, 0] * 0 + 1.0),
        paddle.gcd(k + 1, k.flip(0) + 2),
    )


@net(x="f32[?3,4,5]", n="i64[?3,4]<9")
def cumulative(x, n):
    most, at = paddle.cummax(x, 1)
    return (
        paddle.cumsum(x, 1),
        paddle.cumsum(x),
        paddle.cumsum(n, -1),
        paddle.cumsum(x, 0, dtype="float64"),
        paddle.cumprod(x, 2),
        most,
        at,
        paddle.cummin(x, -1)[0],
        paddle.logcumsumexp(x, 1),
        paddle.diff(x),
        paddle.diff(x, axis=1, n=2),
        paddle.trapezoid(x, dx=0.5, axis=1),
    )


@net(x="f32[?2,3,4]", y="f32[?2,4,5]", v="f32[4]", w="f32[5,4]")
def products(x, y, v, w):
    m = x[0]
    return (
        paddle.matmul(x, y),
        paddle.matmul(x, w, transpose_y=True),
        paddle.matmul(x, v),
        paddle.matmul(v, y),
        paddle.matmul(y, x, True, True),
        paddle.bmm(x, y),
        paddle.mv(w, v),
        paddle.dot(v, v),
        paddle.outer(v, w[0]),
        paddle.inner(m, w),
        paddle.addmm(w, w, paddle.eye(4), beta=0.5, alpha=2.0),
        paddle.mm(w, w.T),
        paddle.mm(m, y[0]),
        paddle.t(w),
        paddle.diag(v),
        paddle.diagonal(x, 1, 1, 2),
        F.linear(m, w.T, w[:, 0]),
    )


@net(x="f32[2,3,4]", y="f32[2,4,5]", v="f32[4]", w="f32[5,4]")
def products_rare(x, y, v, w):
    m = x[0]
    return (
        paddle.kron(w[:2], m),
        paddle.cross(w[:, :3], w[:, 1:], axis=1),
        paddle.trace(w),
        paddle.tensordot(x, y, [[2], [1]]),
        paddle.linalg.multi_dot([m, w.T, w]),
        paddle.diag_embed(v),
        paddle.linalg.matrix_power(w[:4], 2),
        paddle.vander(v, 3),
        F.bilinear(m, m, paddle.ones([2, 4, 4])),
        paddle.linalg.det(w[:4]),
    )


@net(x="f32[?2,3,4]", y="f32[?2,4,5]", q="f32[?2,3,6,4]")
def einsums(x, y, q):
    return (
        paddle.einsum("bij,bjk->bik", x, y),
        paddle.einsum("bij->bji", x),
        paddle.einsum("bij,bij->b", x, x),
        paddle.einsum("...ij->...", x),
        paddle.einsum("bhqd,bhkd->bhqk", q, q),
        paddle.einsum("bij,kj->bik", x, y[0].T),
        paddle.einsum("i,j->ij", x[0, 0], y[0, 0]),
        paddle.einsum("bhwc,hkc->bhwk", q, paddle.ones([3, 5, 4])),
        paddle.einsum("ij,jk,kl", x[0], y[0], y[0].T),
    )
