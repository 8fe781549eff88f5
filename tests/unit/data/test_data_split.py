"""Data in two parts: which batches or rows are held out, the same ones each time."""

import numpy as np
import pytest
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.data_split import split_data

HEAD = '<ir_version: 10, opset_import: ["": 22]>'


def net(rows="N"):
    return open_text(f"{HEAD} g (float[{rows},2] x) => (float[M,2] y) {{ y = Tanh (x) }}", "test")


def numbered(count):
    return np.arange(count, dtype=np.float32)[:, None].repeat(2, axis=1)


def rows_of(model, part):
    return [feeds["x"][:, 0].tolist() for feeds, _ in batches(model, part)]


def split(model, data, every=3, fewest_rows=6):
    return split_data(model, data, lambda feeds: {"y": np.tanh(feeds["x"])}, every, fewest_rows)


@pytest.mark.parametrize(
    ("batches_", "every", "used", "held_out"),
    [
        (7, 3, [0, 1, 3, 4, 6], [2, 5]),
        (3, 3, [0, 1], [2]),
        (2, 3, [0], [1]),
        (5, 2, [0, 2, 4], [1, 3]),
        (2, 2, [0], [1]),
    ],
)
def test_the_last_of_every_few_batches_is_held_out_and_of_fewer_the_last(batches_, every, used, held_out):
    model = net(rows="1")
    found = split(model, {"x": numbered(batches_)}, every)
    for _ in range(2):  # each reading gives the same
        assert rows_of(model, found.part(False)) == [[one] for one in used]
        assert rows_of(model, found.part(True)) == [[one] for one in held_out]
    assert (found.held_out, found.total) == (len(held_out), batches_)
    assert found.text == f"accuracy is that of {len(held_out)} of {batches_} batches"


@pytest.mark.parametrize(("every", "used", "held_out"), [(3, [0, 1, 3, 4, 6], [2, 5]), (2, [0, 2, 4, 6], [1, 3, 5])])
def test_independent_rows_of_one_batch_are_divided_with_their_labels(every, used, held_out):
    model = net()
    found = split(model, {"x": numbered(7), "labels": np.arange(7)}, every)
    for part, rows in ((False, used), (True, held_out)):
        ((feeds, labels),) = batches(model, found.part(part))
        assert feeds["x"][:, 0].tolist() == labels[""].tolist() == rows
    assert found.text == f"accuracy is that of {len(held_out)} of 7 rows"


def test_too_few_rows_are_not_divided():
    model = net()
    found = split(model, {"x": numbered(5)})
    assert (found.held_out, found.why) == (0, "")
    assert rows_of(model, found.part(False)) == [[0, 1, 2, 3, 4]]
    assert split(model, {"x": numbered(5)}, fewest_rows=5).held_out == 1


def test_rows_that_depend_on_each_other_are_not_divided_and_the_reason_is_said():
    model = net()
    found = split_data(model, {"x": numbered(64)}, lambda feeds: {"y": feeds["x"].mean(keepdims=True)}, 3, 6)
    assert found.held_out == 0 and "run apart" in found.why


def test_no_data_is_no_batch():
    assert split(net(), []).total == 0


def test_an_input_with_a_default_need_not_be_there():
    text = f"{HEAD} g (float[N,2] x, float[N,2] z) => (float[N,2] y) <float[1,2] z = {{1, 1}}> {{ y = Add (x, z) }}"
    model = open_text(text, "test")
    found = split_data(model, {"x": numbered(6)}, lambda feeds: {"y": feeds["x"] + 1}, 2, 2)
    assert rows_of(model, found.part(True)) == [[1, 3, 5]]
