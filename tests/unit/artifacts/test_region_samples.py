"""Tools that quantize by themselves get the calibration data as it reaches the inputs of each region."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.plugin import Artifact, Call, Emitter
from dovetail_onnx import ARTIFACTS
from dovetail_quantize import region_samples
from dovetail_runtime.executor import RegionExecutor

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x, float[N, 4] other) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> {
    a = Mul(x, w)  b = Tanh(a)  c = Add(b, other)  d = Sigmoid(c)  e = Mul(d, a)  y = Softmax(e)
}"""
BACKEND = """
backend: own-ptq
device: npu
opset: 13..21
dynamic: accept
precision: {low: float32, high: float32}
types: {f: [float32]}
ops: {"Mul, Add": {types: f}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [own-ptq]}
"""
DATA = {
    "x": np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32),
    "other": np.random.default_rng(1).standard_normal((40, 4)).astype(np.float32),
}


class Ptq(Emitter):
    """Takes the ranges of the inputs of a region, as a tool does that quantizes by itself."""

    reads_samples = True
    seen, calls, most = {}, [], 128

    def version(self):
        return "ptq 1"

    def emit(self, region, folder):
        self.calls.append(region.nodes)
        names = [value.name for value in region.source.graph.inputs]
        samples = region_samples(region, most=self.most)
        batches = list(samples)
        assert [list(batch) for batch in batches] == [names] * len(batches)
        again = list(samples)
        assert all(np.array_equal(first[name], second[name]) for first, second in zip(batches, again) for name in names)
        files = samples.write(folder)
        for name, path in zip(names, files, strict=True):
            whole = np.load(path)
            np.testing.assert_array_equal(whole, np.concatenate([batch[name] for batch in batches]))
            self.seen[name] = whole
        return Artifact(tuple(path.name for path in files), Call())


@pytest.fixture
def compiled(with_backend, tmp_path, monkeypatch):
    plugins = with_backend(BACKEND)
    plugins.registry.emitter("own-ptq", f"{__name__}:Ptq")
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "net.onnx")
    monkeypatch.setenv(ARTIFACTS.variable, str(tmp_path / "cache"))

    def make(data=DATA, **request):
        Ptq.seen.clear()
        Ptq.calls.clear()
        return dovetail.compile(tmp_path / "net.onnx", "own-ptq", data=data, plugins=plugins, **request)

    return make


def values_of(path, data):
    """All values of the net on some data, by ONNX Runtime."""
    model = onnx.load(path)
    names = [node.output[0] for node in model.graph.node]
    for name in names[:-1]:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(names, data)
    return {**data, **dict(zip(names, found))}


def test_samples_are_what_reaches_the_inputs(compiled, tmp_path):
    compiled(verify=False)
    expected = values_of(tmp_path / "net.onnx", DATA)
    assert {"x", "b", "other", "d"} <= Ptq.seen.keys() and "c" not in Ptq.seen
    for name, found in Ptq.seen.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)


def test_what_judges_the_result_is_not_among_them(compiled):
    compiled(min_snr=20)
    rows = Ptq.seen["x"]
    assert 0 < len(rows) < 40
    assert all(any(np.array_equal(row, known) for known in DATA["x"]) for row in rows)


def test_the_model_runs_once_for_all_regions(compiled, monkeypatch):
    """Every node before a region runs once, from what an earlier region has computed."""
    ran = []
    first = RegionExecutor.__init__

    def noted(self, model, *arguments, **keywords):
        ran.append([node.op_type for node in model.graph])
        first(self, model, *arguments, **keywords)

    monkeypatch.setattr("dovetail_quantize.border_samples.RegionExecutor.__init__", noted)
    compiled(verify=False, try_engines=False)
    assert len(Ptq.calls) == 3
    assert sorted(sum(ran, [])) == ["Add", "Mul", "Sigmoid", "Tanh"]


def test_a_tool_that_wants_fewer_gets_whole_batches(compiled, monkeypatch):
    monkeypatch.setattr(Ptq, "most", 12)
    batches = [{name: array[begin : begin + 5] for name, array in DATA.items()} for begin in range(0, 40, 5)]
    compiled(batches, verify=False)
    assert {len(array) for array in Ptq.seen.values()} == {15}


def test_other_data_is_another_artifact(compiled):
    compiled(verify=False)
    assert len(Ptq.calls) == 3
    compiled(verify=False)
    assert not Ptq.calls
    compiled({**DATA, "other": DATA["other"] + 1}, verify=False)
    assert len(Ptq.calls) == 3
    compiled(verify=False, pins=["type:Add=host"])
    assert not Ptq.calls, "the regions that are left are as they were"


def test_without_data_the_nodes_go_elsewhere_with_the_reason(compiled):
    result = compiled(None)
    assert {node.backend for node in result.plan.nodes} == {"host"}
    assert any("calibrates region_0 on samples" in remark.why for remark in result.remarks)


def test_batches_of_several_shapes_are_a_stream_alone(compiled, tmp_path):
    net = NET.replace("float[N, 4]", "float[N, M]").replace("float[4] w = {1, 2, 3, 4}", "float[1] w = {2}")
    onnx.save(onnx.parser.parse_model(net), tmp_path / "net.onnx")
    data = [{"x": np.ones((2, width), np.float32), "other": np.ones((2, width), np.float32)} for width in (3, 4, 5)]
    result = compiled(data, verify=False)
    assert any("have the shapes (2, 3) and (2, 4)" in remark.why for remark in result.remarks)


def test_outside_of_a_compilation_there_are_none(compiled):
    from dovetail.plugin import EmittedRegion

    model = dovetail.open(Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx")
    with pytest.raises(dovetail.DovetailError, match=r"call region_samples in Emitter.emit"):
        region_samples(EmittedRegion("region_0", None, model, model, ()))
