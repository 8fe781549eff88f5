"""Verification on parts of the data in several processes gives the figures of one."""

from concurrent.futures import ThreadPoolExecutor

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError
from dovetail_runtime.data_workers import DataWorkers, data_workers, working_on
from dovetail_verify import layer_parts, parts
from dovetail_verify.metrics import DifferenceSums

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y, int64[N, 1] best)
<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6}> {
  h = MatMul(x, w)  y = Softmax(h)  best = ArgMax <axis = 1> (y) }"""


@pytest.fixture
def saved(tmp_path):
    """A model, the folder of its result, and a folder of samples with labels."""
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "net.onnx")
    dovetail.compile(tmp_path / "net.onnx", "cpu-bf16").save(tmp_path / "out")
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for number in range(12):
        rows = 3 + number
        arrays = {"x": rng.standard_normal((rows, 4)).astype(np.float32), "labels": rng.integers(0, 4, rows)}
        np.savez(tmp_path / "data" / f"{number:02}.npz", **arrays)
    return tmp_path / "net.onnx", tmp_path / "out", tmp_path / "data"


@pytest.fixture
def asked(monkeypatch):
    """The tasks that were done."""
    found = []
    monkeypatch.setattr(parts, "_verified", lambda task, work=parts._verified: found.append(task) or work(task))
    return found


def test_the_figures_are_those_of_one_process(saved, asked):
    alone = dovetail.verify(*saved)
    with ThreadPoolExecutor(2) as executor, working_on(DataWorkers(executor, 3)):
        together = dovetail.verify(*saved)
    assert len(asked) == 3 and data_workers() is None
    assert together.as_dict() == alone.as_dict()
    assert (together.spread_db, together.cautious) == (alone.spread_db, alone.cautious)


def test_a_saved_result_is_verified_in_parts_when_it_is_compiled(saved, asked, tmp_path):
    model, _, data = saved
    with ThreadPoolExecutor(2) as executor:
        how = {"data": str(data), "verify": True, "executor": executor}
        compiled = dovetail.compile(model, "cpu-bf16", **how, keep=lambda made: made.save(tmp_path / "again"))
        assert asked
        asked.clear()
        unsaved = dovetail.compile(model, "cpu-bf16", **how)
    assert not asked, "nobody else finds it"
    assert unsaved.verification.as_dict() == compiled.verification.as_dict()


@pytest.mark.parametrize(
    "answer", [{}, {"said": [], "batches": [[0, {"y": {"signal": 1}}]]}, {"said": [], "batches": 3}]
)
def test_an_answer_that_is_not_valid(saved, monkeypatch, answer):
    monkeypatch.setattr(parts, "_verified", lambda task: answer)
    invalid = pytest.raises(DovetailError, match="a worker gives an answer that is not valid")
    with ThreadPoolExecutor(1) as executor, working_on(DataWorkers(executor)), invalid:
        dovetail.verify(*saved)


def test_sums_are_plain_data():
    sums = DifferenceSums()
    sums.add(np.float32([[1, 2], [3, 4]]), np.float32([[1, 2], [3, 5]]), np.array([0, 1]))
    sums.add(np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float32))
    assert DifferenceSums.from_dict(sums.as_dict()) == sums


def test_a_scheduler_that_does_not_answer(saved, capsys):
    pytest.importorskip("distributed")
    assert main(["verify", *map(str, saved[:2]), "--data", str(saved[2]), "--cluster", "nonsense://1"]) == 1
    assert "--cluster nonsense://1: the scheduler does not answer" in capsys.readouterr().err


def test_errors_of_layers_are_those_of_one_process(saved, monkeypatch):
    done, measure = [], layer_parts._measured
    monkeypatch.setattr(layer_parts, "_measured", lambda task: done.append(task["names"]) or measure(task))
    here = dovetail.layer_errors(*saved, outputs=2)
    with ThreadPoolExecutor(2) as executor, working_on(DataWorkers(executor, 3)):
        there = dovetail.layer_errors(*saved, outputs=2)
    assert [names is None for names in done] == [True] * 3 + [False] * 3
    assert there.table_rows(20) == here.table_rows(20)
    assert (there.batches, there.measured) == (12, here.measured)


@pytest.mark.parametrize("answer", [[{}], [{"item": 0, "batches": 1, "errors": {"y": {"own": {"signal": 1}}}}], 3])
def test_an_answer_about_layers_that_is_not_valid(saved, monkeypatch, answer):
    monkeypatch.setattr(layer_parts, "_measured", lambda task: answer if isinstance(answer, list) else [answer])
    invalid = pytest.raises(DovetailError, match="a worker gives an answer that is not valid")
    with ThreadPoolExecutor(1) as executor, working_on(DataWorkers(executor)), invalid:
        dovetail.layer_errors(*saved)
