"""Files that emitters write are executed from the files alone, and compute the integers of the plan, bit for bit."""

import os
import sys
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from .emitted_files import acme_files, bpu_json, onnxruntime_without_optimizers, ppl_json

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "example_int8" / "src"
GRAPHS = range(500) if os.environ.get("DOVETAIL_SLOW") else range(12)
KINDS = ["Conv", "Conv", "Conv", "Relu", "MaxPool", "Tanh", "Add", "Concat"]
READERS = {"acme-int8": acme_files, "bpu-int8": bpu_json, "ppl-int8": ppl_json}


@pytest.fixture
def plugins(monkeypatch):
    """All that is installed, with the example for an int8 accelerator."""
    monkeypatch.syspath_prepend(EXAMPLE)
    import dovetail_example_int8

    loaded = dovetail.load_plugins()
    dovetail_example_int8.register(loaded.registry)
    loaded.registry.backend("acme-int8", "dovetail_example_int8:int8.backend.yaml")
    yield loaded
    for name in [name for name in sys.modules if name.startswith("dovetail_example_int8")]:
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


def differences(backend, model, data, plugins, folder, close=False, **request):
    """The outputs of emitted files that are not those of the result, with how many elements differ.

    With `close`, floats of nodes on the host may differ by rounding: a file has another opset, and so other kernels.
    Files of bpu-int8 have thresholds, and not how the BPU rescales sums: integers may differ by one step, and floats by
    as much.
    """
    steps = int(backend.startswith("bpu-int8"))
    result = dovetail.compile(model, backend, data=data, plugins=plugins, **request)
    result.save(folder)
    computed = onnxruntime_without_optimizers(onnx.load(folder / "model.onnx"), data) | data
    found = {}
    for written in sorted((folder / "artifacts").glob("*/*")):
        program = READERS[backend.partition(":")[0]](written)
        given = program.run({value.name: computed[value.name] for value in program.model.graph.input})
        outputs = [value.name for value in program.model.graph.output]
        # Values inside of a region, too, where the result has them in integers.
        for name in dict.fromkeys((*outputs, *(name for name in program.made if f"{name}_int8" in computed))):
            held, ours, theirs = program.made.get(name), given[name], computed.get(f"{name}_int8", computed.get(name))
            if held is None:
                near = 0.02 * np.abs(theirs).max() if steps else 1e-5
                same = np.allclose(ours, theirs, 1e-5, near) if close or steps else np.array_equal(ours, theirs)
            else:
                ours, theirs = held.of(ours), theirs if theirs.dtype == held.element else held.of(theirs)
                same = np.abs(ours.astype(int) - theirs.astype(int)).max(initial=0) <= steps
            if not same:
                found[written.name, name] = int((ours != theirs).sum())
    return found


@pytest.mark.parametrize("seed", GRAPHS)
@pytest.mark.parametrize("strategy", ["", ":strategy=autocast", ":strategy=conservative"])
@pytest.mark.parametrize("backend", READERS)
def test_files_of_random_nets_compute_the_integers_of_the_plan(backend, strategy, seed, plugins, tmp_path):
    model, data = image_net(seed)
    assert differences(f"{backend}{strategy}", model, data, plugins, tmp_path / "out") == {}


@pytest.mark.parametrize("seed", GRAPHS)
@pytest.mark.parametrize("backend", ["acme-int8:strategy=autocast", "bpu-int8", "ppl-int8"])
def test_results_load_in_onnx_runtime_as_a_user_loads_them(backend, seed, plugins, tmp_path):
    """With all optimizers, which make nodes of their own out of conversions."""
    model, data = image_net(seed)
    dovetail.compile(model, backend, data=data, plugins=plugins).save(tmp_path / "out")
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    assert all(np.isfinite(array).all() for array in session.run(None, data))
