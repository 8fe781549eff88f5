"""Guarded sessions: their errors name the engine, and their results are what the region declares."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, cast

from dovetail.plugin import EngineError, Executed, Session
from dovetail.plugin.loading import foreign_output

from dovetail_runtime.direct_run import SelfChecking
from dovetail_runtime.feeds import DeclaredValue, declared
from dovetail_runtime.native_session import OnnxRuntimeBacked

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import onnxruntime as ort
    from dovetail.ir import Model
    from dovetail_onnx import SessionStart

    from dovetail_runtime.engines import GuardedEngine


class GuardedSession:
    """A session whose errors name its engine, and whose results are checked against the region's declarations.

    Attributes:
        self_checking: The session itself, if it checks inputs; else None.
    """

    def __init__(self, session: Session, engine: GuardedEngine, outputs: Sequence[ir.Value]):
        self._session = session
        self._engine = engine
        self._outputs = [declared(value) for value in outputs]
        self.self_checking = session if isinstance(session, SelfChecking) else None
        if type(session).close is not Session.close:
            weakref.finalize(self, _close, session, engine.label)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the session about how it was loaded, with the engine's name; usually empty."""
        try:
            said = tuple(map(str, self._session.notes))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return ()
        return tuple(f"{self._engine.label}: {note}" for note in said)

    @property
    def facts(self) -> dict[str, object]:
        """What the engine reports of the session, as plain data; empty if it is none."""
        try:
            found: dict[str, object] = json.loads(json.dumps(dict(self._session.facts)))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return {}
        return found

    @property
    def native(self) -> ort.InferenceSession | None:
        """The session of ONNX Runtime that runs the region as it is; None if there is none."""
        return self._session.native if isinstance(self._session, OnnxRuntimeBacked) else None

    def start_of(self, model: Model) -> SessionStart | None:
        """Return how its session of ONNX Runtime is made from the file of `model` alone; None if it cannot be."""
        return self._session.start_of(model) if isinstance(self._session, OnnxRuntimeBacked) else None

    @property
    def joins_neighbors(self) -> bool:
        """Whether one session of its engine may run regions of several backends."""
        return isinstance(self._session, OnnxRuntimeBacked) and self._session.joins_neighbors

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name.

        Raises:
            EngineError: The engine fails, or an output is missing or has another type than the region declares.
        """
        try:
            with foreign_output(self._engine.label):
                results = dict(self._session.run(inputs))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._engine.failure(error, "failed while it ran the region") from error
        for output in self._outputs:
            self._check(output, results)
        return results

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed; empty if the engine fails to report it."""
        try:
            with foreign_output(self._engine.label):
                return dict(self._session.executed())
        except KeyboardInterrupt:
            raise
        except BaseException:
            return {}

    def _check(self, output: DeclaredValue, results: Mapping[str, object]) -> None:
        label, name = self._engine.label, output.name
        if name not in results:
            raise EngineError(f"{label} gives no output '{name}'", node=output.node)
        array = cast("np.ndarray", results[name])  # or a sequence value
        if hasattr(array, "dtype") and not output.has_type_of(array):
            given = array.dtype.name
            raise EngineError(f"{label} gives '{name}' as {given}, the model declares {output.type}", node=output.node)


def _close(session: Session, label: str) -> None:
    """Close a session that nothing refers to any more: after `unload`, a trial, or a failure that replaced it.

    The garbage collector may call this at any allocation, also inside of an assignment to a context variable of this
    thread, which must not find another one in its place (CPython 3.11 crashes). So it has a context of its own.
    """
    copy_context().run(_close_in_context, session, label)


def _close_in_context(session: Session, label: str) -> None:
    with suppress(Exception), foreign_output(label):
        session.close()
