"""Operators on integers with scales."""

import itertools
from dataclasses import replace

import numpy as np

from ..decomposing import Case
from . import numbers, whole

KINDS = {"uint8": np.uint8, "int8": np.int8}
ONE_STEP = (1, 0.02)  # kernels round products of scales in another order


def held(kind, *shape, seed=0):
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    return whole(low, high, *shape, seed=seed, dtype=KINDS[kind])


def factor(kind, *shape, seed=0):
    """A second operand of products; int8 with 7 bits, since sums of two products saturate on CPUs without VNNI."""
    return whole(-64, 64, *shape, seed=seed, dtype=np.int8) if kind == "int8" else held(kind, *shape, seed=seed)


def scales(stem, kind, scale, zero=True, point=3):
    found = {f"{stem}_scale": np.float32(scale)}
    return found | ({f"{stem}_zero_point": KINDS[kind](point)} if zero else {})


def elementwise():
    for kind, name, shape, zero in itertools.product(
        KINDS, ("QLinearAdd", "QLinearMul"), ((2, 3, 4), (4,), (1, 3, 1), ()), (True,)
    ):
        inputs = {"A": held(kind, 2, 3, 4), "B": held(kind, *shape, seed=1)}
        for stem, scale in (("A", 0.021), ("B", 0.05), ("C", 0.11 if name == "QLinearAdd" else 0.4)):
            inputs |= scales(stem, kind, scale, zero or stem == "C")
        names = [name for name in inputs if "_" in name]
        yield Case(f"{kind} {shape} zero {zero}", name, inputs, constants=names, steps=ONE_STEP, open={"A": {0: "n"}})
    for kind, zero in itertools.product(KINDS, (True,)):  # kernels crash without the optional zero points
        inputs = {"X": held(kind, 2, 3, 4), **scales("X", kind, 0.03, zero), **scales("Y", kind, 1 / 256, zero, 1)}
        names = [name for name in inputs if "_" in name]
        yield Case(f"{kind} zero {zero}", "QLinearSigmoid", inputs, constants=names, steps=ONE_STEP)
        yield Case(
            f"{kind} zero {zero}",
            "QLinearLeakyRelu",
            inputs | scales("Y", kind, 0.03, zero),
            {"alpha": 0.2},
            constants=names,
            steps=ONE_STEP,
        )
        inputs = {
            "condition": whole(0, 2, 2, 3, 4, dtype=np.bool_),
            "X": held(kind, 2, 3, 4),
            "Y": held(kind, 4, seed=1),
            **scales("x", kind, 0.02),
            **scales("y", kind, 0.03),
            **scales("z", kind, 0.04),
        }
        names = [name for name in inputs if "_" in name]
        yield Case(f"{kind} zero {zero}", "QLinearWhere", inputs, constants=names, steps=ONE_STEP)
        for opset, axis in ((13, -1), (13, 1), (11, 1), (12, 2), (11, 0)):
            inputs = {
                "X": held(kind, 2, 3, 4),
                "X_scale": np.float32(0.05),
                "x_zero_point": KINDS[kind](3),
                **scales("y", kind, 1 / 256, point=0 if kind == "uint8" else -128),
            }
            names = [name for name in inputs if "_" in name]
            yield Case(
                f"{kind} {opset} {axis} {zero}",
                "QLinearSoftmax",
                inputs,
                {"axis": axis, "opset": opset},
                constants=names,
                steps=ONE_STEP,
            )
        more = [
            held(kind, 2, 3, 4),
            np.float32(0.02),
            KINDS[kind](2),
            held(kind, 2, 5, 4),
            np.float32(0.07),
            KINDS[kind](9),
        ]
        inputs = {"Y_scale": np.float32(0.05), "Y_zero_point": KINDS[kind](4)}
        yield Case(f"{kind} {zero}", "QLinearConcat", inputs, {"axis": 1}, variadic=more, steps=ONE_STEP)


