"""Models for engines, and what TensorRT there is."""

import sys

import numpy as np
import onnx
import pytest
from dovetail_tensorrt.libraries import NoLibrary, library

HEADER = '<ir_version: 10, opset_import: ["": 20]>'
BODY = "{ c = Conv<pads=[1,1,1,1]>(x, w)\n y = Relu(c) }"


@pytest.fixture
def convolution():
    """`convolution("N")`: Conv and Relu with that many samples; the same `seed` gives the same weights."""

    def make(batch="N", seed=0, size=8):
        shape = f"float[{batch},4,{size},{size}]"
        text = f"{HEADER} g ({shape} x) => ({shape} y) {BODY}"
        model = onnx.parser.parse_model(text)
        weights = np.random.default_rng(seed).standard_normal((4, 4, 3, 3)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
        return model

    return make


@pytest.fixture
def builder():
    """The TensorRT that is installed; tests that build engines are skipped without one."""
    try:
        return library()
    except NoLibrary as error:
        pytest.skip(f"no TensorRT builds here: {error.message}")


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """`packages(tensorrt="...")`: only these packages of TensorRT are there, with this text; all others are missing."""
    names = ("tensorrt", "tensorrt_rtx_bindings", "onnxruntime_ep_nv_tensorrt_rtx")

    def make(**texts):
        monkeypatch.syspath_prepend(tmp_path)
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)
            if name not in texts:
                continue
            del sys.modules[name]
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(texts[name])
        library.cache_clear()
        return tmp_path

    yield make
    monkeypatch.undo()
    library.cache_clear()
