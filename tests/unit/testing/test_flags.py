"""`pytest --dovetail-backend NAME` and its other flags, with a vendor's backend."""

import json

import numpy as np
import onnx
import pytest
from dovetail_testing import cases, double_run
from onnx import TensorProto, helper

pytest_plugins = "pytester"

NETS = "net_attention, net_branches, net_convolutions, net_recurrence"
NETS_RELAXED = f"relaxed:\n  - tests: [{NETS}]\n    tolerance: 0.01\n    why: float16\n"


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Import what a run imports: pytest inside of pytest forgets its imports, and classes would be there twice."""
    assert cases("nodes")
    assert double_run("Relu", "host").exact


@pytest.fixture
def run(pytester, vendor):
    """Run pytest on the vendor's backend; one file is there that is no part of the suite."""
    pytester.makepyfile(test_own="def test_own():\n    pass")

    def of(*arguments, backend=vendor.name):
        return pytester.runpytest_inprocess("--dovetail-backend", backend, *arguments, "-p", "no:cacheprovider")

    return of


def test_what_is_on_no_list_fails_with_the_text_to_add(run):
    done = run("--dovetail-suite", "models")
    done.assert_outcomes(failed=4)
    done.stdout.fnmatch_lines(["model net_convolutions is on no list of *", "relaxed:", "  - tests: [[]net_convol*"])
    done.stdout.fnmatch_lines(["on no list of acme-*", "exact:", "relaxed:", "  - tests: [[]net_attention]", "*why:"])


@pytest.mark.slow
def test_the_text_to_add_makes_it_pass_once_it_has_reasons(run, vendor, pytester):
    said = run("--dovetail-suite", "models").stdout.str()
    block = said[said.index("add with reasons") :].partition("\n")[2].partition("\n====")[0]
    pytester.path.joinpath("mine.yaml").write_text(f"backend: {vendor.name}\n{block}\n")
    done = run("--dovetail-suite", "models", "--dovetail-lists", "mine.yaml")
    done.stderr.fnmatch_lines(["*mine.yaml:*: relaxed: 'why' is missing; say what makes the results differ"])
    pytester.path.joinpath("mine.yaml").write_text(f"backend: {vendor.name}\n{block}\n".replace("why:", "why: float16"))
    run("--dovetail-suite", "models", "--dovetail-lists", "mine.yaml").assert_outcomes(passed=4)


def test_lists_that_the_backend_ships_are_read(run, vendor):
    vendor.lists(NETS_RELAXED)
    run("--dovetail-suite", "models").assert_outcomes(passed=4)


@pytest.mark.slow
def test_lists_of_the_user_come_after_those_of_the_backend(run, vendor, pytester):
    vendor.lists(NETS_RELAXED)
    lists = f"backend: {vendor.name}\nexact: {{tests: [net_attention]}}\n"
    pytester.path.joinpath("mine.yaml").write_text(lists)
    done = run("--dovetail-suite", "models", "--dovetail-lists", "mine.yaml")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["output 'y' differs by *; mine.yaml:2 says exact"])


@pytest.mark.slow
def test_nothing_else_is_collected_unless_the_command_line_names_it(run, vendor):
    vendor.lists(NETS_RELAXED)
    run("--dovetail-suite", "models").assert_outcomes(passed=4)
    run("--dovetail-suite", "models", "test_own.py").assert_outcomes(passed=5)


def test_tests_are_chosen_by_name_as_any_others(run, vendor):
    vendor.lists(NETS_RELAXED)
    run("--dovetail-suite", "models", "-k", "attention").assert_outcomes(passed=1, deselected=3)


def test_without_a_backend_nothing_changes(pytester):
    pytester.makepyfile(test_own="def test_own():\n    pass")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


@pytest.mark.slow
def test_shards_are_the_whole(run, vendor):
    vendor.lists(NETS_RELAXED)
    counts = [run("--dovetail-suite", "models", "--dovetail-shard", f"{n}/3").parseoutcomes() for n in (1, 2, 3)]
    assert sum(each.get("passed", 0) for each in counts) == 4


