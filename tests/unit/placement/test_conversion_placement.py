"""A conversion stands only where the backend's file and its engine take both of its types."""

import itertools

import dovetail
import numpy as np
import pytest
from dovetail.plugin import load_plugins

FILE = """
backend: acme-npu
summary: An accelerator
device: npu
opset: 13..26
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: {types}}}
ops:
  MatMul: {{types: f}}
  {cast}
place: {{strategy: autocast}}
emit: {{engines: [{engine}]}}
"""

ENGINE = """
from dovetail.plugin import Reads
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

class Narrow(OnnxRuntimeCpu):
    name = "narrow"
    reads = Reads(26, 13, frozenset({"float32"}))
"""

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}> {
    [first] a = MatMul (x, w)  [second] b = MatMul (a, w)  [third] y = MatMul (b, w) }"""

_NUMBERS = itertools.count()


@pytest.fixture
def casts(tmp_path, monkeypatch):
    """Compile with `second` on acme-npu and the rest on cpu-bf16; returns the backend of each conversion, by types."""

    def run(types="[float16, float32]", cast="", engine="onnxruntime-cpu", first="acme-npu"):
        package = f"acme_places_{next(_NUMBERS)}"
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "npu.backend.yaml").write_text(FILE.format(types=types, cast=cast, engine=engine))
        (tmp_path / package / "engine.py").write_text(ENGINE)
        monkeypatch.syspath_prepend(tmp_path)
        plugins = load_plugins()
        plugins.registry.backend("acme-npu", f"{package}:npu.backend.yaml")
        plugins.registry.engine("narrow", f"{package}.engine:Narrow")
        (tmp_path / "m.onnxtxt").write_text(MODEL)
        compiled = dovetail.compile(
            tmp_path / "m.onnxtxt",
            ["acme-npu", "cpu-bf16"],
            plugins=plugins,
            pins=["second=acme-npu/float16", "first=cpu-bf16", "third=cpu-bf16"],
            try_engines=False,
        )
        x = np.ones((2, 2), np.float32)
        w = np.array([[1, 2], [3, 4]], np.float32)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], x @ w @ w @ w, rtol=0.05)
        from dovetail.planning import get_placement

        return {
            (str(get_placement(node).ports["input"]), str(get_placement(node).precision)): get_placement(node).backend
            for node in compiled.model.nodes()
            if node.op_type == "Cast"
        }

    return run


def test_a_backend_without_bfloat16_converts_none(casts):
    assert casts() == {
        ("float32", "bfloat16"): "cpu-bf16",
        ("bfloat16", "float16"): "cpu-bf16",
        ("float16", "bfloat16"): "cpu-bf16",
        ("bfloat16", "float32"): "cpu-bf16",
    }


def test_a_backend_that_lists_the_conversion_is_asked_for_its_types(casts):
    listed = casts(types="[float16, float32, bfloat16]", cast="Cast: {types: {input: f, output: f}}")
    assert listed[("float16", "bfloat16")] == "acme-npu"
    narrower = casts(types="[float16, float32, bfloat16]", cast="Cast: {types: {input: f, output: float32}}")
    assert narrower[("float16", "bfloat16")] == "cpu-bf16"


def test_the_engine_must_read_both_types(casts):
    found = casts(types="[float16, float32, bfloat16]", engine="narrow")
    assert found[("float16", "bfloat16")] == "cpu-bf16"
