"""Standard output that is closed, full, or read by nobody is nobody's defect."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
PROGRAM = shutil.which("dovetail", path=str(Path(sys.executable).parent)) or "dovetail"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="shells differ")


def shell(line, folder):
    return subprocess.run(["bash", "-c", line.replace("dovetail", PROGRAM)], cwd=folder, capture_output=True, text=True)


def test_results_are_written_where_standard_output_is_closed(tmp_path):
    done = shell(f"dovetail compile {DIGITS}/digits.onnx --backend cpu-bf16 -o out >&-", tmp_path)
    assert (done.returncode, (tmp_path / "out" / "model.onnx").is_file()) == (0, True), done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_behind_standard_output_is_said(tmp_path):
    done = shell("dovetail backends > /dev/full", tmp_path)
    assert done.returncode == 1
    assert "no space is left" in done.stderr and "defect" not in done.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path):
    done = shell("set -o pipefail; dovetail backends | true", tmp_path)
    assert "Traceback" not in done.stderr and "defect" not in done.stderr
