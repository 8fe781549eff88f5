"""Data in three folders: what calibrates or is searched on does not judge."""

import json
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, Request
from dovetail.plugin import load_plugins
from dovetail_runtime.data.data_split import split_data
from dovetail_tune.data_folders import as_plain, from_plain, save_arrays, write_split
from dovetail_verify.runners import reference_runner
from onnx import parser

ROWS = """<ir_version: 10, opset_import: ["": 22]> g (float[N, 2] x) => (float[N, 2] y) { y = Relu (x) }"""
FIXED = ROWS.replace("N", "1")
SUMMED = ROWS.replace("Relu (x)", "CumSum (x, zero)").replace("{ y", "<int64 zero = {0}> { y")


def opened(text):
    return dovetail.open(parser.parse_model(text))


def parts_of(text, data, folder):
    model = opened(text)
    found = write_split(model, data, folder, reference_runner(model, Context(Request(), plugins=load_plugins())))

    def rows(part):
        return [np.load(path)["x"].tolist() for path in sorted(part.glob("*.npz"))]

    judge = rows(found.judge) if found.judge is not None else None
    return rows(found.calibrate), rows(found.search), judge, found.text


def batch(*numbers):
    return {"x": np.float32([[number, number] for number in numbers])}


def test_each_batch_has_one_use(tmp_path):
    *parts, text = parts_of(FIXED, batch(1, 2, 3, 4, 5, 6), tmp_path)
    assert parts == [[[[1, 1]], [[2, 2]]], [[[3, 3]]], [[[4, 4]], [[5, 5]], [[6, 6]]]]
    assert text == "accuracy on 3 of 6 batches, held out from calibration and search"


def test_rows_of_a_single_batch_are_split_where_they_are_independent(tmp_path):
    *parts, text = parts_of(ROWS, batch(1, 2, 3), tmp_path)
    assert parts == [[[[1, 1]]], [[[2, 2]]], [[[3, 3]]]]
    assert text == "accuracy on 1 of 3 rows, held out from calibration and search"


def test_what_cannot_be_split_does_both_and_says_so(tmp_path):
    one, other, judge, text = parts_of(FIXED, batch(1), tmp_path)
    assert one == other == [[[1, 1]]] and judge is None
    assert text.startswith("accuracy on the data that also calibrated, since none could be held out")


def test_recordings_are_in_one_folder_and_are_told_apart_there(tmp_path):
    given = tmp_path / "given"
    for speaker in "abcdef":
        (given / speaker).mkdir(parents=True)
        for number in range(3):
            np.savez(given / speaker / f"{number}.npz", x=np.full((1, 2), ord(speaker), np.float32))
    model = opened(FIXED)
    found = write_split(model, given, tmp_path, reference_runner(model, Context(Request(), plugins=load_plugins())))
    speakers = [
        {path.stem.partition("_")[0]: float(np.load(path)["x"][0, 0]) for path in part.glob("*.npz")}
        for part in (found.calibrate, found.search, found.judge)
    ]
    assert [len(each) for each in speakers] == [2, 1, 3], "a name for every recording"
    assert len({value for each in speakers for value in each.values()}) == 6
    assert found.too_few.startswith("measured on 3 recordings of 6")


def test_labels_go_with_their_samples(tmp_path):
    model = opened(FIXED)
    data = {**batch(1, 2), "labels": np.int64([7, 8])}
    found = write_split(model, data, tmp_path, reference_runner(model, Context(Request(), plugins=load_plugins())))
    assert np.load(next(found.judge.glob("*.npz")))["labels"].tolist() == [8]


def test_files_of_an_earlier_run_are_replaced(tmp_path):
    parts_of(FIXED, batch(1, 2, 3, 4), tmp_path)
    assert parts_of(FIXED, batch(5, 6), tmp_path)[:3] == ([[[5, 5]]], [[[5, 5]]], [[[6, 6]]])


def test_data_of_another_model_is_an_error(tmp_path):
    with pytest.raises(DovetailError, match="no input 'z'"):
        parts_of(FIXED, {"z": np.zeros((1, 2), np.float32)}, tmp_path)


def placed(folder, recordings=False):
    """Eight samples in files of their own, of four recordings if these are asked for."""
    for number in range(8):
        name = f"{'abcd'[number // 2]}/{number}.npz" if recordings else f"{number}.npz"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.savez(folder / name, x=np.full((1, 2), number, np.float32))
    return folder


@pytest.mark.parametrize("recordings", [False, True])
def test_files_stay_where_they_lie_for_other_machines(tmp_path, recordings):
    """The parts are the same as those that are written, and so are the recordings that a search divides again."""
    model, data = opened(FIXED), placed(tmp_path / "data", recordings)
    run = reference_runner(model, Context(Request(), plugins=load_plugins()))
    written = write_split(model, data, tmp_path / "written", run)
    found = write_split(model, data, tmp_path / "none", run, lies=True)
    assert not (tmp_path / "none").exists() and found.place == str(data) and found.text == written.text
    for part, folder in (
        (found.calibrate, written.calibrate),
        (found.search, written.search),
        (found.judge, written.judge),
    ):
        there = from_plain(json.loads(json.dumps(as_plain(part))))
        assert there == part
        assert [float(arrays["x"][0, 0]) for arrays in there] == [
            float(np.load(path)["x"][0, 0]) for path in sorted(folder.glob("*.npz"))
        ]
        again = [split_data(model, one, run, searched=True) for one in (there, folder)]
        assert again[0].uses == again[1].uses


def test_what_is_not_divided_between_files_is_written(tmp_path):
    model = opened(ROWS)
    run = reference_runner(model, Context(Request(), plugins=load_plugins()))
    np.savez(tmp_path / "one.npz", **batch(1, 2, 3, 4, 5, 6))
    for data in (batch(1, 2, 3, 4, 5, 6), tmp_path / "one.npz"):
        found = write_split(model, data, tmp_path / "folder", run, lies=True)
        assert found.judge == tmp_path / "folder" / "judgment" and found.place == str(found.search)


def test_files_of_another_file_system_have_no_path_that_machines_must_see():
    fsspec = pytest.importorskip("fsspec")
    model, files = opened(FIXED), fsspec.filesystem("memory")
    run = reference_runner(model, Context(Request(), plugins=load_plugins()))
    for number in range(6):
        with files.open(f"/tuned/{number}.npz", "wb") as file:
            np.savez(file, x=np.full((1, 2), number, np.float32))
    found = write_split(model, "memory://tuned", Path("unused"), run, lies=True)
    assert found.place == "" and [float(arrays["x"][0, 0]) for arrays in found.judge] == [3, 4, 5]


@pytest.mark.parametrize("name", ["file", "args", "input/0"])
def test_an_input_may_have_any_name(name, tmp_path):
    save_arrays(tmp_path / "0.npz", {name: np.arange(3)})
    with np.load(tmp_path / "0.npz") as found:
        assert list(found) == [name] and found[name].tolist() == [0, 1, 2]
