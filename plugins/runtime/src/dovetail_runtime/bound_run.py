"""Runs of several sessions over buffers that are planned once per shape of the inputs.

Between small regions, checks and new arrays take as long as the kernels. The second call with the same shapes learns
the shapes of all values; later calls fill the buffers of the inputs, run each session where its buffers are bound, and
copy the outputs. Whatever fails here is computed again in the usual way, which says why.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from dovetail_runtime.sessions import Bindable

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs, in their order."""

_MOST_SHAPES = 8  # that have buffers, and that are counted
_MOST_FAILURES = 3  # per combination of shapes; results of other shapes may depend on the values of the inputs
_LARGEST = 1 << 26  # bytes of buffers per run; copies of larger values take no noticeable part of a call
_ALIGNMENT = 64  # bytes


class BoundStep(NamedTuple):
    """A session with the names of what it reads and gives."""

    session: Bindable
    inputs: Sequence[str]
    outputs: Sequence[str]


class BoundRuns:
    """Runs steps over planned buffers, where a run in the usual way has shown the shapes; thread-safe.

    Each thread that calls at the same time has buffers of its own, and results are copies that belong to the caller.

    Args:
        inputs: The type of each input.
        ranges: Inputs with a least and a largest integer.
        outputs: The names of the outputs; each is an input or computed by a step.
    """

    def __init__(self, inputs: Mapping[str, np.dtype], ranges: Mapping[str, tuple[int, int]], outputs: Sequence[str]):
        self._inputs, self._ranges, self._outputs = dict(inputs), dict(ranges), list(outputs)
        self._calls: dict[Shapes, int] = {}
        self._failures: dict[Shapes, int] = {}
        self._plans: dict[Shapes, _Plans] = {}
        self._clock = itertools.count()
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, object], sessions: Sequence[object]) -> dict[str, np.ndarray] | None:
        """Compute all outputs by name; None if an input has to be converted, nothing is planned yet, or a step fails.

        Args:
            inputs: The inputs by name.
            sessions: The present session of each step: what was planned for others is dropped.
        """
        key = self._key(inputs)
        plans = self._plans.get(key) if key is not None else None
        if key is None or plans is None or not plans.idle:
            return None
        plans.used = next(self._clock)
        try:
            plan = plans.idle.pop()
        except IndexError:  # another thread was faster
            return None
        if plan.sessions != list(sessions):
            self._drop(key)
            return None
        try:
            results = plan.run(inputs) if self._in_range(inputs) else None
        except Exception:  # the usual way finds out why
            self._failed(key)
            return None
        plans.idle.append(plan)
        return results

    def is_due(self, values: Mapping[str, np.ndarray]) -> bool:
        """Whether this call, which runs in the usual way, should be learned from.

        Args:
            values: The inputs after all checks.
        """
        key = self._key(values)
        if key is None or self._failures.get(key, 0) >= _MOST_FAILURES:
            return False
        with self._lock:
            plans = self._plans.get(key)
            if plans is not None:
                return plans.made < (os.cpu_count() or 1)
            calls = self._calls.get(key, 0)
            if not calls and len(self._calls) >= _MOST_SHAPES:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = calls + 1
            return calls > 0

    def learn(
        self, values: Mapping[str, np.ndarray], steps: Sequence[BoundStep], seen: Mapping[str, Like | None]
    ) -> None:
        """Plan the buffers for further calls with the shapes of this one.

        Args:
            values: The inputs.
            steps: The steps, in their order.
            seen: Type and shape of each value that a step computed; None for one that no buffer can hold.
        """
        key = self._key(values)
        found = {**{name: Like.of(array) for name, array in values.items()}, **seen}
        likes = {name: like for name, like in found.items() if like is not None}
        if key is None or len(likes) < len(found):
            return
        try:
            plan = _Plan(list(self._inputs), steps, self._outputs, likes)
        except Exception:  # a session takes no such buffers
            self._failed(key, _MOST_FAILURES)
            return
        with self._lock:
            if key not in self._plans and len(self._plans) >= _MOST_SHAPES:
                del self._plans[min(self._plans, key=lambda one: self._plans[one].used)]
            plans = self._plans.setdefault(key, _Plans(next(self._clock)))
            plans.made += 1
            plans.idle.append(plan)

    def _key(self, inputs: Mapping[str, object]) -> Shapes | None:
        """Return the shapes of the inputs; None if one of them is not an array of the declared type."""
        if len(inputs) != len(self._inputs):
            return None
        shapes = []
        for name, dtype in self._inputs.items():
            array = inputs.get(name)
            # Another byte order is another dtype, which a session would misread.
            if type(array) is not np.ndarray or array.dtype != dtype:
                return None
            shapes.append(array.shape)
        return tuple(shapes)

    def _in_range(self, inputs: Mapping[str, object]) -> bool:
        return all(within(cast("np.ndarray", inputs[name]), *limits) for name, limits in self._ranges.items())

    def _failed(self, key: Shapes, times: int = 1) -> None:
        with self._lock:
            if key not in self._failures and len(self._failures) >= _MOST_SHAPES:
                del self._failures[next(iter(self._failures))]
            self._failures[key] = self._failures.get(key, 0) + times
        self._drop(key)

    def _drop(self, key: Shapes) -> None:
        with self._lock:
            self._plans.pop(key, None)
            self._calls.pop(key, None)


