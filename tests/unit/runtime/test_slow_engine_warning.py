"""A result that only the reference evaluator runs is slow: a warning says so, with the number of nodes."""

import json

import numpy as np
import pytest
from dovetail.cli.main import main

# ONNX Runtime infers types of both branches, and refuses the one that no run takes.
MODEL = """<ir_version: 8, opset_import: ["": 16]>
g (float[2,4] x, bool flag) => (float[K] y) <int64[1] ax = {1}> {
  [before] a = Neg (x)
  [rank] b = If (flag) <then_branch = p () => (float[M] t) { [dead] t = Squeeze (a, ax) },
                        else_branch = q () => (float[L] e) { e = Abs (a) }>
  [after] y = Neg (b) }"""

WARNING = "3 of 5 nodes, from 'rank', run on reference, which is slow"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "m.onnxtxt").write_text(MODEL)
    np.savez(tmp_path / "d.npz", x=np.ones((2, 4), np.float32), flag=np.array(False))
    return [str(tmp_path / "m.onnxtxt"), "--data", str(tmp_path / "d.npz"), "-o", str(tmp_path / "out")]


def test_compile_and_run_warn(files, capsys):
    assert main(["compile", *files, "--backend", "cpu-bf16"]) == 0
    assert f"warning: {WARNING}" in capsys.readouterr().err
    assert main(["run", files[-1], "--data", files[2]]) == 0
    assert f"warning: {WARNING}" in capsys.readouterr().err


def test_documents_have_the_warning(files, capsys):
    assert main(["compile", *files, "--backend", "cpu-bf16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"][0].startswith(WARNING)