@pytest.mark.slow
def test_what_the_file_of_results_has_is_not_run_again(run, vendor, pytester):
    options = ("--dovetail-suite", "models", "--dovetail-resume", "results.jsonl")
    run(*options, "-k", "attention").assert_outcomes(failed=1, deselected=3)
    first = pytester.path.joinpath("results.jsonl").read_text()
    vendor.lists(NETS_RELAXED)  # results are judged again by the lists of today
    run(*options).assert_outcomes(passed=4)
    later = pytester.path.joinpath("results.jsonl").read_text()
    assert later.startswith(first)
    results = [json.loads(line) for line in later.splitlines() if '"outcome"' in line]
    assert [each["name"] for each in results].count("net_attention") == 1
    assert len(results) == 4


@pytest.mark.slow
def test_a_file_of_results_that_was_cut_off_is_continued(run, vendor, pytester):
    vendor.lists(NETS_RELAXED)
    options = ("--dovetail-suite", "models", "--dovetail-resume", "results.jsonl")
    run(*options).assert_outcomes(passed=4)
    path = pytester.path.joinpath("results.jsonl")
    path.write_text(path.read_text()[:-50])
    run(*options).assert_outcomes(passed=4)
    run(*options).assert_outcomes(passed=4)
    assert sum('"outcome"' in line and line.endswith("}") for line in path.read_text().splitlines()) == 4


def test_a_case_that_ended_the_process_twice_fails_without_being_run(run, vendor, pytester):
    vendor.lists(NETS_RELAXED)
    options = ("--dovetail-suite", "models", "-k", "attention", "--dovetail-resume", "results.jsonl")
    run(*options).assert_outcomes(passed=1, deselected=3)
    path = pytester.path.joinpath("results.jsonl")
    begun = path.read_text().splitlines()[0]
    path.write_text(f"{begun}\n{begun}\n")
    done = run(*options)
    done.assert_outcomes(failed=1, deselected=3)
    done.stdout.fnmatch_lines(["fails: the process ended twice while it ran"])


def test_a_file_that_holds_no_results_is_refused_and_kept(run, pytester):
    path = pytester.path.joinpath("notes.txt")
    path.write_text("do not lose this")
    done = run("--dovetail-suite", "models", "--dovetail-resume", "notes.txt")
    done.stderr.fnmatch_lines(["*notes.txt:1: no line of conformance results*"])
    assert path.read_text() == "do not lose this"


