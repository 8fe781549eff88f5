"""Normalizations."""

import itertools

import numpy as np

from ..decomposing import TYPES, Case
from . import numbers, whole

OPEN = {0: "batch", 1: "length"}


def _normalized(x, axes, epsilon):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def simplified():
    for dtype, opset, (shape, axis) in itertools.product(
        TYPES, (17, 21), (((2, 3, 8), -1), ((2, 3, 8), 1), ((4, 8), -1), ((2, 3, 4, 8), 2))
    ):
        scale = numbers(*shape[axis % len(shape) :], seed=1, dtype=dtype)
        inputs = {"X": numbers(*shape, dtype=dtype, spread=3), "scale": scale}
        yield Case(
            f"{dtype} opset {opset} axis {axis} of {len(shape)}",
            "SimplifiedLayerNormalization",
            inputs,
            {"axis": axis, "epsilon": 1e-3},
            constants=["scale"],
            domain="",
            opset=opset,
            open={"X": {0: "batch"}},
        )
    inputs = {"X": numbers(2, 3, 8), "scale": numbers(8)}
    yield Case("defaults", "SimplifiedLayerNormalization", inputs, domain="", outputs=["Y"])
    yield Case("root", "SimplifiedLayerNormalization", inputs, domain="", outputs=["Y", "inv_std_var"])
    small = {"X": numbers(2, 3, 8, spread=1e-4), "scale": numbers(8)}
    yield Case("small numbers", "SimplifiedLayerNormalization", small, {"epsilon": 1e-6}, domain="")
    yield Case(
        "double",
        "SimplifiedLayerNormalization",
        {"X": numbers(2, 8, dtype=np.float64), "scale": numbers(8, dtype=np.float64)},
        domain="",
        close=1e-6,
    )


def skipped():
    for name, dtype, bias in itertools.product(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), TYPES, (False, True)
    ):
        beta = name == "SkipLayerNormalization"
        for shape, skip in (((2, 3, 8), (2, 3, 8)), ((2, 3, 8), (1, 3, 8)), ((2, 3, 8), (3, 8)), ((6, 8), (6, 8))):
            if shape != skip and not beta and len(skip) != 3:
                continue
            inputs = {
                "input": numbers(*shape, dtype=dtype),
                "skip": numbers(*skip, seed=1, dtype=dtype),
                "gamma": numbers(8, seed=2, dtype=dtype),
                "bias": numbers(8, seed=4, dtype=dtype) if bias else None,
            }
            if beta and bias:
                inputs["beta"] = numbers(8, seed=3, dtype=dtype)
            for outputs in (["output"], ["output", "input_skip_bias_sum"]):
                yield Case(
                    f"{dtype} {len(skip)} of {len(shape)} axes {skip[0]}{' bias' * bias} {len(outputs)} outputs",
                    name,
                    inputs,
                    {"epsilon": 1e-4},
                    outputs,
                    ["gamma"],
                    {"input": {0: "batch"}},
                )


def embedded():
    for dtype, segments, mask, ids in itertools.product(("float32",), (True, False), (None, "ragged"), (None, 1, 2)):
        inputs = {
            "input_ids": whole(0, 9, 2, 5),
            "word_embedding": numbers(9, 8, dtype=dtype),
            "position_embedding": numbers(7, 8, seed=1, dtype=dtype),
            "gamma": numbers(8, seed=2, dtype=dtype),
            "beta": numbers(8, seed=3, dtype=dtype),
        }
        if segments:
            inputs |= {"segment_ids": whole(0, 2, 2, 5, seed=1), "segment_embedding": numbers(2, 8, seed=4)}
        if mask:
            inputs["mask"] = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], np.int32)
        if ids:
            inputs["position_ids"] = whole(0, 7, ids, 5, seed=3)
        yield Case(
            f"{dtype}{' segments' * segments}{' mask' * bool(mask)} ids {ids}",
            "EmbedLayerNormalization",
            inputs,
            {"epsilon": 1e-3},
            ["output", "mask_index", "embedding_sum"],
            ["word_embedding", "position_embedding", "gamma", "beta"],
            {"input_ids": OPEN},
        )
    for signed, segments, mask in itertools.product((False, True), (True, False), (False, True)):
        dtype = np.int8 if signed else np.uint8
        inputs = {"input_ids": whole(0, 9, 2, 5)}
        if segments:
            inputs["segment_ids"] = whole(0, 2, 2, 5, seed=1)
        tables = {"word_embedding": 9, "position_embedding": 7, "segment_embedding": 2, "gamma": 0, "beta": 0}
        for index, (name, rows) in enumerate(tables.items()):
            if name == "segment_embedding" and not segments:
                continue
            shape = (rows, 8) if rows else (8,)
            full = name if name == "segment_embedding" else f"{name}_quant"
            inputs[full] = whole(-100 if signed else 0, 100, *shape, seed=index, dtype=dtype)
            inputs[f"{name}_scale"] = np.float32(0.01 + 0.003 * index)
            inputs[f"{name}_zero_point"] = dtype(3 + index)
        if mask:
            inputs["mask"] = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], np.int32)
        yield Case(
            f"{dtype.__name__}{' segments' * segments}{' mask' * mask}",
            "QEmbedLayerNormalization",
            inputs,
            {"epsilon": 1e-3},
            ["layernorm_out", "mask_index_out"],
            [name for name in inputs if "embedding" in name or "gamma" in name or "beta" in name],
        )


