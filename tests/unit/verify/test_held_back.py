"""What a search for a goal does not see, and what a part of the data says of other data."""

import math

import numpy as np
import pytest
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches
from dovetail_verify.accuracy.raising import parts_of
from dovetail_verify.compare import verify

HEAD = '<ir_version: 10, opset_import: ["": 22]>'


def net(nodes="y = Tanh (x)", rows="N"):
    return open_text(f"{HEAD} g (float[{rows},2] x) => (float[M,2] y) {{ {nodes} }}", "test")


def numbered(count, start=0):
    return np.arange(start, start + count, dtype=np.float32)[:, None].repeat(2, axis=1)


def seen(model, data):
    return [feeds["x"][:, 0].tolist() for feeds, _ in batches(model, data)]


def parts(model, data):
    return parts_of(model, data, model, lambda feeds: {"y": np.tanh(feeds["x"])})


def test_every_third_batch_is_held_back():
    model = net(rows="2")
    found = parts(model, {"x": numbered(14)})
    assert seen(model, found.search) == [[0, 1], [2, 3], [6, 7], [8, 9], [12, 13]]
    assert seen(model, found.held) == seen(model, found.held) == [[4, 5], [10, 11]]
    assert found.text == "accuracy is that of 2 of 7 batches, which the search for the goal did not see"


def test_of_two_batches_the_last_is_held_back():
    model = net(rows="2")
    assert seen(model, parts(model, {"x": numbered(4)}).held) == [[2, 3]]


def test_independent_rows_of_one_batch_are_divided_with_their_labels():
    model = net()
    found = parts(model, {"x": numbered(7), "labels": np.arange(7)})
    ((feeds, labels),) = batches(model, found.held)
    assert feeds["x"][:, 0].tolist() == labels[""].tolist() == [2, 5]
    assert seen(model, found.search) == [[0, 1, 3, 4, 6]]


@pytest.mark.parametrize(("count", "why"), [(5, "it is one batch; give more files or samples"), (100, "run apart")])
def test_where_nothing_can_be_held_back_that_is_said(count, why):
    model = net()
    found = parts_of(model, {"x": numbered(min(count, 64))}, model, lambda feeds: {"y": feeds["x"].mean(keepdims=True)})
    assert found.held is None
    assert "nothing could be held back" in found.text and why in found.text


def compared(errors):
    """A verification on batches of ones with these errors."""
    data = [{"x": np.ones((2, 2), np.float32) * (index + 1)} for index in range(len(errors))]
    return verify(net(rows="2"), lambda feeds: {"y": np.ones((2, 2))},
                  lambda feeds: {"y": np.ones((2, 2)) + errors[int(feeds["x"][0, 0]) - 1]}, data)  # fmt: skip


def test_a_bad_batch_counts_as_much_as_it_would_alone():
    found = compared([1e-3] * 11 + [1e-1])
    assert found.worst_snr_db > 30
    assert found.cautious[0].snr_db == pytest.approx(20)
    assert 1 - found.cautious[0].cosine > 1 - found.outputs[0].cosine or found.outputs[0].cosine == 1


def test_few_batches_that_differ_promise_less_than_their_worst():
    assert compared([1e-3, 3e-2]).cautious[0].snr_db < 20 * math.log10(1 / 3e-2)


def test_batches_alike_and_exact_ones_are_rated_as_they_are():
    assert compared([1e-2, 1e-2, 1e-2]).cautious[0].snr_db == pytest.approx(40)
    assert compared([0, 0]).cautious[0].snr_db == math.inf
    assert compared([1e-2]).cautious[0].snr_db == pytest.approx(40)
