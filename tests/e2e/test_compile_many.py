"""The models of a folder beside each other: processes of this machine, executors that lose tasks, a cluster.

All give what one process gives, file by file.
"""

import json
import os
import shutil
import signal
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import dovetail as api
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError, UsageError
from dovetail_commands import folder_jobs
from dovetail_commands.folder_jobs import machines
from dovetail_commands.folder_processes import in_process, processes

NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 4] x) => (float[N, 4] y) { h = Relu(x)  y = Softmax(h) }"""


@pytest.fixture
def zoo(tmp_path):
    """Three models, one of them cut short, and data for each."""
    folder = tmp_path / "zoo"
    (folder / "more").mkdir(parents=True)
    onnx.save(onnx.parser.parse_model(NET), folder / "net.onnx")
    shutil.copy(folder / "net.onnx", folder / "more" / "again.onnx")
    (folder / "broken.onnx").write_bytes((folder / "net.onnx").read_bytes()[:-9])
    for name in ("net.npz", "more/again.npz", "broken.npz"):
        np.savez(folder / name, x=np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4))
    return folder


@pytest.fixture
def expected(zoo, tmp_path):
    """What one process gives: the outcomes, and the files of the results."""
    outcomes = api.compile_folder(zoo, "cpu-bf16", tmp_path / "alone", data=zoo)
    return [(one.model, one.status, one.accuracy) for one in outcomes], files(tmp_path / "alone")


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def compiled(zoo, output, executor):
    outcomes = api.compile_folder(zoo, "cpu-bf16", output, data=zoo, executor=executor)
    assert all(one.output is None or one.output.is_relative_to(output) for one in outcomes)
    return [(one.model, one.status, one.accuracy) for one in outcomes], files(output)


def test_processes_give_what_one_process_gives(dovetail, zoo, expected, tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(zoo)
        in_process("{}", ())  # leaves a process, whose current folder is another one
    with processes(2) as executor:
        assert compiled(zoo, tmp_path / "beside", executor) == expected
    done = dovetail("compile", zoo, "--backend", "cpu-bf16", "--data", zoo, "--jobs", "2", "-o", "out")
    assert done.returncode == 1 and "2 of 3 models compiled" in done.stdout
    assert "error: broken.onnx: " in done.stderr and "Traceback" not in done.stderr
    assert files(tmp_path / "out").keys() == expected[1].keys()


class Losing(Executor):
    """Loses the first task of each model as often as `times` says."""

    def __init__(self, times):
        self.times, self.lost, self.inner = times, {}, ThreadPoolExecutor(1)

    def submit(self, task, text, *arguments):
        self.lost[text] = self.lost.get(text, 0) + 1
        if self.lost[text] <= self.times:
            future = Future()
            future.set_exception(OSError("the machine is gone"))
            return future
        return self.inner.submit(task, text, *arguments)


@pytest.mark.slow
def test_a_machine_that_is_lost_costs_its_task(zoo, expected, tmp_path):
    assert compiled(zoo, tmp_path / "again", Losing(1)) == expected


def test_a_task_that_no_machine_finishes_is_the_failure_of_its_model(zoo, tmp_path):
    (zoo / "broken.onnx").unlink()
    found, written = compiled(zoo, tmp_path / "lost", Losing(99))
    assert [status for _, status, _ in found] == ["failed", "failed"] and written == {}


def children():
    """The processes that this one started."""
    return {int(one) for task in Path("/proc/self/task").glob("*/children") for one in task.read_text().split()}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are listed in /proc")
def test_a_process_that_ends_costs_its_model_and_is_replaced(zoo):
    job = {"folder": str(zoo), "model": "net.onnx", "backends": ["cpu-bf16"], "options": {}}
    text = json.dumps({**job, "output": None, "data": None, "external": None})
    with processes(1) as executor:
        others = children()
        asked = executor.submit(in_process, text, ())
        end = time.monotonic() + 60
        while not (started := children() - others) and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(started.pop(), signal.SIGKILL)
        answer = json.loads(asked.result())
        assert answer == {"error": "its process ended with signal SIGKILL", "hint": "compile this model alone"}
        assert json.loads(executor.submit(in_process, text, ()).result())["outcome"]["status"] == "ok"
    assert children() == others


@pytest.mark.slow
def test_a_backend_that_is_a_file_is_known_to_the_processes(zoo, tmp_path):
    """It is named by its path."""
    (zoo / "broken.onnx").unlink()
    file = tmp_path / "acme.backend.yaml"
    file.write_text("backend: acme\nextends: cpu-bf16\nsummary: a file\n")
    with processes(1) as executor:
        outcomes = api.compile_folder(zoo, str(file), executor=executor)
    assert [(one.status, one.nodes) for one in outcomes] == [("ok", (2, 2))] * 2


def test_requests_that_no_process_can_be_told(zoo, dovetail):
    with processes(1) as executor, pytest.raises(UsageError, match="is of type .*, which is not sent"):
        api.compile_folder(zoo, "cpu-bf16", executor=executor, passes=[object()])
    for arguments, why in (
        ((zoo / "net.onnx", "--jobs", "2"), "--jobs is for folders of models"),
        ((zoo, "--jobs", "0"), "a number from 1 is expected"),
        ((zoo, "--jobs", "2", "--cluster", "tcp://127.0.0.1:9"), "exclude each other"),
    ):
        done = dovetail("compile", *arguments, "--backend", "cpu-bf16")
        assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_cluster_gives_what_one_process_gives(zoo, expected, tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        machines(cluster.scheduler_address, api.load_plugins()) as (executor, notes),
    ):
        assert notes == []
        assert compiled(zoo, tmp_path / "cluster", executor) == expected


def test_machines_with_other_versions_are_left_out(monkeypatch):
    class Client:
        answers = {}

        def run(self, task, *arguments, on_error):
            return {name: task(*arguments) if same else "[]" for name, same in self.answers.items()}

        def get_executor(self, **given):
            return given

        def scheduler_info(self, n_workers):
            return {"workers": {name: {"host": f"host of {name}"} for name in self.answers}}

    client = Client()
    monkeypatch.setattr(folder_jobs, "cluster_client", lambda *_: nullcontext(client))
    client.answers = {"one": True, "two": False}
    with machines("tcp://somewhere", api.load_plugins()) as (executor, notes):
        assert executor == {"pure": False, "workers": ["host of one"]}
        assert notes == ["worker two is left out: it has other versions"]
    client.answers = {"two": False}
    with pytest.raises(DovetailError, match="worker two is left out"), machines("tcp://somewhere", api.load_plugins()):
        pass
