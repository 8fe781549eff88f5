"""Clusters: the machines of a dask.distributed scheduler as executors, the option `--cluster ADDRESS`."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.text import pluralize
from dovetail_commands.folder_jobs import asked, cluster_client
from dovetail_commands.sent_tasks import InvalidAnswer, LostTask, as_text
from dovetail_runtime.machine import difference

from dovetail_tune.answers import greeting_of
from dovetail_tune.executor_pool import Executors
from dovetail_tune.tasks import greet
from dovetail_tune.worker_pool import WorkerSettings

if TYPE_CHECKING:
    from distributed import Client

TIMING = "timing"
"""The resource of a worker that may time: its machine has one of them."""


@contextmanager
def connect(address: str, distributions: tuple[str, ...] = ()) -> Iterator[Executors]:
    """Yield executors for `dovetail.tune(executor=...)`.

    Timings run on workers with the resource `timing`, which a worker has one of (`dask worker ADDRESS --resources
    timing=1`); conversions run on all. Where machines differ, those like this one are used, or else the most frequent
    kind.

    Args:
        address: The address of the scheduler: `tcp://10.0.0.1:8786`.
        distributions: What versions have to be equal of; by default, processors and CPUs alone have to.

    Raises:
        DovetailError: dask.distributed is not installed, the scheduler does not answer, or no worker may time.
    """
    with cluster_client(address, "dovetail-tune[cluster]", _START) as client:
        yield _executors(client, address, distributions)


def _executors(client: Client, address: str, distributions: tuple[str, ...]) -> Executors:
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    if not any(worker["resources"].get(TIMING) for worker in workers.values()):
        problem = f"--cluster {address}: none of {pluralize(len(workers), 'worker')} has the resource '{TIMING}'"
        raise DovetailError(problem, _START)
    settings = WorkerSettings(distributions=distributions)
    machines: dict[str, Mapping[str, str]] = {}
    notes = []
    for name, said in asked(client, address, as_text, greet, settings, ()).items():
        try:
            machines[name] = greeting_of(said)[0]
        except (InvalidAnswer, LostTask, DovetailError) as error:
            notes.append(f"worker {name} is left out: its answer is not valid: {error}")
    if not any(workers[name]["resources"].get(TIMING) for name in machines):
        raise DovetailError(f"--cluster {address}: {notes[0]}", _START)
    chosen, unlike = _like_one(machines, greet(settings, ())[0], workers)
    notes += unlike
    # An empty list of workers would mean that none is allowed.
    allowed = {"workers": chosen} if notes else {}
    return Executors(
        client.get_executor(pure=False, **allowed),
        client.get_executor(pure=False, resources={TIMING: 1}, **allowed),
        tuple(notes),
    )


def _like_one(
    machines: Mapping[str, Mapping[str, str]], here: Mapping[str, str], workers: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return the hosts of one kind of machine that may time, and a note for each kind that is left out."""
    kinds = {name: tuple(sorted(machine.items())) for name, machine in machines.items()}
    timing = [name for name in kinds if workers.get(name, {}).get("resources", {}).get(TIMING)]
    own = tuple(sorted(here.items()))
    counts = collections.Counter(kinds[name] for name in timing)
    chosen = own if own in counts else counts.most_common(1)[0][0]
    notes = [
        f"{pluralize(number, 'worker')} of {difference(dict(kind), dict(chosen))} is left out"
        for kind, number in collections.Counter(kinds.values()).items()
        if kind != chosen
    ]
    # By host, because a worker that is started again has another port.
    return sorted({str(workers[name]["host"]) for name, kind in kinds.items() if kind == chosen}), notes


_START = f"start one per machine: dask worker ADDRESS --resources {TIMING}=1"
