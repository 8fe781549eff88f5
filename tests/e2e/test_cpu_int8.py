"""A net for `cpu-int8`, from the command line to both engines: trained, with real inputs."""

import json
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail_runtime.processor import saturates_dot_products

INTEGERS, EXACT = {"int8", "uint8"}, {"float32"}
DIGITS = Path(__file__).parents[2] / "examples" / "digits"

pytestmark = pytest.mark.processor


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("int8") / "out"
    images = np.load(DIGITS / "test.npz")["image"]
    np.savez(out.with_name("data.npz"), image=images[:64])
    arguments = ["--backend", "cpu-int8", "--data", str(out.with_name("data.npz")), "-o", str(out)]
    assert main(["compile", str(DIGITS / "digits.onnx"), *arguments]) == 0
    return out


def test_products_are_executed_in_integers_and_classes_stay(folder):
    images = np.load(DIGITS / "test.npz")["image"][64:]
    result, original = dovetail.load(folder), dovetail.compile(DIGITS / "digits.onnx", "host")
    probabilities = result.run({"image": images})["probabilities"]
    exact = original.run({"image": images})["probabilities"]
    assert (probabilities.argmax(-1) == exact.argmax(-1)).mean() >= 0.99
    noise = ((probabilities - exact) ** 2).sum()
    assert 10 * np.log10((exact**2).sum() / noise) >= 35
    executed = {
        node.name: result.executed()[node.name] for node in result.plan.nodes if node.op_type in ("Conv", "Gemm")
    }
    assert {how.precision for how in executed.values()} <= (EXACT if saturates_dot_products() else INTEGERS), executed


def test_the_same_file_runs_in_onnx_runtime_within_a_step(folder):
    images = np.load(DIGITS / "test.npz")["image"][64:]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact on CPUs without VNNI, too
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    theirs = session.run(["probabilities"], {"image": images})[0]
    ours = dovetail.load(folder).run({"image": images})["probabilities"]
    assert np.abs(theirs - ours).max() <= 0.02
    assert (theirs.argmax(-1) == ours.argmax(-1)).all()


def test_a_plan_replays_without_data(folder):
    plan = folder / "plan.yaml"
    again = dovetail.compile(DIGITS / "digits.onnx", "cpu-int8", plan=plan)
    held = {name: [form.get("scale") for form in forms] for name, forms in again.plan.values.items()}
    first = dovetail.load(folder)
    assert held == {name: [form.get("scale") for form in forms] for name, forms in first.plan.values.items()}
    assert json.loads((folder / "result.json").read_text())


def test_weights_alone_need_no_data_and_run_in_both_engines(tmp_path, capsys):
    import onnxruntime

    out, digits = tmp_path / "out", DIGITS / "digits.onnx"
    backend = ["--backend", "cpu-int8:weights=int4,scheme=asymmetric"]
    assert main(["compile", str(digits), *backend, "--max-size", "1MB", "-o", str(out)]) == 0
    images = np.load(DIGITS / "test.npz")["image"]
    exact = dovetail.compile(digits, "host").run({"image": images})["probabilities"]
    session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    for found in (
        dovetail.load(out).run({"image": images})["probabilities"],
        session.run(["probabilities"], {"image": images})[0],
    ):
        assert (found.argmax(-1) == exact.argmax(-1)).mean() >= 0.98
    capsys.readouterr()
    assert main(["compile", str(digits), *backend, "--max-size", "much", "-o", str(out)]) == 2
    assert "600MB" in capsys.readouterr().err
    assert main(["compile", str(digits), *backend, "--max-size", "1kB", "-o", str(out)]) != 0
    assert "the weights need" in capsys.readouterr().err
    assert (out / "model.onnx").exists()