def pools():
    for kind, last, window in itertools.product(
        KINDS,
        (0, 1),
        (
            {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]},
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
            {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
            {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"},
        ),
    ):
        x = held(kind, 2, 7, 6, 4) if last else held(kind, 2, 4, 7, 6)
        inputs = {"X": x, **scales("x", kind, 0.02), **scales("y", kind, 0.025)}
        names = [name for name in inputs if "_" in name]
        attributes = {"channels_last": last}
        yield Case(
            f"{kind} {last} {list(window)}",
            "QLinearAveragePool",
            inputs,
            window | attributes,
            constants=names,
            steps=ONE_STEP,
        )
        yield Case(
            f"{kind} {last} {list(window)}",
            "QLinearGlobalAveragePool",
            inputs,
            attributes,
            constants=names,
            steps=ONE_STEP,
        )
        if "count_include_pad" not in window and last:
            yield Case(f"{kind} {list(window)}", "NhwcMaxPool", {"x": x}, window)
    for kind, keep in itertools.product(KINDS, (0, 1)):
        inputs = {"data": held(kind, 2, 3, 4, 5), **scales("data", kind, 0.02), **scales("reduced", kind, 0.01)}

        def mean(data, data_scale, data_zero_point, reduced_scale, reduced_zero_point, axes, keepdims):
            real = (data.astype(np.float64) - data_zero_point) * data_scale
            number = np.round(real.mean(tuple(axes), keepdims=bool(keepdims)) / reduced_scale) + reduced_zero_point
            return np.clip(number, np.iinfo(data.dtype).min, np.iinfo(data.dtype).max).astype(data.dtype)

        yield Case(
            f"{kind} {keep}",
            "QLinearReduceMean",
            inputs,
            {"axes": [1, 3], "keepdims": keep},
            expected=mean,
            steps=ONE_STEP,
        )


def convolutions():
    for kind, last, columns, bias in itertools.product(KINDS, (0, 1), (False, True), (False, True)):
        inputs = {
            "x": held(kind, 2, 7, 6, 4) if last else held(kind, 2, 4, 7, 6),
            **scales("x", kind, 0.02),
            "w": factor("int8", 6, 2, 3, 3, seed=1),
            "w_scale": np.abs(numbers(6, seed=2)) + np.float32(0.01) if columns else np.float32(0.04),
            "w_zero_point": np.zeros(6, np.int8) if columns else np.int8(0),
            **scales("y", kind, 0.9),
            "B": whole(-500, 500, 6, seed=3) if bias else None,
        }
        attributes = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1], "channels_last": last}
        names = [name for name in inputs if name != "x"]
        name = f"{kind} {last} columns {columns} bias {bias}"
        yield Case(name, "QLinearConv", inputs, attributes, constants=names, steps=ONE_STEP)
        if not last:
            del attributes["channels_last"]
            for opset in (13, 21):
                held_in = {"constants": names if opset == 13 else ["w"], "opset": opset, "steps": ONE_STEP}
                yield Case(f"{name} opset {opset}", "QLinearConv", inputs, attributes, domain="", **held_in)


