"""The models of a folder as tasks of an executor, such as the machines of a cluster.

Models and data stay where they are: every machine sees them under the same paths, and writes its results there, each
whole or not at all. What crosses between processes is JSON.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import load_plugins
from dovetail.text import pluralize

from dovetail_commands.folder_model import ModelOutcome
from dovetail_commands.folder_processes import in_process
from dovetail_commands.sent_tasks import answer_in, answers

if TYPE_CHECKING:
    from distributed import Client
    from dovetail.plugin import PluginSet

    from dovetail_commands.folder_worker import FolderJob

_SECONDS = 30.0  # to reach a scheduler in
_RETURNS = 60.0  # seconds in which a worker that ended may be started again
_START = "start one on each machine: dask worker ADDRESS"


@contextmanager
def cluster_client(address: str, extra: str, start: str) -> Iterator[Client]:
    """Yield a client of the dask.distributed scheduler at an address, such as `tcp://10.0.0.1:8786`.

    Args:
        address: The address.
        extra: What to install if dask.distributed is missing.
        start: How to start its workers, if it does not answer.

    Raises:
        DovetailError: dask.distributed is not installed, or the scheduler does not answer.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise DovetailError("--cluster needs dask.distributed", f"pip install '{extra}'") from error
    try:
        # Answers are JSON in text; nothing else is taken apart. What the protocol itself pickles, such as errors, is
        # unpickled all the same: docs/reference/safety.md says whom one trusts.
        client = Client(address, timeout=_SECONDS, deserializers=["dask", "msgpack", "error"])
    except (OSError, ValueError, TypeError) as error:
        raise DovetailError(f"--cluster {address}: the scheduler does not answer: {error}", start) from None
    try:
        yield client
    finally:
        client.close()


@contextmanager
def machines(address: str, plugins: PluginSet) -> Iterator[tuple[Executor, list[str]]]:
    """Yield an executor for the machines of a cluster that have the versions of this one, and notes on the others.

    Raises:
        DovetailError: See `cluster_client`; or no machine has the same versions.
    """
    with data_machines(address, plugins) as found:
        yield found.executor, found.notes


class Machines(NamedTuple):
    """The machines of a cluster that have the versions of this one.

    Attributes:
        executor: Runs tasks on them.
        names: Their addresses.
        notes: What to say of the others.
        shared: Sends an object to all of them once, and returns an argument of tasks that stands for it.
        ask: Calls a function with arguments on each of them, and returns the answers by their addresses; one that fails
            answers with its exception.
        among: Returns some of them, by their addresses.
        left: Says why none of them is left; empty while one is.
    """

    executor: Executor
    names: list[str]
    notes: list[str]
    shared: Callable[[bytes], object]
    ask: Callable[..., dict[str, object]]
    among: Callable[[Sequence[str]], Machines]
    left: Callable[[], str]


@contextmanager
def data_machines(address: str, plugins: PluginSet) -> Iterator[Machines]:
    """Yield the machines of a cluster that have the versions of this one.

    Raises:
        DovetailError: See `machines`.
    """
    with cluster_client(address, "dovetail-commands[cluster]", _START) as client:
        blocked = [record.name for record in plugins.plugins if record.status == "disabled"]
        here = installed(blocked)
        found: dict[str, str] = {
            name: said if isinstance(said, str) else repr(said)
            for name, said in asked(client, address, installed, blocked).items()
        }
        alike = sorted(name for name, said in found.items() if said == here)
        notes = [f"worker {name} is left out: it has other versions" for name in sorted(found.keys() - set(alike))]
        if not alike:
            why = notes[0] if notes else "it has no workers"
            raise DovetailError(f"--cluster {address}: {why}", _START)
        yield _machines_of(client, address, alike, notes)


def _machines_of(client: Client, address: str, names: list[str], notes: list[str]) -> Machines:
    """Return workers of a scheduler, by their addresses."""
    # Where all take tasks, so do those that come later.
    known = workers_of(client)
    places = [] if set(names) == known.keys() else places_of(names, known)
    missing: list[float] = []  # since when none of them is there

    def among(some: Sequence[str]) -> Machines:
        return _machines_of(client, address, list(some), notes)

    def ask(function: Callable[..., str], *arguments: object) -> dict[str, object]:
        found = asked(client, address, function, *arguments)
        return {name: answer for name, answer in found.items() if name in names}

    def left() -> str:
        there = workers_of(client).items()
        if any(not places or {name, worker["host"]} & set(places) for name, worker in there):
            missing.clear()
            return ""
        missing[:] = missing or [time.monotonic()]
        named = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
        return f"the workers are gone: {named}" if time.monotonic() - missing[0] > _RETURNS else ""

    executor = client.get_executor(pure=False, **({"workers": places} if places else {}))
    return Machines(
        executor, names, notes, lambda model: client.scatter(model, names, broadcast=True, hash=False), ask, among, left
    )


