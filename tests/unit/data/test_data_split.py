"""Data in three parts: which samples calibrate, which a search sees, which judge; the same ones each time."""

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.data_split import Use, split_data
from dovetail_runtime.data.extents import data_extents

HEAD = '<ir_version: 10, opset_import: ["": 22]>'
LETTERS = {Use.CALIBRATION: "c", Use.SEARCH: "s", Use.JUDGMENT: "j"}


def net(rows="N", columns=2):
    return open_text(f"{HEAD} g (float[{rows},{columns}] x) => (float[M,K] y) {{ y = Tanh (x) }}", "test")


def numbered(count):
    return np.arange(count, dtype=np.float32)[:, None].repeat(2, axis=1)


def tanh(feeds):
    return {"y": np.tanh(feeds["x"])}


def split(model, data, **how):
    return split_data(model, data, tanh, **how)


def numbers(model, split_, *uses):
    """The numbers of the samples in a part."""
    return [int(row) for feeds, _ in batches(model, split_.part(*uses)) for row in feeds["x"][:, 0]]


def letters(split_):
    return "".join(LETTERS[use] for use in split_.uses)


@pytest.mark.parametrize(
    ("count", "searched"),
    [
        (1, "c"),
        (2, "cj"),
        (3, "csj"),
        (4, "ccsj"),
        (5, "csjjj"),
        (8, "cccssjjj"),
        (12, "cccccsssjjjj"),
        (24, "cccccsssjjjj" * 2),
        (48, "ccccccsssjjj" * 4),
    ],
)
def test_neighbors_of_a_sequence_are_in_one_part_and_long_ones_are_divided_in_rounds(count, searched):
    model = net(rows="1")
    found = split(model, {"x": numbered(count)}, searched=True)
    assert letters(found) == searched
    for _ in range(2):  # each reading gives the same
        for use, letter in LETTERS.items() if count > 2 else ():
            assert numbers(model, found, use) == [at for at, one in enumerate(searched) if one == letter]


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("count", range(2, 60))
def test_no_sample_has_two_uses_and_twenty_four_are_enough_for_eight_that_judge(count, searched):
    model = net(rows="1")
    found = split(model, {"x": numbered(count)}, searched=searched)
    parts = [numbers(model, found, use) for use in (Use.CALIBRATION, Use.SEARCH, Use.JUDGMENT) if use in found.uses]
    assert sorted(sum(parts, [])) == list(range(count))
    if searched:
        assert bool(found.too_few) == (found.judged < 8)
        assert found.too_few == "" or count < 32
        assert found.judged >= 3 or count < 5


def test_the_number_that_is_needed_is_said():
    found = split(net(rows="1"), {"x": numbered(4)}, searched=True)
    why = (
        "measured on 1 batch of 4, and another is worse than all of them with a probability of 1 in 2; "
        "8 must judge, and 24 independent batches give as many"
    )
    assert found.too_few == why
    whole = split(net(rows="1"), {"x": numbered(1)}, searched=True)
    assert whole.too_few.startswith("no sample of its own can judge, 8 must") and whole.judged == 0
    assert "that also calibrated" in whole.text


def test_independent_rows_of_one_batch_are_divided_with_their_labels():
    model = net()
    found = split(model, {"x": numbered(8), "labels": np.arange(8)}, searched=True)
    for use, rows in ((Use.CALIBRATION, [0, 1, 2]), (Use.SEARCH, [3, 4]), (Use.JUDGMENT, [5, 6, 7])):
        read = list(batches(model, found.part(use)))
        assert [int(row) for feeds, _ in read for row in feeds["x"][:, 0]] == rows
        assert [int(label) for _, labels in read for label in labels[""]] == rows
    assert found.text == "accuracy on 3 of 8 rows, held out from calibration and search"


def test_rows_that_judge_come_in_pieces_whose_spread_can_be_measured():
    found = split(net(), {"x": numbered(400)}, searched=True)
    for use in (Use.SEARCH, Use.JUDGMENT):
        sizes = [len(feeds["x"]) for feeds, _ in batches(net(), found.part(use))]
        assert 9 <= len(sizes) <= 12 and max(sizes) - min(sizes) <= max(sizes)
    assert found.others == found.judged / found.uses.count(Use.SEARCH)
    assert split(net(rows="1"), {"x": numbered(1)}, searched=True).others == 1


