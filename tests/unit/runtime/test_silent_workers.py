"""Workers that never answer, or fail with what cannot be sent, end their task within a limit and are named."""

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import onnx
import pytest
from dovetail import load_plugins
from dovetail.errors import DovetailError, UsageError
from dovetail_commands import folder_jobs, sent_tasks
from dovetail_commands.compile_folder import compile_folder
from dovetail_commands.sent_tasks import LostError, answers
from dovetail_runtime.data_workers import DataWorkers, answering
from dovetail_runtime.run_parts import run_part
from dovetail_tune.executor_pool import ExecutorPool
from dovetail_tune.worker_pool import WorkerSettings

NET = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }'


class Unpicklable(Exception):
    """Pickled without its second argument, so that it cannot be made again."""

    def __init__(self, one, two):
        super().__init__(one)


def failing(text, model):
    def work():
        raise Unpicklable("the engine is gone", 2)

    return answering(work)


class Silent(Executor):
    """Answers the tasks after the first few, and never again."""

    def __init__(self, answered=0):
        self.left, self.sent = answered, 0

    def submit(self, task, *arguments):
        future = Future()
        self.sent += 1
        if self.left:
            self.left -= 1
            future.set_result(task(*arguments))
        return future


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setenv("DOVETAIL_TASK_TIMEOUT", "0.05")


@pytest.mark.parametrize("answered", [0, 1])
def test_a_part_of_the_data_that_is_never_answered_is_sent_again_and_given_up(answered):
    executor = Silent(answered)
    with pytest.raises(DovetailError, match="no answer within 0.1 s .DOVETAIL_TASK_TIMEOUT sets the limit") as caught:
        DataWorkers(executor).run(lambda text, model: answering(lambda: 1), [{}, {}, {}], b"", None, "parts")
    assert executor.sent == 3 + 3 - answered and "look at the workers" in caught.value.hint


def test_a_late_answer_counts():
    class Late(Silent):
        def submit(self, task, *arguments):
            future = super().submit(task, *arguments)
            if self.sent == 2:  # the first one is late, and this is its second sending
                future.set_result(task(*arguments))
            return future

    assert DataWorkers(Late()).run(lambda text, model: answering(lambda: 7), [{}], b"", None, "parts") == [7]


def test_an_error_that_cannot_be_unpickled_is_told_as_text():
    lost = pytest.raises(DovetailError, match="no machine finishes a task: Unpicklable: the engine is gone")
    with ThreadPoolExecutor(1) as executor, lost:
        DataWorkers(executor).run(failing, [{}], b"", None, "parts")
    assert failing("", b"") == '{"lost": "Unpicklable: the engine is gone"}'


@pytest.mark.slow
def test_models_of_a_folder_that_nobody_finishes_are_failures_of_these_models(tmp_path):
    for name in ("a", "b"):
        onnx.save(onnx.parser.parse_model(NET), tmp_path / f"{name}.onnx")
    outcomes = compile_folder(tmp_path, "cpu-bf16", executor=Silent(1))
    assert sorted(outcome.status for outcome in outcomes) == ["failed", "ok"]
    (failed,) = [outcome for outcome in outcomes if outcome.status == "failed"]
    assert "no machine finishes it: no answer within 0.1 s" in failed.why


def test_a_tuning_does_not_wait_for_ever():
    with pytest.raises(LostError, match="no machine finishes a task: no answer within 0.1 s"):
        ExecutorPool(Silent(), WorkerSettings())


def test_workers_that_are_gone_end_the_wait(monkeypatch):
    """A board that was unplugged is no reason to wait for half an hour."""
    monkeypatch.setattr(sent_tasks, "_LOOKS", 0.01)
    with pytest.raises(LostError, match="the workers are gone: tcp://a"):
        list(answers(1, lambda number: Future(), str, timeout=60, gone=lambda: "the workers are gone: tcp://a"))


def test_the_limit_is_a_number(monkeypatch):
    monkeypatch.setenv("DOVETAIL_TASK_TIMEOUT", "soon")
    with pytest.raises(UsageError, match="DOVETAIL_TASK_TIMEOUT=soon: seconds above 0"):
        list(answers(1, lambda number: Future(), str))


@pytest.mark.slow
def test_a_cluster_that_lost_the_workers_ends_the_wait(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(sent_tasks, "_LOOKS", 0.1)
    monkeypatch.setattr(folder_jobs, "_RETURNS", 0.5)
    monkeypatch.setenv("DOVETAIL_TASK_TIMEOUT", "60")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local,
        folder_jobs.data_machines(local.scheduler_address, load_plugins()) as found,
    ):
        assert found.left() == ""
        local.scale(0)
        with pytest.raises(LostError, match="the workers are gone: tcp://127.0.0.1"):
            DataWorkers.on(found, ()).run(run_part, [{}], b"", None, "parts")


@pytest.mark.slow
def test_a_cluster_whose_worker_hangs_or_fails_ends_the_compilation(monkeypatch):
    distributed = pytest.importorskip("distributed")

    class Foreign(Exception):
        """A class that only the worker has."""

    def failing(text, model):  # functions in a function are sent as code: workers do not have this module
        def work():
            raise Foreign("the engine is gone")

        return answering(work)

    def hanging(text, model):
        time.sleep(30)

    monkeypatch.setenv("DOVETAIL_TASK_TIMEOUT", "60")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as local,
        distributed.Client(local) as client,
    ):
        workers = DataWorkers(client.get_executor(pure=False))
        with pytest.raises(DovetailError, match="Foreign: the engine is gone"):
            workers.run(failing, [{}], b"", None, "parts")
        monkeypatch.setenv("DOVETAIL_TASK_TIMEOUT", "1")
        with pytest.raises(DovetailError, match="no answer within 2 s"):
            workers.run(hanging, [{}], b"", None, "parts")