def workers_of(client: Client) -> Mapping[str, Mapping[str, Any]]:
    """Return what the scheduler knows of its workers, by their addresses."""
    found: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return found


def places_of(names: Collection[str], workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return where tasks of some workers may run: a host if all of its workers are among them, or else an address.

    A worker that is started again has another port, and the same host.
    """
    others = {str(worker["host"]) for name, worker in workers.items() if name not in names}
    hosts = {name: str(workers[name]["host"]) for name in names if name in workers}
    return sorted({name if host in others else host for name, host in hosts.items()})


def asked(client: Client, address: str, function: Callable[..., str], *arguments: object) -> dict[str, object]:
    """Call a function on all workers, and return what each of them answers, or the exception, by its address.

    Raises:
        DovetailError: Some do not answer within half a minute.
    """
    found: Future[dict[str, object]] = Future()

    def ask() -> None:
        try:
            found.set_result(dict(client.run(function, *arguments, on_error="return")))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=ask, name="dovetail-ask-workers", daemon=True).start()
    try:
        return found.result(_SECONDS)
    except TimeoutError:
        number = pluralize(len(client.scheduler_info(n_workers=-1)["workers"]), "worker")
        why = f"not all of {number} answer within {_SECONDS:g} s"
        raise DovetailError(f"--cluster {address}: {why}", "end those that hang, and start them again") from None


def installed(blocked: Sequence[str]) -> str:
    """Return the distributions of all plugins on this machine with their versions, as JSON."""
    found = load_plugins(block=blocked).plugins
    return json.dumps(sorted([record.name, record.distribution, record.version, record.status] for record in found))


def compile_jobs(
    jobs: Mapping[Path, FolderJob],
    executor: Executor,
    blocked: Sequence[str] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> list[ModelOutcome]:
    """Do jobs on an executor, the largest models first, and return their outcomes in the order of the jobs.

    A machine that is lost costs its task, which is sent again. Processes of this machine may take any time.

    Raises:
        UsageError: The request is wrong for every model.
        DovetailError: The executor stops.
    """
    started = time.monotonic()
    sizes = {model: (Path(job["folder"]) / model).stat().st_size for model, job in jobs.items()}
    models = sorted(jobs, key=lambda one: -sizes[one])

    def send(number: int) -> Future[str]:
        return executor.submit(in_process, json.dumps(jobs[models[number]]), tuple(blocked))

    def give_up(number: int, why: str) -> ModelOutcome:
        return ModelOutcome(models[number], "failed", f"no machine finishes it: {why}", "compile this model alone")

    outcomes: dict[Path, ModelOutcome] = {}
    timeout = math.inf if isinstance(executor, ThreadPoolExecutor) else None
    for number, outcome in answers(len(models), send, _outcome, give_up, timeout):
        outcomes[models[number]] = replace(outcome, model=models[number])
        if progress is not None:
            progress(_remaining(started, len(outcomes), len(jobs)), len(outcomes), len(jobs))
    return [outcomes[model] for model in jobs]


def _outcome(text: str) -> ModelOutcome:
    """Return the outcome that an answer tells; one that is not valid is a failure of its model."""
    model = Path()
    try:
        answer = answer_in(text)
        if "usage" in answer:
            raise UsageError(str(answer["usage"]), str(answer["hint"]))
        return ModelOutcome.from_dict(answer["outcome"])
    except UsageError:
        raise
    except DovetailError as error:
        return ModelOutcome(model, "failed", error.message, error.hint)
    except (ValueError, KeyError, TypeError) as error:
        return ModelOutcome(model, "failed", f"an answer that is not valid: {error!r}", "compile this model alone")


def _remaining(started: float, done: int, total: int) -> str:
    """Return what a progress bar says: the time that is left, if the rest takes as long as what is done."""
    left = (time.monotonic() - started) / max(done, 1) * (total - done)
    return f"models, about {pluralize(max(1, round(left / 60)), 'minute')} left" if left >= 1 else "models"
