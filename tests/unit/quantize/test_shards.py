"""Calibration on parts of the data in several processes: the plan is that of one process, whoever saw what."""

import contextlib
import json
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Format
from dovetail_quantize import shards
from dovetail_quantize.observers.clipping import Entropy, MeanSquaredError, Percentile
from dovetail_quantize.observers.extremes import Isotone, MinMax
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import NET

OBSERVERS = {
    "minmax": MinMax, "mse": MeanSquaredError, "kl": Entropy, "percentile": Percentile,
    "percentile of 99": lambda format_: Percentile(format_, percentile=99), "isotone": Isotone,
}  # fmt: skip


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("format_", ["int8[symmetric]", "uint8[asymmetric]", "int8[symmetric, axis=1]"])
@pytest.mark.parametrize("name", OBSERVERS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 20), batches=st.integers(1, 8), parts=st.integers(1, 3))
def test_what_several_observers_saw_is_what_one_sees(name, format_, seed, batches, parts):
    rng, format_ = np.random.default_rng(seed), Format.of(format_)
    sizes = [(int(rng.integers(1, 30)), 3, int(rng.integers(1, 300))) for _ in range(batches)]
    data = [(rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4)).astype(np.float32) for size in sizes]
    data = [np.abs(array) for array in data] if name == "isotone" else data
    make = OBSERVERS[name]
    whole, merged, each = make(format_), make(format_), [make(format_) for _ in range(parts)]
    for number, array in enumerate(data):
        whole.update(array)
        each[number % parts].update(array)
    for one in each:
        merged.merge({key: shards._array(*text) for key, text in shards._encoded(one.state()).items()})
    assert merged.parameters() == whole.parameters()


@pytest.fixture
def folder(tmp_path, samples):
    """A folder of samples, each in a file."""
    for number, sample in enumerate(samples["x"]):
        np.savez(tmp_path / f"sample{number}.npz", x=sample[None] * (number + 1))
    return tmp_path


@pytest.fixture
def here(installed, monkeypatch):
    """Let workers, which are threads of this process, use the plugins of the test."""
    plugins = installed(("observer: half", "observer: mse"))
    monkeypatch.setattr(shards, "_plugins", lambda blocked: plugins)
    return plugins


class Unreliable(Executor):
    """An executor whose machines are lost now and then, or answer what they like."""

    def __init__(self, lost=0, answer=None):
        self.lost, self.answer, self.done = lost, answer, 0

    def submit(self, function, /, *arguments, **keywords):
        future = Future()
        self.done += 1
        if self.done <= self.lost:
            future.set_exception(OSError("the machine is gone"))
        else:
            future.set_result(self.answer or function(*arguments, **keywords))
        return future


def said(compiled):
    return [remark.why for remark in compiled.remarks if remark.rule == "data-workers"]


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("verify", [True, False], ids=["a part of the data", "all of the data"])
@pytest.mark.parametrize("executor", [lambda: ThreadPoolExecutor(2), lambda: Unreliable(lost=3)], ids=["two", "lost"])
def test_the_plan_is_that_of_one_process(compiled, here, folder, executor, verify):
    alone = compiled(data=str(folder), plugins=here, verify=verify)
    with executor() as machines:
        together = compiled(data=str(folder), plugins=here, verify=verify, executor=machines)
    assert str(together.plan) == str(alone.plan) and not said(together)


def test_remarks_on_the_data_are_those_of_one_process(compiled, here, tmp_path, samples):
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=np.tile(samples["x"], (10, 1, 1, 1)) * (number + 1))
    text = NET.replace("float[1,4,8,8] x", "float[N,4,8,8] x").replace("float[1,8,4,4] y", "float[N,8,4,4] y")
    alone, together = (
        compiled(text, data=str(tmp_path), plugins=here, verify=False, executor=machines)
        for machines in (None, Unreliable())
    )
    assert any("80 rows of 'x' are run in parts of 64" in remark.why for remark in together.remarks)
    assert str(together.plan) == str(alone.plan)


