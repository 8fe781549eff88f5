"""Core without any other distribution: it edits models, and says what to install for the rest."""

import subprocess
import sys
from pathlib import Path

import dovetail
import pytest
from dovetail.passes import Context, Pipeline

MODEL = str(Path(__file__).parents[2] / "examples/digits/digits.onnx")
OTHERS = (
    "dovetail_onnx", "dovetail_schemas", "dovetail_host", "dovetail_transforms", "dovetail_placement",
    "dovetail_precision", "dovetail_runtime", "dovetail_verify", "dovetail_commands", "dovetail_builder",
    "dovetail_cpu_bf16", "dovetail_gpu_fp16", "onnxruntime", "openvino", "scipy",
)  # fmt: skip
ALONE = f"import sys; sys.modules.update(dict.fromkeys({OTHERS!r}))\n"


@pytest.fixture
def core(tmp_path, monkeypatch):
    """Run Python, or a command, where nothing but core, the plugins in `beside` and the modules in `needs` is found."""
    monkeypatch.chdir(tmp_path)

    def run(*command, code="from dovetail.cli.main import main; sys.exit(main(sys.argv[1:]))", beside=(), needs=()):
        monkeypatch.setenv("DOVETAIL_PLUGINS", ",".join(beside))
        found = "".join(f"del sys.modules['{name.replace('-', '_')}']\n" for name in (*beside, *needs))
        arguments = [sys.executable, "-c", ALONE + found + code, *command]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=120)

    return run


IN_MEMORY = """
import onnx_ir as ir
from dovetail.ir import Model
from dovetail.passes import Context, Pipeline
head = '<ir_version: 10, opset_import: ["": 22]>'
model = Model(ir.from_onnx_text(head + ' g (float[1] x) => (float[1] y) { y = Neg (x) }'))
Pipeline([]).run(model, Context())
assert str(model) == "<Model 'g': 1 nodes>" and model.source is None
"""


@pytest.mark.slow
def test_a_model_in_memory_goes_through_a_pipeline(core):
    done = core(code=IN_MEMORY)
    assert (done.returncode, done.stderr) == (0, "")


SAVING = (
    IN_MEMORY
    + """
try:
    model.save('copy.onnx')
except Exception as error:
    print(type(error).__name__, error)
"""
)


def test_saving_a_model_needs_a_front_end(core):
    said = core(code=SAVING).stdout
    assert "DovetailError copy.onnx: no front end writes such files" in said
    assert "pip install dovetail-onnx, which writes ONNX models" in said
    assert not Path("copy.onnx").exists()
    assert core(code=SAVING, beside=["dovetail-onnx"]).stdout == ""
    assert Path("copy.onnx").is_file()


@pytest.mark.parametrize(
    "call",
    [
        "dovetail.load('out')",
        "dovetail.explain('plan.yaml')",
        "Plan.load('plan.yaml')",
        "Plan().save('plan.yaml')",
        "str(Plan())",
        "dovetail.CompiledModel(dovetail.Model(), Plan()).save('out')",
    ],
)
def test_results_and_plans_in_files_need_a_store(core, call):
    code = f"""
import dovetail
from dovetail.planning.plan import Plan
MODEL = {MODEL!r}
try:
    {call}
except dovetail.DovetailError as error:
    print(error)
"""
    done = core(code=code, needs=["dovetail-commands", "dovetail-onnx"])
    assert "no store of results and plans is installed" in done.stdout, done.stderr
    assert "pip install dovetail-onnx" in done.stdout


def test_a_result_in_memory_needs_no_store(core):
    code = f"""
import dovetail
print(dovetail.compile({MODEL!r}, 'host').summary())
"""
    members = ("onnx", "host", "schemas", "placement", "transforms", "precision", "runtime")
    done = core(code=code, beside=[f"dovetail-{name}" for name in members], needs=["onnxruntime", "scipy"])
    assert (done.returncode, done.stdout) == (0, "host 13; 0 conversions\n"), done.stderr


