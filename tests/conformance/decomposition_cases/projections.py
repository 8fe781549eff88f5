"""Several projections in one operator, and weights that are indices of a table."""

import itertools

import numpy as np

from ..decomposing import Case
from . import numbers, whole

K = 64


def _weights(name, rows, seed, bias):
    found = {
        f"{name}_B": whole(0, 256, rows, K // 32, 16, seed=seed, dtype=np.uint8),
        f"{name}_scales": np.abs(numbers(rows, K // 32, seed=seed, spread=0.05)),
    }
    return found | ({f"{name}_bias": numbers(rows, seed=seed + 1)} if bias else {})


def _product(x, packed, scales, bias=None):
    weight = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), K // 32, 32).astype(np.float64) - 8
    return x @ (weight * scales[..., None]).reshape(len(packed), K).T + (0 if bias is None else bias)


def _before(A, skip=None, norm_scale=None, epsilon=1e-5):  # noqa: N803
    x = A if skip is None else A + skip
    return (x if norm_scale is None else x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * norm_scale), x


def _qkv(A, norm_scale, skip=None, epsilon=1e-6, **given):  # noqa: N803
    x, total = _before(A, skip, norm_scale, epsilon)
    parts = [_product(x, given[f"{n}_B"], given[f"{n}_scales"], given.get(f"{n}_bias")) for n in "qkv"]
    return parts if skip is None else [*parts, total]


def _mlp(A, skip=None, norm_scale=None, epsilon=1e-5, **given):  # noqa: N803
    x, total = _before(A, skip, norm_scale, epsilon)
    gate, up = (_product(x, given[f"{n}_B"], given[f"{n}_scales"], given.get(f"{n}_bias")) for n in ("gate", "up"))
    result = gate / (1 + np.exp(-gate)) * up
    return result if skip is None else [result, total]


def projections():
    """Kernels are those of GPUs; compared with the documented formula."""
    for skip, bias, norm in itertools.product((False, True), (False, True), (False, True)):
        if skip and not norm:
            continue
        common = {"A": numbers(2, 3, K), "skip": numbers(2, 3, K, seed=1) if skip else None}
        common["norm_scale"] = numbers(K, seed=2) if norm else None
        more = ["input_skip_bias_sum"] if skip else []
        attributes = {"K": K, "bits": 4, "block_size": 32}
        if norm:
            inputs = common | _weights("q", 8, 3, bias) | _weights("k", 4, 5, bias) | _weights("v", 4, 7, bias)
            sizes = {"Nq": 8, "Nkv": 4}
            outputs = ["Q", "K", "V", *more]
            yield Case(
                f"skip {skip} bias {bias}", "MatMulNBitsQkv", inputs, attributes | sizes, outputs, expected=_qkv_of
            )
        inputs = common | _weights("gate", 6, 3, bias) | _weights("up", 6, 5, bias)
        yield Case(
            f"skip {skip} bias {bias} norm {norm}",
            "MatMulNBitsMlp",
            inputs,
            attributes | {"N": 6, "activation": "silu"},
            ["Y", *more],
            expected=_mlp_of,
        )


def _without(given, *names):
    return {name: value for name, value in given.items() if name not in names}


def _qkv_of(**given):
    return _qkv(**_without(given, "K", "bits", "block_size", "Nq", "Nkv"))


def _mlp_of(**given):
    return _mlp(**_without(given, "K", "bits", "block_size", "N", "activation"))


def tables():
    for kind, block in itertools.product((0, 1), (16, 32)):
        inputs = {
            "A": numbers(2, 3, K),
            "B": whole(0, 256, 6 * K // 2, dtype=np.uint8),
            "absmax": np.abs(numbers(6 * K // block, seed=1)),
        }
        attributes = {"K": K, "N": 6, "block_size": block, "quant_type": kind}
        yield Case(f"{kind} {block}", "MatMulBnb4", inputs, attributes, constants=["B", "absmax"])


CASES = [*projections(), *tables()]
