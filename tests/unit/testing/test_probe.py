"""`dovetail probe`: what is measured of an engine, and the backend file that follows."""

import ast
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import dovetail
import numpy as np
import pytest
import yaml
from dovetail.cli.main import main
from dovetail.errors import DovetailError, UsageError
from dovetail.passes import BackendChoice
from dovetail.plugin.loading import load_chosen, use_file
from dovetail_runtime import data_workers
from dovetail_testing.kit.samples import NodeSample
from dovetail_testing.probe import parts, trials
from dovetail_testing.probe.cases import case_of, ends_of
from dovetail_testing.probe.claims import contradictions
from dovetail_testing.probe.clauses import learned
from dovetail_testing.probe.conditions import written
from dovetail_testing.probe.observing import UNKNOWN, NodeNames, Observation, Outcome
from dovetail_testing.probe.precision import computed_in, is_right
from dovetail_testing.probe.probing import observations_of, probe
from dovetail_testing.probe.trials import ProbeState
from dovetail_testing.probe.variations import attribute_changes
from dovetail_testing.probe.writing import file_of
from dovetail_testing.suites import node_cases, node_tests
from onnx.backend.test.loader import load_model_tests

OPERATORS = ("Abs", "Floor", "MaxPool", "Neg", "Sign")
RIGHT = Outcome("done", exact=True, types=("float32",))
REFUSED = Outcome("load", "not supported")


def observed(right, types=None, extents=None, **values):
    """A node with some names."""
    names = NodeNames(values, extents or {}, types or {"T": "float32"}, {"X": "T", "Y": "T"})
    return Observation("a node", names, RIGHT if right else REFUSED, right)


def limits(*observations):
    """What is learned of nodes, as guards with what is forbidden."""
    rule = learned("Acme", observations)
    return [
        (
            [guard.guard for guard in clause.guards],
            clause.condition.name,
            clause.condition.limit,
            clause.condition.value,
        )
        for clause in rule.clauses
    ]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # the last number that is right is the limit, whatever lies between it and the first wrong one
        ([observed(True, kernel=1), observed(True, kernel=7), observed(False, kernel=20)], ([], "kernel", "..7", None)),
        ([observed(False, axis=0), observed(True, axis=1), observed(True, axis=2)], ([], "axis", "1..", None)),
        ([observed(False, mode="wrap"), observed(True, mode="edge")], ([], "mode", "", "wrap")),
        ([observed(False, **{"W.constant": False}), observed(True, **{"W.constant": True})],
         ([], "W.constant", "", False)),
        ([observed(True, pads=(0, 0)), observed(True, pads=(1, 0)), observed(False, pads=(0, 3))],
         ([], "pads", "..1", None)),
        ([observed(True, extents={"X": (4, 2)}), observed(False, extents={"X": (0, 2)})],
         ([], "X_1", "4..", None)),
        # a value that is known only at run time cannot be within a limit
        ([observed(True, K=3), observed(False, K=UNKNOWN), observed(False, K=900)], ([], "K", "..3", None)),
    ],
)  # fmt: skip
def test_one_limit_that_separates_right_from_wrong(nodes, expected):
    assert expected in limits(*nodes)


def test_two_conditions_together():
    nodes = [observed(not (mode == "cubic" and rank == 5), mode=mode, rank=rank) for mode in ("cubic", "linear")
             for rank in (3, 4, 5)]  # fmt: skip
    ((guards, name, *_),) = limits(*nodes)
    assert sorted([*guards, name]) in (["mode", "rank: 5.."], ["mode: cubic", "rank"])


def test_types_that_are_never_right_are_not_listed_and_others_may_be_narrowed():
    nodes = [
        observed(dtype != "int8" and not (dtype == "int64" and rank == 1), {"T": dtype}, rank=rank)
        for dtype in ("float32", "int64", "int8")
        for rank in (1, 2)
    ]
    rule = learned("Acme", nodes)
    assert rule.types == {"T": ["float32", "int64"]}
    assert [rule.accepts(node.names) for node in nodes] == [node.right for node in nodes]


