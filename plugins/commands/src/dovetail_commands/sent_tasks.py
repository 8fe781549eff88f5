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
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from typing import Any, TypeVar

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

    def sent(one: int) -> Future[str]:
        try:
            return send(one)
        except RuntimeError as error:  # it was shut down, or is broken
            raise LostError(f"the executor takes no task: {error}", way_out) from error

    def lost(one: int, why: str, cause: BaseException | None = None) -> T:
        waiting.discard(one)
        if give_up is None:
            raise LostError(f"no machine finishes a task: {why}", way_out) from cause
        return give_up(one, why)

    def finished_within(limit: float) -> set[Future[str]]:
        until = time.monotonic() + limit
        while True:
            seconds = max(until - time.monotonic(), 0.0)
            finished = wait(running, min(seconds, _LOOKS), FIRST_COMPLETED).done
            if finished or seconds <= _LOOKS:
                return finished
            if why := gone():
                raise LostError(why, way_out)

    def received() -> Iterator[tuple[int, T]]:
        silences = 0
        try:
            while waiting:
                limit = min(timeout, max(left(), 0.0))
                finished = finished_within(limit)
                if not finished and limit < timeout:
                    raise TimeoutError
                silences = 0 if finished else silences + 1
                if silences >= _SILENCES:
                    why = f"no answer within {silences * timeout:g} s ({_VARIABLE} sets the limit)"
                    yield from [(one, lost(one, why)) for one in sorted(waiting)]
                elif silences:  # who is late may still answer, and the first answer counts
                    running.update({sent(one): one for one in sorted(waiting)})
                for future in finished:
                    one = running.pop(future)
                    if one not in waiting:
                        continue
                    try:
                        answer = read(future.result(0))
                    except BrokenExecutor as error:
                        raise LostError(f"the executor stopped: {error}", way_out) from error
                    except (DovetailError, KeyboardInterrupt):
                        raise
                    except (Exception, CancelledError) as error:
                        resent(error)
                        attempts[one] += 1
                        if attempts[one] <= _ATTEMPTS:
                            running[sent(one)] = one
                            continue
                        why = str(error) if isinstance(error, LostTask) else f"{type(error).__name__}: {error}"
                        answer = lost(one, why, error)
                    waiting.discard(one)
                    yield one, answer
        finally:
            for future in running:
                with contextlib.suppress(Exception):
                    future.cancel()

    attempts = dict.fromkeys(range(number), 1)
    waiting = set(range(number))
    running = {sent(one): one for one in range(number)}
    return received()