@pytest.mark.slow
def test_the_table_counts_what_is_on_the_host_apart(run, vendor, pytester):
    vendor.lists("exact: {operators: [Relu]}\nrelaxed:\n  - {operators: [Softmax], tolerance: 0.01, why: float16}\n")
    options = ("--dovetail-suite", "nodes", "-k", "(relu or softmax or acosh) and not expanded")
    run(*options, "--dovetail-table", "out/table.md")
    table = pytester.path.joinpath("out/table.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("|")}
    assert rows["Relu"].startswith("| Relu | 1 | 0 | 1 | 0 | 0 | 0 |")
    assert rows["Acosh"] == f"| Acosh | 2 | {vendor.name} does not list Acosh |"
    cases, host, placed, *fates = (int(cell) for cell in rows[f"[{vendor.name}](#{vendor.name})"].split("|")[2:-1])
    assert cases == host + placed
    assert placed == sum(fates) == fates[0] > 0
    assert f"## {vendor.name}" in table
    assert "`onnxruntime-cpu`" in table


def test_a_run_that_was_broken_off_leaves_the_table_as_it_was(run, vendor, pytester):
    pytester.path.joinpath("table.md").write_text("an earlier one")
    done = run("--dovetail-suite", "models", "--dovetail-table", "table.md", "-x")
    done.stdout.fnmatch_lines(["table.md was not written: *"])
    assert pytester.path.joinpath("table.md").read_text() == "an earlier one"


def test_entries_that_could_be_stricter_are_warnings(run, vendor):
    vendor.lists("relaxed:\n  - {operators: [Relu], tolerance: 0.1, why: caution}\n")
    done = run("--dovetail-suite", "nodes", "-k", "test_relu")
    done.assert_outcomes(passed=1, skipped=1, deselected=len(cases("nodes")) - 2)
    done.stdout.fnmatch_lines(
        ["warning: conformance.yaml:3: Relu: listed as relaxed, and its test is exact; move it to exact"]
    )


def test_known_failures_are_expected_and_do_not_rot_either(run, vendor):
    vendor.lists(f"{NETS_RELAXED}fails:\n  - {{tests: [test_add_bcast], why: it is wrong}}\n")
    done = run("--dovetail-suite", "nodes", "-k", "test_add_bcast and not uint")
    done.assert_outcomes(passed=1, deselected=len(cases("nodes")) - 1)
    done.stdout.fnmatch_lines(["warning: *: test_add_bcast: listed as fails, and its test is exact; move it to exact"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dovetail-suite", "node"), "there is no suite 'node' (did you mean 'nodes'*"),
        (("--dovetail-shard", "5/4"), "--dovetail-shard '5/4' is not of the form 1/4"),
        (("--dovetail-sample", "0"), "--dovetail-sample 0 is no number of cases"),
        (("--dovetail-models", "nowhere"), "nowhere is no folder"),
        (("--dovetail-lists", "nowhere.yaml"), "nowhere.yaml: *"),
        (("--dovetail-table", "."), "--dovetail-table . is a folder"),
        (("--dovetail-backend", "cpu-bf17"), "unknown backend 'cpu-bf17' (did you mean 'cpu-bf16'*"),
    ],
)
def test_mistakes_are_one_message(run, arguments, said):
    done = run("--dovetail-suite", "models", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*{said.replace('[', '[[]')}"])
    assert "Traceback" not in done.stderr.str() + done.stdout.str()


@pytest.mark.parametrize("option", [("--dovetail-sample", "3"), ("--dovetail-narrow",), ("--dovetail-table", "t.md")])
def test_options_without_a_backend_are_refused(pytester, option):
    done = pytester.runpytest_inprocess(*option)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*{option[0]} needs --dovetail-backend NAME"])


@pytest.mark.slow
def test_models_of_a_folder_run_on_their_arrays(run, vendor, pytester):
    folder = pytester.mkdir("models")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder / "r.onnx")
    np.savez(folder / "r.npz", x=np.float32([-1, 0, 2]), y=np.float32([0, 0, 2]))
    vendor.lists(f"{NETS_RELAXED}exact: {{tests: [r]}}")
    options = ("--dovetail-suite", "models", "--dovetail-models", "models")
    run(*options).assert_outcomes(passed=5)
    np.savez(folder / "r.npz", x=np.float32([-1, 0, 2]), y=np.float32([0, 0, 3]))
    done = run(*options)
    done.assert_outcomes(passed=4, failed=1)
    done.stdout.fnmatch_lines(["output 'y' differs by 0.333 of its largest value (reference: the recorded results)*"])
    np.savez(folder / "r.npz", X=np.float32([-1, 0, 2]))
    done = run(*options, "-k", "r")
    done.stdout.fnmatch_lines(["fails: the model has neither an input nor an output 'X'*"])
    (folder / "r.npz").write_bytes(b"no archive")
    run(*options).stdout.fnmatch_lines(["fails: *r.npz cannot be read as arrays by name*"])


def test_a_narrow_run_has_inputs_and_outputs_in_the_low_precision(run, vendor):
    vendor.lists("exact: {operators: [Relu]}")
    done = run("--dovetail-suite", "nodes", "-k", "test_relu and not expanded", "--dovetail-narrow")
    done.assert_outcomes(passed=1, deselected=len(cases("nodes")) - 1)


@pytest.mark.slow
def test_what_is_on_no_list_is_added_to_a_file(run, tmp_path, vendor):
    lists = tmp_path / "own.yaml"
    lists.write_text(f"backend: {vendor.name}\nexact:\n  operators: [Relu]  # by hand\n")
    run("--dovetail-suite", "models", "--dovetail-add-to", str(lists))
    text = lists.read_text()
    assert "operators: [Relu]  # by hand" in text
    assert "net_convolutions" in text
    lists.write_text(text.replace("why:\n", "why: float16\n"))
    run("--dovetail-suite", "models", "--dovetail-lists", str(lists)).assert_outcomes(passed=4)