def _group_norm(X, gamma, beta, groups, activation, epsilon=1e-5, channels_last=1, skip=None, bias=None):  # noqa: N803
    if skip is not None:
        skip = skip.reshape(*skip.shape, 1, 1) if skip.ndim == 2 else skip
        X = X + (np.moveaxis(skip, 1, -1) if skip.ndim == 4 and channels_last and skip.shape[-1] == 1 else skip)
    if bias is not None:
        X = X + (bias if channels_last else bias[:, None, None])
    planes = np.moveaxis(X, -1, 1) if channels_last else X
    grouped = planes.reshape(len(planes), groups, -1)
    normal = _normalized(grouped, -1, epsilon).reshape(planes.shape)
    result = normal * gamma[:, None, None] + beta[:, None, None]
    result = result / (1 + np.exp(-result)) if activation else result
    result = np.moveaxis(result, 1, -1) if channels_last else result
    return result if skip is None else [result, X]


def group_norms():
    """ONNX Runtime has kernels on GPUs alone; compared with the formula that the documentation gives."""
    for dtype, last, activation, small in itertools.product(("float32", "float16"), (0, 1), (0, 1), (False, True)):
        shape = (2, 3, 4, 8) if last else (2, 8, 3, 4)
        inputs = {"X": numbers(*shape, dtype=dtype), "gamma": numbers(8, seed=1), "beta": numbers(8, seed=2)}
        attributes = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 1e-4}
        name = f"{dtype} last {last} activation {activation}"
        yield Case(name, "GroupNorm", inputs, attributes, open={"X": {0: "n"}}, expected=_group_norm)
        skip = numbers(2, 8, seed=3, dtype=dtype) if small else numbers(*shape, seed=3, dtype=dtype)
        more = inputs | {"skip": skip, "bias": numbers(8, seed=4, dtype=dtype)}
        yield Case(f"{name} skip of {skip.ndim}", "SkipGroupNorm", more, attributes, ["Y", "S"], expected=_group_norm)


def rms_norms():
    for dtype, activation, width in itertools.product(TYPES, ("silu", "sigmoid", "swish"), (8, 24)):
        inputs = {
            "X": numbers(2, 3, width, dtype=dtype),
            "scale": numbers(8, seed=1, dtype=dtype),
            "gate": numbers(2, 3, width, seed=2, dtype=dtype),
        }
        yield Case(
            f"{dtype} {activation} {width}",
            "GatedRMSNorm",
            inputs,
            {"activation": activation},
            open={"X": OPEN, "gate": OPEN},
        )
    for dtype, flat, scale in itertools.product(TYPES, (False, True), (None, (24,), (3, 8), (8,))):
        shape = (2, 5, 24) if flat else (2, 5, 3, 8)
        inputs = {"X": numbers(*shape, dtype=dtype), "scale": None if scale is None else numbers(*scale, dtype=dtype)}
        yield Case(
            f"{dtype}{' flat' * flat} scale {scale}",
            "BranchwiseRMSNorm",
            inputs,
            {"num_branches": 3} if flat else {},
            open={"X": OPEN},
        )


CASES = [*simplified(), *skipped(), *embedded(), *group_norms(), *rms_norms()]
