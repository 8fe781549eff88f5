"""The operator tests of the onnx package: each compiles and computes what it should, or is listed here with the reason.

Each is computed by the policies, and as narrow as can be, with inputs and outputs. By default one in twenty runs;
DOVETAIL_SLOW=1 runs all of them.
"""

import os
import warnings

import dovetail
import numpy as np
import onnx
import pytest
from dovetail_runtime.data.batches import fitted
from onnx import numpy_helper

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    CASES = load_model_tests(kind="node")

EVERY = 1 if os.environ.get("DOVETAIL_SLOW") else 20
HIDDEN = "OpenVINO: rows that a mask hides whole"
# Where the result is another one, and who makes it so: on any backend, and on one.
OTHER = {
    "bernoulli": "random numbers",
    "training_dropout": "random numbers",
    "attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": "ONNX Runtime: scores under a causal mask",
    "attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": "ONNX Runtime: scores under a causal mask",
    "maxunpool_export_with_output_shape": "the reference",
    "resize_downsample_scales_linear_align_corners": "ONNX Runtime",
    "resize_downsample_scales_cubic_align_corners": "ONNX Runtime",
}
OTHER_ON = {
    "cpu-bf16": {
        "attention_causal_boolmask_nan_robustness_expanded": HIDDEN,
        "attention_23_boolmask_fullymasked_row_nan_robustness_expanded": HIDDEN,
        "attention_24_boolmask_fullymasked_row_nan_robustness_expanded": HIDDEN,
        "attention_23_fullymasked": HIDDEN,
        "attention_24_fullymasked": HIDDEN,
        "attention_4d_causal_nonpad_negative_offset_structural_empty_expanded": HIDDEN,
        "attention_24_qk_matmul_output_mode3_softmax_precision_expanded": "OpenVINO: another precision inside",
        "attention_local_window_gqa_rank4_mask_expanded": HIDDEN,
        "dynamicquantizelinear": "OpenVINO multiplies by the reciprocal of the scale: a tie falls to the other side",
        "dynamicquantizelinear_expanded": "OpenVINO multiplies by the reciprocal of the scale",
        "reduce_max_empty_set": "OpenVINO: the largest float instead of infinity",
        "reduce_min_empty_set": "OpenVINO: the largest float instead of infinity",
    },
    "gpu-fp16": {},
}
# What narrow inputs make of it, beyond the tolerance.
NARROW = {
    "logsoftmax_large_number": "inputs around 10000 are rounded",
    "softmax_large_number": "inputs around 10000 are rounded",
    "matmul_1d_3d": "a sum of numbers that cancel out",
    "tan": "a steep function of what is rounded",
}
# What no engine here runs.
CANNOT_RUN = {
    "image_decoder": "the reference needs Pillow",
}
CANNOT_RUN_ON = {
    "cpu-bf16": {},
    "gpu-fp16": {
        "convinteger_with_padding": "ONNX Runtime refuses a zero point per row when it runs",
    },
}


def listed(name, table):
    """What the table says of a name, of which it gives the beginning, or with $ the whole."""
    return next((why for start, why in table.items() if f"{name}$".startswith(f"test_{start}")), None)


def arrays(values):
    return [numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value for value in values]


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16"])
@pytest.mark.parametrize("narrow", [False, True], ids=["by policy", "narrow"])
@pytest.mark.parametrize("case", CASES[::EVERY], ids=lambda case: case.name)
def test_operator(case, narrow, backend, tmp_path, plugins):
    path = tmp_path / "model.onnx"
    onnx.save(case.model, str(path))
    request = {"solver": "fixpoint", "keep_io_types": False} if narrow else {}
    compiled = dovetail.compile(path, [backend], verify=False, plugins=plugins, **request)
    inputs, outputs = map(arrays, case.data_sets[0])
    feeds = {value.name: given for value, given in zip(case.model.graph.input, inputs, strict=True)}
    feeds = fitted(compiled.model, feeds)
    if why := listed(case.name, CANNOT_RUN) or listed(case.name, CANNOT_RUN_ON[backend]):
        with pytest.raises(dovetail.DovetailError):
            compiled.run(feeds)
        pytest.skip(why)
    results = compiled.run(feeds)
    if why := listed(case.name, OTHER) or listed(case.name, OTHER_ON[backend]):
        pytest.skip(why)
    if narrow and (why := listed(case.name, NARROW)):
        pytest.skip(why)
    for value, expected in zip(case.model.graph.output, outputs, strict=True):
        agree(results[value.name], expected)


def agree(result, expected):
    if not isinstance(expected, np.ndarray | np.generic) or expected.dtype.kind in "OUS":
        return  # sequences, optionals and strings run; their values are the engines' own
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(result, expected)
        return
    a, b = result.astype(np.float64), expected.astype(np.float64)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    np.testing.assert_allclose(a, b, rtol=0, atol=0.02 * largest + 1e-3)
