"""What core asks of the distributions that run results, read input data, and compare results with their originals."""

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
    """What runs compiled models, the executor `regions`; None if it is not installed."""
    runner: type[Runner] | None = registry.executor.get(_RUNNER)
    return runner


def cannot_run() -> DovetailError:
    """The error where a result is to be run and `runner_class` gives None."""
    return DovetailError("no installed distribution runs models", "pip install dovetail-runtime")


def input_data(data: object) -> InputData:
    """Input data in any form as one object.

    Raises:
        DovetailError: Nothing that reads data is installed.
    """
    given: InputData = api_extension("input_data")(data)
    return given


class Verification(Protocol):
    """A comparison, which an option leaves in `CompiledModel.verification`.

    Attributes:
        notes: What to know of its figures.
        warnings: What is alarming, one sentence each.
        advice: What to do about the warnings; empty where there is nothing to say.
        missed: What was asked for and is not met.
        broken: Whether the result is no approximation of the original; commands then exit with 1.
    """

    @property
    def notes(self) -> Sequence[str]:
        """What to know of its figures."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is alarming, one sentence each."""

    @property
    def advice(self) -> str:
        """What to do about the warnings."""

    @property
    def missed(self) -> Sequence[object]:
        """What was asked for and is not met, each a sentence as text."""

    @property
    def broken(self) -> bool:
        """Whether the result is no approximation of the original."""

    def lines(self) -> list[str]:
        """Lines for a person."""

    def short(self) -> str:
        """What the coverage line says of it; empty if nothing."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
