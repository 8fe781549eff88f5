"""Saving, loading and cloning a result while other threads run it."""

import threading
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.planning import Plan, get_placement
from dovetail_onnx.results.plan_file import SavedPlan
from onnx import TensorProto, helper, numpy_helper

THREADS = 6


def together(*works):
    """Call every function in a thread of its own, all at once, and raise what one of them raises."""
    barrier, failed = threading.Barrier(len(works)), []

    def begin(work):
        barrier.wait()
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=begin, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.fixture
def model(tmp_path):
    """Weights of more than a kilobyte, which saving keeps apart from the graph."""
    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for number in range(4):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("Conv", [value, f"w{number}"], [f"v{number}"], pads=[1] * 4, name=f"c{number}"))
        value = f"v{number}"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 8, 8]) for name in ("x", value))
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    path = tmp_path / "net.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


@pytest.mark.parametrize("loaded", [False, True])
def test_a_result_is_saved_while_it_runs(model, tmp_path, loaded):
    inputs = {"x": np.random.default_rng(1).normal(size=(1, 16, 8, 8)).astype(np.float32)}
    result = dovetail.compile(model, "ppl-int8", data=inputs)
    (expected,) = result.run(inputs).values()
    result.save(tmp_path / "first")
    if loaded:
        result = dovetail.load(tmp_path / "first")

    def run():
        for _ in range(20):
            (found,) = result.run(inputs).values()
            assert np.array_equal(found, expected)

    def save(number):
        result.save(tmp_path / f"again{number}")
        result.unload()

    together(*[run] * (THREADS // 2), *(lambda number=number: save(number) for number in range(THREADS // 2)))
    bytes_of = {Path(folder, "model.onnx").read_bytes() for folder in tmp_path.glob("*/")}
    assert len(bytes_of) == 1


def test_threads_that_look_at_a_saved_plan_see_one_plan():
    loads = []

    def load():
        loads.append(1)
        return Plan()

    for _ in range(50):
        plan, seen = SavedPlan(load), []
        together(*[lambda plan=plan, seen=seen: seen.append(id(plan.remarks))] * THREADS)
        assert len(set(seen)) == 1
    assert len(loads) == 50


def test_a_copy_of_a_loaded_model_has_its_placements(model, tmp_path):
    dovetail.compile(model, "cpu-bf16").save(tmp_path / "out")
    copy = dovetail.load(tmp_path / "out").model.clone()
    assert {get_placement(node).backend for node in copy.graph} == {"cpu-bf16"}
