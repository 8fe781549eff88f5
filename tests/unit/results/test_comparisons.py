"""The comparison with the original stays with a result: on the command line, in files, and on the page."""

import hashlib
import json
import re
from pathlib import Path

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError, GoalError
from dovetail_report.collect.document import document

from .conftest import files_of

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
COMPARISON = Path("out/verification.json")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The digits with data, on the command line: what is printed and the folder."""
    folder = tmp_path_factory.mktemp("digits")
    np.savez(folder / "data.npz", image=np.load(DIGITS / "test.npz")["image"][:16])
    asked = {"data": str(folder / "data.npz"), "fix_shapes": "data"}
    return dovetail.compile(DIGITS / "digits.onnx", "cpu-bf16", **asked)


@pytest.fixture
def saved(original, tmp_path, monkeypatch):
    """The result in the folder `out`."""
    monkeypatch.chdir(tmp_path)
    original.save("out")
    return original


def test_a_loaded_result_says_what_was_compared(saved):
    again = dovetail.load("out")
    assert again.summary() == saved.summary() and "SNR" in again.summary()
    assert again.verification.lines() == saved.verification.lines()
    assert again.verification.as_dict()["outputs"] == json.loads(json.dumps(saved.verification.as_dict()["outputs"]))
    assert document(again)["accuracy"] == document(saved)["accuracy"] != []


def test_figures_that_json_has_no_number_for(tmp_path):
    """A comparison of integers and of equal numbers has infinite figures."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (float[2,3] x) => (float[2,3] y, int64[2] n) { y = Neg (x)  n = Shape (x) }"""
    data = {"x": np.ones((2, 3), np.float32)}
    dovetail.compile(onnx.parser.parse_model(text), "host", data=data).save(tmp_path / "out")
    again = dovetail.load(tmp_path / "out")
    assert again.verification.short() == "SNR exact" and document(again)["accuracy"][0]["SNR dB"] == "inf"


def test_a_copy_keeps_it_and_an_edited_result_does_not(saved):
    dovetail.load("out").save("copy")
    assert files_of("copy") == files_of("out")
    edited = dovetail.load("out")
    edited.model.graph.doc_string = "edited"
    edited.model.touch()
    edited.save("edited")
    assert not Path("edited/verification.json").exists()


def test_it_is_added_to_a_result_that_is_saved_before_it_is_compared(original, tmp_path, monkeypatch, capsys):
    """The command line saves a result before anything that may fail examines it."""
    monkeypatch.chdir(tmp_path)
    data = str(original.plan.request.data)
    assert main(["compile", str(DIGITS / "digits.onnx"), "--backend", "cpu-bf16", "--data", data, "-o", "out"]) == 0
    (snr,) = re.findall(r"probabilities: SNR ([\d.]+) dB", capsys.readouterr().out)
    assert main(["report", "out", "-o", "page.html"]) == 0
    assert f'"SNR dB":{snr}'[:-1] in Path("page.html").read_text()
    before = files_of("out")
    original.save("other")
    assert before.keys() == files_of("other").keys()


def test_one_that_was_changed_is_not_taken(saved):
    COMPARISON.write_text(COMPARISON.read_text().replace("SNR", "NSR"))
    again = dovetail.load("out")
    assert again.verification is None and "SNR" not in again.summary()
    assert any("verification.json is not the file" in remark.why for remark in again.plan.remarks)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"figures": 1}', b"[" * 5000])
def test_one_that_cannot_be_read_is_an_error_with_a_way_out(saved, content):
    COMPARISON.write_bytes(content)
    manifest = json.loads(Path("out/result.json").read_text())
    manifest["files"][COMPARISON.name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    Path("out/result.json").write_text(json.dumps(manifest))
    with pytest.raises(DovetailError, match=r"verification.json is not what `dovetail compile` writes") as caught:
        dovetail.load("out")
    assert "compile again" in caught.value.hint


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("goal", [200, 400])  # beyond what float32 sums of any two engines leave
def test_a_missed_goal_is_a_warning_of_the_page_with_the_figure_of_the_error(goal, tmp_path, monkeypatch):
    """The search sees other samples than those that judge: each figure says which of them it is about."""
    monkeypatch.chdir(tmp_path)
    asked = {"data": str(DIGITS / "test.npz"), "min_snr": goal}
    with pytest.raises(GoalError) as caught:
        dovetail.compile(DIGITS / "digits.onnx", "cpu-bf16", **asked)
    compiled = caught.value.compiled
    compiled.save("out")
    assert dovetail.load("out").plan.summary["accuracy"]["met"] is False
    page = document(dovetail.load("out"))
    (finding,) = [row for row in page["findings"] if row["rule"] == "missed-goal"]
    assert finding["level"] == "warning" and caught.value.message.startswith(finding["text"])
    (figure, where) = re.findall(r"SNR ([\d.]+) dB( on the data of the search)?,", finding["text"])[0]
    shown = {f"{row['SNR dB']:.1f}" for row in page["accuracy"]}
    assert bool(where) != (figure in shown)
    assert any("missed-goal" in line for line in dovetail.explain("out"))
