"""What core asks of the distribution that runs results and reads input data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.api_extensions import api_extension
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.plugin.registry import Registry
    from dovetail.plugin.services import InputData, Runner


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
