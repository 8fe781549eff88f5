"""A third party's backend: installed as any distribution is, found, checked and used."""

import json
from pathlib import Path

import onnx
import pytest

VENDOR = Path(__file__).parents[2] / "example_vendor"
DIGITS = Path(__file__).parents[3] / "examples" / "digits"
FILE = VENDOR / "src" / "dovetail_acme_npu" / "acme_npu.backend.yaml"


@pytest.fixture(scope="module")
def site(pip_installed):
    return str(pip_installed(VENDOR))


@pytest.fixture
def with_vendor(dovetail, site):
    """Run `dovetail ARGUMENTS` where the vendor's distribution is installed too."""

    def run(*arguments):
        done = dovetail(*arguments, PYTHONPATH=site)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_is_a_distribution_of_its_own(site):
    assert sorted(path.name for path in Path(site).iterdir() if path.name != "__pycache__") == [
        "dovetail_acme_npu",
        "dovetail_acme_npu-2.1.0.dist-info",
    ]


def test_it_is_listed(with_vendor):
    (found,) = [
        item for item in json.loads(with_vendor("backends", "--json"))["backends"] if item["name"] == "acme-npu"
    ]
    assert found["summary"] == "ACME NPU 2, float16"
    assert found["distribution"] == "dovetail-acme-npu"
    assert [engine["name"] for engine in found["engines"]] == ["onnxruntime-cpu"]


def test_its_file_is_checked_against_a_model(with_vendor):
    said = with_vendor("check", FILE, DIGITS / "digits.onnx")
    assert "Conv" in said
    assert "Softmax" in said


def test_a_model_is_compiled_for_it(with_vendor):
    said = with_vendor(
        "compile", DIGITS / "digits.onnx", "--backend", "acme-npu", "--data", DIGITS / "test.npz", "-o", "out", "--json"
    )
    document = json.loads(said)
    placed = {(row["operator"], row["backend"], row["precision"]) for row in document["placements"]}
    assert {("Conv", "acme-npu", "float16"), ("Gemm", "acme-npu", "float16"), ("Softmax", "host", "float32")} <= placed
    (output,) = document["verification"]["outputs"]
    assert output["snr_db"] > 40
    assert output["top1"] == 1.0
    onnx.checker.check_model("out/model.onnx", full_check=True)
    refused = [remark for remark in document["remarks"] if remark["rule"] == "not-supported"]
    assert any("acme-npu does not list Softmax" in remark["why"] for remark in refused)
    assert "acme-npu" in with_vendor("run", "out", "--data", DIGITS / "test.npz")


def test_it_works_beside_another_backend(with_vendor):
    said = with_vendor("compile", DIGITS / "digits.onnx", "--backend", "acme-npu", "--backend", "cpu-bf16", "--json")
    placed = {(row["operator"], row["backend"]) for row in json.loads(said)["placements"]}
    assert {("Conv", "acme-npu"), ("Softmax", "cpu-bf16")} <= placed


def test_without_it_the_message_says_what_is_installed(dovetail):
    done = dovetail("compile", DIGITS / "digits.onnx", "--backend", "acme-npu")
    assert done.returncode != 0
    assert "another one comes with the distribution that brings it" in done.stderr
