"""Writers of one folder that are killed, and pairs of them: the benchmark of it, with few of each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SLOW = os.environ.get("DOVETAIL_SLOW", "") not in ("", "0")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_a_folder_always_holds_one_whole_result(external):
    numbers = ["--kills", "300", "--races", "50"] if SLOW else ["--kills", "3", "--races", "1", "--layers", "2"]
    command = [sys.executable, "writers.py", *numbers, *(["--external"] if external else [])]
    done = subprocess.run(command, cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left over after one more run: nothing" in done.stdout
    assert "wrong:" not in done.stdout
