"""`dovetail export`: a result as files that run without Dovetail, and give what `dovetail run` gives."""

import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dovetail
import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

from .exported_nets import (
    DIGITS,
    REFUSED,
    ROWS,
    acme,
    digits,
    exported,
    module,
    noise,
    plugins_of_acme,
    text,
    two_branches,
)

# The program of an export, and then which modules of Dovetail it has imported.
ALONE = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print([name for name in sys.modules if name.startswith("dovetail")])
"""


@pytest.mark.parametrize(("net", "backends", "engines"), ROWS)
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


def test_types_that_numpy_lacks_and_constants(tmp_path):
    """bfloat16 is passed as its bits, between steps as well."""
    graph = """g (bfloat16[2,8] x) => (bfloat16[2,8] y, float[3] k) <float[3] k = {1, 2, 3}> {
        f = Cast <to = 1> (x)  h = MatMul (f, w)  c = Celu (h)  p = MatMul (c, w)  y = Cast <to = 16> (p) }"""
    result, description = exported(text(graph, w=noise(8, 8)), tmp_path, "python")
    x = noise(2, 8).astype(ml_dtypes.bfloat16)
    expected = result.run({"x": x})
    answers = module(tmp_path / "shipped").Runner(tmp_path / "shipped").run({"x": x.view(np.uint16)})
    np.testing.assert_array_equal(answers["y"], expected["y"].view(np.uint16))
    np.testing.assert_array_equal(answers["k"], [1, 2, 3])
    assert [one["name"] for one in description["constants"]] == ["k"]


def test_a_program_of_a_vendor_is_run_by_a_function_that_is_given(tmp_path, monkeypatch):
    loaded = plugins_of_acme(monkeypatch)
    result, description = exported(acme(noise(4, 4)), tmp_path, "python", "acme-aot", plugins=loaded)
    assert [step["engine"] for step in description["steps"]] == ["acme-runtime", "onnxruntime"]

    def make(folder, step, types):
        from dovetail_example_engine.program import unpacked

        _, model = unpacked((folder / step["files"][0]["path"]).read_bytes())
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        (given,), (made,) = session.get_inputs(), step["outputs"]
        return lambda arrays: {made["name"]: session.run(None, {given.name: arrays[step["inputs"][0]]})[0]}

    make_runner = module(tmp_path / "shipped").Runner
    x = {"x": noise(1, 4)}
    answers = make_runner(tmp_path / "shipped", {"acme-runtime": make}).run(x)
    np.testing.assert_array_equal(answers["y"], result.run(x)["y"])
    with pytest.raises(ValueError, match="step 0 is for acme-runtime: give Runner a function for it"):
        make_runner(tmp_path / "shipped")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """An export of digits."""
    folder = tmp_path_factory.mktemp("digits")
    exported(digits()[0], folder, "python")
    return folder / "shipped"


@pytest.mark.parametrize(("damage", "feed", "message"), REFUSED)
def test_the_runner_says_what_is_wrong(shipped, tmp_path, damage, feed, message):
    folder = tmp_path / "shipped"
    shutil.copytree(shipped, folder)
    if damage is not None:
        damage(folder)
    with pytest.raises(ValueError, match=message):
        module(folder).Runner(folder).run(feed)


def test_folders_of_tensors_take_the_place_of_npz(tmp_path):
    """As the runner in C++ reads and writes them: every type in a file of its own bytes."""
    graph = """g (bfloat16[2,3] x, string[2] s) => (bfloat16[2,3] y, string[2] t, float[3] k, string[2] l)
        <float[3] k = {1, 2, 3}, string[2] l = {"a", "b"}> {
        f = Cast <to = 1> (x)  n = Neg (f)  y = Cast <to = 16> (n)  t = Identity (s) }"""
    exported(text(graph), tmp_path, "python")
    run = module(tmp_path / "shipped")
    x = noise(2, 3).astype(ml_dtypes.bfloat16)
    feeds = {"x": x.view(np.uint16), "s": np.array(["é", ""], object)}
    run.write_tensors(tmp_path / "in", feeds, {"x": "bfloat16", "s": "string"})
    command = [sys.executable, tmp_path / "shipped" / "run.py", tmp_path / "in", tmp_path / "answers"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = run.read_tensors(tmp_path / "answers")
    np.testing.assert_array_equal(answers["y"].view(ml_dtypes.bfloat16), -x)
    np.testing.assert_array_equal(answers["t"], feeds["s"])
    np.testing.assert_array_equal(answers["k"], np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(answers["l"], ["a", "b"])
    (tmp_path / "in" / "tensors.json").write_text("{}")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and "error: " in done.stderr and "Traceback" not in done.stderr


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
        exported(text(graph), tmp_path, "python")
    assert not (tmp_path / "shipped").exists()


def test_results_stay_as_they_are_and_shapes_take_turns(tmp_path):
    """From the third call with the same shapes on, engines run over arrays that are bound."""
    graph = "g (float[N,8] x) => (float[N,8] y) { a = MatMul (x, w)  h = Erf (a)  y = MatMul (h, w) }"
    pins = ["type:MatMul=cpu-bf16/float32", "type:Erf=host"]
    dovetail.compile(text(graph, w=noise(8, 8)), "cpu-bf16", pins=pins, verify=False).save(tmp_path / "out")
    description = dovetail.export(tmp_path / "out", tmp_path / "shipped", "python")
    assert [step["engine"] for step in description["steps"]] == ["openvino", "onnxruntime", "openvino"]
    runner, result = module(tmp_path / "shipped").Runner(tmp_path / "shipped"), dovetail.load(tmp_path / "out")
    inputs = [{"x": noise(2, 8) + seed} if seed % 5 else {"x": noise(3, 8)} for seed in range(20)]
    answers = [runner.run(given)["y"] for given in inputs]
    assert runner.bound
    for given, found in zip(inputs, answers, strict=True):
        assert found.tobytes() == result.run(given)["y"].tobytes()
    with ThreadPoolExecutor(4) as threads:
        again = list(threads.map(lambda given: runner.run(given)["y"], inputs))
    assert [found.tobytes() for found in again] == [found.tobytes() for found in answers]


@pytest.mark.parametrize("parallel", ["on", "off", "auto"])
def test_branches_give_the_same_in_any_order(parallel, tmp_path):
    model, pins = two_branches()
    dovetail.compile(model, "cpu-bf16", pins=pins, verify=False).save(tmp_path / "out")
    dovetail.export(tmp_path / "out", tmp_path / "shipped", "python")
    runner = module(tmp_path / "shipped").Runner(tmp_path / "shipped", parallel=parallel)
    assert runner.schedule.width == 2
    result = dovetail.load(tmp_path / "out")
    for seed in range(10):
        given = {"x": noise(2, 8) + seed}
        assert {name: array.tobytes() for name, array in runner.run(given).items()} == {
            name: array.tobytes() for name, array in result.run(given).items()
        }


def schedule_of(module, reads, parallel="on"):
    """The schedule of steps that are told by what each reads; step n gives "n"."""
    steps = [{"inputs": list(names), "outputs": [{"name": str(n)}]} for n, names in enumerate(reads)]
    return module._Schedule(steps, parallel)


def test_steps_start_when_what_they_read_is_there(shipped):
    schedule = schedule_of(module(shipped), ["x", "0", "x", "12"])
    assert schedule.width == 2
    together, done = threading.Barrier(2, timeout=20), []

    def call(number):
        if number in (0, 2):
            together.wait()  # both branches have begun
        done.append(number)

    schedule.run(call)
    assert sorted(done) == [0, 1, 2, 3] and done[-1] == 3 and done.index(0) < done.index(1)


@pytest.mark.parametrize("failing", [{0, 1}, {1, 2}, {2}, {1, 3}, {0, 1, 2, 3}])
def test_the_first_step_that_fails_is_told(shipped, failing):
    schedule = schedule_of(module(shipped), ["x", "x", "0", "1"])

    def call(number):
        if number in failing:
            raise ValueError(f"step {number}")

    for _ in range(20):
        with pytest.raises(ValueError, match=f"step {min(failing)}"):
            schedule.run(call)


def test_a_chain_takes_no_thread(shipped):
    schedule = schedule_of(module(shipped), ["x", "0", "1"])
    assert schedule.threads is None
    callers = set()
    schedule.run(lambda number: callers.add(threading.get_ident()))
    assert callers == {threading.get_ident()}