class Like(NamedTuple):
    """Type and shape of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: object) -> Like | None:
        """Return those of an array; None if no buffer can hold it, or it has no elements."""
        if not isinstance(array, np.ndarray) or array.dtype.hasobject or not array.size:
            return None
        return cls(array.dtype, array.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of such an array."""
        return self.dtype.itemsize * math.prod(self.shape)


class _Plans:
    """The plans for some shapes: those that no thread uses, how many were made, and when one was used last."""

    def __init__(self, used: int):
        self.idle: deque[_Plan] = deque()  # appending to and popping from it are atomic
        self.made, self.used = 0, used


class _Plan:
    """One run over its own buffers; not thread-safe.

    Raises:
        Exception: A session takes no such buffers, or they are too large.
    """

    def __init__(
        self, inputs: Sequence[str], steps: Sequence[BoundStep], outputs: Sequence[str], likes: Mapping[str, Like]
    ):
        self.sessions = [step.session for step in steps]
        buffers = _buffers(inputs, steps, outputs, likes)
        self._calls: list[Callable[[], None]] = [
            step.session.bind({name: buffers[name] for name in step.inputs},
                              {name: buffers[name] for name in step.outputs})
            for step in steps
        ]  # fmt: skip
        self._inputs = [(name, buffers[name]) for name in inputs]
        self._outputs = [(name, buffers[name]) for name in outputs]

    def run(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Compute the outputs."""
        for name, buffer in self._inputs:
            buffer[...] = inputs[name]
        for call in self._calls:
            call()
        return {name: buffer.copy() for name, buffer in self._outputs}


def _buffers(
    inputs: Sequence[str], steps: Sequence[BoundStep], outputs: Sequence[str], likes: Mapping[str, Like]
) -> dict[str, np.ndarray]:
    """Return a buffer for each value; one that no later step reads serves a later value of the same size.

    Raises:
        ValueError: They are too large.
    """
    last = {name: number for number, step in enumerate(steps) for name in (*step.outputs, *step.inputs)}
    buffers: dict[str, np.ndarray] = {}
    free: dict[int, list[np.ndarray]] = {}
    total = 0

    def take(name: str) -> None:
        nonlocal total
        like = likes[name]
        given = free.get(like.nbytes)
        if given:
            memory = given.pop()
        else:
            memory, total = _aligned(like.nbytes), total + like.nbytes
        if total > _LARGEST:
            raise ValueError("the values are too large")
        buffers[name] = memory.view(like.dtype).reshape(like.shape)
        memories[name] = memory

    memories: dict[str, np.ndarray] = {}
    for name in inputs:
        take(name)
    for number, step in enumerate(steps):
        for name in step.outputs:
            take(name)
        for name in dict.fromkeys((*step.inputs, *step.outputs)):
            if last[name] == number and name not in outputs:
                free.setdefault(likes[name].nbytes, []).append(memories[name])
    return buffers


def _aligned(nbytes: int) -> np.ndarray:
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes]


def within(array: np.ndarray, low: int, high: int) -> bool:
    """Check whether all elements of an array are in a range."""
    return not array.size or bool(low <= array.min() and array.max() <= high)
