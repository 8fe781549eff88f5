import json
import subprocess
import sys

import pytest
from dovetail.errors import DovetailError

USAGE = [
    [],
    ["frobnicate"],
    ["compile"],
    ["compile", "m.onnx"],
    ["compile", "m.onnx", "--backend", "npu:cores"],
    ["compile", "m.onnx", "--backend", "npu", "--no-plugin", "no-such-plugin"],
    ["compile", "m.onnx", "--backend", "npu", "--frob"],
    ["plan", "m.onnx"],
    ["run", "."],
    ["verify", "m.onnx"],
    ["explain"],
    ["opt", "m.onnx"],
    ["opt", "m.onnx", "-p", "a", "--run-reproducer"],
    ["opt", "m.onnx", "-p", "no-such-pass"],
    ["opt", "m.onnx", "-p", "fixpoint("],
    ["check", "f.yaml", "--option", "x"],
]
FAULTS = [
    ["compile", "missing.onnx", "--backend", "npu"],
    ["compile", "m.onnx", "--backend", "npu", "--data", "missing.npz"],
    ["compile", "m.onnx", "--plan", "missing.yaml"],
    ["run", "missing", "--data", "x.npz"],
    ["run", ".", "--data", "missing.npz"],
    ["verify", "m.onnx", "missing"],
    ["explain", "missing", "n"],
    ["opt", "missing.onnx", "-p", ""],
    ["opt", "m.onnx", "--run-reproducer"],
    ["check", "missing.yaml"],
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_a_wrong_command_line_leaves_with_2(api, cli, arguments):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert "error: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", FAULTS, ids=" ".join)
def test_a_wrong_request_leaves_with_1(api, cli, arguments):
    code, out, err = cli(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "internal" not in err


def test_an_error_comes_with_its_way_out(api, cli):
    api.error = DovetailError("node n is at fault", "rename it")
    assert cli("explain", ".", "n") == (1, "", "error: node n is at fault\n  rename it\n")
    code, out, _ = cli("explain", ".", "n", "--json")
    assert json.loads(out) == {"error": "node n is at fault", "hint": "rename it"}


def test_a_defect_is_one_line_and_a_traceback_on_request(api, cli, monkeypatch):
    def fail(*_):
        raise KeyError("k")

    monkeypatch.setattr("dovetail.cli.plugins.broken_lines", fail)
    code, _, err = cli("plugins")
    assert (code, err.splitlines()[0]) == (1, "error: internal error: KeyError: 'k'")
    assert "Traceback" not in err
    assert "Traceback" in cli("plugins", "--debug")[2]
    monkeypatch.setenv("DOVETAIL_DEBUG", "1")
    assert "Traceback" in cli("plugins")[2]


def test_a_file_that_cannot_be_written_is_no_defect(api, cli):
    api.error = PermissionError(13, "Permission denied", "out")
    assert cli("explain", ".", "n")[2] == "error: out: Permission denied\n  check the path and its permissions\n"


def test_an_interrupt_leaves_with_130(api, cli):
    api.error = KeyboardInterrupt()
    assert cli("explain", ".", "n")[0] == 130


def test_help_names_every_command(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for command in ("compile", "plan", "explain", "run", "verify", "opt", "backends", "passes", "check"):
        assert f"\n  {command} " in out
        assert cli(command, "--help")[0] == 0


def test_help_is_one_screen_and_help_all_lists_what_few_need(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, short, _ = cli("compile", "--help")
    assert code == 0 and len(short.splitlines()) <= 80
    assert short.startswith("usage: dovetail compile [options] [MODEL|FOLDER]\n")
    code, long, _ = cli("compile", "--help-all")
    assert code == 0
    for option, group in (
        ("--print-after", "debugging of passes"),
        ("--unit-conv", "options of bpu-int8"),
        ("--workspace", "options of tensorrt"),
        ("--runtime", "options of language models"),
    ):
        assert f"  {option} " not in short and f"  {option} " in long
        assert group in short.splitlines()[-1] + short.splitlines()[-2]
        assert long.index(f"{group}:\n") < long.index(f"  {option} ")
    assert "--help-all" not in cli("backends", "--help")[1]


def test_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m dovetail.cli.main passes --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.parametrize("arguments", [["--help"], ["compile", "--help"]])
def test_help_imports_nothing_heavy(arguments):
    heavy = ("email", "importlib.metadata", "numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "yaml")
    code = f"""
import sys
from dovetail.cli.main import main
main({arguments!r})
sys.exit(' '.join(name for name in {heavy!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""