def test_rows_that_depend_on_each_other_are_not_divided_and_the_reason_is_said():
    found = split_data(net(), {"x": numbered(64)}, lambda feeds: {"y": feeds["x"].mean(keepdims=True)})
    assert found.judged == 0 and "run apart" in found.text and found.part(Use.JUDGMENT) is found.data


def test_rows_are_divided_in_the_shape_that_the_result_will_have():
    model = net()
    found = split(model, {"x": numbered(12)}, fixed={"x": [4, 2]}, searched=True)
    assert (found.unit, len(found.uses)) == ("batch", 3)
    assert [len(feeds["x"]) for feeds, _ in batches(model, found.part(Use.JUDGMENT))] == [4]


def test_extents_are_those_of_all_parts():
    model = net(rows="1", columns="L")
    data = [{"x": np.zeros((1, length), np.float32)} for length in (3, 3, 3, 4)]
    with pytest.raises(DovetailError, match="no single shape"):
        data_extents(model, split(model, data).part(Use.CALIBRATION))


def files(folder, names):
    for number, name in enumerate(names):
        path = folder / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=np.full((1, 2), number, np.float32))
    return folder


@pytest.mark.parametrize(
    "names",
    [
        [f"{speaker}/{n}" for speaker in "abcdef" for n in range(4)],
        [f"{speaker}_{n:02}" for speaker in "abcdef" for n in range(4)],
        [f"{speaker}-take-{n}" for speaker in "abcdef" for n in range(4)],
    ],
)
def test_recordings_stay_whole(tmp_path, names):
    model, data = net(rows="1"), files(tmp_path, names)
    found = split(model, data, searched=True)
    assert found.unit == "recording" and len(found.uses) == 6 and found.judged == 3
    parts = {use: {number // 4 for number in numbers(model, found, use)} for use in Use}
    assert sum(map(len, parts.values())) == 6, "no recording is in two parts"
    assert sum(len(numbers(model, found, use)) for use in Use) == 24


def test_two_recordings_are_too_few_to_divide_between_them(tmp_path):
    found = split(net(rows="1"), files(tmp_path, [f"{speaker}/{n}" for speaker in "ab" for n in range(6)]))
    assert (found.unit, letters(found)) == ("file", "cccccccccjjj")


def test_a_recording_that_is_most_of_the_data_leaves_a_share_to_each_part(tmp_path):
    names = [f"long/{n}" for n in range(40)] + [f"{short}/{n}" for short in "abcdefg" for n in range(2)]
    model = net(rows="1")
    found = split(model, files(tmp_path, names), searched=True)
    assert all(numbers(model, found, use) for use in Use) and found.judged == 3


def test_files_of_one_series_are_divided_as_a_sequence(tmp_path):
    found = split(net(rows="1"), files(tmp_path, [f"frame{n:03}" for n in range(12)]), searched=True)
    assert (found.unit, letters(found)) == ("file", "cccccsssjjjj")


def test_only_files_of_a_part_are_read(tmp_path, monkeypatch):
    model, data = net(rows="1"), files(tmp_path, [f"frame{n:03}" for n in range(12)])
    found = split(model, data)
    (tmp_path / "frame000.npz").write_bytes(b"damaged")
    assert numbers(model, found, Use.JUDGMENT) == [9, 10, 11]


def test_no_data_is_no_batch():
    assert split(net(), []).uses == ()


def test_an_input_with_a_default_need_not_be_there():
    text = f"{HEAD} g (float[N,2] x, float[N,2] z) => (float[N,2] y) <float[1,2] z = {{1, 1}}> {{ y = Add (x, z) }}"
    model = open_text(text, "test")
    found = split_data(model, {"x": numbered(6)}, lambda feeds: {"y": feeds["x"] + 1}, searched=True)
    assert numbers(model, found, Use.JUDGMENT) == [3, 4, 5]
