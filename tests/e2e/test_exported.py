"""`dovetail export`: a result as files that run without Dovetail, and give what `dovetail run` gives."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import dovetail
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
# The program of an export, and then which modules of Dovetail it has imported.
ALONE = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print([name for name in sys.modules if name.startswith("dovetail")])
"""


def text(graph, **weights):
    """A model in ONNX text, with weights."""
    proto = onnx.parser.parse_model(f"{HEAD} {graph}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return proto


def noise(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def digits():
    return onnx.load(DIGITS / "digits.onnx"), {"image": np.load(DIGITS / "test.npz")["image"][:5]}


def branches():
    graph = """g (float[2,8] x, bool c) => (float[2,8] y) { y = If (c) <
        then_branch = one () => (float[2,8] a) { a = MatMul (x, w) },
        else_branch = two () => (float[2,8] b) { d = MatMul (x, w)  b = Tanh (d) }> }"""
    return text(graph, w=noise(8, 8)), {"x": noise(2, 8), "c": np.array(False)}


def loop():
    graph = """g (float[1,8] x) => (float[1,8] y) <int64 n = {3}> {
        y = Loop (n, "", x) <body = step (int64 i, bool c, float[1,8] s) => (bool d, float[1,8] t) {
            d = Identity (c)  p = MatMul (s, w)  t = Tanh (p) }> }"""
    return text(graph, w=noise(8, 8)), {"x": noise(1, 8)}


def words():
    proto = text("g (string[1,3] x) => (string[1,3] y, float[1,3] z) { y = Identity (x)  e = Equal (x, x)"
                 " f = Cast <to = 1> (e)  z = Mul (f, w) }", w=noise(3))  # fmt: skip
    proto.opset_import[0].version = 19
    return proto, {"x": np.array([["a", "b", "a"]], object)}


@pytest.mark.parametrize(
    ("net", "backends", "engines"),
    [
        pytest.param(digits, ["cpu-bf16"], ["openvino"], id="one engine"),
        pytest.param(digits, ["cpu-int8"], ["onnxruntime", "openvino"], id="two engines"),
        pytest.param(digits, ["cpu-int8:runtime=onnxruntime"], ["onnxruntime"], id="integers for ONNX Runtime"),
        pytest.param(digits, ["gpu-fp16"], ["onnxruntime"], id="float16, checked on a CPU"),
        pytest.param(branches, ["cpu-bf16"], None, id="If"),
        pytest.param(loop, ["cpu-bf16"], None, id="Loop"),
        pytest.param(words, ["cpu-bf16"], None, id="texts"),
    ],
)
def test_the_runner_computes_what_dovetail_computes(net, backends, engines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, feeds = net()
    data = DIGITS / "test.npz" if net is digits else None
    dovetail.compile(model, backends, data=data).save("out")
    assert main(["export", "out", "--to", "shipped", "--runner", "python"]) == 0
    steps = json.loads(Path("shipped/deploy.json").read_text())["steps"]
    assert engines is None or [step["engine"] for step in steps] == engines
    np.savez("in.npz", **{name: array.astype("U") if array.dtype == object else array for name, array in feeds.items()})
    command = [sys.executable, "-c", ALONE, "shipped/run.py", "in.npz", "answers.npz"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
    expected = dovetail.load("out").run(feeds)
    answers = np.load("answers.npz", allow_pickle=True)
    assert set(answers) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(answers[name], array)


def runner_of(folder):
    """The `Runner` of an export, as a program imports it."""
    spec = importlib.util.spec_from_file_location("run", folder / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Runner


def exported(model, folder, backend="cpu-bf16", **keywords):
    """Compile and export; return the result and its description."""
    dovetail.compile(model, backend, plugins=keywords.get("plugins")).save(folder / "out")
    description = dovetail.export(folder / "out", folder / "shipped", "python", **keywords)
    return dovetail.load(folder / "out", keywords.get("plugins")), description


def test_types_that_numpy_lacks_and_constants(tmp_path):
    """bfloat16 is passed as its bits, between steps as well."""
    graph = """g (bfloat16[2,8] x) => (bfloat16[2,8] y, float[3] k) <float[3] k = {1, 2, 3}> {
        f = Cast <to = 1> (x)  h = MatMul (f, w)  c = Celu (h)  p = MatMul (c, w)  y = Cast <to = 16> (p) }"""
    result, description = exported(text(graph, w=noise(8, 8)), tmp_path)
    x = noise(2, 8).astype(ml_dtypes.bfloat16)
    expected = result.run({"x": x})
    answers = runner_of(tmp_path / "shipped")(tmp_path / "shipped").run({"x": x.view(np.uint16)})
    np.testing.assert_array_equal(answers["y"], expected["y"].view(np.uint16))
    np.testing.assert_array_equal(answers["k"], [1, 2, 3])
    assert [one["name"] for one in description["constants"]] == ["k"]


def test_a_program_of_a_vendor_is_run_by_a_function_that_is_given(tmp_path, monkeypatch):
    loaded = dovetail.load_plugins()
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "example_engine" / "src")
    example = importlib.import_module("dovetail_example_engine")
    example.register(loaded.registry)
    loaded.registry.backend("acme-aot", "dovetail_example_engine:aot.backend.yaml")
    graph = "g (float[1,4] x) => (float[1,4] y) { p = Gemm (x, w)  r = Relu (p)  y = Erf (r) }"
    result, description = exported(text(graph, w=noise(4, 4)), tmp_path, "acme-aot", plugins=loaded)
    assert [step["engine"] for step in description["steps"]] == ["acme-runtime", "onnxruntime"]

    def make(folder, step, types):
        from dovetail_example_engine.program import unpacked

        _, model = unpacked((folder / step["files"][0]["path"]).read_bytes())
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        (given,), (made,) = session.get_inputs(), step["outputs"]
        return lambda arrays: {made["name"]: session.run(None, {given.name: arrays[step["inputs"][0]]})[0]}

    make_runner = runner_of(tmp_path / "shipped")
    x = {"x": noise(1, 4)}
    answers = make_runner(tmp_path / "shipped", {"acme-runtime": make}).run(x)
    np.testing.assert_array_equal(answers["y"], result.run(x)["y"])
    with pytest.raises(ValueError, match="step 0 is for acme-runtime: give Runner a function for it"):
        make_runner(tmp_path / "shipped")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """An export of digits."""
    folder = tmp_path_factory.mktemp("digits")
    exported(digits()[0], folder)
    return folder / "shipped"


def cut(folder):
    file = next(folder.glob("0/*.bin"))
    file.write_bytes(file.read_bytes()[:-8])


def change(folder):
    file = next(folder.glob("0/*.bin"))
    file.write_bytes(bytes(8) + file.read_bytes()[8:])


def describe(**fields):
    def changed(folder):
        description = json.loads((folder / "deploy.json").read_text())
        description["steps"][0].update({key: fields[key] for key in fields.keys() & {"needs"}})
        description.update({key: fields[key] for key in fields.keys() - {"needs"}})
        (folder / "deploy.json").write_text(json.dumps(description))

    return changed


@pytest.mark.parametrize(
    ("damage", "feed", "message"),
    [
        pytest.param(lambda folder: next(folder.glob("0/*.bin")).unlink(), {}, "is missing", id="no weights"),
        pytest.param(cut, {}, "bytes in place of", id="cut"),
        pytest.param(change, {}, "its digest differs", id="changed"),
        pytest.param(describe(version=2), {}, "no description of version 1", id="a newer description"),
        pytest.param(describe(needs=[["amx_no_such"]]), {}, "for a CPU with amx_no_such", id="another CPU"),
        pytest.param(lambda folder: (folder / "deploy.json").unlink(), {}, "deploy.json", id="no description"),
        pytest.param(None, {}, "input 'image' is missing", id="no input"),
        pytest.param(None, {"image": np.zeros((1, 1, 8, 8))}, "is float32, the array given is float64", id="type"),
        pytest.param(None, {"image": noise(1, 1, 8, 9)}, r"has the shape \[1, 1, 8, 9\] in place of", id="shape"),
        pytest.param(None, {"image": noise(1, 1, 8, 8), "b": noise(1)}, "there is no input 'b'", id="unknown"),
    ],
)
def test_the_runner_says_what_is_wrong(shipped, tmp_path, damage, feed, message):
    folder = tmp_path / "shipped"
    shutil.copytree(shipped, folder)
    if damage is not None:
        damage(folder)
    with pytest.raises(ValueError, match=message):
        runner_of(folder)(folder).run(feed)


def test_an_export_replaces_an_export_and_nothing_else(shipped, tmp_path):
    out = shipped.parent / "out"
    dovetail.export(out, tmp_path / "again", "python")
    (tmp_path / "again" / "old").write_text("")
    dovetail.export(out, tmp_path / "again")
    assert sorted(entry.name for entry in (tmp_path / "again").iterdir()) == ["0", "deploy.json"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(DovetailError, match="exists, and is no export"):
        dovetail.export(out, tmp_path / "mine")
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(DovetailError, match="there is no runner 'fortran'"):
        dovetail.export(out, tmp_path / "other", "fortran")
    with pytest.raises(DovetailError, match="has to be saved first"):
        dovetail.export(dovetail.compile(digits()[0], "cpu-bf16"), tmp_path / "other")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["again", "mine"]


def test_what_is_no_tensor_is_not_exported(tmp_path):
    graph = "g (float[2] x) => (seq(float[2]) y) { s = Sigmoid (x)  y = SequenceConstruct (s, s) }"
    with pytest.raises(DovetailError, match="'y' is no tensor, and other values cannot be exported"):
        exported(text(graph), tmp_path)
    assert not (tmp_path / "shipped").exists()
