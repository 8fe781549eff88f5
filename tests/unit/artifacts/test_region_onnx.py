"""`emit: {artifacts: [region-onnx]}`: any backend file gets its regions as ONNX files that other tools read."""

import json

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail_onnx.opening import open_text

FLOATS = """
backend: acme-npu
device: npu
opset: {opset}
options: {{size: ["1", "2"]}}
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: [float16, float32]}}
ops: {{"MatMul, Relu, ReduceMean": {{types: f}}}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu], artifacts: [region-onnx]}}
"""
INTEGERS = """
backend: acme-npu
device: npu
opset: 13..21
precision: {low: int8, high: float32}
types: {q8: {dtype: int8, scheme: symmetric}, w8: {dtype: int8, scheme: symmetric}}
ops: {MatMul: {types: {A: q8, B: w8, Y: q8}}, Relu: {types: q8}}
border: {in: inside, out: inside}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [region-onnx]}
"""
# Two regions, divided by Erf on the host; ReduceMean has its axes as an input from opset 18 on.
MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[2,4] x) => (float[2,1] y) <float[4,4] w, int64[1] last = {-1}> {
  [first] a = MatMul (x, w)  [relu] b = Relu (a)  [away] c = Erf (b)  [second] d = MatMul (c, w)
  [mean] y = ReduceMean (d, last)
}"""


@pytest.fixture
def emitted(with_backend, tmp_path):
    """`emitted(file)`: the folder of a saved result's artifacts, the result, and its input."""

    def make(file, text=MODEL, **request):
        text = text.replace("<float[4,4] w,", f"<float[4,4] w = {{{', '.join(map(str, range(16)))}}},")
        x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
        compiled = dovetail.compile(open_text(text, "model"), "acme-npu", plugins=with_backend(file), **request)
        compiled.save(tmp_path / "out")
        return tmp_path / "out/artifacts/acme-npu", compiled, {"x": x}

    return make


def run(file, inputs):
    options = onnxruntime.SessionOptions()
    # Its integer kernels saturate on CPUs without VNNI; unfused, nodes compute as written.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {each.name: inputs[each.name] for each in session.get_inputs()})))


@pytest.mark.parametrize("opset", ["13..13", "13..17", "13..22"])
def test_each_region_is_a_file_in_the_highest_opset_that_the_backend_reads(emitted, opset):
    folder, compiled, inputs = emitted(FLOATS.format(opset=opset))
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == [
        "region_0/manifest.json", "region_0/region.onnx", "region_2/manifest.json", "region_2/region.onnx",
    ]  # fmt: skip
    values = dict(inputs)
    for region in compiled.regions:
        if region.backend == "acme-npu":
            file = folder / f"region_{region.index}" / "region.onnx"
            onnx.checker.check_model(file, full_check=True)
            model = onnx.load(file)
            assert model.opset_import[0].version == int(opset.rpartition("..")[2])
            assert not any(node.metadata_props for node in model.graph.node)
            found = run(file, values)
            assert found.keys() == set(region.outputs)
        values |= region.run({name: values[name] for name in region.inputs})
        if region.backend == "acme-npu":
            for name in region.outputs:
                np.testing.assert_allclose(found[name], values[name], rtol=1e-3)


def test_the_manifest_describes_the_region(emitted):
    folder, compiled, _ = emitted(FLOATS.format(opset="13..17"))
    document = json.loads((folder / "region_2/manifest.json").read_text())
    regions = {region.index: region for region in compiled.regions}
    assert [value["name"] for value in document["inputs"]] == list(regions[2].inputs)
    assert [value["name"] for value in document["outputs"]] == list(regions[2].outputs)
    assert document["inputs"][0]["shape"] == [2, 4]
    assert {node["name"]: (node["operator"], node["format"]) for node in document["nodes"]}["second"] == (
        "MatMul",
        "float16",
    )
    assert (document["backend"], document["options"], document["region"]) == ("acme-npu", {"size": "1"}, "region_2")
    assert (document["model"], document["opset"], document["ir_version"]) == ("region.onnx", 17, 8)


def test_integers_stand_between_conversions_and_their_scales_in_the_manifest(emitted):
    data = {"x": np.random.default_rng(3).normal(0, 1, (16, 2, 4)).astype(np.float32)}
    folder, compiled, inputs = emitted(INTEGERS, data=[{"x": row} for row in data["x"]])
    file = folder / "region_0/region.onnx"
    onnx.checker.check_model(file, full_check=True)
    operators = [node.op_type for node in onnx.load(file).graph.node]
    assert {"QuantizeLinear", "DequantizeLinear", "MatMul"} <= set(operators)
    values = json.loads((file.parent / "manifest.json").read_text())["quantized_values"]
    assert values["x"][0]["format"] == "int8[symmetric]"
    assert values["x"][0]["scale"] > 0
    first = compiled.regions[0]
    np.testing.assert_allclose(run(file, inputs)[first.outputs[0]], first.run(inputs)[first.outputs[0]], rtol=1e-5)


@pytest.mark.parametrize("ends", ["inside", "outside"])
def test_the_manifest_says_which_value_of_the_source_crosses_a_border_and_how(emitted, ends):
    data = [{"x": row} for row in np.random.default_rng(3).normal(0, 1, (16, 2, 4)).astype(np.float32)]
    file = INTEGERS.replace("in: inside, out: inside", f"in: {ends}, out: {ends}")
    folder, compiled, inputs = emitted(file, data=data)
    found = json.loads(min(folder.glob("region_*/manifest.json")).read_text())
    (entering,), (leaving,) = found["inputs"], found["outputs"]
    assert (entering["source"], leaving["source"]) == ("x", "b")
    assert ("scale" in entering, "scale" in leaving) == (ends == "outside", ends == "outside")


def test_a_region_that_the_opset_cannot_express_goes_elsewhere(emitted):
    """Conversions to 16 bits exist from opset 21 on; a conversion at fault is a matter of its region."""
    file = (
        INTEGERS.replace("dtype: int8", "dtype: int16").replace("low: int8", "low: int16").replace("13..21", "13..19")
    )
    _, compiled, _ = emitted(file, data=[{"x": np.ones((2, 4), np.float32)}])
    assert {node.backend for node in compiled.plan.nodes} == {"host"}
    said = {remark.why for remark in compiled.remarks if remark.rule == "not-emitted"}
    assert any("emitter 'region-onnx' of dovetail-placement: acme-npu reads opset 19" in why for why in said)


def test_the_same_compilation_gives_the_same_bytes(emitted):
    folder, _, _ = emitted(FLOATS.format(opset="13..17"))
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    again, _, _ = emitted(FLOATS.format(opset="13..17"))
    assert {path: path.read_bytes() for path in again.rglob("*.*")} == before
