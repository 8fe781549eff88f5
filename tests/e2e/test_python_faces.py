"""What Python users pass in, and what they get to see."""

import threading
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx_ir
import pytest
from dovetail.errors import DovetailError, UsageError, VerificationError
from dovetail_commands.instrumentation import timing_lines

TEXT = """<ir_version: 10, opset_import: ["" : 22]>
g (float[N,4] x) => (float[N,4] y) <float[4,4] w = {1,0,0,0, 0,2,0,0, 0,0,3,0, 0,0,0,4}>
{ [dense_1] a = MatMul (x, w)  [relu] b = Relu (a)  [dense_2] c = MatMul (b, w)  [softmax] y = Softmax (c) }"""
X = np.array([[1, -2, 3, -4]], np.float32)


def proto():
    return onnx.parser.parse_model(TEXT)


def large():
    """A model whose weight is too large to stay in the graph."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[N,64] x) => (float[N,64] y) { y = MatMul (x, w) }'
    )
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model, weight


@pytest.mark.parametrize("form", ["path", "Path", "Model", "ModelProto", "onnx_ir", "bytes", "memoryview"])
def test_models_in_every_form(form, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(proto(), path)
    model = {
        "path": str(path),
        "Path": path,
        "Model": dovetail.open(path),
        "ModelProto": proto(),
        "onnx_ir": onnx_ir.from_proto(proto()),
        "bytes": path.read_bytes(),
        "memoryview": memoryview(path.read_bytes()),
    }[form]
    compiled = dovetail.compile(model, "cpu-bf16", verify=True)
    assert compiled.summary().startswith("cpu-bf16 ")
    np.testing.assert_allclose(compiled.run({"x": X})["y"].sum(), 1, rtol=1e-2)


def test_a_model_in_memory_stays_as_it_is():
    model, weight = large()
    before = model.SerializeToString()
    compiled = dovetail.compile(model, "host")
    assert model.SerializeToString() == before
    x = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(compiled.run({"x": x})["y"], x @ weight, rtol=1e-4)
    again = dovetail.compile(onnx_ir.from_proto(model), "cpu-bf16")
    assert again.run({"x": x})["y"].shape == (2, 64)


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (b"no model", DovetailError, "the model is not an ONNX model"),
        (b"", DovetailError, "holds no graph"),
        (3, UsageError, "int is not a model"),
        ("", UsageError, "the path of the model is empty"),
    ],
)
def test_what_is_no_model(model, error, says):
    with pytest.raises(error, match=says):
        dovetail.compile(model, "host")


def test_a_model_in_memory_with_data_in_a_file():
    model, _ = large()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    with pytest.raises(DovetailError, match="the data of initializer 'w' lies in another file, and the model has no"):
        dovetail.compile(model, "host")


def test_plain_text_where_a_list_may_stand():
    compiled = dovetail.compile(proto(), "cpu-bf16", high="dense_1", low="softmax", pins="relu=host")
    nodes = {node.name: node for node in compiled.plan.nodes}
    assert str(nodes["dense_1"].precision) == "float32" and str(nodes["dense_2"].precision) == "bfloat16"
    assert str(nodes["softmax"].precision) == "bfloat16" and nodes["relu"].backend == "host"
    assert str(dovetail.plan(proto(), "cpu-bf16", high="dense_1").find("a").precision) == "float32"


def test_a_pass_of_ones_own_joins_those_of_the_plugins():
    seen = []

    class Count(dovetail.Pass):
        """Count nodes."""

        name = "count"
        stage = "place"
        after = ("place",)

        def run(self, model, ctx):
            seen.append(sum(1 for _ in model.nodes()))
            return False

    compiled = dovetail.compile(proto(), "cpu-bf16", passes=[Count()])
    assert seen == [4] and compiled.summary()
    dovetail.plan(proto(), "cpu-bf16", passes=[Count])
    assert seen == [4, 4]

    class Homeless(Count):
        name, stage = "homeless", None

    with pytest.raises(UsageError, match="pass 'homeless' has no stage to run in"):
        dovetail.compile(proto(), "cpu-bf16", passes=[Homeless()])
    with pytest.raises(UsageError, match="3 is not a pass"):
        dovetail.compile(proto(), "cpu-bf16", passes=[3])


def test_regions_run_alone():
    compiled = dovetail.compile(proto(), "cpu-bf16", pins="relu=host")
    assert [region.backend for region in compiled.regions] == ["cpu-bf16", "host", "cpu-bf16"]
    middle = compiled.regions[1]
    given = np.array([[-1, 2, -3, 4]], np.float32).astype(compiled.model.graph.inputs[0].dtype.numpy())
    (name,), (result,) = middle.inputs, middle.outputs
    first = compiled.regions[0].run({"x": X})
    assert (middle.run(first)[result] >= 0).all() and name in first and given.shape == first[name].shape


def test_a_result_that_cannot_be_verified_is_not_lost(tmp_path):
    model = proto()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(VerificationError, match="the result could not be verified: no random values") as failed:
        dovetail.compile(model, "host", verify=True)
    assert failed.value.compiled.run({"x": X})["y"].shape == (1, 4)


def test_calls_from_several_threads():
    compiled = dovetail.compile(proto(), "cpu-bf16", pins="relu=host")
    inputs = [np.random.default_rng(seed).standard_normal((1, 4)).astype(np.float32) for seed in range(8)]
    wanted = [compiled.run({"x": x})["y"] for x in inputs]
    wrong = []

    def work(offset):
        for turn in range(100):
            index = (turn * 3 + offset) % len(inputs)
            if not np.array_equal(compiled.run({"x": inputs[index]})["y"], wanted[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_an_interactive_session_shows():
    assert {"compile", "load", "open", "explain", "verify", "Pass", "Builder", "Instrumentation"} <= set(dir(dovetail))
    compiled = dovetail.compile(proto(), "cpu-bf16")
    assert repr(compiled) == f"<CompiledModel g: {compiled.summary()}>"
    shown = compiled._repr_html_()
    assert shown.startswith("<table>") and "<th>operator</th>" in shown and "<td>MatMul</td>" in shown
    assert repr(compiled.model).startswith("<Model 'g'") and len(repr(compiled.model)) < 80
    assert repr(compiled.plan) == f"<Plan of a model: {compiled.summary()}>"
    assert repr(compiled.regions[0]) == "<region 0: 6 nodes of cpu-bf16 on openvino-cpu>"


def test_instrumentation_watches_a_compilation():
    seen = []
    dovetail.compile(proto(), "cpu-bf16", instrumentation=dovetail.Instrumentation(finished=seen.append))
    assert "normalize" in [step.name for result in seen for step in result.passes]
    assert any("join" in line for result in seen for line in timing_lines(result))


def test_options_that_change_after_compiling_reach_the_engines():
    compiled = dovetail.compile(proto(), "cpu-bf16")
    before = compiled.executor()
    assert compiled.executor() is before
    compiled.options["threads"] = 1
    assert compiled.executor() is not before
    assert compiled.executor().options == {"threads": 1}


class Tensor:
    """What PyTorch and JAX give: memory with a description of it, and no array of NumPy."""

    def __init__(self, array, device=1):
        self._array, self._device = array, device

    def __dlpack__(self, **keywords):
        if self._device != 1:
            raise BufferError("it is on another device")
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self._device, 0


@pytest.mark.parametrize("backend", ["host", "cpu-bf16"])
def test_tensors_of_other_libraries_are_taken_by_dlpack(backend):
    compiled = dovetail.compile(Path(__file__).parents[2] / "examples/digits/digits.onnx", backend)
    image = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    given = Tensor(image)
    expected = compiled.run({"image": image})["probabilities"]
    assert np.array_equal(compiled.run({"image": given})["probabilities"], expected)
    assert np.from_dlpack(expected) is not None
    with pytest.raises(DovetailError, match="input 'image' is float32; the Tensor given holds something else"):
        compiled.run({"image": Tensor(image, device=2)})
    with pytest.raises(DovetailError, match="the value given is float64"):
        compiled.run({"image": Tensor(image.astype(np.float64))})
