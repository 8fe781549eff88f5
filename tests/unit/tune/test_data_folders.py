"""Data in two folders: what calibrates does not judge."""

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context, Request
from dovetail.plugin import load_plugins
from dovetail_tune.data_folders import write_split
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

    return rows(found.calibrate), rows(found.judge), found.text


def batch(*numbers):
    return {"x": np.float32([[number, number] for number in numbers])}


def test_even_batches_calibrate_and_odd_ones_judge(tmp_path):
    calibrate, judge, text = parts_of(FIXED, batch(1, 2, 3, 4, 5), tmp_path)
    assert (calibrate, judge) == ([[[1, 1]], [[3, 3]], [[5, 5]]], [[[2, 2]], [[4, 4]]])
    assert text == "accuracy is that of 2 of 5 batches; the others calibrate"


def test_rows_of_a_single_batch_are_split_where_they_are_independent(tmp_path):
    calibrate, judge, text = parts_of(ROWS, batch(1, 2, 3), tmp_path)
    assert (calibrate, judge) == ([[[1, 1], [3, 3]]], [[[2, 2]]])
    assert text == "accuracy is that of 1 of 3 rows; the others calibrate"


def test_what_cannot_be_split_does_both_and_says_so(tmp_path):
    one, other, text = parts_of(FIXED, batch(1), tmp_path)
    assert one == other == [[[1, 1]]]
    assert text == "the data that accuracy is measured on also calibrates, since it is one sample"


def test_labels_go_with_their_samples(tmp_path):
    model = opened(FIXED)
    data = {**batch(1, 2), "labels": np.int64([7, 8])}
    found = write_split(model, data, tmp_path, reference_runner(model, Context(Request(), plugins=load_plugins())))
    assert np.load(next(found.judge.glob("*.npz")))["labels"].tolist() == [8]


def test_files_of_an_earlier_run_are_replaced(tmp_path):
    parts_of(FIXED, batch(1, 2, 3, 4), tmp_path)
    assert parts_of(FIXED, batch(5, 6), tmp_path)[:2] == ([[[5, 5]]], [[[6, 6]]])


def test_data_of_another_model_is_an_error(tmp_path):
    with pytest.raises(DovetailError, match="no input 'z'"):
        parts_of(FIXED, {"z": np.zeros((1, 2), np.float32)}, tmp_path)
