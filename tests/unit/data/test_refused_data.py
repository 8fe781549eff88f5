"""Input data: what is cut into batches, and what is refused."""

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.batches import batches, fitted

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[{batch},3] x, int64[2] k) => (float[{batch},3] y) {{ y = Identity(x) }}"""


def model(batch="N"):
    return open_text(MODEL.format(batch=batch), "text")


@pytest.mark.parametrize(
    ("batch", "given", "sizes"),
    [
        ("N", 5, [5]),  # an open extent takes up to 64 at once
        ("N", 130, [64, 64, 2]),
        (2, 2, [2]),
        (2, 6, [2, 2, 2]),
    ],
)
def test_arrays_with_more_samples_than_the_model_takes_are_cut(batch, given, sizes):
    arrays = {"x": np.arange(3 * given, dtype=np.float32).reshape(given, 3), "k": np.ones(2, np.int64)}
    labels = np.arange(given)
    found = list(batches(model(batch), {**arrays, "labels": labels}))
    assert [len(feeds["x"]) for feeds, _ in found] == sizes
    assert [list(truth[""]) for _, truth in found] == [list(part) for part in np.split(labels, np.cumsum(sizes)[:-1])]
    np.testing.assert_array_equal(np.concatenate([feeds["x"] for feeds, _ in found]), arrays["x"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": (5, 3)}, "no array for input 'k'"),
        ({"x": (5, 3), "k": (2,), "X": (1,)}, "the model has no input 'X'"),
        ({"x": (5, 4), "k": (2,)}, "input 'x' wants [N, 3], the array has [5, 4]"),
        ({"x": (5,), "k": (2,)}, "input 'x' wants [N, 3], the array has [5]"),
        ({"x": (5, 3), "k": (3,)}, "input 'k' wants [2], the array has [3]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(arrays, message):
    given = {name: np.zeros(shape, np.float32 if name == "x" else np.int64) for name, shape in arrays.items()}
    with pytest.raises(DovetailError, match=r".*") as refused:
        list(batches(model(), given))
    assert message in refused.value.message


@pytest.mark.parametrize("content", [b"hello", b"", b"PK\x03\x04 cut short"])
def test_files_that_are_no_npz(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with pytest.raises(DovetailError, match=r"data\.npz"):
        list(batches(model(), path))


def test_a_folder_holds_one_file_per_sample(tmp_path):
    for index in range(3):
        np.savez(tmp_path / f"{index}.npz", x=np.full((1, 3), index, np.float32), k=np.ones(2, np.int64))
    assert [feeds["x"][0, 0] for feeds, _ in batches(model(), tmp_path)] == [0, 1, 2]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DovetailError, match=r"holds no \.npz"):
        list(batches(model(), tmp_path / "empty"))


def test_floats_are_given_in_the_type_that_a_result_takes():
    text = MODEL.format(batch="N").replace("float[N,3] x", "bfloat16[N,3] x").replace("float[N,3] y", "bfloat16[N,3] y")
    given = {"x": np.ones((1, 3), np.float32), "k": np.ones(2, np.int64)}
    found = fitted(open_text(text, "text"), given)
    assert {name: array.dtype.name for name, array in found.items()} == {"x": "bfloat16", "k": "int64"}


def test_an_archive_that_unpacks_to_more_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.zeros((1, 3, 1 << 20), np.float32))
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 11)  # four megabytes
    with pytest.raises(DovetailError, match=r"data\.npz unpacks to 12 MB, and this machine has 4 MB"):
        list(batches(model(), path))


TREE = {
    "n_targets": 1, "nodes_falsenodeids": [2, 0, 0], "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_nodeids": [0, 1, 2], "nodes_treeids": [0, 0, 0],
    "nodes_truenodeids": [1, 0, 0], "nodes_values": [0.5, 0.0, 0.0], "target_ids": [0, 0],
    "target_nodeids": [1, 2], "target_treeids": [0, 0], "target_weights": [1.0, 2.0],
}  # fmt: skip


def tree(**more):
    float_ = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **TREE, **more)
    ends = [onnx.helper.make_tensor_value_info(name, float_, ["N", width]) for name, width in (("x", 2), ("y", 1))]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_missing_values_are_data_where_the_model_says_where_they_go():
    """Trees send NaN down the branch that their attribute names; without it, NaN is a mistake as anywhere."""
    data = {"x": np.float32([[np.nan, 0], [0, 0], [1, 0]])}
    taught = tree(nodes_missing_value_tracks_true=[1, 0, 0])
    compiled = dovetail.compile(taught, "host", data=data)
    assert compiled.verification.worst_snr_db == np.inf and compiled.run(data)["y"].ravel().tolist() == [1, 1, 2]
    with pytest.raises(DovetailError, match="not numbers"):
        dovetail.compile(tree(), "host", data=data)


def test_missing_values_are_data_where_the_model_looks_for_them():
    head = '<ir_version: 8, opset_import: ["": 18]>'
    nodes = "{ m = IsNaN (x)  y = Where (m, zero, x) }"
    model = onnx.parser.parse_model(f"{head} g (float[N,2] x) => (float[N,2] y) <float zero = {{0}}> {nodes}")
    data = {"x": np.float32([[np.nan, 1], [2, np.nan]])}
    assert dovetail.compile(model, "host", data=data).run(data)["y"].tolist() == [[0, 1], [2, 0]]
