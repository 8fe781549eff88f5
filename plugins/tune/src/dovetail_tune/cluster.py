"""Clusters: the machines of a dask.distributed scheduler as executors, the option `--cluster ADDRESS`."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.text import pluralize
from dovetail_commands.folder_jobs import asked, cluster_client, places_of, workers_of
from dovetail_commands.sent_tasks import InvalidAnswer, LostTask, as_text
from dovetail_runtime.machine import difference
from dovetail_runtime.worker_engines import Needs, Offers, chosen_workers, engines_of_worker, offers_in

from dovetail_tune.answers import greeting_of
from dovetail_tune.executor_pool import Executors
from dovetail_tune.tasks import greet
from dovetail_tune.worker_pool import WorkerSettings

if TYPE_CHECKING:
    from distributed import Client

TIMING = "timing"
"""The resource of a worker that may time: its machine has one of them."""


@contextmanager
def connect(address: str, distributions: tuple[str, ...] = (), needs: Needs | None = None) -> Iterator[Executors]:
    """Yield executors for `dovetail.tune(executor=...)`.

    Timings run on workers with the resource `timing`, which a worker has one of (`dask worker ADDRESS --resources
    timing=1`); conversions run on all. Where machines differ, those like this one are used, or else the most frequent
    kind.

    Args:
        address: The address of the scheduler: `tcp://10.0.0.1:8786`.
        distributions: What versions have to be equal of; by default, processors and CPUs alone have to.
        needs: Engines of backends, which the machines have to have, in order of preference.

    Raises:
        DovetailError: dask.distributed is not installed, the scheduler does not answer, or no worker may time or has
            the engines.
    """
    with cluster_client(address, "dovetail-tune[cluster]", _START) as client:
        yield _executors(client, address, distributions, needs or {})


def _executors(client: Client, address: str, distributions: tuple[str, ...], needs: Needs) -> Executors:
    workers = workers_of(client)
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
    offered = {name: offers_in(answer) for name, answer in asked(client, address, engines_of_worker, ()).items()}
    timing = {name: offered.get(name, {}) for name in _timing(machines, workers)}
    able = chosen_workers(timing, {}, needs).workers
    chosen, unlike = _like_one(machines, greet(settings, ())[0], able)
    chosen = [name for name in chosen if name in able] if needs else chosen
    notes += unlike
    # An empty list of workers would mean that none is allowed.
    allowed = {"workers": places_of(chosen, workers)} if len(chosen) < len(workers) else {}
    return Executors(
        client.get_executor(pure=False, **allowed),
        client.get_executor(pure=False, resources={TIMING: 1}, **allowed),
        tuple(notes),
        _offers_of_all([timing[name] for name in chosen if name in timing]),
    )


def _offers_of_all(offers: Sequence[Offers]) -> dict[str, str]:
    """Return why engines are not available on all of some machines, by name; empty for those that are."""
    names = dict.fromkeys(name for one in offers for name in one)
    return {name: next(filter(None, (one.get(name, "not on all workers") for one in offers)), "") for name in names}


def _timing(names: Iterable[str], workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return those of some workers that may time."""
    return [name for name in names if workers.get(name, {}).get("resources", {}).get(TIMING)]


def _like_one(
    machines: Mapping[str, Mapping[str, str]], here: Mapping[str, str], able: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the workers of one kind of machine, and a note for each kind that is left out.

    Args:
        machines: The fingerprint of each worker.
        here: That of this machine.
        able: Workers that may time, and have the engines; one of them is of this kind.
    """
    kinds = {name: tuple(sorted(machine.items())) for name, machine in machines.items()}
    own = tuple(sorted(here.items()))
    counts = collections.Counter(kinds[name] for name in able)
    chosen = own if own in counts else counts.most_common(1)[0][0]
    notes = [
        f"{pluralize(number, 'worker')} of {difference(dict(kind), dict(chosen))} is left out"
        for kind, number in collections.Counter(kinds.values()).items()
        if kind != chosen
    ]
    return sorted(name for name, kind in kinds.items() if kind == chosen), notes


_START = f"start one per machine: dask worker ADDRESS --resources {TIMING}=1"