def products():
    for kind, weight, zero, columns, bias in itertools.product(
        KINDS, KINDS, ("none", "one", "each"), (False, True), (False, True)
    ):
        if kind == "int8" and weight == "uint8" or zero == "each" and not columns:
            continue
        n = 5
        b_scale = np.abs(numbers(n, seed=2)) + np.float32(0.01) if columns else np.float32(0.04)
        zeros = {"none": None, "one": factor(weight, seed=4), "each": factor(weight, n, seed=5)}
        b = {"B": factor(weight, 8, n, seed=1), "b_scale": b_scale, "b_zero_point": zeros[zero]}
        more = {"bias": numbers(n, seed=3) if bias else None}
        inputs = {"A": held(kind, 2, 3, 8), "a_scale": np.float32(0.02), **b, **more}
        inputs["a_zero_point"] = None if zero == "none" else KINDS[kind](7)
        if zero != "none" and not bias:
            matrix = {"b": b["B"], "b_scale": b_scale, "b_zero_point": zeros[zero]}
            if columns and zero == "one":
                matrix["b_zero_point"] = np.repeat(zeros[zero], n)
            operands = {"a": held(kind, 2, 3, 8), **scales("a", kind, 0.02), **matrix, **scales("y", kind, 3.0)}
            found = Case(f"{kind} {weight} zero {zero} columns {columns}", "QLinearMatMul", operands, domain="")
            yield replace(found, constants=[one for one in operands if one != "a"], steps=ONE_STEP, opset=13)
            yield replace(found, constants=["b"], steps=ONE_STEP)
        name = f"{kind} {weight} zero {zero} columns {columns} bias {bias}"
        names = ["B", "b_scale", "b_zero_point", "a_scale", "a_zero_point"]
        yield Case(name, "MatMulIntegerToFloat", inputs, constants=names, open={"A": {0: "n"}})
        if kind == "uint8":
            inputs = {"A": numbers(2, 3, 8), **b, **more}
            yield Case(name, "DynamicQuantizeMatMul", inputs, constants=["B", "b_scale"], open={"A": {0: "n"}})
    for kind, weight, columns, c, rounded, turned in itertools.product(KINDS, KINDS, (0, 1), (0, 1), (0, 1), (0, 1)):
        if kind == "int8" and weight == "uint8":
            continue
        inputs = {
            "A": held(kind, 8, 3) if turned else held(kind, 3, 8),
            **scales("a", kind, 0.02),
            "B": factor(weight, 5, 8, seed=1) if turned else factor(weight, 8, 5, seed=1),
            "b_scale": np.abs(numbers(5, seed=2)) + np.float32(0.01) if columns else np.float32(0.03),
            "b_zero_point": factor(weight, 5, seed=4) if columns else factor(weight, seed=4),
            "C": whole(-500, 500, 3, 5) if c else None,
            **(scales("y", kind, 2.0) if rounded else {}),
        }
        attributes = {"transA": turned, "transB": turned, "alpha": 0.5}
        yield Case(
            f"{kind} {weight} {columns} {c} {rounded} {turned}",
            "QGemm",
            inputs,
            attributes,
            constants=["B"],
            steps=ONE_STEP,
        )
    for kind in KINDS:
        inputs = {"A": held(kind, 2, 3, 4), "A_zero_point": KINDS[kind](3), "B": held(kind, 4, seed=1)}

        def product(A, A_zero_point, B):  # noqa: N803
            return (A.astype(np.int32) - A_zero_point) * B.astype(np.int32)

        yield Case(kind, "MulInteger", inputs, expected=product)


def attentions():
    batch, length, hidden, heads, size = 2, 3, 8, 2, 4
    for weight, columns, mask, past, causal in itertools.product(KINDS, (0, 1), (False, True), (0, 3), (0, 1)):
        width = 3 * heads * size
        inputs = {
            "input": held("uint8", batch, length, hidden),
            "weight": factor(weight, hidden, width, seed=1),
            "bias": numbers(width, seed=2),
            "input_scale": np.float32(0.01),
            "input_zero_point": np.uint8(120),
            "weight_scale": np.abs(numbers(width, seed=3, spread=0.01)) if columns else np.float32(0.01),
            "weight_zero_point": factor(weight, width, seed=4) if columns else factor(weight, seed=4),
            "mask_index": np.array([length + past - 1, length + past], np.int32) if mask else None,
            "past": numbers(2, batch, heads, past, size, seed=5) if past else None,
        }
        names = ["weight", "bias", "input_scale", "input_zero_point", "weight_scale", "weight_zero_point"]
        attributes = {"num_heads": heads, "unidirectional": causal}
        outputs = ["output", "present"] if past else ["output"]
        yield Case(
            f"{weight} {columns} mask {mask} past {past} causal {causal}",
            "QAttention",
            inputs,
            attributes,
            outputs,
            names,
        )


def conversions():
    for kind, axis in itertools.product(("int8", "uint8", "int16", "uint16"), (None, 1)):
        shape = () if axis is None else (3,)
        scale, zero = np.abs(numbers(*shape, seed=1)) + np.float32(0.01), whole(0, 9, *shape, seed=2, dtype=kind)
        attributes = {} if axis is None else {"axis": axis}
        inputs = {"x": numbers(2, 3, 4), "y_scale": np.float32(scale), "y_zero_point": np.asarray(zero, kind)}
        yield Case(f"{kind} {axis}", "QuantizeLinear", inputs, attributes)
        inputs = {
            "x": whole(0, 99, 2, 3, 4, dtype=kind),
            "x_scale": np.float32(scale),
            "x_zero_point": np.asarray(zero, kind),
        }
        yield Case(f"{kind} {axis}", "DequantizeLinear", inputs, attributes)


CASES = [*elementwise(), *pools(), *convolutions(), *products(), *attentions(), *conversions()]