def test_right_nodes_are_not_given_up_for_a_few_wrong_ones():
    nodes = [observed(True, rank=rank) for rank in (1, 2, 3) for _ in range(9)] + [observed(False, rank=2)]
    assert limits(*nodes) == []


@pytest.mark.parametrize(
    ("share", "precision"), [(1e-7, "float32"), (4e-4, "float16"), (4e-3, "bfloat16"), (0.03, "int8")]
)
def test_the_precision_of_an_engine_follows_from_what_it_rounds(share, precision):
    exact = [RIGHT] * 100
    rounded = [Outcome("done", share=share * factor, types=("float32",)) for factor in (0.5, 1, 1.5)]
    wrong = [Outcome("done", share=0.4, types=("float32",))] * 2
    assert computed_in([*exact, *rounded, *wrong]) == precision
    assert all(is_right(outcome, precision) for outcome in rounded)
    assert not is_right(wrong[0], precision)


def test_numbers_are_tried_at_the_ends_of_their_types_and_indices_are_not():
    negated = NodeSample("Neg", {}, (np.array([1, 2, 3], np.int8),), (False,), 1, 21)
    case = ends_of("Neg", "small", negated)
    assert case is not None and case.at_ends
    assert {127, -128} <= set(case.feeds["in0"].tolist())
    gathered = NodeSample("Gather", {}, (np.ones(3, np.float32), np.array([1, 2])), (False, False), 1, 21)
    assert ends_of("Gather", "indices", gathered) is None


def test_a_node_that_is_wrong_at_the_ends_is_not_right_with_small_integers():
    negated = NodeSample("Neg", {}, (np.array([1, 2, 3], np.int8),), (False,), 1, 21)
    small, ends = case_of("Neg", "small", negated), ends_of("Neg", "small", negated)
    names = NodeNames({}, {}, {"T": "int8"}, {"X": "T", "Y": "T"})
    nearly = Outcome("done", share=1e-6, types=("int8",))
    seen = [(small, names, Outcome("done", exact=True, types=("int8",))), (ends, names, nearly)]
    assert [each.right for each in observations_of(seen, "float32")] == [False, False]
    seen[1] = (ends, names, seen[0][2])
    assert [each.right for each in observations_of(seen, "float32")] == [True, True]


def test_attributes_are_tried_at_fractions_words_and_empty_lists():
    data, filters = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    sample = NodeSample("ConvTranspose", {}, (data, filters), (False, False), 1, 21)
    tried = {what for what, _ in attribute_changes(sample, [])}
    assert {"auto_pad = SAME_LOWER", "output_shape = [8, 8]", "output_shape = [7, 7]", "pads = []"} <= tried
    normalized = NodeSample("LRN", {"size": 3}, (data,), (False,), 1, 21)
    assert {"bias = 1.5", "bias = -0.5", "alpha = 0.0"} <= {what for what, _ in attribute_changes(normalized, [])}


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """The probe of an engine with known limits, its file as a backend, and the folder with both."""
    folder = tmp_path_factory.mktemp("limited")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "_SECONDS", 8.0)
        patch.syspath_prepend(_vendor(folder / "site"))
        plugins = dovetail.load_plugins()
        found = probe("acme-limited", plugins=plugins, state=folder / "state", operators=OPERATORS)
        file = folder / "acme.backend.yaml"
        file.write_text(file_of(found, "acme"))
        yield found, load_chosen(plugins.registry, BackendChoice.parse(use_file(plugins.registry, str(file)))), folder


def _vendor(root):
    """A distribution with the engine."""
    info = root / "acme_limited-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-limited\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dovetail]\nacme = acme_limited\n")
    (root / "limited_engine.py").write_text(Path(__file__).with_name("limited_engine.py").read_text())
    (root / "acme_limited.py").write_text(
        "from dovetail.plugin import hookimpl\n\ndovetail_api = 1\n\n\n@hookimpl\ndef register(registry):\n"
        '    registry.engine("acme-limited", "limited_engine:Limited")\n'
    )
    return root


