"""Commands that are started in a folder of somebody else run none of the Python in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path("examples/digits").resolve()
PLANTED = (
    "sitecustomize", "usercustomize", "site", "encodings", "json", "signal", "re", "numpy", "onnx", "onnx_ir",
    "onnxruntime", "openvino", "yaml", "pluggy", "dovetail", "dovetail_tune", "multiprocessing",
)  # fmt: skip

COMMANDS = {
    "tune": [
        "tune", "digits.onnx", "--data", "test.npz", "--min-snr", "20", "--backend", "cpu-bf16", "--budget", "15",
        "--no-mix", "-o", "tuned",
    ],
    "reduce": [
        "reduce", "digits.onnx", "--data", "test.npz", "--check",
        f"{sys.executable} -c 'import sys, onnx; sys.exit(len(onnx.load(sys.argv[1]).graph.node) > 1)' {{model}}",
        "-o", "small",
    ],
}  # fmt: skip


@pytest.fixture
def foreign_folder(tmp_path):
    for name in ("digits.onnx", "test.npz"):
        shutil.copy(DIGITS / name, tmp_path)
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write('{name} ')\n")
    return tmp_path


def run(folder, words, **variables):
    return subprocess.run(
        [sys.executable, "-P", "-m", "dovetail.cli.main", *words],
        cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_with_children_runs_nothing_of_the_folder(command, foreign_folder):
    done = run(foreign_folder, COMMANDS[command])
    assert done.returncode == 0, done.stderr
    assert not (foreign_folder / "RAN").exists(), (foreign_folder / "RAN").read_text()


def test_a_check_that_lacks_a_module_of_its_own_folder_is_told_how_to_have_it(foreign_folder):
    (foreign_folder / "helper.py").write_text("def fails(path):\n    return True\n")
    (foreign_folder / "check.py").write_text("import sys, helper\nsys.exit(helper.fails(sys.argv[1]))\n")
    words = [
        "reduce",
        "digits.onnx",
        "--data",
        "test.npz",
        "-o",
        "small",
        "--check",
        f"{sys.executable} check.py {{model}}",
    ]
    done = run(foreign_folder, words)
    assert done.returncode == 1 and "the check imports 'helper'" in done.stderr
    assert f"set PYTHONPATH={foreign_folder}" in done.stderr
