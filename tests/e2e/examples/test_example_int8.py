"""An int8 accelerator of a vendor beside a backend of this house, on a small residual net: from plan to files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.planning import Plan
from onnx import numpy_helper

ROOT = Path(__file__).parents[3]
PACKAGE = "dovetail_example_int8"
NET = """<ir_version: 8, opset_import: ["": 13]>
residual (float[BATCH,3,16,16] image) => (float[BATCH,8] scores) <float[8,3,5,5] w1, float[8] b1, float[8,8,3,3] w2,
          float[8] b2, float[8,16,1,1] w3, float[8] b3, float[8,8] dense> {
  [first] a = Conv <pads = [2,2,2,2]> (image, w1, b1)
  [relu1] r = Relu (a)
  [pool] p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
  [second] c = Conv <pads = [1,1,1,1]> (p, w2, b2)
  [relu2] d = Relu (c)
  [add] s = Add (p, d)
  [both] e = Concat <axis = 1> (s, p)
  [third] f = Conv (e, w3, b3)
  [relu3] g = Relu (f)
  [mean] h = GlobalAveragePool (g)
  [flat] i = Flatten (h)
  [dense1] j = MatMul (i, dense)
  [softmax] scores = Softmax <axis = 1> (j)
}"""
COMPILE = ("compile", "net.onnx", "--backend", "acme-int8", "--backend", "cpu-bf16", "-o", "out")
ON_ACME = {"first", "relu1", "pool", "second", "relu2", "add", "both", "third"}


@pytest.fixture(scope="module")
def site(pip_installed):
    return pip_installed(ROOT / "tests" / "example_int8")


def write_net(folder, kernel=5, batch="1"):
    """Write `net.onnx` and `data.npz`."""
    pads = ",".join([str(kernel // 2)] * 4)
    text = NET.replace("BATCH", batch).replace("5,5]", f"{kernel},{kernel}]").replace("2,2,2,2]> (im", f"{pads}]> (im")
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.15).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
        proto.graph.value_info.remove(value)
    onnx.save(proto, folder / "net.onnx")
    np.savez(folder / "data.npz", image=rng.standard_normal((8, 3, 16, 16)).astype(np.float32))


@pytest.fixture
def acme(dovetail, site, tmp_path):
    """The command line with the distribution installed, beside the net and data."""
    write_net(tmp_path)

    def run(*arguments, **environment):
        return dovetail(*arguments, **{"PYTHONPATH": str(site), **environment})

    return run


@pytest.fixture(scope="module")
def saved(site, tmp_path_factory):
    """A folder with the net, the data and a result of both backends, and what the command said."""
    folder = tmp_path_factory.mktemp("saved")
    write_net(folder)
    command = [sys.executable, "-m", "dovetail.cli.main", *COMPILE, "--data", "data.npz", "--verify"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.fixture
def compiled(acme, saved, tmp_path):
    """The result in the current folder."""
    shutil.copytree(saved[0] / "out", tmp_path / "out")
    return saved[1]


def plan_of(folder="out"):
    plan = Plan.load(Path(folder, "plan.yaml"))
    return plan.values, plan.nodes, plan.joins


def test_both_backends_are_in_one_plan_and_the_result_is_right(compiled):
    last = compiled.splitlines()[-1]
    assert last.startswith("acme-int8 8/13 nodes in 1 region, cpu-bf16 5/13 nodes in 1 region; 6 conversions; SNR ")
    _, nodes, _ = plan_of()
    assert {node.name for node in nodes if node.backend == "acme-int8"} == ON_ACME
    third = next(node for node in nodes if node.name == "third")
    assert str(third.precision) == "int32[symmetric,axis=1]", "the last of its region keeps its accumulator"


def test_the_plan_holds_every_value_with_its_scale(compiled):
    values, _, joins = plan_of()
    assert set(values) == {"image", "w1", "b1", "a", "r", "p", "w2", "b2", "c", "d", "s", "e", "w3", "b3", "f"}
    assert values["image"][0]["source"] == "acme-percentile{share=99.5} of 6 batches"
    assert values["b2"][0]["source"] == "X*W of second"
    percentile, minmax = values["p"]
    assert percentile["readers"] == ["second:X", "both:in1"]
    assert (minmax["readers"], minmax["source"]) == (["add:A"], "minmax of 6 batches")
    assert minmax["scale"] != percentile["scale"]
    shared = {values[name][0]["scale"] for name in ("r", "p", "s", "e", "a")}
    assert len(shared) == 1, "Concat, pooling and Relu move integers of one scale"
    kinds = [(join.value, join.kind) for join in joins]
    assert ("image", "quantize") in kinds
    assert [value for value, kind in kinds if kind == "requantize"] == ["p", "d"], (
        "the sum reads both with other scales"
    )


def test_each_quantized_value_is_converted_once_with_a_requantization_between_two_scales(compiled):
    graph = onnx.load("out/model.onnx").graph
    made = {node.output[0]: node for node in graph.node}
    quantized = [node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantized) == len(set(quantized)) == 10
    again = [made[name] for name in quantized if name in made and made[name].op_type == "DequantizeLinear"]
    assert [node.output[0] for node in again] == ["p_float32", "d_float32"], "the sum reads both with other scales"


def test_the_files_for_the_compiler_compute_the_same(compiled):
    import onnxruntime

    (folder,) = Path("out/artifacts/acme-int8").iterdir()
    model = onnx.load(folder / "region.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 11)]
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in model.graph.node}
    image = np.load("data.npz")["image"][:1]
    whole = onnx.load("net.onnx")
    whole.graph.output.append(onnx.helper.make_tensor_value_info("f", 1, None))
    expected = onnxruntime.InferenceSession(whole.SerializeToString()).run(["f"], {"image": image})[0]
    (given,) = (value.name for value in model.graph.input)
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {given: image})[0]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
    document = json.loads((folder / "parameters.json").read_text())
    assert set(document["nodes"]) == ON_ACME
    assert len(document["values"]["w1"][0]["scale"]) == 8


def test_a_replay_needs_no_data_and_gives_the_same_bytes(compiled, acme):
    shutil.move("out", "first")
    done = acme(*COMPILE, "--plan", "first/plan.yaml")
    assert done.returncode == 0, done.stderr
    one, two = (Path(folder, "artifacts/acme-int8") for folder in ("first", "out"))
    files = sorted(path.relative_to(one) for path in one.rglob("*.*"))
    assert len(files) == 2
    assert all((one / file).read_bytes() == (two / file).read_bytes() for file in files)
    assert computation("first") == computation("out")


def computation(folder):
    """The model without what says how it was asked for."""
    model = onnx.load(Path(folder, "model.onnx"))
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


def test_explain_names_the_limit_and_a_remedy_that_was_tried(compiled, acme):
    relu = acme("explain", "out", "relu3").stdout
    assert "missed place/passive: not on acme-int8: it is passive, and 'mean' at its Y is not there" in relu
    remedy = "--edit acme-unit-conv=relu3:after"
    assert f"tried: {remedy} brings it to acme-int8, which has 10 nodes then" in relu
    assert "acme-int8 does not list Softmax" in acme("explain", "out", "softmax").stdout
    done = acme(*COMPILE, "--data", "data.npz", "--verify", *remedy.split())
    assert done.returncode == 0, done.stderr
    assert acme("explain", "out", "relu3").stdout.startswith("relu3 (Relu): acme-int8, int8[symmetric]")


def test_a_variant_takes_more(acme, tmp_path):
    write_net(tmp_path, kernel=7)
    acme(*COMPILE, "--data", "data.npz")
    said = acme("explain", "out", "first").stdout
    assert "KH = 7; allowed: 1..5" in said
    assert "tried: --backend acme-int8:generation=2 brings it to acme-int8" in said
    done = acme("compile", "net.onnx", "--backend", "acme-int8:generation=2", "--data", "data.npz", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert json.loads(next(Path("out/artifacts").rglob("parameters.json")).read_text())["generation"] == "2"


def test_shapes_that_are_open_are_refused_with_the_reason(acme, tmp_path):
    write_net(tmp_path, batch="N")
    done = acme(*COMPILE, "--data", "data.npz")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("acme-int8 0/13 nodes, cpu-bf16 13/13 nodes ")
    why = "extent 0 of X is not known before run time, and acme-int8 takes fixed shapes [int8.backend.yaml"
    assert why in acme("explain", "out", "first").stdout


def test_without_data_nothing_is_written(acme, earlier):
    as_it_was = earlier()
    done = acme(*COMPILE)
    assert done.returncode == 1
    assert "nothing says in which range 'image' lies" in done.stderr
    assert "--data" in done.stderr
    assert as_it_was()


def test_the_file_is_checked_and_listed(acme, site):
    done = acme("check", site / PACKAGE / "int8.backend.yaml", "net.onnx")
    assert done.returncode == 0, done.stderr
    assert "acme-int8" in acme("backends").stdout
    assert "acme-percentile" in acme("plugins").stdout


@pytest.fixture
def broken(site, broken_copy):
    return broken_copy(site)


BROKEN = [
    ("roles.py", "claims = Claims()", "raise SystemExit(2)", "strategy 'acme-roles' of dovetail-example-int8"),
    ("roles.py", "kept = []", "kept = [1]", "strategy 'acme-roles' of dovetail-example-int8"),
    ("percentile.py", "if array.size:", "if 1 / 0:", "observer 'acme-percentile' of dovetail-example-int8"),
    ("files.py", "return Artifact(", "return str(", "emitter 'acme-files' of dovetail-example-int8"),
    ("memory.py", "weight = node", "weight = node.inputs[7]; node", "fact 'weight_bytes' of dovetail-example-int8"),
    ("__init__.py", '"acme-files"', '"acme files"', "dovetail-example-int8"),
    ("int8.backend.yaml", "name: acme-percentile", "name: acme-percentil", "did you mean 'acme-percentile' or"),
    ("int8.backend.yaml", "share: 99.5", "shaer: 99.5", "(did you mean 'share'?)"),
    ("int8.backend.yaml", "share: 99.5", "share: 995", "share: 995 is not above 0 and up to 100 percent"),
    ("int8.backend.yaml", "w8, B: b32", "w9, B: b32", "unknown type 'w9'"),
]  # fmt: skip


@pytest.mark.generated
@pytest.mark.parametrize(("file", "old", "new", "says"), BROKEN)
def test_whatever_the_vendor_breaks_is_named(acme, broken, file, old, new, says):
    folder = broken(file, old, new)
    done = acme(*COMPILE, "--data", "data.npz", PYTHONPATH=folder)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert acme("compile", "net.onnx", "--backend", "cpu-bf16", "-o", "out", PYTHONPATH=folder).returncode == 0


def test_a_fact_of_its_own_limits_nodes(acme, broken):
    """The first weight has 600 numbers, the second 576."""
    folder = broken("int8.backend.yaml", "weight_bytes: ..65536", "weight_bytes: ..599")
    done = acme(*COMPILE, "--data", "data.npz", PYTHONPATH=folder)
    assert done.returncode == 0, done.stderr
    said = acme("explain", "out", "first", PYTHONPATH=folder).stdout
    assert "not on acme-int8: weight_bytes = 600; allowed: ..599 [int8.backend.yaml:" in said
    assert acme("explain", "out", "second", PYTHONPATH=folder).stdout.startswith("second (Conv): acme-int8")


def test_an_emitter_that_fails_costs_its_backend_the_region_only(acme, broken):
    folder = broken(
        "files.py", "        region.source.save(", "        raise KeyError('w')\n        region.source.save("
    )
    done = acme(*COMPILE, "--data", "data.npz", "--verify", PYTHONPATH=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("acme-int8 0/13 nodes (all refused), ")
    assert "note: 8 nodes not on acme-int8: emitter 'acme-files'" in done.stdout, "those of the plan are counted"
    said = acme("explain", "out", "second").stdout
    assert "failed emit-artifacts/not-emitted: not on acme-int8: emitter 'acme-files' of dovetail-example-int8" in said


def test_without_the_distribution_the_message_says_what_is_missing(compiled, dovetail):
    done = dovetail("run", "out", "--data", "data.npz")
    assert done.returncode == 1
    assert "backend 'acme-int8' is not here: it needs dovetail-example-int8 0.1.x" in done.stderr
