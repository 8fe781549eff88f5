"""Interfaces to the distributions that run results, read input data, and verify results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.api_extensions import api_extension
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.plugin.registry import Registry
    from dovetail.plugin.services import InputData, Runner


__all__ = ["Verification"]


_RUNNER = "regions"


def runner_class(registry: Registry) -> type[Runner] | None:
    """Return the class of the runner of compiled models, the executor `regions`; None if it is not installed."""
    runner: type[Runner] | None = registry.executor.get(_RUNNER)
    return runner


def cannot_run() -> DovetailError:
    """Return the error for a result that must run while `runner_class` returns None."""
    return DovetailError("no installed distribution runs models", "pip install dovetail-runtime")


def input_data(data: object) -> InputData:
    """Convert input data of any accepted form to one object.

    Raises:
        DovetailError: No distribution that reads data is installed.
    """
    given: InputData = api_extension("input_data")(data)
    return given


class Verification(Protocol):
    """A comparison with the original, which an option stores in `CompiledModel.verification`.

    Attributes:
        notes: Notes on its figures.
        warnings: Alarming findings, one sentence each.
        advice: What to do about the warnings, or empty.
        missed: The requested goals that are not met.
        broken: Whether the result does not approximate the original; commands then exit with 1.
    """

    @property
    def notes(self) -> Sequence[str]:
        """Notes on its figures."""

    @property
    def warnings(self) -> Sequence[str]:
        """Alarming findings, one sentence each."""

    @property
    def advice(self) -> str:
        """What to do about the warnings, or empty."""

    @property
    def missed(self) -> Sequence[object]:
        """The requested goals that are not met; each is a sentence as text."""

    @property
    def broken(self) -> bool:
        """Whether the result does not approximate the original."""

    def lines(self) -> list[str]:
        """Return the report as lines of text."""

    def short(self) -> str:
        """Return its part of the coverage line, or empty."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
