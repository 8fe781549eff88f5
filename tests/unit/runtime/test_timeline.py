"""`dovetail run --trace`: when each region ran, and how much was live."""

import json
import threading

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,256] x) => (float[1,256] y) {
  [one] a = Relu (x) [two] b = Exp (a) [three] c = Neg (b) [four] y = Abs (c) }"""
PINS = ("two=cpu-bf16", "four=cpu-bf16")
X = {"x": np.ones((1, 256), np.float32)}


@pytest.fixture
def compiled():
    """A plan of four regions on two engines."""
    return dovetail.compile(open_text(TEXT, "m"), ["cpu-bf16"], pins=("one=host", "three=host", *PINS), high=("*",))


def spans(timeline, category):
    found = [event for event in timeline.document()["traceEvents"] if event.get("cat") == category]
    return sorted(found, key=lambda event: event["ts"])


def test_every_region_is_a_span_within_its_run(compiled):
    with dovetail.trace(compiled) as timeline:
        compiled.run(X)
        compiled.run(X)
    runs, regions = spans(timeline, "run"), spans(timeline, "region")
    assert [run["name"] for run in runs] == ["run 1", "run 2"] and len(regions) == 8
    for number, region in enumerate(regions):
        run = runs[number // 4]
        assert run["ts"] <= region["ts"] and region["ts"] + region["dur"] <= run["ts"] + run["dur"]
    ends = [region["ts"] + region["dur"] for region in regions]
    assert all(end <= following["ts"] for end, following in zip(ends, regions[1:], strict=False))
    assert [region["args"]["engine"] for region in regions[:4]] == ["onnxruntime-cpu", "openvino-cpu"] * 2


def test_the_peak_is_what_the_input_and_the_values_of_one_region_take(compiled):
    with dovetail.trace(compiled) as timeline:
        compiled.run(X)
    counted = [event["args"]["bytes"] for event in timeline.document()["traceEvents"] if event.get("ph") == "C"]
    size = X["x"].nbytes
    assert timeline.peak == 2 * size == max(counted)
    assert counted[-1] == size  # the output


def test_runs_of_several_threads_are_told_apart(compiled):
    with dovetail.trace(compiled) as timeline:
        threads = [threading.Thread(target=compiled.run, args=(X,), name=f"caller {n}") for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    names = {event["args"]["name"] for event in timeline.document()["traceEvents"] if event["ph"] == "M"}
    assert names == {"caller 0", "caller 1", "caller 2"}
    assert len(spans(timeline, "region")) == 12


def test_after_the_block_nothing_is_recorded(compiled, tmp_path):
    with dovetail.trace(compiled, tmp_path / "t.json") as timeline:
        compiled.run(X)
    compiled.run(X)
    assert len(spans(timeline, "run")) == 1
    assert json.loads((tmp_path / "t.json").read_text()) == timeline.document()


def test_a_run_that_fails_leaves_a_timeline(compiled, tmp_path):
    with pytest.raises(DovetailError), dovetail.trace(compiled, tmp_path / "t.json"):
        compiled.run({"x": np.ones((1, 3), np.float32)})
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] == []


def test_the_command_writes_the_file_and_says_the_peak(compiled, tmp_path, capsys):
    compiled.save(tmp_path / "out")
    np.savez(tmp_path / "data.npz", **X)
    given = ["run", str(tmp_path / "out"), "--data", str(tmp_path / "data.npz"), "--trace", str(tmp_path / "t.json")]
    assert main(given) == 0
    said = capsys.readouterr()
    assert "values of 0.00205 MB were live at most" in said.out + said.err
    assert {event["ph"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]} == {"X", "C", "M"}
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peak_bytes"] == 2 * X["x"].nbytes
