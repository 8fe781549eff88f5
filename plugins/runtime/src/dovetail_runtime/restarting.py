"""Results that run again without being loaded: from plain data and files that `keeping.keep_sessions` wrote.

Nothing here imports what only loading needs: graphs, schemas, backends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dovetail.plugin import Session
from dovetail.plugin.loading import derived, foreign_output, made

from dovetail_runtime.bound_run import BoundRuns, BoundStep, Like, within
from dovetail_runtime.session_start import KeptSession, SessionStart
from dovetail_runtime.sessions import Bindable, OnnxRuntimeBacked, SelfChecking, close_later
from dovetail_runtime.texts import as_texts

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.plugin import Registry


class _Declared(NamedTuple):
    """The declaration of a value: name, type (None for one that is not checked), and extents, None for open ones."""

    name: str
    dtype: np.dtype | None
    extents: tuple[int | None, ...] | None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> _Declared:
        """Return what `keeping` wrote of a value."""
        extents = kept["extents"]
        return cls(kept["name"], _dtype(kept["type"]), None if extents is None else tuple(extents))

    def is_given(self, value: object) -> bool:
        """Whether a value is an array of the declared type and extents, which needs no conversion."""
        # Another byte order is another dtype, which a session would misread.
        return type(value) is np.ndarray and value.dtype == self.dtype and self.has_shape_of(value)

    def has_type_of(self, value: Any) -> bool:
        """Whether a result has the declared type."""
        return self.dtype is None or value.dtype == self.dtype

    def has_shape_of(self, value: Any) -> bool:
        """Whether the declared extents allow the shape of a result; sequences have none."""
        wanted, shape = self.extents, getattr(value, "shape", None)
        if wanted is None or shape is None or wanted == shape:
            return True
        return len(wanted) == len(shape) and all(want is None or want == got for want, got in zip(wanted, shape))


class _Step(NamedTuple):
    """A session that was made again, with what it reads and gives."""

    label: str  # its engine, for messages
    session: Session
    inputs: tuple[str, ...]
    outputs: tuple[_Declared, ...]
    is_judge: bool  # whether the shapes that it computes are right by definition
    dead: tuple[str, ...]  # values that nobody reads after it


class RestartedResult:
    """Runs a result by sessions that were made again; thread-safe.

    Args:
        kept: What `keep_sessions` returned.
        folder: The folder that it wrote to, wherever that is now.
        options: Options of engines, as for a `RegionExecutor`.
        registry_of: Returns a registry with the components of some distributions.

    Attributes:
        native: The session of ONNX Runtime that runs the whole result; None if there is none.
        is_last: Whether no other engine takes over where `native` fails.

    Raises:
        Exception: Any, if it cannot be made, or `kept` is damaged.
    """

    def __init__(
        self,
        kept: Mapping[str, Any],
        folder: Path,
        options: Mapping[str, object],
        registry_of: Callable[[Sequence[str]], Registry],
    ):
        steps = kept["steps"]
        registry = registry_of(sorted({step["distribution"] for step in steps}))
        options = {"spin": len(steps) == 1, **options}
        self._inputs = tuple(map(_Declared.of, kept["inputs"]))
        self._ranges = {str(name): (int(low), int(high)) for name, (low, high) in kept["ranges"].items()}
        self._outputs = [str(name) for name in kept["outputs"]]
        last = {name: number for number, step in enumerate(steps) for name in _values(step)}
        self._steps = [
            _Step(
                step["engine"],
                _restarted(step, folder, options, registry),
                tuple(step["inputs"]),
                tuple(map(_Declared.of, step["outputs"])),
                bool(step["is_judge"]),
                tuple(name for name in _values(step) if last[name] == number and name not in self._outputs),
            )
            for number, step in enumerate(steps)
        ]
        for step in self._steps:
            close_later(step.session, self, step.label)
        self._is_doubted = False
        self._sessions = [step.session for step in self._steps]
        self._bound = self._bound_runs()
        self.native: ort.InferenceSession | None = None
        self.is_last = bool(kept["is_last"])
        session = self._steps[0].session
        if kept["is_native"] and isinstance(session, OnnxRuntimeBacked):
            self.native = session.native

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
        """Compute all outputs by name.

        None if anything is not as declared, an input has to be converted, or a session fails: the result as a whole
        finds out why, says it, and may have another engine.
        """
        if self._is_doubted or len(inputs) != len(self._inputs):
            return None
        if self._bound is not None and (found := self._bound.run(inputs, self._sessions)) is not None:
            return found
        try:
            values = {value.name: _plain(inputs[value.name], value.name) for value in self._inputs}
            if not all(value.is_given(values[value.name]) for value in self._inputs):
                return None
            if not all(within(values[name], *limits) for name, limits in self._ranges.items()):
                return None
            self._run(values)
            return {name: values[name] for name in self._outputs}
        except _WrongShape:
            self._is_doubted = True
        except Exception:
            return None
        return None

    def _run(self, values: dict[str, Any]) -> None:
        """Run all sessions, and plan buffers for further calls."""
        if self._bound is None or not self._bound.is_due(values):
            for step in self._steps:
                _run(step, values)
            return
        given, seen = dict(values), {}
        for step in self._steps:
            seen.update(_run(step, values))
        steps = [
            BoundStep(step.session, step.inputs, [value.name for value in step.outputs])
            for step in self._steps
            if isinstance(step.session, Bindable)
        ]
        self._bound.learn(given, steps, seen)

    def _bound_runs(self) -> BoundRuns | None:
        """Return runs over planned buffers; None if one session runs it, or values are no tensors of numbers."""
        types = {value.name: value.dtype for value in self._inputs if value.dtype is not None}
        is_numeric = len(types) == len(self._inputs) and not any(dtype.hasobject for dtype in types.values())
        if len(self._steps) < 2 or not is_numeric or not all(isinstance(one, Bindable) for one in self._sessions):
            return None
        return BoundRuns(types, self._ranges, self._outputs)


class _WrongShape(Exception):
    """A session computes a shape that the model rules out: one of the two is wrong."""


def _run(step: _Step, values: dict[str, Any]) -> dict[str, Like | None]:
    """Run a session, add its results to the values, and free those that nobody reads after it; return their shapes."""
    given = {name: values[name] for name in step.inputs}
    if isinstance(step.session, SelfChecking):
        results = step.session.run(given)
    else:
        with foreign_output(step.label):
            results = step.session.run(given)
    for output in step.outputs:
        value = values[output.name] = results[output.name]
        if not output.has_type_of(value):
            raise TypeError(f"'{output.name}' is of another type")
        if not step.is_judge and not output.has_shape_of(value):
            raise _WrongShape(output.name)
    seen = {output.name: Like.of(values[output.name]) for output in step.outputs}
    for name in step.dead:
        del values[name]
    return seen


def _plain(value: Any, name: str) -> Any:
    """Return an array of a class derived from NumPy's, such as a memory map, as a plain one, and texts as Python's."""
    return as_texts(np.asarray(value), name) if isinstance(value, np.ndarray) else value


def _restarted(step: Mapping[str, Any], folder: Path, options: Mapping[str, object], registry: Registry) -> Session:
    """Make one session again."""
    name, title = step["engine"], registry.session_start.title(step["engine"])
    start = made(registry.session_start[name], title, SessionStart)
    kept = KeptSession(step["data"], tuple(folder / file for file in step["files"]))
    with foreign_output(title):
        session = start.restart(kept, {**options, "backend": dict(step["chosen"])})
    return derived(session, f"what {title} makes again", Session)


def _values(step: Mapping[str, Any]) -> list[str]:
    """Return the names of what a step reads and gives."""
    return [*step["inputs"], *(value["name"] for value in step["outputs"])]


def _dtype(name: str) -> np.dtype | None:
    """Return the dtype of an element type by name; None for values that are no tensors."""
    if name in ("", "string"):
        return np.dtype(object) if name else None
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(vars(ml_dtypes)[name])
