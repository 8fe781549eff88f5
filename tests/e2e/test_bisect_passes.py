"""`bisect --passes` finds the pass that broke a result; `verify --save-node` writes one node with its inputs."""

from dataclasses import dataclass
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.plugin import Pass

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = str(DIGITS / "digits.onnx"), str(DIGITS / "test.npz")


@dataclass(frozen=True)
class Swaps(Pass):
    """Replace every Relu by Neg, wrongly."""

    name = "swaps"
    stage: str = "normalize"

    def run(self, model, ctx):
        for node in model.nodes():
            if node.op_type == "Relu":
                node.op_type = "Neg"
                model.touch()
        return True


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["normalize", "analyze", "place", "type", "join"])
def test_the_pass_that_breaks_the_result_is_found(stage):
    broken = type("Swaps", (Swaps,), {"stage": stage})
    found = dovetail.bisect_passes(MODEL, "cpu-bf16", data=DATA, passes=[broken()])
    assert found.first.name == "swaps"
    assert len(found.measured) <= 6
    assert found.passes[found.first.number - 1] == "swaps"


@pytest.mark.slow
def test_a_goal_says_what_is_broken(capsys):
    assert main(["bisect", MODEL, "--backend", "cpu-bf16", "--data", DATA, "--passes", "--min-snr", "90"]) == 0
    assert ", join, breaks the result: SNR 5" in capsys.readouterr().out


def test_nothing_is_broken(capsys):
    assert main(["bisect", MODEL, "--backend", "cpu-bf16", "--data", DATA, "--passes"]) == 0
    assert "no pass of" in capsys.readouterr().out


def test_the_model_between_passes_is_written(capsys):
    arguments = ["bisect", MODEL, "--backend", "cpu-bf16", "--data", DATA, "--passes", "--stop-after"]
    assert main([*arguments, "1", "-o", "after.onnx"]) == 0
    onnx.checker.check_model("after.onnx")
    assert main([*arguments, "1000", "-o", "none.onnx"]) == 2
    assert "passes run" in capsys.readouterr().err
    assert not Path("none.onnx").exists()
    assert main([*arguments, "1"]) == 2
    assert main(["bisect", MODEL, "--backend", "cpu-bf16", "--data", DATA, "--stop-after", "1", "-o", "x"]) == 2


def test_a_node_and_a_region_are_written_with_their_inputs(capsys):
    dovetail.compile(MODEL, "cpu-bf16", data=DATA).save("out")
    assert main(["verify", MODEL, "out", "--data", DATA, "--save-node", "conv_2", "-o", "node"]) == 0
    (node,) = onnx.load("node/model.onnx").graph.node
    assert node.op_type == "Conv"
    with np.load("node/inputs.npz") as inputs, np.load("node/outputs.npz") as outputs:
        (result,) = dovetail.compile("node/model.onnx", "host").run(dict(inputs)).values()
        (expected,) = outputs.values()
        assert np.allclose(result, expected, atol=1e-5)
    assert main(["verify", MODEL, "out", "--data", DATA, "--save-region", "0", "-o", "region"]) == 0
    assert len(onnx.load("region/model.onnx").graph.node) > 5
    capsys.readouterr()
    for arguments, says in (
        (["--save-node", "cnv_2", "-o", "x"], "did you mean 'conv_2'"),
        (["--save-region", "99", "-o", "x"], "the plan has no region 99"),
        (["--save-node", "conv_2"], "-o FOLDER"),
        (["--save-node", "conv_2", "-o", "out"], "holds other files"),
    ):
        assert main(["verify", MODEL, "out", "--data", DATA, *arguments]) in (1, 2)
        assert says in capsys.readouterr().err
    assert not Path("x").exists()
