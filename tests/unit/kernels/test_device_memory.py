"""Kernels that compute in the memory of a device: copies there and back are nodes, one for all readers."""

import sys

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError

OPERATORS = """
domain: {domain}
version: 1
operators:
  - op: scale
    args: (Tensor x, float factor = 2.0)
    output: Tensor(out)
    infer_meta: {{func: UnchangedInferMeta, param: [x]}}
    kernel: {{func: scale}}
  - op: plus
    args: (Tensor x, Tensor y)
    output: Tensor(out)
    infer_meta: {{func: UnchangedInferMeta, param: [x]}}
    kernel: {{func: plus}}
"""
NPU = """
backend: npu
device: npu
opset: 13..26
precision: {{low: float32, high: float32}}
unlisted: refuse
types: {{f: [float32]}}
ops: {{"{domain}::scale": {{types: f}}, "{domain}::plus": {{types: f}}, Loop: {{}}, Identity: {{}}}}
place: {{strategy: autocast}}
emit: {{engines: [kernels]}}
"""
MODULE = """
from dovetail_kernels import DeviceMemory, Kernel

uploads, downloads = [], []

class Buffer:
    def __init__(self, array):
        self.content = array

class Memory(DeviceMemory):
    def upload(self, array):
        uploads.append(array.shape)
        return Buffer(array.copy())

    def download(self, buffer):
        downloads.append(buffer.content.shape)
        return buffer.content

class Scale(Kernel):
    function = "{domain}::scale"
    device, in_device_memory = "npu", True
    layout = "{layout}"

    def run(self, inputs, attributes):
        return [Buffer(inputs[0].content * inputs[0].content.dtype.type(attributes["factor"]))]

class Plus(Kernel):
    function = "{domain}::plus"
    device, in_device_memory = "npu", True
    layout = "{layout}"

    def run(self, inputs, attributes):
        return [Buffer(inputs[0].content + inputs[1].content)]
"""
CHAIN = """<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
  g (float[1,2,3,4] x) => (float[1,2,3,4] y) <float[1,2,3,4] w> {{
    [before] a = Relu (x)
    [one] b = {domain}.scale <factor = 3.0> (a)
    [two] c = {domain}.scale (b)
    [three] d = {domain}.plus (c, a)
    [four] e = {domain}.plus (d, w)
    [after] y = Neg (e)
  }}"""
X = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((1, 2, 3, 4)).astype(np.float32)
EXPECTED = -(7 * np.maximum(X, 0) + W)


@pytest.fixture
def vendor(with_kernels, domain):
    """A vendor's plugins with the memory of its device, and the module of its kernels."""

    def make(module=MODULE, layout="any", memory=True):
        text = module.format(domain=domain, layout=layout)
        plugins = with_kernels(text, OPERATORS.format(domain=domain), NPU.format(domain=domain))
        target = plugins.registry.kernel.entries[0].target.partition(":")[0]
        if memory:
            plugins.registry.device_memory("npu", f"{target}:Memory")
        return plugins, lambda: sys.modules[target]

    return make


def net(domain, text=CHAIN):
    model = onnx.parser.parse_model(text.format(domain=domain))
    if "<float[1,2,3,4] w>" in text:
        model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    return model


def copies(model):
    return [(node.op_type, node.inputs[0].name) for node in model.graph if node.op_type.startswith("CopyTo")]


def test_values_stay_on_the_device_between_kernels(vendor, domain):
    plugins, module = vendor()
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins)
    assert copies(compiled.model) == [("CopyToDevice", "w"), ("CopyToDevice", "a"), ("CopyToHost", "e/npu")]
    assert np.allclose(compiled.run({"x": X})["y"], EXPECTED)


def test_constants_are_copied_once(vendor, domain):
    plugins, module = vendor()
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins)
    executor = compiled.executor()
    del module().uploads[:], module().downloads[:]
    for _ in range(3):
        executor.run({"x": X})
    assert len(module().uploads) == len(module().downloads) == 3


def test_axes_are_not_turned_between_kernels_of_one_layout(vendor, domain):
    plugins, _ = vendor(layout="NHWC")
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins)
    nodes = [node.op_type for node in compiled.model.graph]
    assert nodes.count("Transpose") == 3 and nodes.count("CopyToHost") == 1  # of %a, of %w, and of the result
    assert np.allclose(compiled.run({"x": X})["y"], EXPECTED)