@pytest.mark.parametrize("command", [("opt", MODEL, "-p", ""), ("opt", "-", "-p", "")], ids=["file", "input"])
def test_a_file_needs_a_front_end(core, command):
    done = core(*command, beside=["dovetail-commands"], needs=["dovetail-onnx"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "no front end reads such files" in done.stderr
    assert "pip install dovetail-onnx" in done.stderr


@pytest.mark.parametrize("source", [f"{MODEL!r}", f"open({MODEL!r}, 'rb').read()"], ids=["path", "bytes"])
def test_python_says_it_too(core, source):
    code = (
        f"import dovetail\ntry:\n    dovetail.open({source})\nexcept dovetail.DovetailError as error:\n    print(error)"
    )
    assert "pip install dovetail-onnx" in core(code=code).stdout


def test_with_the_front_end_for_onnx_files_are_opened_and_printed(core):
    done = core("opt", MODEL, "-p", "", beside=["dovetail-onnx", "dovetail-commands"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "Conv" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("compile", MODEL, "--backend", "host", "-o", "out"),
        ("plan", MODEL, "--backend", "host"),
    ],
    ids=lambda command: command[0],
)
def test_what_needs_an_engine_says_what_to_install(core, command):
    done = core(*command, beside=["dovetail-onnx", "dovetail-commands"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "the backend 'host'" in done.stderr
    assert "pip install dovetail-host" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["compile", "plan", "opt"])
def test_commands_for_models_say_what_to_install(core, name):
    done = core(name, MODEL)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no command '{name}'" in done.stderr
    assert "pip install dovetail-commands" in done.stderr


@pytest.mark.parametrize(("name", "distribution"), [("explain", "commands"), ("verify", "verify")])
def test_commands_and_functions_of_other_distributions_say_what_to_install(core, name, distribution):
    done = core(name, MODEL, MODEL)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no command '{name}'" in done.stderr
    assert f"pip install dovetail-{distribution}" in done.stderr
    # A distribution that is installed leaves its entry points behind.
    code = f"""
import dovetail.installed
dovetail.installed.entry_points = lambda group: []
print(hasattr(dovetail, "{name}"))
try:
    dovetail.{name}
except dovetail.DovetailError as error:
    print(error.message, error.hint, sep="; ")
"""
    said = f"the distribution that brings dovetail.{name} is not installed; pip install dovetail-{distribution}"
    assert core(code=code).stdout.splitlines() == ["False", said]


def test_help_lists_what_is_there(core):
    done = core("--help")
    assert done.returncode == 0
    assert " plugins " in done.stdout
    assert " verify " not in done.stdout
    done = core("nonsense")
    assert done.returncode == 2
    assert "others come with the distributions that bring them" in done.stderr


def test_a_model_is_compiled_without_what_runs_it(tmp_path):
    plugins = dovetail.load_plugins(block=["dovetail-runtime"])
    compiled = dovetail.compile(MODEL, "host", plugins=plugins)
    compiled.save(tmp_path)
    assert (compiled.summary(), compiled.notes()) == ("host 13; 0 conversions", [])
    loaded = dovetail.load(tmp_path, plugins)
    for use in (lambda: compiled.run({}), lambda: compiled.regions, lambda: compiled.engines, loaded.executed):
        with pytest.raises(dovetail.DovetailError, match="no installed distribution runs models\n.*dovetail-runtime"):
            use()


@pytest.fixture
def no_member_functions(monkeypatch):
    """All plugins, where no distribution adds functions to the package."""
    plugins = dovetail.load_plugins()
    monkeypatch.setattr("dovetail.api_extensions.entry_points", lambda group: [])
    return plugins


def test_data_is_not_read_without_what_reads_it(no_member_functions):
    with pytest.raises(dovetail.DovetailError, match="dovetail.input_data is not installed\n.*dovetail-runtime"):
        dovetail.plan(MODEL, "host", data="x.npz", plugins=no_member_functions)


def test_nested_pipelines_need_what_takes_regions_out(no_member_functions):
    pipeline = Pipeline.parse("backend:host(dead-code)", no_member_functions.registry)
    compiled = dovetail.compile(MODEL, "host", plugins=no_member_functions)
    with pytest.raises(dovetail.DovetailError, match="dovetail.regions is not installed\n.*dovetail-placement"):
        pipeline.run(compiled.model, Context(plugins=no_member_functions))


def test_running_from_the_command_line_says_what_to_install(core):
    done = core("run", "out", "--data", "x.npz")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no command 'run'" in done.stderr
    assert "pip install dovetail-runtime" in done.stderr


@pytest.mark.slow
def test_constants_stay_where_nothing_evaluates_them(core):
    code = """
import dovetail
from dovetail.passes import Context, Pipeline
from dovetail_transforms.canonicalize.fold_constants import FoldConstants
from dovetail_onnx.opening import open_text
model = open_text('<ir_version: 10, opset_import: ["": 22]> g (float[1] x) => (float[1] y) <float[1] c = {1}>'
                      '{ d = Neg (c) y = Add (x, d) }', 'm')
context = Context()
Pipeline([FoldConstants()]).run(model, context)
print([node.op_type for node in model.graph], context.remarks[0].rule, context.remarks[0].suggest)
"""
    done = core(code=code, beside=["dovetail-onnx", "dovetail-transforms"])
    assert done.stdout == "['Neg', 'Add'] no-evaluator pip install dovetail-host\n", done.stderr
