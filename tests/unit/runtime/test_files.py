"""Weights in files of their own reach the engines as files."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.plugin import Engine
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.reference import ReferenceEngine
from dovetail_onnx.opening import open_model
from dovetail_onnx.saving import save_model
from dovetail_runtime.executor import RegionExecutor
from dovetail_runtime.serialize import needs_file

from .models import parse


class Spy(Engine):
    """An engine that writes down the files that it is given."""

    name = "spy"

    def __init__(self, engine):
        self.engine, self.paths, self.reads = engine, [], engine.reads

    def available(self):
        return self.engine.available()

    def load(self, region, options):
        self.paths.append(region.path)
        return self.engine.load(region, options)


@pytest.fixture
def external(tmp_path):
    """A model with its weight in a file beside it."""
    model = parse(
        "g (float[2,64] x, float[64,64] w) => (float[2,64] y) { a = MatMul(x, w) b = Neg(a) y = MatMul(b, w) }"
    )
    weight = model.graph.inputs.pop(1)
    weight.const_value = ir.tensor(np.eye(64, dtype=np.float32) * 2, name="w")
    model.graph.register_initializer(weight)
    save_model(model, tmp_path / "m.onnx", external=True)
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("engine", [OnnxRuntimeCpu(), ReferenceEngine(), OpenVinoCpu()], ids=lambda engine: engine.name)
@pytest.mark.parametrize("split", [False, True])
def test_external_weights(external, engine, split):
    model, spy = open_model(external), Spy(engine)
    assert needs_file(model)
    executor = RegionExecutor(
        model, {"a": [spy], "b": [spy]}, backend_of=lambda node: "b" if split and node.op_type == "Neg" else "a"
    )
    x = np.ones((2, 64), np.float32)
    assert np.array_equal(executor.run({"x": x})["y"], -4 * x)
    if split:
        assert spy.paths[1] is None and {path.name for path in spy.paths if path} == {"region0.onnx", "region2.onnx"}
    else:
        assert spy.paths == [external]


def test_a_changed_model_is_not_read_from_its_old_file(external):
    model, spy = open_model(external), Spy(OnnxRuntimeCpu())
    model.graph[1].op_type = "Abs"
    model.touch()
    y = RegionExecutor(model, {"host": [spy]}).run({"x": np.ones((2, 64), np.float32)})["y"]
    assert (y == 4).all() and spy.paths[0] != external


def test_files_for_engines_are_not_flushed_to_disk(external, monkeypatch):
    """They go with the process; a result that a user keeps is flushed before its name points to it."""
    model, spy = open_model(external), Spy(OnnxRuntimeCpu())
    model.touch()  # as a changed one, it is not read from its own file
    flushed = []
    monkeypatch.setattr("os.fsync", flushed.append)
    RegionExecutor(model, {"host": [spy]}).run({"x": np.ones((2, 64), np.float32)})
    assert spy.paths[0] != external and not flushed
    save_model(model, external.with_name("kept.onnx"))
    assert flushed
