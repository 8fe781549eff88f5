"""What records a run, for engines that execute a region in steps of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class SpanRecorder(Protocol):
    """Takes the steps of a run; may be called from several threads."""

    def span(self, name: str, category: str, begun: int, about: Mapping[str, object]) -> None:
        """Record a step of the calling thread that ends now.

        Args:
            name: What is shown for it.
            category: Its kind, in one word: `instruction`.
            begun: When it began, by `time.perf_counter_ns`.
            about: What is said of it beside its time.
        """


_CURRENT: ContextVar[SpanRecorder | None] = ContextVar("dovetail-span-recorder", default=None)


def span_recorder() -> SpanRecorder | None:
    """What records the run that the calling thread works for; None if nobody records it."""
    return _CURRENT.get()


@contextmanager
def record_spans(recorder: SpanRecorder) -> Iterator[None]:
    """Let `span_recorder` return `recorder` in this thread until the end of the block."""
    token = _CURRENT.set(recorder)
    try:
        yield
    finally:
        _CURRENT.reset(token)
