"""Weights of few bits."""

import itertools

import ml_dtypes
import numpy as np

from ..decomposing import TYPES, Case
from . import numbers, whole


def packed(rows, columns, bits, seed=0):
    return whole(0, 256, rows, -(-columns * bits // 8), seed=seed, dtype=np.uint8)


def products():
    for dtype, bits, (k, block), zero, bias, opset, constant in itertools.product(
        TYPES,
        (2, 4, 8),
        ((32, 16), (64, 32), (40, 16), (96, 32)),
        ("none", "packed", "floats"),
        (False, True),
        (18, 21),
        (True, False),
    ):
        n, blocks = 6, -(-k // block)
        if zero == "floats" and (bias or bits == 8) or bias and k == 96 or not constant and (opset == 18 or k == 64):
            continue
        if dtype == "bfloat16" and (bits == 2 or k != 64) or dtype == "float16" and (bias or k == 96):
            continue
        inputs = {
            "A": numbers(2, 3, k, dtype=dtype),
            "B": packed(n * blocks, block, bits).reshape(n, blocks, -1),
            "scales": np.abs(numbers(n, blocks, seed=1, spread=0.1, dtype=dtype)),
            "bias": numbers(n, seed=2, dtype=dtype) if bias else None,
        }
        if zero == "packed":
            inputs["zero_points"] = packed(n, blocks, bits, seed=3)
        elif zero == "floats":
            inputs["zero_points"] = numbers(n, blocks, seed=3, spread=2, dtype=dtype) + TYPES[dtype](2 ** (bits - 1))
        yield Case(
            f"{dtype} {bits} bits {k} in {block} zero {zero} bias {bias} opset {opset} constant {constant}",
            "MatMulNBits",
            inputs,
            {"K": k, "N": n, "bits": bits, "block_size": block},
            constants=["B", "scales", "zero_points"] if constant else [],
            open={"A": {0: "batch", 1: "length"}},
            opset=opset,
            through_float32=dtype == "bfloat16",
        )
    flat = {
        "A": numbers(3, 64),
        "B": packed(6 * 4, 16, 4).reshape(6, 4, 8),
        "scales": np.abs(numbers(24, seed=1)),
        "zero_points": packed(6, 4, 4).reshape(-1),
    }
    attributes = {"K": 64, "N": 6, "bits": 4, "block_size": 16}
    yield Case("flat scales", "MatMulNBits", flat, attributes, constants=["B", "scales", "zero_points"])
    ordered = dict(flat, g_idx=whole(0, 4, 64, seed=5), scales=flat["scales"].reshape(6, 4))
    shifts = {"none": None, "floats": numbers(6, 4, seed=3) + 8, "packed": flat["zero_points"].reshape(6, -1)}
    for name, shift in shifts.items():
        inputs = ordered | {"zero_points": shift}
        yield Case(
            f"groups by index {name}",
            "MatMulNBits",
            inputs,
            attributes,
            constants=["B", "scales", "zero_points", "g_idx"],
            expected=_grouped if name == "packed" else None,
        )


def _grouped(A, B, scales, zero_points, g_idx, **_):  # noqa: N803
    """The documented product: the kernel on CPUs leaves packed zero points out where columns name their groups."""
    weight, zeros = (
        np.stack([held & 15, held >> 4], -1).reshape(6, -1).astype(np.float64) for held in (B, zero_points)
    )
    return A @ ((weight - zeros[:, g_idx]) * scales[:, g_idx]).T


def tables():
    for dtype, bits, zero, block, index in itertools.product(
        ("float32", "float16"), (2, 4, 8), (False, True), (16, 32), (np.int32, np.int64)
    ):
        rows, width = 9, 64
        inputs = {
            "data": packed(rows, width, bits),
            "indices": whole(-9, 9, 2, 3, dtype=index),
            "scales": np.abs(numbers(rows, width // block, seed=1, dtype=dtype)),
            "zero_points": packed(rows, width // block, bits, seed=2) if zero else None,
        }
        for opset in (17, 21):
            yield Case(
                f"{dtype} {bits} bits zero {zero} {block} {index.__name__} opset {opset}",
                "GatherBlockQuantized",
                inputs,
                {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0},
                constants=["data", "scales", "zero_points"],
                open={"indices": {0: "batch"}},
                opset=opset,
            )
    far = dict(inputs, indices=np.array([[0, 20], [-12, 8]]))
    yield Case("out of range", "GatherBlockQuantized", far, {"bits": 8, "block_size": 32}, constants=["data"])
    small = {"uint4": ml_dtypes.uint4, "int4": ml_dtypes.int4}
    for kind, (gather, quantize), zero, width in itertools.product(
        small, ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (0, 0)), (False, True), (32, 17)
    ):
        low, high = (-8, 8) if kind == "int4" else (0, 16)
        shape = [17, 18, width]
        scales = [-(-extent // 16) if axis == quantize else extent for axis, extent in enumerate(shape)]
        inputs = {
            "data": whole(low, high, *shape).astype(small[kind]),
            "indices": whole(-17, 17, 2, 3, dtype=np.int64),
            "scales": np.abs(numbers(*scales)),
            "zero_points": whole(low, high, *scales, seed=1).astype(small[kind]) if zero else None,
        }
        yield Case(
            f"{kind} gather {gather} quantize {quantize} zero {zero} {width}",
            "GatherBlockQuantized",
            inputs,
            {"block_size": 16, "quantize_axis": quantize, "gather_axis": gather},
            constants=["data", "scales", "zero_points"],
        )
    for kind, block in itertools.product(("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"), (16, 0)):
        blocks = 1 if block == 0 else 2
        for scales in ((9, blocks), (1, blocks)):
            inputs = {
                "data": numbers(9, 32).astype(getattr(ml_dtypes, kind)),
                "indices": whole(-9, 9, 2, 3, dtype=np.int64),
                "scales": np.abs(numbers(*scales)),
            }
            yield Case(
                f"{kind} block {block} scales {scales}",
                "GatherBlockQuantized",
                inputs,
                {"block_size": block, "quantize_axis": 1, "gather_axis": 0},
                constants=["data", "scales"],
                opset=23,
            )


CASES = [*products(), *tables()]
