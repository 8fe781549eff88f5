"""Integers are timed beside floats: a note says which are faster here, and slower integers make way for floats."""

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail_verify import float_comparison
from onnx import numpy_helper, parser, save

GRAPH = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,16] x) => (float[4,16] y) <float[16,16] w> { y = MatMul (x, w) }"""
NUMBERS = np.random.default_rng(0)
FLOATS = {"float32", "bfloat16"}
DATA = {"x": NUMBERS.standard_normal((48, 16)).astype(np.float32)}


@pytest.fixture
def product():
    model = parser.parse_model(GRAPH)
    weight = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


@pytest.fixture
def timed(monkeypatch):
    """Runs are played to take the given seconds: those of the result, and of floats by name; others take very long."""

    def play(seconds):
        def times(runs, feeds):
            for run in runs.values():
                assert run(feeds)["y"].shape == (4, 16)
            return {name: [seconds.get(name, 1e3)] * 5 for name in runs}

        monkeypatch.setattr(float_comparison, "_times", times)

    return play


def backends_of(compiled):
    return {node.backend for node in compiled.plan.nodes}


def instead(compiled):
    return [remark.why for remark in compiled.remarks if remark.rule == "floats-instead"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ({"": 0.5, "host": 1}, "this result takes 0.50 of the time of floats on the host, the fastest here"),
        ({"": 1.01, "host": 1}, "integers make this result no faster here: it takes as long as floats on the host"),
        # the request does not allow these floats
        (
            {"": 1.5, "host": 2, "cpu-bf16": 1},
            "integers do not pay here: this result takes 1.50 of the time of floats in cpu-bf16, the fastest here; "
            "`--backend cpu-bf16` alone is faster",
        ),
    ],
)
def test_integers_that_the_request_has_nothing_faster_for_stay_with_a_note(product, timed, seconds, said):
    timed(seconds)
    compiled = dovetail.compile(product, "cpu-int8", data=DATA, min_snr=20)
    assert compiled.verification.pace.startswith(said) and compiled.verification.pace in compiled.verification.notes
    assert backends_of(compiled) == {"cpu-int8"} and not instead(compiled)


@pytest.mark.parametrize("goal", [{"min_snr": 20}, {"min_snr": 70}, {"compare_floats": True}])
@pytest.mark.parametrize(
    ("backends", "seconds", "expected"),
    [
        (["cpu-int8"], {"": 1.5, "host": 1}, "host"),
        (["cpu-int8"], {"": 1.5, "host": 2, "cpu-int8 in float32": 1}, "cpu-int8"),
        (["cpu-int8", "cpu-bf16"], {"": 1.5, "host": 2, "cpu-bf16": 1}, "cpu-bf16"),
    ],
)
def test_floats_of_the_request_that_are_faster_are_taken(product, timed, backends, seconds, expected, goal):
    """Before a search for a goal as well, which 70 dB need."""
    timed({**seconds, "floats that meet the goal": 1})
    compiled = dovetail.compile(product, backends, data=DATA, **goal)
    assert backends_of(compiled) == {expected} and {str(node.precision) for node in compiled.plan.nodes} <= FLOATS
    (why,) = instead(compiled)
    assert why.startswith("nothing is in integers, because they are slower here: a run takes 1.5e+03 ms with them on ")
    assert compiled.verification.worst_snr_db >= goal.get("min_snr", 0)
    assert compiled.plan.summary.get("accuracy", {}).get("met", True)


def test_a_note_names_faster_floats_that_the_request_does_not_allow(product, timed):
    timed({"": 1.5, "host": 1, "cpu-bf16": 0.5})
    compiled = dovetail.compile(product, "cpu-int8", data=DATA, min_snr=20)
    assert backends_of(compiled) == {"host"}
    said = "floats in cpu-bf16 take 0.50 of the time of this result: `--backend cpu-bf16` is faster"
    assert compiled.verification.pace == said


def test_floats_that_are_slower_once_they_meet_the_goal_are_not_taken(product, timed):
    """Without raised nodes cpu-bf16 would be faster, with them it is not; the host is slower anyway."""
    timed({"": 1.5, "host": 2, "cpu-bf16": 1, "floats that meet the goal": 2})
    goal = dovetail.compile(product, "cpu-bf16", data=DATA).verification.worst_snr_db + 3
    compiled = dovetail.compile(product, ["cpu-int8", "cpu-bf16"], data=DATA, min_snr=goal)
    assert not instead(compiled)


GOAL = 62  # dB that bfloat16 misses without raised nodes


@pytest.fixture
def products():
    """Two products, of which one has to be raised for the goal."""
    text = GRAPH.replace("<float[16,16] w> { y = MatMul (x, w) }", "<float[16,16] w> { h = MatMul (x, w) "
                         "t = Tanh (h) y = MatMul (t, w) }")  # fmt: skip
    model = parser.parse_model(text)
    weight = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"": 1.5, "host": 1}, {"host"}),
        ({"": 1.5, "host": 2, "cpu-bf16 in float32": 1}, {"cpu-bf16"}),
    ],
)
def test_float32_that_is_faster_than_low_floats_with_raised_nodes_is_taken(products, timed, seconds, expected):
    """What misses the goal is no choice, however fast it is."""
    timed({"cpu-bf16": 0.1, **seconds})
    compiled = dovetail.compile(products, "cpu-bf16", data=DATA, min_snr=GOAL)
    assert backends_of(compiled) == expected and {str(n.precision) for n in compiled.plan.nodes} == {"float32"}
    (why,) = instead(compiled)
    assert why.startswith("nothing is in 16-bit floats, because they are slower here: a run takes 1.5e+03 ms with them")
    assert compiled.verification.worst_snr_db >= GOAL and compiled.plan.summary["accuracy"]["met"]
    assert not compiled.plan.summary["accuracy"]["raised"], "no search was needed"


@pytest.fixture
def uneven():
    """Two outputs, of which one alone misses a goal in bfloat16: the node of the other stays low."""
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[4,16] x) => (float[4,16] y, float[4,16] v) <float[16,16] w, float[16,16] u> {
      y = MatMul (x, w)  v = MatMul (x, u) }"""
    model = parser.parse_model(text)
    numbers = np.random.default_rng(1)
    exact = numbers.integers(-4, 5, (16, 16)).astype(np.float32)  # which bfloat16 has
    model.graph.initializer.append(numpy_helper.from_array(numbers.standard_normal((16, 16)).astype(np.float32), "w"))
    model.graph.initializer.append(numpy_helper.from_array(exact, "u"))
    return model