@pytest.mark.slow
def test_limits_of_an_engine_are_found(limited):
    found, _, folder = limited
    text = (folder / "acme.backend.yaml").read_text()
    assert found.precision == "float32"
    assert "opset: 7..21" in text
    assert "kernel_shape: ..5  # refused: acme-limited: kernels of 31 are not supported" in text
    assert "X.rank: ..4" in text
    assert found.rules["Neg"].types["T"].count("float64") == 0
    assert "int8" not in found.rules["Neg"].types["T"], "right with small integers, wrong at the ends of the type"
    assert "int8" not in found.rules["Abs"].types["T"]
    assert "int64" not in found.rules["Sign"].types["T"]


@pytest.mark.slow
def test_what_ends_or_hangs_is_the_reason_of_one_node(limited):
    found, _, _ = limited
    reasons = {each.outcome.reason for name in ("Abs", "Sign") for each in found.rules[name].observations}
    assert any("acme-limited ended with signal SIGABRT" in reason for reason in reasons)
    assert any("acme-limited gave no answer within 8 s" in reason for reason in reasons)
    assert all(each.right for each in found.rules["Abs"].observations if each.names.types["T"] == "float32")


@pytest.mark.slow
def test_the_file_accepts_what_is_right_and_nothing_else(limited):
    found, backend, _ = limited
    plugins = dovetail.load_plugins()
    again = probe(
        "onnxruntime-cpu", plugins=plugins, operators=("MaxPool",), against=str(limited[2] / "acme.backend.yaml")
    )
    kernels = {
        max(each.names.values["kernel_shape"]): not each.names.refusal
        for each in again.rules["MaxPool"].observations
        if each.right and "kernel_shape = " in each.label and each.names.types["T"] == "float32"
    }
    assert kernels
    assert all(accepted == (kernel <= 5) for kernel, accepted in kernels.items())
    claims = [each for each in contradictions(again) if "kernel_shape" in each.example]
    assert {each.kind for each in claims} == {"refused"}
    assert backend.engines == ("acme-limited",)
    for rule in found.rules.values():
        assert all(rule.accepts(each.names) == each.right for each in rule.observations)


@pytest.mark.slow
def test_a_probe_resumes_and_one_of_another_version_begins_anew(limited, monkeypatch):
    found, _, folder = limited
    plugins = dovetail.load_plugins()
    again = probe("acme-limited", plugins=plugins, state=folder / "state", operators=OPERATORS)
    assert (again.tried, again.resumed) == (0, found.tried)
    assert file_of(again, "acme") == (folder / "acme.backend.yaml").read_text()
    lines = (folder / "state").read_text().splitlines()
    (folder / "killed").write_text("\n".join([*lines[:5], lines[5][:20]]))
    assert ProbeState(folder / "killed", json.loads(lines[0])["probe"]).resumed == 4
    other = {**json.loads(lines[0])["probe"], "acme-limited": "2.0"}
    assert ProbeState(folder / "killed", other).resumed == 0


def test_a_time_limit_leaves_out_the_rest():
    found = probe("onnxruntime-cpu", operators=["Relu", "Conv"], time_limit=1e-6)
    assert found.unfinished == ["Conv", "Relu"]
    assert "time limit left out nodes of Conv, Relu" in file_of(found, "acme")


MADE = """
import sys, dovetail
from dovetail_testing.probe.cases import TestedNodes
from dovetail_testing.probe.probing import probe
{}
print([name for name in sys.modules if name.startswith("onnx.backend.test.case.node.")])
"""


