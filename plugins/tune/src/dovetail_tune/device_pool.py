"""The pool of a device that a command reaches: candidates are compiled here, and run and timed there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import EngineError

from dovetail_tune.answers import Answer
from dovetail_tune.deadline import Deadline
from dovetail_tune.local_pool import LocalPool
from dovetail_tune.statistics_of_pairs import FEWEST_PAIRS
from dovetail_tune.worker_pool import Job, RaceMeasurement, WorkerSettings
from dovetail_tune.worker_process import Worker

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet

_EXECUTOR = "device"
_CHECK = "check of the device"  # the process that asks whether it still answers; runners have other names
_NOTES = (
    "times are those that the runner on the device reports",
    "parts of the model are not timed on a device, so that no plans that mix backends are tried",
)


class DevicePool(LocalPool):
    """Processes of this machine, which compile candidates and call the command of a device to run them.

    What fails on the device costs its trial. Then the baseline is run there again: if that fails, too, the device is
    gone, and nothing else is tried.

    Args:
        settings: What workers are told.
        command: The command; see `dovetail_export.device.Device`. It is the user's, and is kept nowhere.
        seconds: The most seconds of a call; 0 for the default.
    """

    place = "the device"

    def __init__(self, settings: WorkerSettings, command: str, seconds: float = 0.0):
        super().__init__(settings)
        self.machine = {**self.machine, "device": hashlib.sha256(command.encode()).hexdigest()[:16]}
        self.notes += _NOTES
        self._command = {"executor": _EXECUTOR, "device": command, "device_timeout": seconds}
        self._baseline: Job | None = None

    def _prepare(self, job: Job, deadline: Deadline) -> Answer:
        answer = super()._prepare(job, deadline)
        if not answer.failed:
            self._baseline = self._baseline or {**job, "job": "load"}
        return self._asked_again(answer, deadline)

    def _measure(self, measurement: RaceMeasurement, deadline: Deadline, progress: Callable[[int], None]) -> Answer:
        # Every turn starts a program on the device: fewer rounds than where a turn takes milliseconds.
        fewer = replace(measurement, rounds=min(measurement.rounds, FEWEST_PAIRS), least=0.0)
        return self._asked_again(super()._measure(fewer, deadline, progress), deadline)

    def _do(self, name: str, job: Job, limit: float) -> tuple[Worker, dict[str, Any]]:
        return super()._do(name, {**job, **self._command}, limit)

    def _asked_again(self, answer: Answer, deadline: Deadline) -> Answer:
        """Return an answer; if something failed, find out whether the device still runs the baseline."""
        if answer.failed and self._baseline is not None and not deadline.is_over and not self.gone:
            self.release([_CHECK])
            try:
                self._do(_CHECK, self._baseline, deadline.remaining)
            except EngineError as error:
                if not deadline.is_over:
                    self.gone = f"the device does not run the host's result any more: {error.message}"
                    self.notes.append(self.gone)
        return answer


def check_device(command: str, threads: Sequence[int], plugins: PluginSet) -> None:
    """Check what a tuning on a device needs.

    Args:
        command: The command.
        threads: Thread counts to try.
        plugins: The plugins.

    Raises:
        UsageError: The command has no place for what is asked for.
        DovetailError: The distribution that runs results on devices is not installed.
    """
    if _EXECUTOR not in plugins.registry.executor:
        raise DovetailError("--device needs dovetail-export", "pip install dovetail-export")
    if "{repeat}" not in command:
        problem = "the command for the device has no place for the number of runs to time"
        raise UsageError(problem, "write '--repeat {repeat}' where it calls run.py or dovetail_run")
    if any(threads) and "{threads}" not in command:
        problem = "the command for the device has no place for the number of threads"
        raise UsageError(problem, "write '--threads {threads}' where it calls run.py or dovetail_run")
