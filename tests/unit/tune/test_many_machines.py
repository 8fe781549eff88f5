"""Tuning on executors: any of them, and a cluster that loses a worker, give what processes of this machine give.

Conversions are real; times are made up, so that outcomes can be compared.
"""

import json
import os
import shutil
import signal
import sys
import zlib
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.plugin import EngineError
from dovetail_commands import folder_jobs
from dovetail_commands.sent_tasks import LostError
from dovetail_tune import cluster, last_race, local_pool, profiles, tasks, trial_runner
from dovetail_tune.answers import Answer
from dovetail_tune.executor_pool import ExecutorPool, Executors
from dovetail_tune.tasks import greet, host_lock
from dovetail_tune.worker_pool import RaceMeasurement, WorkerSettings

DIGITS = "examples/digits/digits.onnx"
IMAGES = np.load("examples/digits/test.npz")["image"][:8]
DATA = {"image": IMAGES}
BACKEND = "cpu-bf16:policies=lean"
DIES = "DOVETAIL_TEST_DIES"  # a file: whoever finds it is killed


class Worker:
    """Does jobs in this process; the time of a result depends on its request and its part of the model alone."""

    def __init__(self, blocked=(), inherited=None):
        from dovetail.plugin import load_plugins
        from dovetail_tune import worker

        # Kept at that module, because this class is sent to other processes with everything that it has.
        if not hasattr(worker, "in_this_process"):
            worker.in_this_process = worker.Jobs(load_plugins(block=blocked))
        self.jobs = worker.in_this_process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def close(self):
        pass

    def ask(self, job, timeout=0.0):
        if job["job"] == "time":
            return {"seconds": [self.seconds] * job["runs"]}
        if job["job"] == "segment" and os.environ.get(DIES) and os.path.exists(os.environ[DIES]):
            os.unlink(os.environ[DIES])
            os.kill(os.getpid(), signal.SIGKILL)
        part = Path(job["model"]).parent.name if job["job"] == "segment" else "whole"
        self.seconds = 1e-3 + zlib.crc32(f"{job['candidate']['name']} {part}".encode()) / 2**32 * 1e-3
        return getattr(self.jobs, job["job"])(job)


def made_up_times():
    tasks.Worker = Worker


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    """No race lasts, and profiles are nobody else's."""
    monkeypatch.setattr(last_race, "_MEASUREMENTS", 1)
    for module in (last_race, trial_runner):
        monkeypatch.setattr(module, "_SECONDS", 0.0)
    monkeypatch.setattr(profiles, "_LEAST", 0.0)
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path / "profiles"))
    monkeypatch.setattr(tasks, "Worker", Worker)
    monkeypatch.setattr(local_pool, "Worker", Worker)


def tuned_on(executor, journal, **more):
    shutil.rmtree(os.environ["DOVETAIL_PROFILES"], ignore_errors=True)
    return dovetail.tune(DIGITS, BACKEND, data=DATA, min_snr=30, executor=executor, journal=journal, **more)


def entries_of(journal):
    """The entries of a journal, without what a clock decides."""
    entries = map(json.loads, (journal / "journal.jsonl").read_text().splitlines()[1:])
    return [{**entry, "compile_seconds": 0.0, "memory": None} for entry in entries if entry]


def front_of(tuned):
    return [(entry.candidate.name, entry.seconds, entry.against and entry.against.median) for entry in tuned.entries]


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_same_front_as_threads(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    with ThreadPoolExecutor(2) as threads:
        expected = tuned_on(threads, tmp_path / "threads")
    assert len(expected.front) > 0 and len(front_of(expected)) >= 3

    cloudpickle = pytest.importorskip("cloudpickle")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    class Patched(distributed.WorkerPlugin):
        def setup(self, worker):
            made_up_times()

    dies = tmp_path / "dies"
    dies.touch()
    monkeypatch.setenv(DIES, str(dies))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, resources={"timing": 1}, dashboard_address=None
        ) as local,
        distributed.Client(local) as client,
    ):
        client.register_plugin(Patched())
        with cluster.connect(local.scheduler_address) as executors:
            found = tuned_on(executors, tmp_path / "cluster")
    assert not dies.exists()  # somebody was killed
    assert (found.front, front_of(found)) == (expected.front, front_of(expected))
    journal = (tmp_path / "cluster" / "journal.jsonl").read_text()
    assert journal.count('"kind": "candidate", "name": "host"') == 1


