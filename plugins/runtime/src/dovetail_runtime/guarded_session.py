"""Guarded sessions: their errors name the engine, and their results are what the region declares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dovetail.plugin import EngineError, Executed, Session
from dovetail.plugin.loading import foreign_output

from dovetail_runtime.feeds import DeclaredValue, declared
from dovetail_runtime.sessions import Bindable, OnnxRuntimeBacked, SelfChecking, close_later

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import onnx_ir as ir
    import onnxruntime as ort
    from dovetail.plugin import RegionModel

    from dovetail_runtime.engines import GuardedEngine
    from dovetail_runtime.session_start import KeptSession, SessionStart


class GuardedSession:
    """A session whose errors name its engine, and whose results are checked against the region's declarations.

    Attributes:
        engine: Its engine.
        self_checking: The session itself, if it checks inputs; else None.
        bindable: The session itself, if it runs over fixed arrays; else None.
    """

    def __init__(self, session: Session, engine: GuardedEngine, outputs: Sequence[ir.Value]):
        self._session = session
        self.engine = engine
        self._outputs = [declared(value) for value in outputs]
        self.self_checking = session if isinstance(session, SelfChecking) else None
        self.bindable = session if isinstance(session, Bindable) else None
        close_later(session, self, engine.label)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the session about how it was loaded, with the engine's name; usually empty."""
        try:
            said = tuple(map(str, self._session.notes))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return ()
        return tuple(f"{self.engine.label}: {note}" for note in said)

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

    def keep(self, start: SessionStart, region: RegionModel, folder: Path) -> KeptSession | None:
        """Write what the session is made from again; None if it cannot be, or `start` fails.

        Args:
            start: How sessions of its engine start.
            region: The region that it was loaded from.
            folder: An empty folder for files.
        """
        try:
            with foreign_output(self.engine.label):
                return start.keep(self._session, self.engine.in_its_opset(region), folder)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None

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
            if self.self_checking is not None:  # it prints nothing
                results = dict(self.self_checking.run(inputs))
            else:
                with foreign_output(self.engine.label):
                    results = dict(self._session.run(inputs))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.engine.failure(error, "failed while it ran the region") from error
        for output in self._outputs:
            self._check(output, results)
        return results

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed; empty if the engine fails to report it."""
        try:
            with foreign_output(self.engine.label):
                return dict(self._session.executed())
        except KeyboardInterrupt:
            raise
        except BaseException:
            return {}

    def _check(self, output: DeclaredValue, results: Mapping[str, object]) -> None:
        label, name = self.engine.label, output.name
        if name not in results:
            raise EngineError(f"{label} gives no output '{name}'", node=output.node)
        array = cast("np.ndarray", results[name])  # or a sequence value
        if hasattr(array, "dtype") and not output.has_type_of(array):
            given = array.dtype.name
            raise EngineError(f"{label} gives '{name}' as {given}, the model declares {output.type}", node=output.node)
