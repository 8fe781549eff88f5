"""A node keeps the engine that runs it when its model is raised to an opset that ONNX Runtime has no kernel for."""

from types import SimpleNamespace

import dovetail
import numpy as np
import onnx.parser
import pytest
from dovetail_host import kernel_versions
from dovetail_host.kernel_versions import at_older_opset
from dovetail_onnx.opening import open_proto

HEAD = '<ir_version: 10, opset_import: ["": {opset}]>\n'


def model(text, opset):
    return open_proto(onnx.parser.parse_model(HEAD.format(opset=opset) + text))


RANDOM = """g (float[1,3,8,8] x) => (float[1,3,8,8] y) <float[3,3,1,1] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> {
  c = Conv (x, w)  r = RandomNormalLike <seed = 1.0> (c)  y = Add (c, r) }"""


def test_a_node_that_only_gained_types_is_loaded_at_the_opset_before():
    assert at_older_opset(model(RANDOM, 22)).opset == 21
    assert at_older_opset(model(RANDOM, 21)) is None


def test_a_region_that_needs_the_newer_opset_stays():
    text = "g (float[2] x) => (bfloat16[2] y) { y = RandomNormalLike <dtype = 16> (x) }"
    assert at_older_opset(model(text, 22)) is None


def test_a_build_for_gpus_is_not_asked_for_the_kernels_of_all_providers(monkeypatch):
    """onnxruntime-gpu before 1.31 starts TensorRT for that, and ends the process where that is not installed."""
    state = SimpleNamespace(get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr("dovetail_onnx.native_state", lambda: state)
    kernel_versions._kernels.cache_clear()
    try:
        assert at_older_opset(model(RANDOM, 22)) is None
    finally:
        kernel_versions._kernels.cache_clear()


@pytest.mark.parametrize("opset", [17, 22])
def test_random_numbers_stay_on_onnx_runtime(opset):
    """cpu-bf16 needs opset 22 for its convolutions."""
    compiled = dovetail.compile(model(RANDOM, opset), ["cpu-bf16"])
    result = compiled.run({"x": np.ones((1, 3, 8, 8), np.float32)})
    assert result["y"].shape == (1, 3, 8, 8)
    assert compiled.model.opset == 22
    assert not [note for note in compiled.notes() if "onnxruntime-cpu" in note and "refuse" in note]
