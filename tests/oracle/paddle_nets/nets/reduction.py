"""Reductions, order, counts and products."""

import paddle
import paddle.nn.functional as F

from nets.registry import net


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
