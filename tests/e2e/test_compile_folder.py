"""`dovetail compile FOLDER`: each model into a folder of its own, one table, and failures that cost nothing."""

import json
import shutil
from pathlib import Path

import dovetail as api
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail_commands.compile_folder import models_in, result_names
from dovetail_commands.folder_model import data_for

SOFTMAX = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y) { h = Relu(x)  y = Softmax(h) }"""


@pytest.fixture
def zoo(tmp_path):
    """Two models in two folders, one that is cut short, and what is no model."""
    folder = tmp_path / "zoo"
    (folder / "more").mkdir(parents=True)
    (folder / ".cache").mkdir()
    onnx.save(onnx.parser.parse_model(SOFTMAX), folder / "net.onnx")
    for place in ("more/again.onnx", ".cache/hidden.onnx"):
        shutil.copy(folder / "net.onnx", folder / place)
    (folder / "broken.onnx").write_bytes((folder / "net.onnx").read_bytes()[:-9])
    (folder / "labels.json").write_text("[]")
    (folder / "readme.txt").write_text("no model")
    for name in ("net.npz", "more/again.npz", "broken.npz"):
        np.savez(folder / name, x=np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4))
    return folder


def test_the_others_are_compiled_and_the_failure_is_named(dovetail, zoo):
    done = dovetail("compile", zoo, "--backend", "cpu-bf16", "--data", zoo, "--min-snr", "20", "-o", "out")
    assert done.returncode == 1
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["model", "placed", "regions", "borders", "conversions", "MB", "accuracy", "status"]
    assert [row[0] for row in rows[1:4]] == ["broken.onnx", "more/again.onnx", "net.onnx"]
    assert rows[1][1] == "failed:" and rows[2][-1] == rows[3][-1] == "ok" and "SNR" in rows[2]
    assert "2 of 3 models compiled" in done.stdout
    assert "error: broken.onnx: " in done.stderr and "Traceback" not in done.stderr
    assert sorted(str(path) for path in Path("out").rglob("model.onnx")) == [
        "out/more/again/model.onnx", "out/net/model.onnx",
    ]  # fmt: skip


def test_as_json_and_without_an_output(dovetail, zoo):
    (zoo / "broken.onnx").unlink()
    done = dovetail("compile", zoo, "--backend", "cpu-bf16", "--json")
    models = json.loads(done.stdout)["models"]
    assert done.returncode == 0
    assert [(found["model"], found["status"], found["output"]) for found in models] == [
        ("more/again.onnx", "ok", None), ("net.onnx", "ok", None),
    ]  # fmt: skip


def test_in_python_a_goal_that_is_missed_is_a_status_and_the_result_is_there(zoo, tmp_path):
    (zoo / "broken.onnx").unlink()
    data = zoo / "net.npz"
    outcomes = api.compile_folder(zoo, "cpu-bf16", tmp_path / "out", data=data, max_abs=1e-30)
    assert [(str(one.model), one.status) for one in outcomes] == [("more/again.onnx", "missed"), ("net.onnx", "missed")]
    assert all("max abs" in one.why and (one.output / "model.onnx").is_file() for one in outcomes)


def test_borders_are_values_that_change_the_backend(zoo):
    (zoo / "broken.onnx").unlink()
    (one, _) = api.compile_folder(zoo, "cpu-bf16", pins=("type:Softmax=host/float32",))
    assert one.borders >= 1 and one.nodes[0] < one.nodes[1]


def test_results_hidden_folders_the_output_and_other_files_are_no_models(zoo):
    registry = api.load_plugins().registry
    names = ["broken.onnx", "more/again.onnx", "net.onnx"]
    assert list(map(str, models_in(zoo, registry))) == names
    (zoo / "out").mkdir()
    shutil.copy(zoo / "net.onnx", zoo / "out")
    assert list(map(str, models_in(zoo, registry, zoo / "out"))) == names
    (zoo / "out" / "result.json").write_text("{}")
    assert list(map(str, models_in(zoo, registry))) == names


def test_results_are_named_after_their_models_and_by_suffix_where_two_have_one_name():
    models = [Path("a.onnx"), Path("b/a.onnx"), Path("c.onnx"), Path("c.pdmodel")]
    assert list(map(str, result_names(models).values())) == ["a", "b/a", "c.onnx", "c.pdmodel"]


def test_data_is_found_by_the_name_of_the_model(zoo):
    assert data_for(Path("more/again.onnx"), zoo) == zoo / "more/again.npz"
    assert data_for(Path("net.onnx"), zoo / "net.npz") == zoo / "net.npz"
    with pytest.raises(DovetailError, match="no data for it: .* has no other.npz"):
        data_for(Path("other.onnx"), zoo)


@pytest.mark.parametrize(
    "arguments, error, why",
    [
        (("zoo", "cpu-bf61"), DovetailError, "unknown backend 'cpu-bf61'"),
        (("zoo/empty", "host"), DovetailError, "holds no models"),
        (("zoo/result", "host"), DovetailError, "is a result, and no folder of models"),
        (("zoo", ()), UsageError, "no backend is named"),
    ],
)
def test_what_is_wrong_for_every_model_is_one_error(zoo, monkeypatch, arguments, error, why):
    monkeypatch.chdir(zoo.parent)
    for name in ("empty", "result"):
        (zoo / name).mkdir()
    (zoo / "result" / "result.json").write_text("{}")
    with pytest.raises(error, match=why):
        api.compile_folder(*arguments)


def test_a_plan_is_one_models(dovetail, zoo):
    done = dovetail("compile", zoo, "--plan", zoo / "labels.json")
    assert done.returncode == 2 and "a plan belongs to one model" in done.stderr
