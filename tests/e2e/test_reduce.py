"""`reduce`: the smallest part of a model that still fails, by a command, a backend or a function."""

import json
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FAILS_ON_ELU = "! grep -q Elu {model}"  # the exit code is 1 if the file names the operator


def chain(length, bad, path="m.onnx", **attributes):
    """A chain of MatMul and Tanh with an Elu at one place, and a shape that is computed on the way."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for index in range(length):
        weights.append(numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), f"w{index}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"], f"mm_{index}"))
        kind = "Elu" if index == bad else "Tanh"
        given = attributes if index == bad else {}
        nodes.append(helper.make_node(kind, [f"m{index}"], [f"a{index}"], f"act_{index}", **given))
        value = f"a{index}"
    nodes += [
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Reshape", [value, "shape"], ["y"], "reshape"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_command_says_what_fails(capsys):
    model = chain(20, 13)
    assert main(["reduce", model, "--check", FAILS_ON_ELU, "-o", "out"]) == 0
    assert "42 nodes reduced to 1 node" in capsys.readouterr().out
    (node,) = onnx.load("out/model.onnx").graph.node
    assert (node.op_type, node.name) == ("Elu", "act_13")
    with np.load("out/inputs.npz") as feeds:
        assert {name: array.shape for name, array in feeds.items()} == {"m13": (1, 1)}
    assert json.loads(Path("out/reduced.json").read_text())["nodes"] == ["act_13"]


def test_the_result_fails_as_the_whole_did():
    """An input of the reduced model has the array that the removed nodes computed."""
    chain(20, 13)
    proto = onnx.load("m.onnx")
    proto.graph.output.append(helper.make_tensor_value_info("m13", TensorProto.FLOAT, ["N", 8]))
    data = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)}
    truth = ReferenceEvaluator(proto).run(["m13"], data)[0]

    def fails(model, feeds):
        exact = "m13" not in feeds or feeds["m13"].shape == truth.shape and np.allclose(feeds["m13"], truth, atol=1e-5)
        return exact and any(node.op_type == "Elu" for node in model.graph)

    found = dovetail.reduce("m.onnx", check=fails, data=data)
    assert found.nodes == ["act_13"]
    assert np.allclose(found.feeds["m13"], truth, atol=1e-5)


@pytest.mark.slow
def test_an_error_of_a_backend(capsys):
    """The size of an Expand is unknown, and the text of the error names its node."""
    model = chain(6, 3)
    proto = onnx.load(model)
    proto.graph.node.append(helper.make_node("Reshape", ["a2", "bad_shape"], ["wrong"], "wrong"))
    proto.graph.initializer.append(numpy_helper.from_array(np.int64([7, 7]), "bad_shape"))
    proto.graph.output.append(helper.make_tensor_value_info("wrong", TensorProto.FLOAT, None))
    onnx.save(proto, model)
    assert main(["reduce", model, "--backend", "cpu-bf16", "--raises", "wrong", "-o", "out"]) == 0
    printed = capsys.readouterr().out
    assert "14 nodes" in printed or "15 nodes" in printed
    assert [node.name for node in onnx.load("out/model.onnx").graph.node] == ["wrong"]
    assert "the host does not run the model" in printed


@pytest.mark.slow
def test_the_accuracy_of_a_backend():
    """Weights that cancel cost the accuracy of one product in bfloat16."""
    rng = np.random.default_rng(0)
    model = onnx.load(chain(10, 4))
    for tensor in model.graph.initializer:
        if tensor.name == "w6":
            large = 1000 + rng.standard_normal((8, 8)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(large, "w6"))
    rows = rng.integers(-3, 4, (8, 4)).astype(np.float32)
    model.graph.node[12].input[0] = "x"
    found = dovetail.reduce(model, "cpu-bf16", min_snr=20, data={"x": np.concatenate([rows, -rows], axis=1)})
    assert len(found.nodes) == 1
    assert "below" not in found.said and "min-snr" in found.said


def test_an_interrupted_reduction_goes_on():
    chain(20, 13)
    calls = []

    def fails(model, feeds):
        calls.append(len(model.graph))
        if len(calls) == 12:
            raise KeyboardInterrupt
        return any(node.op_type == "Elu" for node in model.graph)

    with pytest.raises(KeyboardInterrupt):
        dovetail.reduce("m.onnx", check=fails, output="out")
    assert len(onnx.load("out/model.onnx").graph.node) < 42  # the smallest so far
    found = dovetail.reduce("m.onnx", check=fails, output="out")
    assert found.nodes == ["act_13"]
    assert found.answered > 0
    with open("out/journal.jsonl", "a") as journal:
        journal.write('{"key": "nodes 0')  # the process ended while it wrote
    before = len(calls)
    assert dovetail.reduce("m.onnx", check=fails, output="out").nodes == ["act_13"]
    assert len(calls) - before == 3 + 1 + 3  # the whole, the control and the confirmation


def test_a_check_that_ends_the_process_is_left_out(capsys):
    """What began twice without an answer is not run a third time."""
    chain(4, 2)

    def fails(model, feeds):
        return any(node.op_type == "Elu" for node in model.graph)

    dovetail.reduce("m.onnx", check=fails, output="out")
    lines = Path("out/journal.jsonl").read_text().splitlines()
    key = next(json.loads(line)["key"] for line in lines[1:] if '"fails": true' in line)
    kept = [line for line in lines if f'"key": "{key}"' not in line]
    Path("out/journal.jsonl").write_text("\n".join([*kept, json.dumps({"begin": key})]) + "\n")
    found = dovetail.reduce("m.onnx", check=fails, output="out")
    assert any("ended the process twice" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--check", "true {model}"], "the whole model does not fail"),
        (["--check", "false {model}"], "the check fails on any model, even on a single Identity"),
        (["--check", "nosuchcommand {model}"], "the check cannot be run (exit code 127)"),
        (["--check", "test $(( $(echo x >> n; wc -l < n) % 2 )) -eq 0; # {model}"], "the check is flaky"),
        (["--check", "sleep 5; false {model}", "--timeout", "0.2"], "no answer within 0.2 s"),
        (["--check", "false"], "names no model"),
        (["--backend", "cpu-bf16"], "no condition of failure is given"),
        ([], "no condition of failure is given"),
        (["--backend", "cpu-bf16", "--min-snr", "20", "--raises", "x"], "two failures"),
        (["--check", "false {model}", "--min-snr", "20"], "the check says itself what fails"),
        (["--check", "false {model}", "--attempts", "0"], "numbers above 0"),
    ],
)
def test_bad_requests(capsys, arguments, says):
    chain(2, 1)
    assert main(["reduce", "m.onnx", *arguments, "-o", "out"]) in (1, 2)
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


def test_a_flaky_check_with_attempts():
    chain(6, 3)
    count = [0]

    def fails(model, feeds):
        count[0] += 1
        return count[0] % 2 == 0 and any(node.op_type == "Elu" for node in model.graph)

    assert dovetail.reduce("m.onnx", check=fails, attempts=4).nodes == ["act_3"]


def test_other_files_stay(tmp_path):
    chain(4, 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    with pytest.raises(DovetailError, match="holds files, and no journal"):
        dovetail.reduce("m.onnx", check=FAILS_ON_ELU, output="out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    dovetail.reduce("m.onnx", check=FAILS_ON_ELU, output="first")
    with pytest.raises(DovetailError, match="the journal of another reduction: check differs"):
        dovetail.reduce("m.onnx", check=FAILS_ON_ELU + " ", output="first")
    with pytest.raises(DovetailError, match="is a file"):
        dovetail.reduce("m.onnx", check=FAILS_ON_ELU, output="m.onnx")
    with pytest.raises(UsageError):
        dovetail.reduce("m.onnx")


@pytest.mark.parametrize("name", ["../../up", "file", "a'b\"c; rm -rf x", "{model}", "\x1b[31m", "n" * 1_000_000])
def test_hostile_names(capsys, name):
    proto = onnx.load(chain(4, 2))
    for node in proto.graph.node:
        node.input[:] = [name if value == "m2" else value for value in node.input]
        node.output[:] = [name if value == "m2" else value for value in node.output]
        node.name = name if node.op_type == "Elu" else node.name
        node.doc_string = "s" * 1_000_000 if node.op_type == "Elu" else ""
    onnx.save(proto, "m.onnx")
    assert main(["reduce", "m.onnx", "--check", FAILS_ON_ELU, "-o", "out"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    (node,) = onnx.load("out/model.onnx").graph.node
    assert node.op_type == "Elu"
    found = dovetail.verify("out/model.onnx", "out/model.onnx", "out/inputs.npz")
    assert not found.broken