def test_what_the_host_reads_as_well_is_copied_back_for_it(vendor, domain):
    text = CHAIN.replace("[after] y = Neg (e)", "[aside] f = Neg (c) [after] y = Sub (f, e)")
    plugins, _ = vendor()
    compiled = dovetail.compile(net(domain, text), "npu", plugins=plugins, data={"x": X})
    assert [kind for kind, _ in copies(compiled.model)].count("CopyToHost") == 2
    assert np.allclose(compiled.run({"x": X})["y"], -6 * np.maximum(X, 0) + EXPECTED)
    assert compiled.verification.worst_snr_db > 100


def test_a_kernel_at_each_end_of_the_model(vendor, domain):
    text = CHAIN.replace("[before] a = Relu (x)", "[before] a = {domain}.scale <factor = 1.0> (x)")
    text = text.replace("[after] y = Neg (e)", "[after] y = {domain}.scale <factor = -1.0> (e)")
    plugins, _ = vendor()
    compiled = dovetail.compile(net(domain, text), "npu", plugins=plugins)
    assert np.allclose(compiled.run({"x": X})["y"], -(7 * X + W))


def test_bodies_take_values_of_the_device(vendor, domain):
    loop = """[loop] e = Loop (n, , d) <body = body (int64 i, bool k, float[1,2,3,4] v)
        => (bool k2, float[1,2,3,4] u) {{ [k] k2 = Identity (k) [inner] u = {domain}.plus (v, w) }}>"""
    text = CHAIN.replace("[four] e = {domain}.plus (d, w)", loop).replace("w> {{", "w, int64 n = {{2}}> {{")
    plugins, _ = vendor()
    model = net(domain, text.replace("<float[1,2,3,4] w, int64", "<int64"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    compiled = dovetail.compile(model, "npu", plugins=plugins)
    assert np.allclose(compiled.run({"x": X})["y"], EXPECTED - W)


def test_a_result_is_printed_and_saved_and_runs_again(vendor, domain, tmp_path):
    plugins, _ = vendor()
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins)
    assert '= kernel.CopyToDevice <device = "npu"> (a)' in str(compiled.model)
    compiled.save(tmp_path / "out")
    assert np.allclose(dovetail.load(tmp_path / "out", plugins=plugins).run({"x": X})["y"], EXPECTED)


def test_a_memory_that_nobody_brings_is_named(vendor, domain):
    plugins, _ = vendor(memory=False)
    with pytest.raises(DovetailError, match="'acme-.*' .* in the memory of 'npu', which no distribution brings"):
        dovetail.compile(net(domain), "npu", plugins=plugins)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("return Buffer(array.copy())", "1 / 0", "node 'a/npu': device memory 'npu' .* fails: ZeroDivisionError"),
        (
            "return buffer.content\n",
            "raise OSError('gone')\n",
            "node 'e/npu': device memory 'npu' .* fails: OSError: gone",
        ),
        ("return buffer.content\n", "return 'text'\n", "node 'e/npu': device memory 'npu' .* gives str, and no array"),
    ],
)
def test_a_memory_that_fails_is_named_with_the_node(vendor, domain, old, new, says):
    text = CHAIN.replace("[four] e = {domain}.plus (d, w)", "[four] e = {domain}.plus (d, d)").replace(
        " <float[1,2,3,4] w>", ""
    )
    plugins, _ = vendor(module=MODULE.replace(old, new))
    with pytest.raises(DovetailError, match=says):
        dovetail.compile(net(domain, text), "npu", plugins=plugins, verify=False).run({"x": X})


def test_every_instruction_is_a_span_within_its_region(vendor, domain):
    plugins, _ = vendor()
    compiled = dovetail.compile(net(domain), "npu", plugins=plugins)
    with dovetail.trace(compiled) as timeline:
        compiled.run({"x": X})
    events = {event["name"]: event for event in timeline.document()["traceEvents"] if event["ph"] == "X"}
    region = next(event for event in events.values() if event["cat"] == "region" and "npu" in event["name"])
    assert events["one"]["args"]["kernel"] == "acme-scale"
    for name in ("a/npu", "one", "two", "three", "four"):
        begun, ended = events[name]["ts"], events[name]["ts"] + events[name]["dur"]
        assert events[name]["cat"] == "instruction"
        assert region["ts"] <= begun and ended <= region["ts"] + region["dur"]
