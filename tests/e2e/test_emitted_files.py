"""Files that emitters write are executed from the files alone, and compute the integers of the plan, bit for bit."""

import importlib
import os
import sys
from pathlib import Path

import dovetail
import numpy as np
import onnxruntime
import pytest
from dovetail_tensorrt.libraries import NoLibrary, library
from onnx import TensorProto, helper, numpy_helper

from .emitted_comparison import differences

HERE = Path(__file__).parent
EXAMPLES = {
    "acme-int8": ("example_int8", "int8.backend.yaml"),
    "acme-aot": ("example_engine", "aot.backend.yaml"),
}
"""The folder and the file of a backend of the tests, by its name."""
SLOW = bool(os.environ.get("DOVETAIL_SLOW"))
GRAPHS = range(500 if SLOW else 12)
FEW = range(500 if SLOW else 4)
KINDS = ["Conv", "Conv", "Conv", "Relu", "MaxPool", "Tanh", "Add", "Concat"]
STRATEGIES = ["", ":strategy=autocast", ":strategy=conservative"]
CASES = [
    *[(f"{name}{strategy}", seed) for name in ("acme-int8", "ppl-int8") for strategy in STRATEGIES for seed in GRAPHS],
    *[("bpu-int8:arithmetic=floats", seed) for seed in FEW],
]


@pytest.fixture
def plugins(monkeypatch):
    """All that is installed, with the examples for an int8 accelerator and for one that runs programs."""
    loaded = dovetail.load_plugins()
    for backend, (folder, file) in EXAMPLES.items():
        monkeypatch.syspath_prepend(HERE.parent / folder / "src")
        module = importlib.import_module(f"dovetail_{folder}")
        module.register(loaded.registry)
        loaded.registry.backend(backend, f"dovetail_{folder}:{file}")
    yield loaded
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("dovetail_example_")]:
        del sys.modules[name]


def image_net(seed):
    """A random net of what int8 accelerators compute, with nodes between that none of them takes."""
    rng = np.random.default_rng(seed)
    channels, nodes, weights = {"x": int(rng.integers(1, 5))}, [], []

    def weight(*shape):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.5, shape).astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    def node(op_type, *inputs, count, **attributes):
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [name], name=f"{op_type.lower()}_{len(nodes)}", **attributes))
        channels[name] = count

    for _ in range(int(rng.integers(3, 14))):
        value, kind = (
            rng.choice(list(channels)),
            rng.choice(["Conv"] * 3 + ["Relu", "MaxPool", "Tanh", "Add", "Concat"]),
        )
        count = channels[value]
        alike = [name for name, other in channels.items() if other == count]
        if kind == "Conv":
            size, wide = int(rng.choice([1, 3])), int(rng.integers(1, 6))
            held = [value, weight(wide, count, size, size)] + ([weight(wide)] if rng.random() < 0.7 else [])
            node("Conv", *held, count=wide, pads=[size // 2] * 4)
        elif kind == "MaxPool":
            node("MaxPool", value, count=count, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif kind == "Add":
            node("Add", value, rng.choice(alike), count=count)
        elif kind == "Concat":
            other = rng.choice(list(channels))
            node("Concat", value, other, count=count + channels[other], axis=1)
        else:
            node(kind, value, count=count)
    last = list(channels)[-1]
    node("Conv", last, weight(3, channels[last], 1, 1), count=3)  # every backend has something
    made = list(channels)[1:]
    outputs = sorted({made[-1], *(rng.choice(made, size=min(2, len(made)), replace=False).tolist())})
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, 6, 6]) for name, c in channels.items()}
    graph = helper.make_graph(nodes, "net", [infos["x"]], [infos[name] for name in outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", int(rng.choice([17, 21])))], ir_version=10)
    return model, {"x": rng.normal(size=(1, channels["x"], 6, 6)).astype(np.float32)}


@pytest.mark.generated(one_of=12, others=2)
@pytest.mark.parametrize(("backend", "seed"), CASES)
def test_files_of_random_nets_compute_the_integers_of_the_plan(backend, seed, plugins, tmp_path):
    model, data = image_net(seed)
    assert differences(backend, model, data, plugins, tmp_path / "out") == {}


@pytest.mark.generated(others=2)
@pytest.mark.parametrize("seed", FEW)
def test_programs_of_random_nets_compute_what_the_result_does(seed, plugins, tmp_path):
    model, data = image_net(seed)
    assert differences("acme-aot", model, data, plugins, tmp_path / "out") == {}
    assert list((tmp_path / "out" / "artifacts").glob("*/*/net.program"))


@pytest.mark.generated(others=2)
@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("options", ["", ":precision=int8", ":context=embedded"])
def test_models_with_engines_compute_what_the_result_does(options, seed, plugins, tmp_path):
    try:
        library()
    except NoLibrary as error:
        pytest.skip(f"no TensorRT builds here: {error.message}")
    model, data = image_net(seed)
    assert differences(f"tensorrt{options}", model, data, plugins, tmp_path / "out") == {}
    assert (tmp_path / "out" / "artifacts" / "tensorrt" / "model" / "model_ctx.onnx").is_file()


@pytest.mark.generated(others=2)
@pytest.mark.parametrize("seed", GRAPHS)
@pytest.mark.parametrize("backend", ["acme-int8:strategy=autocast", "bpu-int8", "ppl-int8"])
def test_results_load_in_onnx_runtime_as_a_user_loads_them(backend, seed, plugins, tmp_path):
    """With all optimizers, which make nodes of their own out of conversions."""
    model, data = image_net(seed)
    dovetail.compile(model, backend, data=data, plugins=plugins).save(tmp_path / "out")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    assert all(np.isfinite(array).all() for array in session.run(None, data))
