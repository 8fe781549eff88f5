"""Tasks of an executor: one whose machine is lost, or does not answer, is sent again, and given up after a few times.

An answer is plain data as JSON. So is what goes wrong in a task: an exception would be unpickled here, which may fail,
or run code.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dovetail.errors import DovetailError, UsageError
from dovetail_onnx.files.parsing import Malformed, parse_json

T = TypeVar("T")

_ATTEMPTS = 4  # of a task whose machine is lost
_SILENCES = 2  # after which what runs is given up
_LOOKS = 5.0  # seconds after which it is asked whether machines are left
_VARIABLE = "DOVETAIL_TASK_TIMEOUT"
_SECONDS = 1800.0  # without any answer, if that variable does not say another limit
_WAY_OUT = "look at the workers, or do it without them; what is done stays done"


class LostError(DovetailError):
    """No machine finishes a task: the executor stopped, or every machine was lost."""


class LostTask(Exception):
    """A task failed on its machine, which may be the machine's fault."""


class InvalidAnswer(ValueError):
    """The answer of a machine does not have the form that it must have."""


def task_timeout() -> float:
    """Return the seconds without any answer after which what runs is sent again.

    Raises:
        UsageError: The variable for it is not a number of seconds.
    """
    text = os.environ.get(_VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise UsageError(f"{_VARIABLE}={text}: seconds above 0 are expected", f"{_VARIABLE}={_SECONDS:.0f}")
    return seconds


def as_text(work: Callable[..., Any], *arguments: object) -> str:
    """Do a task on the machine that it was sent to; return what `work` does, or what goes wrong, as JSON."""
    try:
        return json.dumps(work(*arguments))
    except DovetailError as error:
        return json.dumps({"error": error.message, "hint": error.hint})
    except Exception as error:
        return json.dumps({"lost": f"{type(error).__name__}: {error}"})


def answer_in(text: object) -> Any:
    """Return the answer that `as_text` returned on another machine.

    Raises:
        DovetailError: The task failed because of what it was given.
        LostTask: It failed otherwise, and may succeed elsewhere.
        InvalidAnswer: It is not JSON.
    """
    if not isinstance(text, str):
        raise InvalidAnswer(f"it is no text, but {type(text).__name__}")
    try:
        found = parse_json(text)
    except Malformed as error:
        raise InvalidAnswer(str(error)) from None
    if isinstance(found, dict) and isinstance(found.get("lost"), str):
        raise LostTask(found["lost"])
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        raise DovetailError(found["error"], str(found.get("hint", "")))
    return found


def answers(
    number: int,
    send: Callable[[int], Future[str]],
    read: Callable[[str], T],
    give_up: Callable[[int, str], T] | None = None,
    timeout: float | None = None,
    *,
    left: Callable[[], float] = lambda: math.inf,
    gone: Callable[[], str] = lambda: "",
    resent: Callable[[BaseException], None] = lambda _: None,
    way_out: str = _WAY_OUT,
) -> Iterator[tuple[int, T]]:
    """Send tasks, and return an iterator over their answers with their numbers, as they come.

    Args:
        number: How many tasks there are.
        send: Sends the task of a number.
        read: Reads an answer; what it raises other than a `DovetailError` costs an attempt.
        give_up: Returns the answer of a task that no machine finishes, by its number and the reason. Without it, that
            is an error.
        timeout: Seconds without any answer after which what runs is sent again; by default `task_timeout`.
        left: Returns the seconds until the answers come too late.
        gone: Says why no machine is left that could answer, asked every few seconds; empty while there is one.
        resent: Told why a task is sent again.
        way_out: The hint of errors.

    Raises:
        LostError: The executor takes no task, or, from the iterator, stops, no machine finishes a task, or none is
            left.
        DovetailError: From the iterator: a task fails.
        TimeoutError: From the iterator: no time is left.
    """
    timeout = task_timeout() if timeout is None else timeout
    tasks = _SentTasks(send, read, give_up, timeout, left, gone, resent, way_out)
    tasks.send_all(number)
    return tasks.received()


@dataclass
class _SentTasks(Generic[T]):
    """Tasks that were sent, and those of them that wait for an answer; see `answers` for the fields."""

    send: Callable[[int], Future[str]]
    read: Callable[[str], T]
    give_up: Callable[[int, str], T] | None
    timeout: float
    left: Callable[[], float]
    gone: Callable[[], str]
    resent: Callable[[BaseException], None]
    way_out: str
    attempts: Counter[int] = field(default_factory=Counter)
    waiting: set[int] = field(default_factory=set)
    running: dict[Future[str], int] = field(default_factory=dict)

    def send_all(self, number: int) -> None:
        """Send all tasks.

        Raises:
            LostError: The executor takes none.
        """
        self.waiting.update(range(number))
        for one in range(number):
            self._send(one)

    def received(self) -> Iterator[tuple[int, T]]:
        """Yield the answers as they come, and cancel what still runs in the end."""
        silences = 0
        try:
            while self.waiting:
                limit = min(self.timeout, max(self.left(), 0.0))
                finished = self._finished_within(limit)
                if not finished and limit < self.timeout:
                    raise TimeoutError
                silences = 0 if finished else silences + 1
                if silences >= _SILENCES:
                    why = f"no answer within {silences * self.timeout:g} s ({_VARIABLE} sets the limit)"
                    yield from [(one, self._lost(one, why)) for one in sorted(self.waiting)]
                elif silences:  # who is late may still answer, and the first answer counts
                    for one in sorted(self.waiting):
                        self._send(one)
                for future in finished:
                    yield from self._answer(future)
        finally:
            for future in self.running:
                with contextlib.suppress(Exception):
                    future.cancel()

    def _send(self, one: int) -> None:
        try:
            self.running[self.send(one)] = one
        except RuntimeError as error:  # it was shut down, or is broken
            raise LostError(f"the executor takes no task: {error}", self.way_out) from error

    def _finished_within(self, limit: float) -> set[Future[str]]:
        until = time.monotonic() + limit
        while True:
            seconds = max(until - time.monotonic(), 0.0)
            finished = wait(self.running, min(seconds, _LOOKS), FIRST_COMPLETED).done
            if finished or seconds <= _LOOKS:
                return finished
            if why := self.gone():
                raise LostError(why, self.way_out)

    def _answer(self, future: Future[str]) -> Iterator[tuple[int, T]]:
        """Yield the answer of a task; nothing if it came before, or if the task is sent again."""
        one = self.running.pop(future)
        if one not in self.waiting:
            return
        try:
            answer = self.read(future.result(0))
        except BrokenExecutor as error:
            raise LostError(f"the executor stopped: {error}", self.way_out) from error
        except (DovetailError, KeyboardInterrupt):
            raise
        except (Exception, CancelledError) as error:
            self.resent(error)
            self.attempts[one] += 1
            if self.attempts[one] < _ATTEMPTS:
                self._send(one)
                return
            why = str(error) if isinstance(error, LostTask) else f"{type(error).__name__}: {error}"
            answer = self._lost(one, why, error)
        self.waiting.discard(one)
        yield one, answer

    def _lost(self, one: int, why: str, cause: BaseException | None = None) -> T:
        self.waiting.discard(one)
        if self.give_up is None:
            raise LostError(f"no machine finishes a task: {why}", self.way_out) from cause
        return self.give_up(one, why)
