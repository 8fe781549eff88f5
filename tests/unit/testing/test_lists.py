"""Files of lists: what they may say, and how each mistake is shown."""

import pytest
from dovetail import DovetailError, load_plugins
from dovetail_testing.case import SUITES, Case, CaseMeasurement
from dovetail_testing.list_files import Lists, read_lists
from dovetail_testing.list_merging import add_to_lists, merged
from dovetail_testing.verdicts import text_to_add, verdict

GOOD = """
backend: acme
exact:
  operators: [Relu, MaxPool]
  tests: [test_conv_of_one]
relaxed:
  - operators: [Conv]
    tests: [net_a]
    tolerance: 0.01
    why: sums in float16
  - {tests: [test_conv_*], tolerance: 0.05, why: long sums}
run_only:
  - {operators: [Dropout], why: random numbers}
fails:
  - {tests: [test_pad], why: a defect}
"""


@pytest.fixture
def read(tmp_path):
    def of(text):
        path = tmp_path / "acme.yaml"
        path.write_text(text.lstrip("\n"))
        return Lists((read_lists(path),))

    return of


@pytest.mark.parametrize(
    ("name", "operator", "kind", "tolerance"),
    [
        ("test_relu", "Relu", "exact", 0),
        ("test_convolve", "Conv", "relaxed", 0.01),
        ("test_conv_long", "Conv", "relaxed", 0.05),  # a pattern says more than an operator
        ("test_conv_of_one", "Conv", "exact", 0),  # and a name more than a pattern
        ("net_a", "", "relaxed", 0.01),
        ("test_dropout", "Dropout", "run_only", 0),
        ("test_pad", "Pad", "fails", 0),
    ],
)
def test_the_entry_that_says_most_decides(read, name, operator, kind, tolerance):
    found = read(GOOD).expectation(name, operator)
    assert (found.kind, found.tolerance) == (kind, tolerance)


def test_what_is_not_listed_has_no_entry(read):
    assert read(GOOD).expectation("test_abs", "Abs") is None


def measured(name="test_conv", operator="Conv", outcome="compared", **values):
    return CaseMeasurement("acme", "nodes", name, operator, outcome, placed=1, output="y", **values)


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (measured(exact=True), "exact"),
        (measured(share=0.009), "relaxed"),
        (measured(share=0.011), "failed"),
        (measured(problem="its shape is [1], the reference gives [2]"), "failed"),
        (measured("test_relu", "Relu", share=1e-9), "failed"),
        (measured("test_dropout", "Dropout", share=0.9), "ran"),
        (measured("test_dropout", "Dropout", outcome="error", problem="no engine"), "failed"),
        (measured("test_pad", "Pad", outcome="error", problem="no engine"), "known"),
        (measured("test_abs", "Abs", exact=True), "failed"),
        (measured("test_abs", "Abs", outcome="host", reasons=("acme does not list Abs",)), "host"),
        (measured(outcome="no-reference"), "skipped"),
    ],
)
def test_verdicts(read, one, status):
    assert verdict(one, read(GOOD)).status == status


def test_the_text_to_add_has_room_above_what_was_measured():
    text = text_to_add([measured(share=0.00134), measured(share=0.001), measured("test_abs", "Abs", exact=True)])
    assert text.splitlines() == [
        "exact:",
        "  operators: [Abs]",
        "relaxed:",
        "  - operators: [Conv]",
        "    tolerance: 0.002",
        "    why:",
    ]


def test_a_result_that_is_another_one_is_not_suggested_as_relaxed():
    text = text_to_add([measured("test_bernoulli", "Bernoulli", share=1.0)])
    assert text.splitlines()[:2] == ["run_only:  # or fails, if it is a defect", "  - tests: [test_bernoulli]"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("backend: acme\nexat: {operators: [Relu]}", "acme.yaml:2: unknown key 'exat' in file (did you mean 'exact'?)"),
        ("exact: {operators: [Relu]}", "acme.yaml:1: key 'backend' is missing"),
        ("backend: acme\nexact: {operator: [Relu]}", "acme.yaml:2: unknown key 'operator' in exact"),
        ("backend: acme\nexact: {}", "acme.yaml:2: exact: 'operators' or 'tests' is missing"),
        ("backend: acme\nrelaxed: {operators: [Relu]}", "acme.yaml:2: relaxed: a list of entries is expected"),
        ("backend: acme\nrelaxed:\n- {operators: [Relu], why: x}", "acme.yaml:3: key 'tolerance' is missing"),
        ("backend: acme\nrelaxed:\n- {operators: [Relu], tolerance: 0.1}", "acme.yaml:3: relaxed: 'why' is missing"),
        (
            "backend: acme\nrelaxed:\n- operators: [Relu]\n  why: x\n  tolerance: -1",
            "acme.yaml:5: tolerance: a number above 0 is expected",
        ),
        ("backend: acme\nrun_only:\n- {operators: [Relu], why: ''}", "acme.yaml:3: run_only: 'why' is missing"),
        (
            "backend: acme\nrun_only:\n- {operators: [Relu], why: x, tolerance: 1}",
            "unknown key 'tolerance' in run_only",
        ),
        (
            "backend: acme\nexact: {operators: [Relu]}\nrun_only:\n- operators: [Abs, Relu]\n  why: x",
            "acme.yaml:4: 'Relu' is listed twice (first on line 2)",
        ),
        ("backend: acme\nexact: [1, 2", "acme.yaml"),
    ],
)
def test_mistakes_have_their_line(read, text, said):
    with pytest.raises(DovetailError) as error:
        read(text)
    assert said in error.value.message


