"""Functions of arrays that several processes compute: same results, same order, whatever happens to a process."""

import os
import time

import ml_dtypes
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx import array_workers
from dovetail_onnx.array_workers import map_arrays, workers


def tasks(count, **settings):
    return (({"number": number, **settings}, lambda number=number: [np.full(5, number)]) for number in range(count))


def with_process(settings, array):
    """What a process gives, and which one it is; it takes a while, so that all take part."""
    time.sleep(0.02)
    return [array * 2, np.array([os.getpid()])]


@pytest.fixture(autouse=True)
def path_of_these_tests(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    monkeypatch.setattr(array_workers, "_AFTER", 0)


def importable():
    import test_array_workers

    return test_array_workers


@pytest.mark.parametrize("number", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(number):
    results, seen, end = [], set(), time.monotonic() + 60

    def until_all_have_taken_part():
        for task in tasks(10_000):
            if len(seen) == number and len(results) > 20 or time.monotonic() > end:
                return
            yield task

    with workers(number):
        for doubled, process in map_arrays(importable().with_process, until_all_have_taken_part()):
            results.append(int(doubled[0]))
            seen.add(int(process[0]))
    assert results == list(range(0, 2 * len(results), 2)) and len(seen) == number


def test_outside_of_workers_nothing_is_started():
    found = list(map_arrays(importable().with_process, tasks(3)))
    assert {int(process[0]) for _, process in found} == {os.getpid()}


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("dtype", [np.float16, np.int8, ml_dtypes.bfloat16, ml_dtypes.int4, np.bool_])
def test_arrays_of_all_types_and_extents_arrive(dtype):
    arrays = [np.arange(24).reshape(2, 3, 4).astype(dtype), np.zeros((0, 3), dtype), np.array(1).astype(dtype)]
    with workers(2):
        found = list(map_arrays(importable().unchanged, (({}, lambda: arrays) for _ in range(40))))
    for one in found:
        for sent, received in zip(arrays, one, strict=True):
            assert received.dtype == sent.dtype and received.shape == sent.shape and (received == sent).all()


def unchanged(settings, *arrays):
    time.sleep(0.01)
    return arrays


def failing(settings, array):
    time.sleep(0.01)
    if settings["number"] == 33:
        raise ValueError("33 is too much")
    return [array]


def test_an_error_is_raised_here():
    with workers(2), pytest.raises(ValueError, match="33 is too much"):
        list(map_arrays(importable().failing, tasks(60)))


def dying(settings, array):
    time.sleep(0.01)
    if os.getpid() != settings["parent"]:
        os._exit(1)
    return [array]


def test_a_process_that_dies_costs_nothing():
    with workers(2):
        found = list(map_arrays(importable().dying, tasks(30, parent=os.getpid())))
    assert [int(array[0]) for (array,) in found] == list(range(30))


def test_a_function_that_other_processes_cannot_import_is_computed_here():
    with workers(2):
        found = list(map_arrays(lambda settings, array: [array + 1], tasks(30)))
    assert [int(array[0]) for (array,) in found] == list(range(1, 31))


def test_where_no_process_can_be_started_this_one_computes_everything(monkeypatch):
    """As without `dovetail-runtime`, which starts them."""

    def missing(*_, **__):
        raise DovetailError("the distribution that brings dovetail.Tool is not installed")

    monkeypatch.setattr(array_workers.Tool, "start", missing)
    with workers(2):
        found = list(map_arrays(importable().with_process, tasks(5)))
    assert [int(doubled[0]) for doubled, _ in found] == [0, 2, 4, 6, 8]
    assert {int(process[0]) for _, process in found} == {os.getpid()}
