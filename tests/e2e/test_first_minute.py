"""`dovetail doctor` and `dovetail demo`: what this machine has, and all of it in a minute."""

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

ROOT = Path(__file__).parents[2]
DIGITS, DATA = ROOT / "examples/digits/digits.onnx", ROOT / "examples/digits/test.npz"


def test_doctor_says_what_is_here_and_what_to_type_first(dovetail):
    done = dovetail("doctor", DIGITS)
    assert done.returncode == 0, done.stderr
    assert "cpu-bf16  " in done.stdout and "openvino-cpu" in done.stdout
    assert "16 nodes (Relu 4, Conv 3, BatchNormalization 3" in done.stdout
    assert "backends with fixed shapes need --fix-shape image:1x1x8x8" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"type first  dovetail compile {DIGITS} --backend ")


def test_doctor_names_no_backend_that_would_have_nothing(dovetail, tmp_path):
    """All but one node are in an If whose extents stay open, which OpenVINO computes wrongly, so that it gets none."""
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[n,4] x, bool c) => (float[k,m] y) { y = If (c) <
        then_branch = one () => (float[k,m] p) { p = Relu (x) },
        else_branch = other () => (float[k,m] q) { a = NonZero (x)  q = Cast <to = 1> (a) }> }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "if.onnx")
    done = dovetail("doctor", "if.onnx")
    assert done.stdout.splitlines()[-1] == "type first  dovetail compile if.onnx --backend host --data FILE.npz -o out"
    assert "placed     no node, by cpu-bf16, cpu-int8" in done.stdout or "by cpu-int8, cpu-bf16" in done.stdout
    assert set(json.loads(dovetail("doctor", "if.onnx", "--json").stdout)["model"]["placed"].values()) == {0}


def test_doctor_names_the_operators_that_nothing_here_runs(dovetail, tmp_path):
    text = """<ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[4] x) => (float[4] y) {
        a = Relu (x)  b = acme.Magic (a)  c = acme.Magic (b)  y = acme.Other (c) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "odd.onnx")
    done = dovetail("doctor", "odd.onnx")
    assert "nowhere    acme::Magic 2, acme::Other 1: no engine here runs them" in done.stdout
    assert "type first" not in done.stdout, "every command would refuse the model"
    assert json.loads(dovetail("doctor", "odd.onnx", "--json").stdout)["model"]["nowhere"] == {
        "acme::Magic": 2, "acme::Other": 1,
    }  # fmt: skip
    refused = dovetail("compile", "odd.onnx", "--backend", "host")
    assert "no engine here runs acme::Magic (host does not list Magic), nor acme::Other" in refused.stderr


def test_doctor_as_json_names_an_install_line_for_what_is_missing(dovetail):
    found = json.loads(dovetail("doctor", "--json").stdout)
    assert found["model"] == {}
    rows = {row["backend"]: row for row in found["machine"]["backends"]}
    assert rows["host"] == {"backend": "host", "engine": "onnxruntime-cpu", "lacks": ""}
    for row in rows.values():
        if "pip install" in row["lacks"]:
            assert any(line.removeprefix("pip install ") in row["lacks"] for line in found["machine"]["install"])


def test_doctor_names_a_foreign_package_of_the_same_name(dovetail, tmp_path):
    facts = tmp_path / "dovetail-1.0b3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: dovetail\nVersion: 1.0b3\n")
    done = dovetail("doctor", PYTHONPATH=str(tmp_path))
    assert "to repair  the distribution dovetail 1.0b3 is not a part of dovetail-core" in done.stdout
    assert "pip uninstall -y dovetail && pip install --force-reinstall" in done.stdout


def test_doctor_of_no_model_gives_no_traceback(dovetail, tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    for name in ("no.onnx", "absent.onnx"):
        done = dovetail("doctor", name)
        assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_the_demo_brings_the_model_of_the_examples():
    from importlib.resources import files

    for path in (DIGITS, DATA):
        assert (files("dovetail_commands") / "demo_files" / path.name).read_bytes() == path.read_bytes()


def test_the_demo_writes_into_a_new_folder_only(dovetail, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    done = dovetail("demo", "mine")
    assert done.returncode == 2 and "name a new folder" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


@pytest.mark.slow
def test_the_demo_shows_everything(dovetail, tmp_path):
    done = dovetail("demo", "shown", "--no-open")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in (tmp_path / "shown").iterdir()} >= {
        "bfloat16", "int8", "accelerator", "goal", "tuned", "report.html",
    }  # fmt: skip
