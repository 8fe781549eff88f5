"""`dovetail opt -p outline-regions` reads the placements that a result has in its file."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The digits, compiled for cpu-bf16."""
    folder = tmp_path_factory.mktemp("outlining") / "out"
    dovetail.compile(DIGITS / "digits.onnx", "cpu-bf16", try_engines=False).save(folder)
    return folder


def test_regions_of_a_result_become_functions(result, tmp_path):
    assert main(["opt", str(result / "model.onnx"), "-p", "outline-regions", "-o", str(tmp_path / "o.onnx")]) == 0
    outlined = onnx.load(tmp_path / "o.onnx")
    assert {node.domain for node in outlined.graph.node} == {"dovetail.cpu-bf16"}
    assert len(outlined.functions) == 1
    image = {"image": np.load(DIGITS / "test.npz")["image"][:1]}
    before = dovetail.compile(result / "model.onnx", "host").run(image)
    after = dovetail.compile(tmp_path / "o.onnx", "host").run(image)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_model_that_was_never_placed(tmp_path, capsys):
    assert main(["opt", str(DIGITS / "digits.onnx"), "-p", "outline-regions", "-o", str(tmp_path / "o.onnx")]) == 1
    said = capsys.readouterr().err
    assert "the model has no placements" in said
    assert "give a model that was compiled" in said
    assert not (tmp_path / "o.onnx").exists()


def test_a_backend_that_no_node_is_on(result, capsys):
    assert main(["opt", str(result / "model.onnx"), "-p", "outline-regions{backend=cpu-bf61}"]) == 2
    assert "no node is on backend 'cpu-bf61' (did you mean 'cpu-bf16'?)" in capsys.readouterr().err
