"""The pool of this machine: which processes are kept, and for what. Workers are made up, and say what they did."""

import pytest
from dovetail.plugin import EngineError
from dovetail_tune import local_pool
from dovetail_tune.deadline import Deadline
from dovetail_tune.local_pool import LocalPool
from dovetail_tune.worker_pool import RaceMeasurement, WorkerSettings


class Worker:
    """Notes what it does; a job whose folder is in `failing` fails."""

    done: list[str]
    failing: set[str]
    count: int

    def __init__(self, blocked=()):
        Worker.count += 1
        self.number = Worker.count

    def ask(self, job, timeout):
        what = job.get("outputs", job.get("folder", ""))
        if job["job"] != "time":
            self.result = what
            Worker.done.append(f"{self.number} {job['job']} {what}")
        if self.result in Worker.failing:
            raise EngineError(f"{self.result} failed")
        return {"seconds": [1e-3]} if job["job"] == "time" else {"bytes": 1}

    def close(self):
        Worker.done.append(f"{self.number} ends")


@pytest.fixture
def pool(monkeypatch):
    Worker.done, Worker.failing, Worker.count = [], set(), 0
    monkeypatch.setattr(local_pool, "Worker", Worker)
    return LocalPool(WorkerSettings())


def job(kind, folder, **more):
    return {"job": kind, "folder": folder, **more}


def prepare(pool, folder):
    return pool.prepare(job("prepare", folder), Deadline())()


def measure(pool, rounds=1, **jobs):
    options = {"is_fresh": jobs.pop("is_fresh", False)}
    return pool.measure(RaceMeasurement(jobs, rounds, **options), Deadline())()


def beside_the_host(pool, folder):
    return measure(pool, host=job("load", "host"), other=job("load", folder))


def test_a_candidate_is_timed_where_it_was_prepared_and_the_baseline_where_it_was_loaded_first(pool):
    prepare(pool, "host")
    for folder in ("one", "two"):
        prepare(pool, folder)
        assert beside_the_host(pool, folder).race.turns.keys() == {"host", "other"}
    assert Worker.done == ["1 prepare host", "1 prepare one", "2 load host", "1 prepare two"]


def test_a_task_begins_when_its_answer_is_asked_for(pool):
    pending = pool.prepare(job("prepare", "one"), Deadline())
    assert Worker.done == []
    assert pending().found == {"": {"bytes": 1}}


def test_a_process_in_which_something_failed_is_ended_and_another_one_starts(pool):
    Worker.failing = {"one"}
    assert prepare(pool, "one").failed == {"": "one failed"}
    assert prepare(pool, "two").failed == {}
    assert Worker.done == ["1 prepare one", "1 ends", "2 prepare two"]


def test_a_runner_that_fails_while_it_is_timed_is_left_out_and_loaded_anew(pool):
    measure(pool, host=job("load", "host"), other=job("load", "one"))
    Worker.failing = {"host"}
    answer = beside_the_host(pool, "one")
    assert answer.failed == {"host": "host failed"} and answer.race.turns.keys() == {"other"}
    Worker.failing = set()
    assert beside_the_host(pool, "one").failed == {}
    assert Worker.done == ["1 load host", "2 load one", "1 ends", "3 load host"]


def test_a_fresh_measurement_has_new_processes_with_no_others_beside_them(pool):
    prepare(pool, "one")
    for _ in range(2):
        measure(pool, is_fresh=True, host=job("load", "host"), other=job("load", "one"))
    kept = ["2 load host", "3 load one", "2 ends", "3 ends"]
    assert Worker.done == ["1 prepare one", "1 ends", *kept, "4 load host", "5 load one", "4 ends", "5 ends"]


def test_segments_of_one_candidate_are_compiled_in_one_process_until_they_are_released(pool):
    for number in range(2):
        runners = {name: job("segment", name, outputs=f"{number} {name}") for name in ("host", "one")}
        measure(pool, rounds=0, **runners)
    pool.release(["host", "one"])
    assert Worker.done == [
        "1 segment 0 host", "2 segment 0 one", "1 segment 1 host", "2 segment 1 one", "1 ends", "2 ends",
    ]  # fmt: skip
