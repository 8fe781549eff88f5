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
from dovetail_verify.sent_results import packed, unpacked

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
    verified = parts._verified
    monkeypatch.setattr(parts, "_verified", lambda task, sent: found.append(task) or verified(task, sent))
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
    monkeypatch.setattr(parts, "_verified", lambda task, sent: answer)
    invalid = pytest.raises(DovetailError, match="a worker gives an answer that is not valid")
    with ThreadPoolExecutor(1) as executor, working_on(DataWorkers(executor)), invalid:
        dovetail.verify(*saved)


SUMS = DifferenceSums().as_dict()
OWN = {"signal": 1.0, "noise": 0.0, "energy": 1.0, "elements": 4}


@pytest.mark.parametrize("name", [name for name, value in SUMS.items() if isinstance(value, (int, float))])
def test_sums_that_are_infinite_or_negative_are_refused_by_name(name):
    negative = [] if name in ("product", "row_logs") else [-1]
    for value in (float("inf"), float("-inf"), float("nan"), "1", None, *negative):
        with pytest.raises(ValueError, match=f"{name}: "):
            DifferenceSums.from_dict({**SUMS, name: value})


@pytest.mark.parametrize("name", ["noise", "elements"])
def test_a_worker_with_sums_that_cannot_be_is_named_with_them(saved, monkeypatch, name):
    invalid = pytest.raises(DovetailError, match=f"a worker gives an answer that is not valid.*{name}: inf")
    wrong = {**SUMS, name: float("inf")}
    monkeypatch.setattr(parts, "_verified", lambda *_: {"said": [], "batches": [[0, {"y": wrong}]]})
    errors = {"y": {"own": {**OWN, name: float("inf")}, "accumulated": OWN, "moves": False}}
    monkeypatch.setattr(layer_parts, "_measured", lambda task: [{"item": 0, "batches": 1, "errors": errors}])
    with ThreadPoolExecutor(1) as executor, working_on(DataWorkers(executor)):
        for ask in (dovetail.verify, dovetail.layer_errors):
            with invalid:
                ask(*saved)


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


def chain(path, products=6):
    """Products with columns of very different sizes, which 16-bit floats and integers lose differently."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for at in range(products):
        weight = rng.standard_normal((16, 16)) * 10.0 ** rng.uniform(-1, 1, 16)
        weights.append(onnx.numpy_helper.from_array((weight / 8).astype(np.float32), f"w{at}"))
        nodes.append(onnx.helper.make_node("MatMul", [value, f"w{at}"], [f"h{at}"], f"product{at}"))
        nodes.append(onnx.helper.make_node("Softmax" if at % 2 else "Tanh", [f"h{at}"], [f"t{at}"], f"curve{at}"))
        value = f"t{at}"
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["N", 16]) for name in ("x", value)]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def searched(tmp_path):
    """A model whose goals need a search, and a folder of samples."""
    chain(tmp_path / "net.onnx")
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(1)
    for number in range(16):
        np.savez(tmp_path / "data" / f"{number:02}.npz", x=rng.standard_normal((4, 16)).astype(np.float32))
    return tmp_path / "net.onnx", tmp_path / "data"


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "goal"), [("gpu-fp16", 82), ("cpu-int8", 54)])
def test_a_search_on_parts_of_the_data_gives_the_plan_of_one_process(searched, asked, backend, goal):
    model, data = searched
    how = {"data": data, "min_snr": goal}
    here = dovetail.compile(model, backend, **how)
    with ThreadPoolExecutor(2) as executor:
        there = dovetail.compile(model, backend, **how, executor=executor)
    trials = there.plan.summary["accuracy"]["runs"]
    assert trials > 1 and len(asked) >= 2 * trials, "every trial is compared in parts"
    assert here.plan.summary["accuracy"]["raised"]
    assert str(there.plan) == str(here.plan)
    assert there.verification.as_dict() == here.verification.as_dict()


class Mortal(ThreadPoolExecutor):
    """Loses the workers of some tasks."""

    submitted = 0

    def submit(self, work, /, *given, **named):
        self.submitted += 1
        if self.submitted % 4 == 0:
            return super().submit(lost)
        return super().submit(work, *given, **named)


def lost():
    raise ConnectionError("the worker is gone")


@pytest.mark.slow
def test_a_worker_that_is_lost_costs_a_search_its_task(searched):
    model, data = searched
    how = {"data": data, "min_snr": 62}
    with Mortal(2) as executor:
        there = dovetail.compile(model, "cpu-bf16", **how, executor=executor)
    assert executor.submitted > 4
    assert str(there.plan) == str(dovetail.compile(model, "cpu-bf16", **how).plan)


def test_a_result_that_is_sent_is_left_as_it_is(searched):
    model, data = searched
    compiled = dovetail.compile(model, "cpu-int8", data=data, verify=False)
    before = str(compiled.plan)
    content = packed(compiled)
    assert str(compiled.plan) == before and compiled.saved_to is None
    other = unpacked(content, dovetail.load_plugins()).compiled
    feeds = {"x": np.load(data / "00.npz")["x"]}
    assert all(np.array_equal(array, other.run(feeds)[name]) for name, array in compiled.run(feeds).items())


def test_a_result_that_is_sent_and_damaged():
    with pytest.raises(DovetailError, match="a result that was sent cannot be read"):
        unpacked(b"nonsense", dovetail.load_plugins())
