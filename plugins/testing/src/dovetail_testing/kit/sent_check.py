"""A check of an installed backend on a worker of a cluster that has its engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail import load_plugins
from dovetail.cli import note
from dovetail.errors import DovetailError
from dovetail.passes import BackendChoice
from dovetail.plugin.loading import load_chosen
from dovetail_runtime.data_workers import DataWorkers, answering, workers_of

from dovetail_testing.kit.installed import backends_of, check_installed

if TYPE_CHECKING:
    from dovetail.plugin import PluginSet


@dataclass(frozen=True)
class SentCheck:
    """What a worker found about a distribution and its backends; see `InstalledCheck`."""

    document: dict[str, Any]
    text: Sequence[str]
    problems: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return self.document

    def lines(self) -> list[str]:
        """Return the report."""
        return list(self.text)


def check_on_worker(name: str, address: str, plugins: PluginSet, time_limit: float | None = None) -> SentCheck:
    """Check a distribution and its backends on a worker that has their engines: `check --installed NAME --cluster`.

    Args:
        name: A backend, a plugin or a distribution.
        address: The address of a dask.distributed scheduler.
        plugins: The plugins; workers have the same versions.
        time_limit: See `check_installed`.

    Raises:
        UsageError: Nothing of that name is installed.
        DovetailError: The scheduler does not answer, no worker has the engines, or none finishes the check.
    """
    registry = plugins.registry
    needs = {one: tuple(load_chosen(registry, BackendChoice(one)).engines) for one in backends_of(name, plugins)}
    with workers_of(address, plugins) as (workers, notes):
        note(*(f"note: {text}" for text in notes))
        assert workers is not None, "an address is given"
        return _checked(workers.having(needs, registry), name, time_limit)


def _checked(workers: DataWorkers, name: str, time_limit: float | None) -> SentCheck:
    """Send the check to a worker, and return what it found."""
    (answer,) = workers.run(check_part, [{"name": name, "seconds": time_limit}], b"", None, "check")
    try:
        return SentCheck(
            dict(answer["document"]), *([str(one) for one in answer[key]] for key in ("lines", "problems"))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DovetailError(f"a worker gives an answer that is not valid: {error!r}", "check it there") from None


def check_part(text: str, model: bytes) -> str:
    """Check what is installed on this machine; see `check_on_worker`.

    Args:
        text: The task.
        model: Nothing.

    Returns:
        The answer; see `dovetail_runtime.data_workers`.
    """

    def check() -> dict[str, Any]:
        task = json.loads(text)
        found = check_installed(task["name"], load_plugins(block=task["blocked"]), time_limit=task["seconds"])
        return {"document": found.as_dict(), "lines": found.lines(), "problems": found.problems}

    return answering(check)
