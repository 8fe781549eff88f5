"""Tasks of an executor: one whose machine is lost, or does not answer, is sent again, and given up after a few times.

An answer is text. So is what goes wrong in a task: an exception would be unpickled here, which may fail, or run code.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from typing import TypeVar

from dovetail.errors import DovetailError, UsageError

T = TypeVar("T")

ATTEMPTS = 3  # of a task whose machine is lost
_SILENCES = 2  # after which what runs is given up
_VARIABLE = "DOVETAIL_TASK_TIMEOUT"
_SECONDS = 1800.0  # without any answer, if that variable does not say another limit


class LostTask(Exception):
    """A task failed on its machine, which may be the machine's fault."""


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


def failure_text(error: BaseException) -> str:
    """Return what went wrong in a task as its answer; see `check_failure`."""
    if isinstance(error, DovetailError):
        return json.dumps({"error": error.message, "hint": error.hint})
    return json.dumps({"lost": f"{type(error).__name__}: {error}"})


def check_lost(answer: object) -> None:
    """Check that an answer does not tell of an exception on its machine.

    Raises:
        LostTask: It does; the task may succeed elsewhere.
    """
    if isinstance(answer, dict) and isinstance(answer.get("lost"), str):
        raise LostTask(answer["lost"])


def check_failure(answer: object) -> None:
    """Check that an answer is not what `failure_text` returned.

    Raises:
        DovetailError: The task failed because of what it was given.
        LostTask: It failed otherwise, and may succeed elsewhere.
    """
    check_lost(answer)
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        raise DovetailError(answer["error"], str(answer.get("hint", "")))


def answers(
    number: int,
    send: Callable[[int], Future[str]],
    read: Callable[[str], T],
    give_up: Callable[[int, str], T] | None = None,
    timeout: float | None = None,
) -> Iterator[tuple[int, T]]:
    """Yield the answers of tasks with their numbers, as they come.

    Args:
        number: How many tasks there are.
        send: Sends the task of a number.
        read: Reads an answer; what it raises other than a `DovetailError` costs an attempt.
        give_up: Returns the answer of a task that no machine finishes, by its number and the reason. Without it, that
            is an error.
        timeout: Seconds without any answer after which what runs is sent again; by default `task_timeout`.

    Raises:
        DovetailError: A task fails, the executor takes no task, or no machine finishes one.
    """
    timeout, silences = task_timeout() if timeout is None else timeout, 0
    attempts = dict.fromkeys(range(number), 1)
    running = {_sent(send, one): one for one in range(number)}
    waiting = set(range(number))

    def lost(one: int, why: str, cause: BaseException | None = None) -> T:
        waiting.discard(one)
        if give_up is None:
            raise DovetailError(f"no machine finishes a task: {why}", _WAY_OUT) from cause
        return give_up(one, why)

    try:
        while waiting:
            finished = wait(running, None if math.isinf(timeout) else timeout, FIRST_COMPLETED).done
            silences = 0 if finished else silences + 1
            if silences >= _SILENCES:
                why = f"no answer within {silences * timeout:g} s ({_VARIABLE} sets the limit)"
                yield from [(one, lost(one, why)) for one in sorted(waiting)]
            elif silences:  # who is late may still answer, and the first answer counts
                running |= {_sent(send, one): one for one in sorted(waiting)}
            for future in finished:
                one = running.pop(future)
                if one not in waiting:
                    continue
                try:
                    answer = read(future.result(0))
                except BrokenExecutor as error:
                    raise DovetailError(f"the executor stopped: {error}", _WAY_OUT) from error
                except (DovetailError, KeyboardInterrupt):
                    raise
                except (Exception, CancelledError) as error:
                    attempts[one] += 1
                    if attempts[one] <= ATTEMPTS:
                        running[_sent(send, one)] = one
                        continue
                    why = str(error) if isinstance(error, LostTask) else f"{type(error).__name__}: {error}"
                    answer = lost(one, why, error)
                waiting.discard(one)
                yield one, answer
    finally:
        for future in running:
            with contextlib.suppress(Exception):
                future.cancel()


def _sent(send: Callable[[int], Future[str]], number: int) -> Future[str]:
    try:
        return send(number)
    except RuntimeError as error:  # it was shut down, or is broken
        raise DovetailError(f"the executor takes no task: {error}", _WAY_OUT) from error


_WAY_OUT = "look at the workers, or do it without them; what is done stays done"