CASES = [Case("nodes", name, "Relu", lambda _: None) for name in ("test_relu", "test_relu_expanded")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exact: {operators: [Relu, Reul]}", "acme.yaml:2: unknown operator 'Reul' (did you mean 'Relu'?)"),
        ("exact: {operators: [ai.onnx.ml::Normalizr]}", "unknown operator 'ai.onnx.ml::Normalizr' (did you mean"),
        ("exact: {operators: [acme.nn::Scale]}", "acme.yaml:2: unknown domain 'acme.nn'"),
        ("exact: {tests: [test_rel]}", "acme.yaml:2: unknown test 'test_rel' (did you mean 'test_relu'?)"),
        ("exact: {tests: ['test_gelu*']}", "acme.yaml:2: unknown test 'test_gelu*'"),
    ],
)
def test_names_that_do_not_exist_are_errors(read, text, said):
    with pytest.raises(DovetailError) as error:
        read(f"backend: acme\n{text}").check_names(CASES, SUITES, load_plugins().registry)
    assert said in error.value.message


def test_names_that_exist_are_not(read):
    good = read(
        "backend: acme\nexact:\n  operators: [Relu, ai.onnx.ml::Normalizer]\n  tests: [test_relu, 'test_*_exp*']"
    )
    assert good.check_names(CASES, SUITES, load_plugins().registry) == []


def test_tests_of_another_version_of_onnx_are_warnings(read):
    other = read('backend: acme\nonnx: "1.19"\nexact: {tests: [test_of_old]}')
    (said,) = other.check_names(CASES, SUITES, load_plugins().registry)
    assert said.startswith("acme.yaml:3: onnx ")
    assert said.endswith("has no test 'test_of_old', onnx 1.19 has")


def test_names_of_suites_that_do_not_run_are_left_alone(read):
    other = read("backend: acme\nexact: {tests: [test_of_nodes, my_model]}")
    assert other.check_names(CASES, ["models"], load_plugins().registry) == []


def test_notes_of_a_list_stand_on_the_page(tmp_path):
    from dovetail_testing.list_files import Lists, read_lists
    from dovetail_testing.table import BackendTable, page

    path = tmp_path / "lists.yaml"
    path.write_text("backend: acme-npu\nnotes: Triples were tried, too.\nexact: {operators: [Relu]}\n")
    notes = Lists([read_lists(path)]).notes
    assert notes == ["Triples were tried, too."]
    text = page([BackendTable("acme-npu", "Executed by `acme`.", [], notes)], "pytest", {})
    assert "## acme-npu\n\nExecuted by `acme`. 0 cases: 0 on the backend (none), 0 on the host.\n\nTriples were" in text


ADDED = """exact:
  operators: [Abs, Neg]
  tests: [net_b]
relaxed:
  - operators: [Gemm]
    tolerance: 0.002
    why:
fails:
  - tests: [test_x]
    why: it is a defect
"""


@pytest.mark.parametrize(
    "old",
    [
        GOOD,
        "backend: acme  # ours\nrelaxed:\n# long sums\n- {tests: [test_conv_*], tolerance: 0.05, why: long sums}\n",
        "backend: acme\nexact:\n  - operators: [Relu]  # a list of entries\n  - tests: [test_conv_of_one]\n",
        "backend: acme\nexact:\n  operators: [Relu,\n              MaxPool]  # by hand\n",
        f"backend: acme\nexact: \n  operators: [{', '.join(['Relu'] * 1 + [f'Sigmoid{n}' for n in range(12)])}]\n",
        "backend: acme\n",
    ],
)
def test_new_entries_leave_what_a_person_wrote(old, tmp_path):
    text = merged(old.lstrip("\n"), ADDED)
    left = iter(text)
    assert all(character in left for character in old.strip())  # in order: nothing went
    file = tmp_path / "acme.yaml"
    file.write_text(text.replace("why:\n", "why: short\n"))
    entries = read_lists(file).entries
    names = {(entry.kind, name.raw) for entry in entries for name in entry.names}
    assert names >= {("exact", "Abs"), ("exact", "Neg"), ("exact", "net_b"), ("relaxed", "Gemm"), ("fails", "test_x")}
    file.write_text(old.lstrip("\n"))
    assert names >= {(entry.kind, name.raw) for entry in read_lists(file).entries for name in entry.names}


def test_lists_of_a_new_file_and_a_file_that_is_none(tmp_path):
    add_to_lists(tmp_path / "new.yaml", "acme", "1.23", ADDED.replace("why:\n", "why: short\n"))
    assert read_lists(tmp_path / "new.yaml").backend == "acme"
    (tmp_path / "other.yaml").write_text("operators: 3\n")
    with pytest.raises(DovetailError, match=r"other\.yaml"):
        add_to_lists(tmp_path / "other.yaml", "acme", "1.23", ADDED)
    assert (tmp_path / "other.yaml").read_text() == "operators: 3\n"
