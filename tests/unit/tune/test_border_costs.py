"""What a border between candidates adds: calls of both, and the host's conversions between floats and integers."""

from concurrent.futures import Future

import pytest
from dovetail_tune.answers import Answer
from dovetail_tune.border_costs import BorderCosts
from dovetail_tune.candidates import Candidate
from dovetail_tune.deadline import Deadline
from dovetail_tune.journal import Journal
from dovetail_tune.race import RaceResult
from dovetail_tune.worker_pool import WorkerPool, WorkerSettings

HOST, FLOATS, INTEGERS = (Candidate(name, (name,)) for name in ("host", "cpu-bf16", "cpu-int8"))
MICROSECONDS = {
    "call host": 10, "call cpu-bf16": 20, "call cpu-int8": 30, "quantize host": 2000, "dequantize host": 700,
}  # fmt: skip


class Pool(WorkerPool):
    """Answers with made-up times; `failing` are candidates that fail."""

    def __init__(self, failing=()):
        super().__init__(WorkerSettings(), {})
        self.failing, self.asked = failing, []

    def prepare(self, job, deadline):
        return Future().result

    def measure(self, measurement, deadline, progress=lambda _: None):
        turns = {}
        for number, job in measurement.jobs.items():
            what = f"{job['model'].split('/')[-2]} {job['candidate']['name']}"
            self.asked.append(what)
            if job["candidate"]["name"] not in self.failing:
                turns[number] = [MICROSECONDS[what] / 1e6] * 3
        return lambda: Answer({}, race=RaceResult(next(iter(turns)), turns))


class Runner:
    """As much of a trial runner as borders need."""

    def __init__(self, pool, seconds=None):
        self.pool, self.deadline = pool, Deadline(seconds)

    def job(self, kind, candidate):
        return {"job": kind, "candidate": candidate.as_dict(), "folder": ""}


def costs(pool, folder, cache=None, seconds=None):
    candidates, integers = [HOST, FLOATS, INTEGERS], [False, False, True]
    known = Journal(None, {}) if cache is None else cache
    found = BorderCosts(Runner(pool, seconds), candidates, integers, known, folder / "borders")
    found.measure()
    return found


@pytest.mark.parametrize(
    ("one", "other", "microseconds"),
    [
        (0, 0, 0),  # joined segments have no border
        (0, 1, 10 + 20),
        (0, 2, 10 + 30 + 2000 / 4),  # floats become integers
        (2, 0, 10 + 30 + 700 / 4),
        (2, 1, 20 + 30 + 700 / 4),
    ],
)
def test_a_border_has_a_call_on_both_sides_and_converts_every_number(tmp_path, one, other, microseconds):
    assert costs(Pool(), tmp_path).between(one, other, 1 << 18) == pytest.approx(microseconds / 1e6)


def test_costs_are_measured_once_per_machine(tmp_path):
    cache, first, second = Journal(None, {}), Pool(), Pool()
    before = costs(first, tmp_path, cache).between(0, 2, 100)
    assert costs(second, tmp_path, cache).between(0, 2, 100) == before
    assert len(first.asked) == 5 and second.asked == []


def test_what_fails_or_has_no_time_costs_nothing(tmp_path):
    assert costs(Pool(["cpu-bf16"]), tmp_path).between(0, 1, 100) == pytest.approx(10e-6)
    late = Pool()
    assert costs(late, tmp_path, seconds=1e-9).between(0, 2, 100) == 0 and late.asked == []


def test_the_models_that_are_timed_run(tmp_path):
    import dovetail

    costs(Pool(), tmp_path)
    for what in ("call", "quantize", "dequantize"):
        folder = tmp_path / "borders" / what
        compiled = dovetail.compile(folder / "model.onnx", "cpu-bf16", data=folder / "inputs", verify=False)
        assert compiled.run_on(folder / "inputs")["y"].size
