"""Inputs from files: cut to what the model takes, or refused with the name of what does not fit."""

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches


def model(inputs):
    head = '<ir_version: 10, opset_import: ["": 22]>'
    return open_text(f"{head} g ({inputs}) => (float[N,2] y) {{ y = Relu (x) }}", "test")


def f32(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("inputs", "arrays", "sizes"),
    [
        ("float[4,2] x", {"x": f32(4, 2)}, [4]),
        ("float[4,2] x", {"x": f32(12, 2)}, [4, 4, 4]),
        ("float[N,2] x", {"x": f32(10, 2)}, [10]),
        ("float[N,2] x", {"x": f32(100, 2)}, [64, 36]),
        ("float[4,2] x, float[3] c", {"x": f32(8, 2), "c": f32(3)}, [4, 4]),
        ("float[4,2] x, float[4,2] b", {"x": f32(8, 2), "b": f32(8, 2)}, [4, 4]),
        ("float x", {"x": f32()}, [None]),
    ],
)
def test_samples_are_cut_into_runs(inputs, arrays, sizes):
    runs = list(batches(model(inputs), arrays))
    assert [len(feeds["x"]) if feeds["x"].ndim else None for feeds, _ in runs] == sizes
    assert all(set(feeds) == set(arrays) for feeds, _ in runs)


def test_labels_go_along():
    arrays = {"x": f32(8, 2), "labels": np.arange(8), "labels:y": np.arange(8) * 10}
    runs = list(batches(model("float[4,2] x"), arrays))
    assert [labels[""].tolist() for _, labels in runs] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [labels["y"].tolist() for _, labels in runs] == [[0, 10, 20, 30], [40, 50, 60, 70]]
    assert all(set(feeds) == {"x"} for feeds, _ in runs)


@pytest.mark.parametrize(
    ("inputs", "arrays", "says"),
    [
        ("float[4,2] x", {"image": f32(4, 2)}, "no input 'image'"),
        ("float[4,2] x, float[4,2] mask", {"x": f32(4, 2)}, "no array for input 'mask'"),
        ("float[4,2] x", {"x": f32(4, 3)}, r"'x' wants \[4, 2\], the array has \[4, 3\]"),
        ("float[4,2] x", {"x": f32(5, 2)}, r"'x' wants \[4, 2\], the array has \[5, 2\]"),
        ("float[4,2] x", {"x": f32(4)}, r"'x' wants \[4, 2\]"),
        ("float[4,2] x, float[4,2] b", {"x": f32(8, 2), "b": f32(12, 2)}, "has samples for 2 runs, others for 3"),
    ],
)
def test_what_does_not_fit(inputs, arrays, says):
    with pytest.raises(DovetailError, match=says):
        list(batches(model(inputs), arrays))


def test_files_and_folders(tmp_path):
    for index in range(3):
        np.savez(tmp_path / f"{index}.npz", x=f32(4, 2) + index)
    seen = [feeds["x"][0, 0] for feeds, _ in batches(model("float[4,2] x"), tmp_path)]
    assert seen == [0, 1, 2]
    assert len(list(batches(model("float[4,2] x"), tmp_path / "1.npz"))) == 1


@pytest.mark.parametrize(
    ("data", "says"), [(b"hello", "is not an .npz file"), (b"", "1.npz"), (b"PK\x03\x04damaged", "1.npz")]
)
def test_files_that_are_none(tmp_path, data, says):
    (tmp_path / "1.npz").write_bytes(data)
    with pytest.raises(DovetailError, match=says):
        list(batches(model("float[4,2] x"), tmp_path / "1.npz"))


CUT = [
    # inputs, outputs, what is given, rows of x in each run
    ("float[P,3] x", "float[P,8] y", 100, [100]),  # a cloud of points is one sample
    ("float[points,3] x", "float[1,8] y", 100, [100]),
    ("float[T,N,3] x", "float[T,N,8] y", 100, [100]),  # time comes first
    ("float[N,3] x", "float[N,8] y", 100, [64, 36]),
    ("float[N,3] x", "float[8] y", 100, [100]),  # one result for all of them
    ("float[N,3] x", "float y", 100, [100]),
    ("float[batch_size,3] x", "float[8,batch_size] y", 100, [64, 36]),
    ("float[batch,3] x", "float[8] y, float[batch] z", 100, [64, 36]),  # a table beside the results
    ("float[batch,3] x", "float[8] y", 100, [64, 36]),  # what is declared of the output is wrong
    ("float[?,3] x", "float[?,8] y", 100, [64, 36]),  # nobody named it
    ("float[unk__7,3] x", "float[unk__9,8] y", 100, [64, 36]),
    ("float[s0,3] x", "float[s0,8] y", 100, [64, 36]),
    ("float[x_dim_0,3] x", "float[x_dim_0,8] y", 100, [64, 36]),
    ("float[chunk,3] x", "float[chunk,8] y", 100, [100]),
    ("float[hidden_dim,3] x", "float[hidden_dim,8] y", 100, [100]),
    ("float[N,3] x, float[P,3] c", "float[N,8] y", 100, [64, 36]),
]


@pytest.mark.parametrize(("inputs", "outputs", "rows", "sizes"), CUT, ids=[f"{case[0]} {case[1]}" for case in CUT])
def test_only_samples_are_cut(inputs, outputs, rows, sizes):
    names = [declared.split()[-1] for declared in outputs.split(", ")]
    nodes = "\n".join(f"{name} = com.acme.Net (x)" for name in names)
    head = '<ir_version: 10, opset_import: ["": 22, "com.acme": 1]>'
    net = open_text(f"{head} g ({inputs}) => ({outputs}) {{ {nodes} }}", "test")
    arrays = {"x": f32(rows, *(2,) * inputs.count("N,3") * inputs.startswith("float[T"), 3)}
    if " c" in inputs:
        arrays["c"] = f32(rows, 3)
    runs = [feeds for feeds, _ in batches(net, arrays, run=lambda feeds: {"y": feeds["x"]})]
    assert [len(feeds["x"]) for feeds in runs] == sizes
    assert all(len(feeds.get("c", ())) in (0, rows) for feeds in runs)
