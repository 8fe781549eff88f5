"""`bisect`: it finds what costs the accuracy, in few runs, and says what repairs it."""

import json
import os
import shlex

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from onnx import TensorProto, helper, numpy_helper

WIDTH = 8


def chain(nodes, bad, path="m.onnx"):
    """A chain of products and activations with one bad layer, and inputs for it.

    The weights of the bad layer are 1000 too large. That cancels, because what it reads adds up to zero: whole numbers,
    which any format holds. Nothing is lost in float32; in a low precision nothing is left of the weights.
    """
    rng = np.random.default_rng(0)
    made, weights = [], []

    def weight(name, array):
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    made.append(helper.make_node("Neg", ["z"], ["minus_z"], "neg"))
    made.append(helper.make_node("Concat", ["z", "minus_z"], ["zs"], "concat", axis=1))
    value = "x"
    while len(made) < nodes - 2:
        number = len(made)
        if number == bad:
            array = 1000 + rng.standard_normal((2 * WIDTH, WIDTH)) / 8
            made.append(helper.make_node("MatMul", ["zs", weight("w_bad", array)], ["off"], "bad"))
            made.append(helper.make_node("Add", [value, "off"], ["with_off"], "add"))
            value = "with_off"
            continue
        turn = weight(f"w{number}", np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0])
        made.append(helper.make_node("MatMul", [value, turn], [f"p{number}"], f"mm_{number}"))
        made.append(helper.make_node("Abs", [f"p{number}"], [f"a{number}"], f"act_{number}"))
        value = f"a{number}"
    made.append(helper.make_node("MatMul", [value, weight("w_last", np.eye(WIDTH))], ["y"], "last"))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in "xz"]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", WIDTH])
    graph = helper.make_graph(made, "chain", inputs, [output], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return path, {
        "x": rng.standard_normal((16, WIDTH)).astype(np.float32),
        "z": rng.integers(-2, 3, (16, WIDTH)).astype(np.float32),
    }


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def everything(*cases):
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases] if os.environ.get("DOVETAIL_SLOW") else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "nodes", "bad", "runs"),
    [
        ("cpu-bf16", 120, 72, 12),
        ("gpu-fp16", 120, 40, 12),
        *everything(
            ("cpu-bf16", 500, 302, 14),
            *((backend, 500, bad, 14) for backend in ("cpu-bf16", "gpu-fp16") for bad in (2, 100, 250, 496)),
        ),
    ],
)
def test_a_bad_layer_is_found_in_few_runs(here, backend, nodes, bad, runs):
    model, data = chain(nodes, bad)
    assert len(onnx.load(model).graph.node) >= nodes - 1
    ranking = dovetail.bisect(model, backend, data=data)
    assert ranking.runs <= runs
    assert ranking.rows[0].nodes == ("bad",)
    assert ranking.rows[0].share > 0.8
    assert ranking.high == ["bad"]
    assert ranking.met
    repaired = dovetail.compile(model, backend, data=data, high=ranking.high)
    assert repaired.verification.worst_snr_db >= ranking.snr_low + 9.9


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A short chain with a bad layer: the folder of `m.onnx` and `x.npz`, and the ranking of its nodes."""
    folder = tmp_path_factory.mktemp("short")
    model, data = chain(14, 6, folder / "m.onnx")
    np.savez(folder / "x.npz", **data)
    return folder, dovetail.bisect(model, "cpu-bf16", data=data)


def test_what_a_ranking_says(short):
    _, ranking = short
    worst = ranking.rows[0]
    assert (worst.nodes, worst.operators, worst.suspect, worst.raised) == (("bad",), ("MatMul",), "bad", True)
    assert worst.measured
    assert ranking.snr_low <= worst.snr_alone + 3 < ranking.snr_repaired < ranking.snr_high
    assert [row.share for row in ranking.rows] == sorted((row.share for row in ranking.rows), reverse=True)
    assert ranking.rows[-1].cumulated == pytest.approx(1)
    ranked = [name for row in ranking.rows for name in row.nodes]
    assert len(ranked) == len(set(ranked))
    own, accumulated = ranking.errors["bad"]
    assert own < 20 < ranking.errors["mm_2"][0], "one run told which node is bad by itself"
    assert accumulated < 20


def test_more_runs_tell_more_nodes_apart(short):
    folder, ranking = short
    rough = dovetail.bisect(folder / "m.onnx", "cpu-bf16", data=folder / "x.npz", runs=3)
    assert len(rough.rows) < len(ranking.rows)
    assert "bad" in rough.rows[0].nodes


def test_the_command_prints_what_repairs_it(short, capsys, monkeypatch):
    monkeypatch.chdir(short[0])
    assert main(["bisect", "m.onnx", "--backend", "cpu-bf16", "--data", "x.npz"]) == 0
    table, _, rest = capsys.readouterr().out.partition("runs:")
    assert table.splitlines()[1].split()[:3] == ["1", "bad", "MatMul"]
    command = rest.splitlines()[-1]
    assert command == "dovetail compile m.onnx --backend cpu-bf16 --data x.npz --high bad"
    assert main(shlex.split(command)[1:]) == 0


@pytest.mark.slow
def test_a_ranking_as_json(short, capsys, monkeypatch):
    monkeypatch.chdir(short[0])
    options = ["--min-snr", "40", "--min-cosine", "0.9", "--json"]
    assert main(["bisect", "m.onnx", "--backend", "cpu-bf16", "--data", "x.npz", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["nodes"] == ["bad"]
    assert document["goals"] == {"min_snr": 40.0, "min_cosine": 0.9}
    assert document["met"]
    assert document["snr_repaired"] >= 40
    assert document["errors"]["bad"]["own"] < 20


@pytest.mark.slow
def test_control_flow_counts_as_one_node(here):
    text = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[4,8] x, int64 n) => (float[4,8] y) <bool yes = {1}, float[8,8] w> {
      [before] a = MatMul (x, w)
      [loop] b = Loop (n, yes, a) <body = inner (int64 i, bool more, float[4,8] c) => (bool again, float[4,8] d) {
        again = Identity (more)  [inside] p = MatMul (c, w)  [tanh] d = Tanh (p) }>
      [after] y = MatMul (b, w) }"""
    model = onnx.parser.parse_model(text)
    weights = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0].astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, "m.onnx")
    data = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), "n": np.array(20, np.int64)}
    ranking = dovetail.bisect("m.onnx", "cpu-bf16", data=data)
    assert {name for row in ranking.rows for name in row.nodes} == {"before", "loop", "after"}
    assert "loop" in ranking.rows[0].nodes
    repaired = dovetail.compile("m.onnx", "cpu-bf16", data=data, high=ranking.high)
    assert repaired.verification.worst_snr_db > ranking.snr_repaired - 3  # engines round otherwise