def test_low_floats_with_raised_nodes_stay_where_they_are_faster(uneven, timed):
    data = {"x": np.float32(NUMBERS.integers(-3, 4, (48, 16)))}
    how = {"data": data, "min_snr": 60}
    timed({"": 0.5, "host": 1})
    compiled = dovetail.compile(uneven, "cpu-bf16", **how)
    assert compiled.plan.summary["accuracy"]["raised"] and not instead(compiled)
    assert compiled.verification.pace == "this result takes 0.50 of the time of floats on the host"
    timed({"": 1.5, "host": 1})
    kept = dovetail.compile(uneven, "cpu-bf16", **how, compare_floats=False)
    assert kept.plan.summary["accuracy"]["raised"] and not kept.verification.pace


@pytest.mark.parametrize(
    "more", [{"all_integers": True}, {"compare_floats": False}, {"low": "*"}, {"pins": "*=cpu-int8"}]
)
def test_who_asks_for_integers_has_them(product, timed, more):
    timed({"": 1.5, "host": 1})
    compiled = dovetail.compile(product, "cpu-int8", data=DATA, min_snr=20, **more)
    assert backends_of(compiled) == {"cpu-int8"} and not instead(compiled)
    assert bool(compiled.verification.pace) == ("compare_floats" not in more)


def test_weights_alone_stay_in_integers(product, timed):
    timed({"": 1.5, "host": 1})
    compiled = dovetail.compile(product, "cpu-int8:weights=int8", data=DATA, min_snr=20)
    assert backends_of(compiled) == {"cpu-int8"} and "do not pay" in compiled.verification.pace


def test_it_is_measured_here(product):
    compiled = dovetail.compile(product, "cpu-int8", data=DATA, min_snr=20, all_integers=True)
    assert "floats" in compiled.verification.pace and "the fastest here" in compiled.verification.pace


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("cpu-bf16", {"min_snr": 20}),  # no integers
        ("ppl-int8", {"min_snr": 20}),  # computes elsewhere; its time here says nothing
        ("cpu-int8", {"min_snr": 20, "high": "*"}),  # nothing is in integers
        ("cpu-int8", {"min_snr": 20, "compare_floats": False}),
        ("cpu-int8", {}),
    ],
)
def test_what_is_not_compared(product, backend, more):
    assert dovetail.compile(product, backend, data=DATA, **more).verification.pace == ""


def test_the_command_compares_without_a_goal_too(product, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(product, "m.onnx")
    np.savez("x.npz", **DATA)
    command = ["compile", "m.onnx", "--backend", "cpu-int8", "--data", "x.npz", "--all-integers"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "the fastest here" in said.out + said.err
    assert main([*command, "--no-compare-floats"]) == 0
    said = capsys.readouterr()
    assert "the fastest here" not in said.out + said.err
