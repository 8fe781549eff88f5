"""A backend that computes in integers, and a small residual net with weights."""

import itertools
import sys

import dovetail
import numpy as np
import pytest
from dovetail.plugin import Observer, load_plugins

from .integer_models import IMAGE, Both, file_for, model_of

FILE = """
backend: npu
device: npu
opset: 13..26
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric}
  other: {dtype: int8, scheme: symmetric, observer: half}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
  b32: {dtype: int32, scale: X*W}
ops:
  Conv: {role: active, types: {X: q8, W: w8, B: b32, Y: q8}}
  Relu: {role: passive, types: q8}
  Add: {role: active, types: {A: q8, B: q8, C: q8}}
  Mul: {role: active, types: {A: other, B: other, C: q8}}
  MaxPool: {role: passive, types: q8, same_scale: true}
  Concat: {role: passive, types: {in0: q8, in1: q8, out0: q8}, same_scale: true}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""

NET = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4,8,8] x) => (float[1,8,4,4] y) <float[4,4,3,3] w1, float[4] b1, float[4,4,3,3] w2, float[4] b2> {
  [conv1] a = Conv <pads = [1,1,1,1]> (x, w1, b1)
  [relu] r = Relu (a)
  [pool] p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
  [conv2] c = Conv <pads = [1,1,1,1]> (p, w2, b2)
  [add] s = Add (p, c)
  [both] d = Concat <axis = 1> (s, c)
  [out] y = Tanh (d)
}"""


class Half(Observer):
    """An observer that covers half of what it saw."""

    def __init__(self, format_):
        from dovetail_quantize.observers.extremes import MinMax

        self._all = MinMax(format_)

    def update(self, array):
        self._all.update(array / 2)

    def parameters(self):
        return self._all.parameters()


def with_weights(text):
    """A model, in ONNX text or parsed, whose initializers without data get normal numbers."""
    import onnx

    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(text) if isinstance(text, str) else text
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    return dovetail.open(proto)


@pytest.fixture
def samples():
    return {"x": np.random.default_rng(1).standard_normal((8, 4, 8, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def installed(with_backend_of_module):
    """The installed plugins with the backend; `changes` replace text of its file. `fresh` ones belong to the test."""
    known = {}

    def make(*changes, fresh=False):
        file = FILE
        for before, after in changes:
            assert before in file
            file = file.replace(before, after)
        if fresh or file not in known:
            known[file] = with_backend_of_module(file)
            with known[file].registry.on_behalf_of("dovetail-halves"):
                known[file].registry.observer("half", "tests_of_quantize:Half")
        return known[file]

    sys.modules["tests_of_quantize"] = sys.modules[__name__]
    yield make
    del sys.modules["tests_of_quantize"]


@pytest.fixture
def compiled(installed, samples):
    """Compile a net in ONNX text for the backend; what it computes is compared only if that is asked for."""

    def make(text=NET, *changes, data=True, backends="npu", plugins=None, **request):
        data = samples if data is True else data
        plugins = plugins or installed(*changes)
        model = with_weights(text) if isinstance(text, str) else text
        return dovetail.compile(model, backends, data=data, plugins=plugins, **{"verify": False, **request})

    return make


_NUMBERS = itertools.count()  # a package name that was imported once would be found again


@pytest.fixture(scope="module")
def plugins_in_integers(tmp_path_factory):
    """The installed plugins with the backend `npu` of a text, read once; without the pass if that is dropped."""
    known, root = {}, tmp_path_factory.mktemp("backends")
    sys.path.insert(0, str(root))

    def make(file, dropped=False):
        if (file, dropped) not in known:
            package = f"dovetail_backend_in_integers_{next(_NUMBERS)}"
            (root / package).mkdir()
            (root / package / "__init__.py").write_text("")
            (root / package / "npu.yaml").write_text(file)
            known[file, dropped] = plugins = load_plugins()
            plugins.registry.backend("npu", f"{package}:npu.yaml")
            if dropped:
                plugins.registry.pass_.drop("integer-arithmetic")
        return known[file, dropped]

    yield make
    sys.path.remove(str(root))


@pytest.fixture
def both(plugins_in_integers, tmp_path):
    """A graph in ONNX text, compiled for a backend that computes in integers; see `integer_models`."""

    def make(text, given=IMAGE, format_="int8", *changes, opset=17, **request):
        proto = text if not isinstance(text, str) else model_of(text, given, opset)
        return Both(proto, file_for(format_, *changes), plugins_in_integers, tmp_path, **request)

    return make