# Bad input.


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--backend", "cpu-bf16"], 2, "there is no data to rank nodes on"),
        (["--data", "x.npz"], 2, "no backend is named"),
        (["--backend", "cpu-bf16", "--data", "x.npz", "--runs", "0"], 2, "0 runs rank nothing"),
        (["--backend", "cpu-bf16", "--data", "none.npz"], 1, "none.npz"),
        (["--backend", "cpu-bf16", "--data", "part.npz"], 1, "no array for input 'z'"),
        (["--backend", "cpu-bf16", "--data", "nan.npz"], 1, "not numbers (NaN)"),
        (["--backend", "cpu-bf16", "--data", "x.npz", "--min-top1", "5"], 2, "--min-top1 5 is no goal"),
        (["--backend", "cpu-bf16", "--data", "x.npz", "--low", "*"], 1, "no node may be raised: --low '*'"),
        (["--backend", "cpu-bf16", "--data", "x.npz", "--high", "*"], 1, "no node is computed in a low precision"),
        (["--backend", "host", "--data", "x.npz"], 1, "no node is computed in a low precision"),
    ],
)
def test_what_cannot_be_ranked(short, options, code, message, capsys, monkeypatch):
    folder, _ = short
    monkeypatch.chdir(folder)
    with np.load("x.npz") as arrays:
        np.savez("part.npz", x=arrays["x"])
        np.savez("nan.npz", x=arrays["x"] * np.nan, z=arrays["z"])
    assert main(["bisect", "m.onnx", *options]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def two_outputs(path):
    """Two branches: `fine` is the only product before a good output, `coarse` the worst of many before a bad one.

    What `coarse` reads cancels, so that little of its result is left beside the rounding; `fine` makes all of the noise
    of its own output, which is far better than the other one.
    """
    rng = np.random.default_rng(0)
    wide = 8 + rng.standard_normal((2 * WIDTH, WIDTH)) / 4
    weights = {"w_fine": np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0], "w_coarse": wide,
               "w_more": np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]}  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w_fine"], ["good"], "fine"),
        helper.make_node("Neg", ["z"], ["minus_z"], "neg"),
        helper.make_node("Concat", ["z", "minus_z"], ["zs"], "concat", axis=1),
        helper.make_node("MatMul", ["zs", "w_coarse"], ["off"], "coarse"),
        helper.make_node("MatMul", ["off", "w_more"], ["bad"], "more"),
    ]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in
              ("x", "z", "good", "bad")}  # fmt: skip
    made = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "two", [values["x"], values["z"]], [values["good"], values["bad"]], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return path, {
        "x": rng.standard_normal((16, WIDTH)).astype(np.float32),
        "z": rng.integers(-2, 3, (16, WIDTH)).astype(np.float32),
    }


def test_noise_counts_by_what_an_output_can_bear(here):
    """All of the noise of a good output is less than part of the noise of a bad one."""
    model, data = two_outputs("two.onnx")
    ranking = dovetail.bisect(model, "cpu-bf16", data=data, runs=20)
    ranks = {name: rank for rank, row in enumerate(ranking.rows) for name in row.nodes}
    fine = next(row for row in ranking.rows if "fine" in row.nodes)
    assert ranking.snr_low < 30 < fine.snr_alone
    assert ranks["coarse"] < ranks["fine"]
    assert ranks["more"] < ranks["fine"] or ranking.rows[ranks["more"]].snr_alone > fine.snr_alone
    assert fine.share < 0.1


def test_a_goal_says_what_an_output_can_bear(here):
    model, data = two_outputs("two.onnx")
    ranking = dovetail.bisect(model, "cpu-bf16", data=data, runs=20, max_abs=100.0)
    assert ranking.met
    assert not ranking.raised
