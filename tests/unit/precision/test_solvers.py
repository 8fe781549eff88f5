"""What is common to all solvers: their names, the command line, chains and costs."""

import json
from pathlib import Path

import pytest
from dovetail.cli.main import main
from dovetail.ir import Format
from dovetail_precision.choices import uniform
from dovetail_precision.costs import MovedBytes, UnitJoins, cost_of
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.solvers.forward import solve_forward

NAMES = ("fixpoint", "forward", "min-cut")
TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x) => (float[4,8] y, bfloat16[4,8] z) <float[8,8] w> {
  [c] z = Cast <to = 16> (x)
  [m] m = MatMul (x, w)
  [n] n = Neg (m)
  [y] y = MatMul (n, w)
}"""


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_takes_their_names(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(TEXT)
    assert main(["plan", "m.onnxtxt", "--backend", "cpu-bf16", "--solver", name, "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert {node["name"]: node["precision"] for node in nodes if node["name"] != "c"} == dict.fromkeys(
        "mny", "bfloat16"
    )


def test_another_name_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(TEXT)
    assert main(["plan", "m.onnxtxt", "--backend", "cpu-bf16", "--solver", "mincut"]) == 2
    said = capsys.readouterr().err
    assert "unknown solver 'mincut' (did you mean 'min-cut'?)\n  installed: fixpoint, forward, min-cut" in said


@pytest.mark.parametrize("name", NAMES)
def test_a_cast_is_not_its_own_source(name, tmp_path, monkeypatch, capsys):
    """A pin can ask for a Cast to bfloat16 that reads bfloat16; it cannot be the conversion that it reads."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnxtxt").write_text(TEXT)
    options = ["--backend", "cpu-bf16", "--solver", name, "--pin", "c=cpu-bf16/bfloat16"]
    assert main(["opt", "m.onnxtxt", "-p", "normalize,edge-kinds,place,assign-types,join", *options]) == 0
    assert "[c] z = Cast <to = 16> (x_bfloat16)" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "kind"), [("forward", "float32"), ("fixpoint", "float16"), ("min-cut", "float16")])
def test_an_operator_without_a_policy_is_left_alone_or_chosen_for(solved, name, kind):
    text = """g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float[8,8] v, float[4,8] b> {
                a = MatMul (x, w)  b = com.microsoft.QuickGelu (a)  y = MatMul (b, v) }"""
    problem, types = solved(name, text)
    assert [variable.policy for variable in problem.variables] == ["lower", "", "lower"]
    assert types == {"a": "float16", "b": kind, "y": "float16"}


def chains(problem):
    return {chain.value.name: chain for chain in def_use_chains(problem)}


def test_flows(placed):
    problem = placed(
        """g (float[4,8] x, bool c) => (float[4,8] y, float[4,8] a) <float[8,8] w> {
             a = MatMul (x, w)  b = Add (a, a)  i = Cast <to = 6> (b)  f = Cast <to = 1> (i)
             s = Add (f, b)  y = If (c) <
               then_branch = t () => (float[4,8] p) { p = Neg (s) },
               else_branch = e () => (float[4,8] q) { q = MatMul (s, w) }> }"""
    )
    found = chains(problem)
    ends = {
        name: (
            chain.producer and chain.producer.node.outputs[0].name,
            [reader.node.outputs[0].name for reader in chain.readers],
            [reader.node.outputs[0].name for reader in chain.cast_readers],
        )
        for name, chain in found.items()
    }
    assert ends["x"] == (None, ["a"], [])
    assert ends["a"] == ("a", ["b", "b"], [])
    assert ends["b"] == ("b", ["s"], ["i"])
    assert ends["s"] == ("s", ["p", "q"], [])
    assert ends["w"] == (None, ["a", "q"], [])
    assert (ends["p"][1], ends["q"][1]) == (["y"], ["y"])
    assert {name for name, chain in found.items() if chain.kept} == {"a", "y"}
    assert {name for name, chain in found.items() if chain.constant} == {"w"}


def test_costs_count_every_join_and_version_once(placed):
    problem = placed(
        """g (float[4,8] x) => (float[4,8] y, float[4,8] z) <float[8,8] w> {
             a = MatMul (x, w)  b = MatMul (x, w)  c = Add (a, b)  y = Exp (c)  z = Log (c) }"""
    )
    solve_forward(problem)
    assert cost_of(problem, UnitJoins()) == 2  # x once, c once
    costs = MovedBytes()
    exact = sum(costs.compute(variable, variable.chosen) for variable in problem.variables)
    small = 2 * (500 + 32 * 6 // 10)
    assert cost_of(problem, costs) == exact + small + 64 * 2 // 10


@pytest.mark.parametrize(
    ("text", "moved", "operations"),
    [
        ("g (float[4,8] x) => (float[4,16] y) <float[8,16] w> { y = MatMul (x, w) }", 32 + 128 + 64, 2 * 64 * 8),
        ("g (float[8,4] x) => (float[4,16] y) <float[8,16] w> { y = Gemm <transA = 1> (x, w) }", 224, 2 * 64 * 8),
        (
            "g (float[1,3,9,9] x) => (float[1,5,7,7] y) <float[5,3,3,3] w> { y = Conv (x, w) }",
            243 + 135 + 245,
            2 * 245 * 27,
        ),
        ("g (float[N,8] x) => (float[N,8] y) { y = Neg (x) }", 2 * 64 * 8, 0),
    ],
)
def test_compute_is_bytes_and_operations(placed, text, moved, operations):
    (variable,) = placed(text).variables
    costs = MovedBytes()
    assert costs.compute(variable, uniform(Format.of("float32"))) == moved * 4 // 10 + operations // 50
    assert costs.compute(variable, uniform(Format.of("float16"))) == moved * 2 // 10 + operations // 400
