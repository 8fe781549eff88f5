"""A result that runs on parts of the data in several processes gives the outputs of one, in the order of the data."""

from concurrent.futures import ThreadPoolExecutor

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail_runtime import run_parts
from dovetail_runtime.data_workers import DataWorkers

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y, int64[N, 1] best, bool[N, 4] large) <float zero = {0}> {
  y = Softmax(x)  best = ArgMax <axis = 1> (y)  large = Greater(x, zero) }"""


@pytest.fixture
def saved(tmp_path):
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "net.onnx")
    dovetail.compile(tmp_path / "net.onnx", "cpu-bf16").save(tmp_path / "out")
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for number in range(12):
        np.savez(tmp_path / "data" / f"{number:02}.npz", x=rng.standard_normal((3 + number, 4)).astype(np.float32))
    return tmp_path / "out", tmp_path / "data"


class Mortal(ThreadPoolExecutor):
    """Loses the worker of every third task."""

    submitted = 0

    def submit(self, work, /, *given, **named):
        self.submitted += 1
        return super().submit(lost if self.submitted % 3 == 0 else work, *given, **named)


def lost(*_):
    raise ConnectionError("the worker is gone")


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, Mortal])
def test_the_outputs_are_those_of_one_process(saved, kind):
    folder, data = saved
    compiled = dovetail.load(folder)
    with kind(2) as executor:
        found = run_parts.run_in_parts(DataWorkers(executor, 4), compiled, folder, data)
    expected = compiled.run_on(data)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name


def test_data_in_one_file_is_run_here(saved):
    folder, data = saved
    with ThreadPoolExecutor(1) as executor, pytest.raises(DovetailError, match="not in several files"):
        run_parts.run_in_parts(DataWorkers(executor), dovetail.load(folder), folder, data / "00.npz")


@pytest.mark.parametrize("answer", [3, [{}], [{"item": 0, "batches": [{"y": ["float32", [9], ""]}]}]])
def test_an_answer_that_is_not_valid(saved, monkeypatch, answer):
    monkeypatch.setattr(run_parts, "_ran", lambda task: answer)
    invalid = pytest.raises(DovetailError, match="a worker gives an answer that is not valid")
    with ThreadPoolExecutor(1) as executor, invalid:
        run_parts.run_in_parts(DataWorkers(executor), dovetail.load(saved[0]), *saved)


@pytest.mark.parametrize("values", [["a", "bc"], np.float32([[1, 2]]), np.array([True, False])])
def test_arrays_are_plain_data(values):
    array = np.array(values, object) if isinstance(values, list) else values
    again = run_parts._array(run_parts._plain(array))
    assert again.dtype == array.dtype and again.tolist() == array.tolist()


def test_a_trace_is_of_one_process(saved, capsys):
    command = ["run", str(saved[0]), "--data", str(saved[1]), "--trace", "t.json", "--cluster", "tcp://1.2.3.4:1"]
    assert main(command) == 2
    assert "--trace is of one process" in capsys.readouterr().err
