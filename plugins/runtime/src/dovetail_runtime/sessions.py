"""Base classes of sessions that promise more than the contract, and how sessions are closed."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

from dovetail.plugin import Session
from dovetail.plugin.loading import foreign_output

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort


class SelfChecking(Session):
    """Base class of sessions that refuse missing and unknown inputs, and extents that they were not loaded for.

    They print nothing while they run.
    """


class Bindable(SelfChecking):
    """Base class of sessions that can run over fixed arrays, which takes less time than passing new ones."""

    @abstractmethod
    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call that computes `outputs` from what `inputs` hold then, as `run` does.

        The call is made by one thread at a time, and raises any exception if it fails or computes other shapes.

        Args:
            inputs: A contiguous array with elements for each input.
            outputs: A contiguous array with elements for each output, to be written; none shares memory with another.

        Raises:
            Exception: Any, if the session does not run over such arrays.
        """


class OnnxRuntimeBacked(SelfChecking):
    """Base class of sessions that hand every run, unchanged, to one session of ONNX Runtime."""

    @property
    @abstractmethod
    def native(self) -> ort.InferenceSession | None:
        """The session of ONNX Runtime; None if inputs or outputs are converted on the way.

        Its inputs and outputs have the names of the region's.
        """

    @property
    def joins_neighbors(self) -> bool:
        """Whether one session may run regions of several backends, whose options mean nothing to it."""
        return False


def close_later(session: Session, owner: object, label: str) -> None:
    """Close a session once nothing refers to its owner any more.

    Args:
        session: The session.
        owner: What runs it.
        label: Its engine, for messages.
    """
    if type(session).close is not Session.close:
        weakref.finalize(owner, _close, session, label)


def _close(session: Session, label: str) -> None:
    """Close a session that nothing refers to any more: after `unload`, a trial, or a failure that replaced it.

    The garbage collector may call this at any allocation, also inside of an assignment to a context variable of this
    thread, which must not find another one in its place (CPython 3.11 crashes). So it has a context of its own.
    """
    copy_context().run(_close_in_context, session, label)


def _close_in_context(session: Session, label: str) -> None:
    with suppress(Exception), foreign_output(label):
        session.close()
