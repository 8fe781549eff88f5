"""A distribution outside of the house with one thing of almost every kind: listed, used, broken, and gone."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "tests" / "example_tools"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SAMPLES = ROOT / "examples" / "digits" / "test.npz"
PACKAGE = "dovetail_example_tools"


@pytest.fixture(scope="module")
def site(pip_installed):
    return pip_installed(TOOLS)


@pytest.fixture
def broken(site, broken_copy):
    return broken_copy(site)


def test_the_command(dovetail, site):
    listed = [line.split(maxsplit=1) for line in dovetail("--help", PYTHONPATH=str(site)).stdout.splitlines()]
    assert ["hello", "Greet installed backends."] in listed
    said = dovetail("hello", PYTHONPATH=str(site)).stdout.splitlines()
    assert {"hello, cpu-bf16", "hello, host"} <= set(said)
    assert '"hello, you"' in dovetail("hello", "you", "--json", PYTHONPATH=str(site)).stdout
    assert dovetail("hello").returncode == 2, "it is not installed"


def test_the_option_of_the_command_and_of_the_function(dovetail, python, site):
    compile_ = ("compile", DIGITS, "--backend", "host", "-o", "out")
    done = dovetail(*compile_, "--hello", "you", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert Path("out/hello.txt").read_text() == "hello, you: host 13; 0 conversions\n"
    assert dovetail(*compile_, "--hello", "", PYTHONPATH=str(site)).returncode == 2
    code = f"""
import dovetail
compiled = dovetail.compile({str(DIGITS)!r}, "host", hello="me")
print(compiled.files["hello.txt"], compiled.plan.summary["options"], dovetail.hello(), "hello" in dir(dovetail))
try:
    dovetail.compile({str(DIGITS)!r}, "host", helo="me")
except dovetail.UsageError as error:
    print(error.message)