@pytest.mark.slow
def test_processes_of_this_machine_and_an_executor_are_driven_alike(tmp_path):
    here = tuned_on(None, tmp_path / "here", threads=(0, 1))
    with ThreadPoolExecutor(1) as threads:
        there = tuned_on(threads, tmp_path / "there", threads=(0, 1))
    assert here.rows() and (here.front, front_of(here), here.notes) == (there.front, front_of(there), there.notes)
    assert entries_of(tmp_path / "here") == entries_of(tmp_path / "there")
    assert {entry.candidate.name for entry in here.entries if entry.against is None} == {"host"}


@pytest.mark.slow
def test_machines_open_the_files_of_data_where_they_lie(tmp_path):
    """The outcome is that of samples in memory, which are written beside the journal."""
    (tmp_path / "data").mkdir()
    for number, image in enumerate(IMAGES):
        np.savez(tmp_path / "data" / f"{number}.npz", image=image[None])
    with ThreadPoolExecutor(1) as threads:
        shutil.rmtree(os.environ["DOVETAIL_PROFILES"], ignore_errors=True)
        how = {"min_snr": 30, "executor": threads, "journal": tmp_path / "there"}
        there = dovetail.tune(DIGITS, BACKEND, data=tmp_path / "data", **how)
    assert not (tmp_path / "there" / "judgment").exists()
    shutil.rmtree(os.environ["DOVETAIL_PROFILES"], ignore_errors=True)
    here = dovetail.tune(DIGITS, BACKEND, data=tmp_path / "data", min_snr=30, journal=tmp_path / "here")
    assert (tmp_path / "here" / "judgment").exists()
    assert (there.front, front_of(there)) == (here.front, front_of(here))


@pytest.mark.slow
@pytest.mark.parametrize("is_here", [True, False])
def test_a_baseline_whose_process_ends_is_loaded_again_and_no_candidate_is_blamed(is_here, tmp_path, monkeypatch):
    ends = ["host"]

    class Ending(Worker):
        def ask(self, job, timeout=0.0):
            if job["job"] == "time" and self.name in ends:
                ends.remove(self.name)
                raise EngineError("its process ended with signal SIGKILL")
            self.name = job["candidate"]["name"] if "candidate" in job else self.name
            return super().ask(job, timeout)

    for module in (tasks, local_pool):
        monkeypatch.setattr(module, "Worker", Ending)
    with ThreadPoolExecutor(1) as threads:
        tuned = tuned_on(None if is_here else threads, tmp_path, mixed=False)
    assert not ends and not [entry.remark for entry in tuned.entries if "left out" in entry.remark]