@pytest.mark.parametrize("data", ["memory", "one file"])
def test_data_that_nobody_else_can_read_is_calibrated_here(compiled, here, folder, samples, data):
    given = samples if data == "memory" else str(folder / "sample0.npz")
    with ThreadPoolExecutor(1) as machines:
        found = compiled(data=given, plugins=here, executor=machines)
    assert said(found) == ["one process calibrates: its data is not in several files, which other processes could read"]


def test_an_observer_that_cannot_merge_sees_everything_here(compiled, installed, folder):
    plugins = installed(
        ("q8: {dtype: int8, scheme: symmetric}", "q8: {dtype: int8, scheme: symmetric, observer: half}")
    )
    with ThreadPoolExecutor(1) as machines:
        found = compiled(data=str(folder), plugins=plugins, executor=machines)
    assert said(found) == ["one process calibrates: observer 'half' does not merge what several of it saw"]


@pytest.mark.parametrize("answer", ["nothing", "[]", '{"answer": {"amount": [1, 1], "states": []}}', "{}"])
def test_an_answer_that_is_not_valid(compiled, here, folder, answer):
    with pytest.raises(DovetailError, match="a worker gives an answer that is not valid"):
        compiled(data=str(folder), plugins=here, executor=Unreliable(answer=answer))


EXTREMA = {"low": np.float32([-1]), "high": np.float32([1])}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({**EXTREMA, "high": np.float32([np.inf])}, "'x': high holds inf, which is not finite"),
        ({**EXTREMA, "low": np.float32([np.nan])}, "'x': low holds nan, which is not finite"),
        ({**EXTREMA, "low": np.float32([2])}, "'x': a smallest number is above the largest one"),
        ({"counts": np.int64([[3, -4]])}, "'x': counts holds -4, which is below 0"),
        ({"number": np.int64([-1])}, "'x': number holds -1, which is below 0"),
    ],
)
def test_states_that_no_observer_has_are_refused_by_name(state, says):
    with pytest.raises(ValueError, match=says):
        shards._checked("x", state)
    assert shards._checked("x", EXTREMA) == EXTREMA


def test_a_machine_that_fails_three_times_ends_the_compilation(compiled, here, folder):
    with pytest.raises(DovetailError, match="no machine finishes a task: OSError: the machine is gone"):
        compiled(data=str(folder), plugins=here, executor=Unreliable(lost=1000))


def test_errors_of_the_data_are_those_of_one_process(compiled, here, folder):
    np.savez(folder / "sample3.npz", x=np.full((1, 4, 8, 8), np.inf, np.float32))
    texts = []
    for how in ({}, {"executor": Unreliable()}):
        with contextlib.suppress(DovetailError):
            compiled(data=str(folder), plugins=here, verify=False, **how)
            continue
        with pytest.raises(DovetailError) as caught:
            compiled(data=str(folder), plugins=here, verify=False, **how)
        texts.append((caught.value.message.partition("of the data: ")[2], caught.value.hint))
    assert len(texts) == 2 and texts[0] == texts[1] and texts[0][0]


def test_something_that_is_no_executor(compiled, here, folder):
    with pytest.raises(DovetailError, match="executor=3 is no executor"):
        compiled(data=str(folder), plugins=here, executor=3)


def test_arrays_of_an_answer_have_bounds():
    encoded = shards._encoded({"counts": np.arange(6).reshape(2, 3)})
    json.dumps(encoded)
    np.testing.assert_array_equal(shards._array(*encoded["counts"]), [[0, 1, 2], [3, 4, 5]])
    for dtype, shape in (("object", [6]), ("int64", [-6]), ("int64", [1 << 40]), ("int64", [7])):
        with pytest.raises(ValueError):
            shards._array(dtype, shape, encoded["counts"][2])
