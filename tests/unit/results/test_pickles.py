"""Compiled models are pickled by the path of a saved result, or with their files, and copied in memory."""

import copy
import pickle
import subprocess
import sys

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from onnx import TensorProto, helper, numpy_helper

X = np.array([[0.5, -2.0, 3.0]], np.float32)


def compiled(scale=1.5):
    """Compile y = Relu(x * w)."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"], "mul"), helper.make_node("Relu", ["m"], ["y"], "relu")]
    weights = [numpy_helper.from_array(np.full(3, scale, np.float32), "w")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    return dovetail.compile(model, "cpu-bf16", verify=False)


def again(one):
    return pickle.loads(pickle.dumps(one))


def new(folder):
    return compiled()


def saved(folder):
    one = compiled()
    one.save(folder / "out")
    return one


def loaded(folder):
    saved(folder)
    return dovetail.load(folder / "out")


def edited(folder):
    one = loaded(folder)
    next(node for node in one.model.graph if node.op_type == "Relu").op_type = "Neg"
    one.model.touch()
    return one


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("make", [new, saved, loaded, edited])
@pytest.mark.parametrize("copied", [again, copy.deepcopy])
def test_a_copy_computes_and_says_the_same(make, copied, tmp_path):
    one = make(tmp_path)
    one.options["threads"] = 1
    other = copied(one)
    np.testing.assert_array_equal(other.run({"x": X})["y"], one.run({"x": X})["y"])
    assert (other.coverage(), str(other.plan).partition("summary")[0]) == (
        one.coverage(),
        str(one.plan).partition("summary")[0],
    )
    assert other.options == {"threads": 1} and other.options is not one.options


def test_a_copy_can_be_changed_alone():
    one = compiled()
    other = copy.deepcopy(one)
    other.plan.remarks.clear()
    edit = next(node for node in other.model.graph if node.op_type == "Relu")
    edit.op_type = "Neg"
    other.model.touch()
    assert one.plan.remarks and not one.edited and other.edited
    assert (one.run({"x": X})["y"] >= 0).all() and (other.run({"x": X})["y"] < 0).any()
    assert copy.deepcopy(other).edited


def test_a_pickle_of_a_saved_result_is_small_and_does_not_take_another_one(tmp_path):
    text = pickle.dumps(saved(tmp_path))
    assert len(text) < 1000 < len(pickle.dumps(compiled()))
    compiled(scale=2.5).save(tmp_path / "out")
    with pytest.raises(DovetailError, match="is not the result that was pickled"):
        pickle.loads(text)


def test_a_result_that_another_one_replaced_is_pickled_with_its_own_files(tmp_path):
    first = saved(tmp_path)
    compiled(scale=2.5).save(tmp_path / "out")
    np.testing.assert_array_equal(again(first).run({"x": X})["y"], first.run({"x": X})["y"])
    assert not first.is_saved and dovetail.load(tmp_path / "out").is_saved


def test_another_process_runs_it(tmp_path):
    one = compiled()
    (tmp_path / "one.pickle").write_bytes(pickle.dumps(one))
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).run({'x': [[0.5, -2.0, 3.0]]})['y'].tolist())"
    with (tmp_path / "one.pickle").open("rb") as file:
        done = subprocess.run([sys.executable, "-P", "-c", script], stdin=file, capture_output=True, text=True)
    assert done.stdout.strip() == str(one.run({"x": X})["y"].tolist()), done.stderr