class Unreliable(Executor):
    """Answers as it is told to: an exception is raised, anything else is the task's answer."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def submit(self, task, *arguments, **_):
        future = Future()
        told = self.answers.pop(0) if self.answers else None
        if isinstance(told, Exception):
            future.set_exception(told)
        else:
            future.set_result(told if told is not None else task(*arguments))
        return future


HERE = greet(WorkerSettings(), ())[0]


def test_a_task_whose_worker_is_lost_is_sent_again():
    pool = ExecutorPool(Unreliable(ConnectionError("lost"), ConnectionError("lost")), WorkerSettings())
    assert pool.machine == HERE
    assert pool.notes == ["a worker was lost, and its task was sent again"]


def test_a_task_that_loses_every_worker_ends_the_tuning_and_says_how_to_go_on():
    with pytest.raises(LostError, match="no machine finishes a task: ConnectionError: lost") as caught:
        ExecutorPool(Unreliable(*[ConnectionError("lost")] * 9), WorkerSettings())
    assert "--journal" in caught.value.hint


def test_an_executor_that_is_shut_down_is_an_error_that_says_how_to_go_on():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(LostError, match="the executor takes no task"):
        dovetail.tune(DIGITS, BACKEND, data=DATA, min_snr=30, executor=executor)


def test_an_answer_of_another_kind_of_machine_is_not_used():
    from dovetail_tune.deadline import Deadline
    from dovetail_tune.race import RaceResult

    other, own = (
        json.dumps(Answer({**HERE, "processor": told[0]}, {}, RaceResult(told[1]), {}).as_dict())
        for told in (("another", "other"), (HERE["processor"], "own"))
    )
    pool = ExecutorPool(Unreliable(json.dumps([HERE, []]), other, own), WorkerSettings())
    assert pool.measure(RaceMeasurement({}, 1), Deadline())().race.leader == "own"
    assert pool.notes == ["an answer of another processor is not used"]


def test_machines_that_do_not_see_the_model_are_an_error(tmp_path):
    pool = ExecutorPool(Unreliable(), WorkerSettings())
    with pytest.raises(DovetailError, match="do not see .*nowhere.onnx") as caught:
        pool.check_paths([str(tmp_path / "nowhere.onnx")])
    assert "same path" in caught.value.hint


def test_a_timing_waits_for_conversions_and_nothing_runs_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks.tempfile, "gettempdir", lambda: str(tmp_path))
    events = []

    def timing():
        with host_lock(alone=True):
            events.append("timed")

    with ThreadPoolExecutor(1) as pool:
        with host_lock(alone=False), host_lock(alone=False):
            waiting = pool.submit(timing)
            with pytest.raises(TimeoutError):
                waiting.result(0.05)
            events.append("converted")
        waiting.result(60)
    assert events == ["converted", "timed"]


def test_no_lock_lies_where_others_can_hold_it(tmp_path, monkeypatch):
    """Another user made the folder of this one: neither is its lock waited for, nor a link of theirs followed."""
    monkeypatch.setattr(tasks.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f"dovetail-{os.getuid()}").mkdir()
    (tmp_path / f"dovetail-{os.getuid()}").chmod(0o777)
    with pytest.raises(DovetailError, match="lock for timings") as caught, host_lock(alone=True):
        pass
    assert "TMPDIR" in caught.value.hint and len(os.listdir(tmp_path)) == 1


def test_machines_like_this_one_are_chosen_and_the_others_named():
    able, other = ["a:1", "b:1"], {**HERE, "cpus": "9999"}
    chosen, notes = cluster._like_one({"a:1": HERE, "b:1": other}, HERE, able)
    assert chosen == ["a:1"] and notes == ["1 worker of another number of CPUs is left out"]
    chosen, notes = cluster._like_one({"a:1": HERE, "b:1": HERE}, other, able)
    assert chosen == able and notes == []
    chosen, notes = cluster._like_one({"a:1": HERE, "b:1": other}, HERE, ["b:1"])  # the one that has the engine
    assert chosen == ["b:1"]


def test_tasks_go_to_hosts_that_workers_come_back_to_or_to_addresses_where_others_are_on_the_host():
    workers = {f"tcp://{place}": {"host": place.partition(":")[0]} for place in ("a:1", "a:2", "b:1")}
    assert folder_jobs.places_of(["tcp://a:1", "tcp://b:1"], workers) == ["b", "tcp://a:1"]
    assert folder_jobs.places_of(list(workers), workers) == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "message"),
    [("tcp://127.0.0.1:1", "the scheduler does not answer"), ("nonsense", "the scheduler does not answer")],
)
def test_a_cluster_that_does_not_answer_is_an_error_with_the_way_out(address, message, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(folder_jobs, "_SECONDS", 0.2)
    with pytest.raises(DovetailError, match=message) as caught, cluster.connect(address):
        pass
    assert "--resources timing=1" in caught.value.hint


def test_one_executor_may_convert_while_another_one_times():
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        pool = ExecutorPool(Executors(one, other, ("two pools",)), WorkerSettings())
        pool.check_paths([DIGITS])
        assert pool.notes == ["two pools"]


RACE = {"leader": "a", "turns": {"a": [1e-3]}, "failed": {}, "heats": []}
ANSWER = {"machine": HERE, "found": {"a": {"bytes": 1, "engines": ["e"], "seconds": 0.5}}, "race": RACE, "failed": {}}


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Evil(), "it is no text, but Evil"),
        (b"{}", "it is no text, but bytes"),
        ("{", "line 1"),
        ("[" * 5000, "nested"),
        ("[]", "expected a mapping"),
        (json.dumps({**ANSWER, "found": {"a": {"bytes": "1", "engines": []}}}), "found: a: bytes: expected a whole"),
        (json.dumps({**ANSWER, "found": {"b": {}}}), "found: nobody asked for 'b'"),
        (json.dumps({**ANSWER, "race": {**RACE, "turns": {"a": [0.0]}}}), "race: turns: a: 0: expected"),
        (json.dumps({**ANSWER, "race": {**RACE, "turns": {"a": [np.nan]}}}), "race: turns: a: 0: expected"),
        (json.dumps({**ANSWER, "race": {**RACE, "leader": "b"}}), "race: leader: it has no turns"),
        (json.dumps({**ANSWER, "race": {**RACE, "turns": {"a": [1], "b": [1]}}}), "turns: nobody asked for 'b'"),
        (json.dumps({**ANSWER, "race": {**RACE, "heats": [{"b": [1]}]}}), "race: heats: a has no turns"),
        (json.dumps({**ANSWER, "failed": {"a": 1}}), "failed: a: expected a text"),
    ],
)  # fmt: skip
def test_an_answer_is_data_that_is_checked(answer, says):
    from dovetail_tune.deadline import Deadline

    pool = ExecutorPool(Unreliable(None, answer, json.dumps(ANSWER)), WorkerSettings())
    found = pool.measure(RaceMeasurement({"a": {"job": "load"}}, 1), Deadline())()
    assert found.race.turns == {"a": [1e-3]}
    (note,) = pool.notes
    assert note.startswith("an answer that is not valid is not used: ") and says in note


@pytest.mark.slow
def test_a_tuning_goes_on_from_an_edited_journal_or_says_which_line_is_wrong(tmp_path):
    """Edits that have the form of an entry, and do not fit the model or the race."""
    path = tmp_path / "kept" / "journal.jsonl"
    with ThreadPoolExecutor(2) as threads:
        tuned_on(threads, tmp_path / "kept")
        lines = [line for line in path.read_text().splitlines() if line]
        profiles_kept = os.environ["DOVETAIL_PROFILES"]
        shutil.copytree(profiles_kept, tmp_path / "profiles kept")
        outcomes = []
        for number, line in enumerate(lines):
            entry = json.loads(line)
            for changed in unfitting(entry):
                path.write_text(
                    "\n".join([*lines[:number], json.dumps({**entry, **changed}), *lines[number + 1 :]]) + "\n"
                )
                shutil.copytree(tmp_path / "profiles kept", profiles_kept, dirs_exist_ok=True)
                try:
                    dovetail.tune(DIGITS, BACKEND, data=DATA, min_snr=30, executor=threads, journal=tmp_path / "kept")
                    outcomes.append("tuned")
                except DovetailError as error:
                    assert str(path) in error.message, error
                    outcomes.append("refused")
    assert {"tuned", "refused"} <= set(outcomes)


def unfitting(entry):
    """Contents that have the form of an entry of its kind, and say something else."""
    match entry.get("kind"):
        case "candidate" if entry["name"] == "host":
            yield from ({"digest": "other"}, {"snr_db": None}, {"answers": None})
        case "race":
            yield from ({"memory": {}}, {"turns": {}, "heats": []}, {"heats": []}, {"failed": {"nobody": "x"}})
            yield {"turns": {"nobody": [1.0]}, "leader": "nobody", "heats": []}
        case "noise" if entry["name"].startswith("0 cpu"):
            yield from ({"noise": []}, {"noise": [0.0] * 7})
        case "pairs":
            yield from ({"pairs": [[99, 0, 98, 0, [0.5]]] * 50}, {"pairs": [[0, 99, 1, 99, [0.5, 0.5]]] * 50})