"""
    assert python(code, PYTHONPATH=str(site)) == (
        "hello, me: host 13; 0 conversions\n {'hello': {'who': 'me'}} hello, world True\n"
        "dovetail.compile has no keyword 'helo' (did you mean 'hello'?)\n"
    )


TOY = """# a toy network
input x 1 2 4 4
a = relu x
b = tanh a
y = add a b
output y
"""


def test_it_is_listed(dovetail, site):
    listed = dovetail("plugins", "--json", PYTHONPATH=str(site))
    (tools,) = (item for item in json.loads(listed.stdout)["plugins"] if item["name"] == "example-tools")
    assert tools["brings"] == {
        "pass": ["relu-to-clip"],
        "pipeline": ["clips", "clips-on-toy-npu"],
        "solver": ["as-exported"],
        "frontend": ["toy"],
        "edit": ["unit-conv"],
        "partitioner": ["pairs"],
        "backend": ["toy-npu", "toy-relu"],
        "backend_format": ["operator-list"],
        "executor": ["sequential"],
        "result_store": ["zip"],
        "command": ["hello"],
        "option": ["hello"],
    }
    passes = dovetail("passes", PYTHONPATH=str(site)).stdout
    assert re.search(r"^    relu-to-clip +dovetail-example-tools +Replace Relu by Clip\.$", passes, re.MULTILINE)
    assert "    clips-on-toy-npu  dovetail-example-tools  backend:toy-npu(clips)\n" in passes
    assert "toy-npu  (dovetail-example-tools)  Toy NPU, float32" in dovetail("backends", PYTHONPATH=str(site)).stdout


def test_a_toy_network_by_frontend_edit_backend_former_pipeline_and_executor(dovetail, site):
    """Every command takes the file, and what is computed does not change on the way."""
    Path("m.toy").write_text(TOY)
    np.savez("one.npz", x=np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32))
    environment = {"PYTHONPATH": str(site)}
    edit = ("--edit", "unit-conv=line_4:before")
    done = dovetail("compile", "m.toy", "--backend", "toy-npu", *edit, "-o", "out", "--verify", **environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "toy-npu 4/4 nodes in 3 regions; 0 conversions; SNR exact"
    assert '"kind": "unit-conv"' in Path("out/plan.yaml").read_text()
    run = dovetail("run", "out", "--data", "one.npz", "--executor", "sequential", "-o", "o.npz", **environment)
    assert "4 nodes run one after the other" in run.stdout, run.stderr
    x = np.load("one.npz")["x"]
    np.testing.assert_allclose(np.load("o.npz")["y"], np.maximum(x, 0) + np.tanh(np.maximum(x, 0)), rtol=1e-5)
    opt = dovetail("opt", "out/model.onnx", "-p", "clips-on-toy-npu", "-o", "clips.onnx", "--timing", **environment)
    assert opt.returncode == 0, opt.stderr
    assert "backend:toy-npu" in opt.stderr
    operators = [node.op_type for node in onnx.load("clips.onnx").graph.node]
    assert operators == ["Clip", "Conv", "Tanh", "Add"]
    bound = dovetail("opt", "m.toy", "-p", "normalize,relu-to-clip{bound=6}", **environment)
    assert "Clip (x, " in bound.stdout
    assert "unit-conv added" in dovetail("explain", "out", "line_4", **environment).stdout
    again = dovetail("compile", "m.toy", "--plan", "out/plan.yaml", "-o", "again", **environment)
    assert again.returncode == 0, again.stderr
    names = [[node.name for node in onnx.load(f"{folder}/model.onnx").graph.node] for folder in ("out", "again")]
    assert names[0] == names[1]


def test_errors_in_its_files_and_options(dovetail, site):
    Path("m.toy").write_text(TOY.replace("b = tanh a", "b = tahn a"))
    done = dovetail("compile", "m.toy", "--backend", "toy-npu", PYTHONPATH=str(site))
    assert done.returncode == 1
    assert done.stderr == (
        "error: m.toy:4: no operator 'tahn' with 1 inputs\n  frontend 'toy' of dovetail-example-tools read it\n"
    )
    done = dovetail("compile", DIGITS, "--backend", "toy-npu:activation=no", PYTHONPATH=str(site))
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "error: toy-npu has no option 'activation'")


def test_the_solver(dovetail, site):
    command = ("compile", DIGITS, "--backend", "cpu-bf16", "--solver", "as-exported")
    done = dovetail(*command, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert "cpu-bf16  float32" in done.stdout
    assert "0 conversions" in done.stdout.splitlines()[-1]


def test_when_it_is_gone(dovetail, site):
    compiled = dovetail("compile", DIGITS, "--backend", "toy-npu", "-o", "out", PYTHONPATH=str(site))
    assert compiled.returncode == 0, compiled.stderr
    for arguments, says in (
        (
            ("run", "out", "--data", SAMPLES),
            "backend 'toy-npu' is not here: it needs dovetail-example-tools 1.x",
        ),
        (("opt", DIGITS, "-p", "clips"), "unknown pass 'clips'"),
        (("compile", DIGITS, "--backend", "host", "--edit", "unit-conv=conv_2"), "unknown edit 'unit-conv'"),
    ):
        done = dovetail(*arguments)
        assert done.returncode in (1, 2)
        assert f"error: {says}" in done.stderr


IMPORT = ("command.py", "from dovetail.cli import", "from dovetail.cli.gone import")
REGISTER = ("__init__.py", "from dovetail.plugin import hookimpl", "import nothing_of_this_name")
HOOK = ("__init__.py", 'registry.command("hello"', '1 / 0; registry.command("hello"')
RUN = ("command.py", "names = [", "names = 1 / 0, [")
OPTION = ("option.py", "from dovetail.plugin import Option, UsageError", "import nothing_of_this_name")
COMPILE = ("option.py", "if who := job.keywords", "1 / 0\n        if who := job.keywords")


@pytest.mark.generated
@pytest.mark.parametrize(
    ("change", "command", "code", "says"),
    [
        (IMPORT, ["hello"], 1, "error: command 'hello' of dovetail-example-tools cannot be loaded"),
        (REGISTER, ["--help"], 0, "warning: plugin example-tools (dovetail-example-tools): does not import"),
        (HOOK, ["--help"], 0, "warning: plugin example-tools (dovetail-example-tools): register: ZeroDivisionError"),
        (RUN, ["hello"], 1, "error: command 'hello' of dovetail-example-tools raised ZeroDivisionError"),
        (OPTION, ["compile"], 0, "warning: option 'hello' of dovetail-example-tools cannot be loaded"),
        (COMPILE, ["compile"], 1, "error: option 'hello' of dovetail-example-tools raised ZeroDivisionError"),
    ],
    ids=["import", "import of the hooks", "register", "run", "option", "compile"],
)
def test_broken_on_purpose(dovetail, broken, change, command, code, says):
    folder = broken(*change)
    more = [DIGITS, "--backend", "host"] if command == ["compile"] else []
    done = dovetail(*command, *more, PYTHONPATH=folder)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    rest = dovetail("compile", DIGITS, "--backend", "host", "--no-plugin", "example-tools", PYTHONPATH=folder)
    assert (rest.returncode, rest.stderr) == (0, "")


TOY_IMPORT = ("toy.py", "from dovetail.plugin import DovetailError", "import nothing_of_this_name")
SOLVER = ("as_exported.py", "for variable in", "for variable in 1 / 0, *")
PASS = ("clips.py", "return rewrite_model(", "return (1 / 0)(")
TEXT = ("__init__.py", "fixpoint(relu-to-clip)", "fixpoint(relu-to-clap)")
EDIT = ("unit_conv.py", "names, channels =", "1 / 0; names, channels =")
PARTITIONER = ("pairs.py", "first_of, taken =", "1 / 0; first_of, taken =")
BACKEND = ("toy_npu.py", "self.chosen =", "1 / 0; self.chosen =")
EXECUTOR = ("sequential.py", "graph = compiled", "1 / 0; graph = compiled")
NPU = ["compile", DIGITS, "--backend", "toy-npu"]


@pytest.mark.generated
@pytest.mark.parametrize(
    ("change", "command", "says"),
    [
        (TOY_IMPORT, ["opt", "m.toy", "-p", ""], "warning: frontend 'toy' of dovetail-example-tools cannot be loaded"),
        (PASS, ["opt", DIGITS, "-p", "clips"], "error: pass 'relu-to-clip' of dovetail-example-tools failed"),
        (TEXT, ["opt", DIGITS, "-p", "clips"], "error: pipeline 'clips' of dovetail-example-tools: unknown pass"),
        (EDIT, [*NPU, "--edit", "unit-conv=conv_2"], "error: edit 'unit-conv' of dovetail-example-tools at 'conv_2'"),
        (
            SOLVER,
            ["compile", DIGITS, "--backend", "cpu-bf16", "--solver", "as-exported"],
            "error: solver 'as-exported' of dovetail-example-tools",
        ),
        (PARTITIONER, NPU, "error: partitioner 'pairs' of dovetail-example-tools failed: ZeroDivisionError"),
        (BACKEND, NPU, "error: backend 'toy-npu' of dovetail-example-tools cannot be made: ZeroDivisionError"),
        (
            EXECUTOR,
            ["run", DIGITS, "--data", SAMPLES, "--executor", "sequential"],
            "error: executor 'sequential' of dovetail-example-tools failed: ZeroDivisionError",
        ),
    ],
    ids=["frontend", "pass", "pipeline", "edit", "solver", "partitioner", "backend", "executor"],
)
def test_what_is_broken_is_named_and_the_rest_of_it_works(dovetail, broken, change, command, says):
    Path("m.toy").write_text(TOY)
    folder = broken(*change)
    done = dovetail(*command, PYTHONPATH=folder)
    assert done.returncode == 1, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert dovetail("hello", "you", PYTHONPATH=folder).stdout == "hello, you\n"


def test_a_backend_in_a_format_of_its_own(dovetail, site):
    done = dovetail("compile", DIGITS, "--backend", "toy-relu", "-o", "out", "--verify", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert "toy-relu 6/" in done.stdout.splitlines()[-1]
    said = dovetail("explain", "out", "type:Conv", PYTHONPATH=str(site)).stdout
    assert "it has no Conv [relu.backend.list]" in said


def test_a_file_of_that_format_that_is_broken_is_named(dovetail, site, broken):
    folder = broken("relu.backend.list", "toy-relu\nRelu\nMaxPool\n", "")
    done = dovetail("backends", PYTHONPATH=folder)
    assert done.returncode == 0
    assert "relu.backend.list: it is empty" in done.stderr
    assert "example-tools  dovetail-example-tools  broken  relu.backend.list: it is empty" in done.stdout
    assert "cpu-bf16" in done.stdout


FILES = sorted(path.name for path in (TOOLS / "src" / PACKAGE).glob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_the_plugin_pages_show_its_files(file):
    text = (TOOLS / "src" / PACKAGE / file).read_text()
    assert any(f"```python\n{text}```\n" in page.read_text() for page in (ROOT / "docs/kinds").glob("*.md"))