@pytest.mark.parametrize(
    ("script", "made"),
    [
        ("assert 'Conv' in probe('onnxruntime-cpu', time_limit=1e-6).unfinished", set()),
        ("assert list(TestedNodes(dovetail.load_plugins(), 26, ['Sign']))", {"sign"}),
    ],
    ids=["behind the time limit", "of other operators"],
)
def test_tests_that_are_not_tried_are_not_made(script, made):
    """Making all of onnx's node tests takes longer than a short limit."""
    ran = subprocess.run([sys.executable, "-c", MADE.format(script)], capture_output=True, text=True, check=True)
    modules = [name.rpartition(".")[2] for name in ast.literal_eval(ran.stdout) if ".ai_onnx_" not in name]
    assert made <= set(modules) and len(modules) <= 3 * len(made)


IMPORTED = """
from onnx.backend.test.case.node import abs, relu
from dovetail_testing.suites import node_tests
tests = node_tests()
tests.cases("onnx.backend.test.case.node.neg")
print([case.name for module in tests.modules(["Relu"]) for case in tests.cases(module) if case.operator == "Relu"])
"""


def test_tests_that_others_have_made_are_found_among_those_of_their_operator():
    """A program may import onnx's tests itself, and then ask for those of one operator."""
    ran = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert "test_relu" in ast.literal_eval(ran.stdout)


@pytest.mark.slow
def test_every_test_of_an_operator_is_in_a_module_that_mentions_it():
    tests = node_tests()
    cases = {module: tests.cases(module) for module in tests.modules()}
    assert {case.name for case in node_cases()} == {test.name for test in load_model_tests(kind="node")}
    for operator in {case.operator for case in node_cases()}:
        found = {module for module, made in cases.items() if any(case.operator == operator for case in made)}
        assert found <= set(tests.modules([operator])), operator


def test_machines_leave_time_to_read_what_they_found(monkeypatch, tmp_path):
    given = []

    @contextmanager
    def workers_of(address, plugins):
        yield object(), []

    monkeypatch.setattr(data_workers, "workers_of", workers_of)
    monkeypatch.setattr(parts, "probe_in_parts", lambda *_, time_limit, **__: given.append(time_limit))
    file = tmp_path / "acme.backend.yaml"
    assert main(["probe", "host", "-o", str(file), "--operator", "Relu", "--cluster", "a", "--time-limit", "1000"]) == 0
    assert 0 < given[0] <= 800


def test_the_command_writes_a_file_that_check_accepts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["probe", "host", "-o", "acme.backend.yaml", "--operator", "Relu"]) == 0
    printed = capsys.readouterr()
    assert "host accepts, and the engine does not compute: " in printed.out
    assert "parts of the tests: " in printed.err
    assert main(["check", "acme.backend.yaml"]) == 0
    capsys.readouterr()
    assert main(["probe", "onnxruntime-cpu", "-o", "acme.backend.yaml", "--operator", "Relu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine"], found["against"]) == ("onnxruntime-cpu", "")


def test_bad_input(tmp_path):
    with pytest.raises(UsageError, match=r"no backend or engine 'openvino-gpu' \(did you mean"):
        probe("openvino-gpu")
    with pytest.raises(UsageError, match=r"no test is about an operator 'Rilu' \(did you mean 'Relu'"):
        probe("onnxruntime-cpu", operators=["Rilu"])
    with pytest.raises(DovetailError, match=r"engine onnxruntime-ep-coreml is not available: .*"):
        probe("onnxruntime-ep-coreml")
    (tmp_path / "state").write_text("a letter")
    with pytest.raises(DovetailError, match=r"state is not the state of a probe"):
        probe("onnxruntime-cpu", operators=["Relu"], state=tmp_path / "state")
    assert (tmp_path / "state").read_text() == "a letter"


@pytest.mark.parametrize("name", ["Acme NPU!.yaml", "1.backend.yaml"])
def test_an_output_that_gives_no_name(name, tmp_path, capsys):
    assert main(["probe", "onnxruntime-cpu", "-o", str(tmp_path / name)]) == 2
    assert "name it as in acme.backend.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["wrap", "no", "1.5", r"(\W|^)a", 'say "x"', "é: b", "#1", ""])
def test_values_of_attributes_are_read_again_as_they_were(text):
    assert yaml.safe_load(f"{{a: {written(text)}}}") == {"a": text}
