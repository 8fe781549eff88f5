"""Work on parts of data in other processes, such as the machines of a cluster: the keyword `executor`.

What a worker gets is the model and the names of files, which it reads where they lie. Its answer is JSON. A worker that
is lost costs its task, which is sent again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.plugin import load_plugins
from dovetail_onnx.native_runtime import keeping_freed_memory

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Progress
    from dovetail.plugin import CompiledModel, PluginSet, Registry
    from dovetail_commands.folder_jobs import Machines

    from dovetail_runtime.data.file_items import FileItems
    from dovetail_runtime.worker_engines import Needs

_PARTS = 8
_PARTS_EACH = 2  # of each machine of a cluster


@dataclass(frozen=True)
class DataWorkers:
    """Processes that work on parts of the data of a compilation.

    Attributes:
        executor: What runs tasks: one of `concurrent.futures`, or of dask.distributed, whose machines see the files of
            data under the same paths.
        parts: How many parts the data is divided into, at most.
        blocked: Names of plugins to leave out.
        shared: Sends a model to all of them once, and returns an argument of tasks that stands for it.
        machines: The machines of a cluster; None if nothing is known about them.
        elsewhere: The engines that these machines have, and this one does not, in words; empty if there are none.
    """

    executor: Executor
    parts: int = _PARTS
    blocked: tuple[str, ...] = ()
    shared: Callable[[bytes], object] = lambda model: model
    machines: Machines | None = None
    elsewhere: str = ""

    @classmethod
    def on(cls, machines: Machines, blocked: tuple[str, ...]) -> DataWorkers:
        """Return the workers of a cluster."""
        parts = _PARTS_EACH * len(machines.names)
        return cls(machines.executor, parts, blocked, machines.shared, machines)

    def that_run(self, compiled: CompiledModel) -> DataWorkers:
        """Return those that have the engines of a result; see `having`."""
        from dovetail_runtime.worker_engines import may_have_stand_ins, needs_of

        if self.machines is None:
            return self
        registry = compiled.registry or load_plugins(block=self.blocked).registry
        return self.having(needs_of(compiled), registry, may_have_stand_ins(compiled))

    def having(self, needs: Needs, registry: Registry, has_stand_ins: bool = False) -> DataWorkers:
        """Return those that have engines; all of them where nothing is known about the machines.

        Args:
            needs: The engines of each backend, in its order of preference.
            registry: The registry of this machine.
            has_stand_ins: Whether engines of the host run what is of a backend without any engine.

        Raises:
            NoEngineError: No worker has them.
        """
        from dovetail_runtime.worker_engines import (
            chosen_workers,
            engines_of_worker,
            engines_on_this_machine,
            offers_in,
        )

        if self.machines is None or not needs:
            return self
        answers = self.machines.ask(engines_of_worker, self.blocked)
        offered = {name: offers_in(answer) for name, answer in answers.items()}
        here = engines_on_this_machine(registry, {name for engines in needs.values() for name in engines})
        chosen = chosen_workers(offered, here, needs, has_stand_ins)
        elsewhere = "" if chosen.is_here else ", ".join(chosen.engines.values())
        machines = self.machines if set(chosen.workers) == offered.keys() else self.machines.among(chosen.workers)
        return replace(DataWorkers.on(machines, self.blocked), elsewhere=elsewhere)

    def divided(self, model: Model, data: object) -> list[FileItems]:
        """Return the parts of data in files.

        Empty if it cannot be divided, or there is only one file, unless this machine lacks the engines.
        """
        from dovetail_runtime.data.file_items import file_items  # every compilation asks for workers

        items = file_items(model, data)
        parts = items.divided(self.parts) if items is not None else []
        return parts if len(parts) > 1 or self.elsewhere else []

    def run(
        self,
        work: Callable[[str, bytes], str],
        tasks: Sequence[Mapping[str, Any]],
        model: bytes,
        progress: Progress | None,
        what: str,
    ) -> list[Any]:
        """Do tasks, and return their answers in order.

        Args:
            work: Does one: a function of a module, of a task as JSON and the model, that returns JSON: `answer`, or
                `error` and `hint`.
            tasks: The tasks, as plain data.
            model: The model that all of them are about.
            progress: Called with (what, done, total).
            what: What it is, for the progress.

        Raises:
            DovetailError: A task fails, or no machine finishes it.
        """
        from dovetail_commands.sent_tasks import answers

        texts = [json.dumps({**task, "blocked": self.blocked}) for task in tasks]
        given: Any = self.shared(model) if model else model  # what is shared is lost with the workers that have it
        found: dict[int, Any] = {}
        for number, answer in answers(
            len(texts), lambda number: self.executor.submit(work, texts[number], given), _answer,
            gone=self.machines.left if self.machines is not None else lambda: "",
        ):  # fmt: skip
            found[number] = answer
            if progress is not None:
                progress(what, len(found), len(tasks))
        return [found[number] for number in range(len(tasks))]


def _answer(text: object) -> Any:
    """Return what a worker answers.

    Raises:
        LostTask: Its machine failed.
        DovetailError: Its work failed, or the answer is not valid.
    """
    from dovetail_commands.sent_tasks import answer_in

    try:
        return answer_in(text)["answer"]
    except (ValueError, KeyError, TypeError) as error:
        why = f"a worker gives an answer that is not valid: {error!r}"
    raise DovetailError(why, "do it without a cluster")


def answering(work: Callable[[], Any]) -> str:
    """Return the answer of a worker as JSON: what `work` returns, or what went wrong."""
    from dovetail_commands.sent_tasks import as_text

    with keeping_freed_memory():
        return as_text(lambda: {"answer": work()})


_CURRENT: ContextVar[DataWorkers | None] = ContextVar("dovetail-data-workers", default=None)


def data_workers() -> DataWorkers | None:
    """Return the workers of the compilation or command that is running; None without any."""
    return _CURRENT.get()


@contextlib.contextmanager
def working_on(workers: DataWorkers | None) -> Iterator[None]:
    """Let what reads data inside of the block divide it among workers."""
    token = _CURRENT.set(workers)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextlib.contextmanager
def workers_of(given: object, plugins: PluginSet) -> Iterator[tuple[DataWorkers | None, list[str]]]:
    """Yield the workers that the keyword `executor` names, and notes on machines that are left out.

    Raises:
        UsageError: It is none.
        DovetailError: The scheduler does not answer.
    """
    blocked = tuple(record.name for record in plugins.plugins if record.status == "disabled")
    if isinstance(given, str):
        from dovetail_commands.folder_jobs import data_machines

        with data_machines(given, plugins) as found:
            yield DataWorkers.on(found, blocked), found.notes
    elif given is None or isinstance(given, DataWorkers):
        yield given, []
    elif isinstance(given, Executor):
        yield DataWorkers(given, blocked=blocked), []
    else:
        hint = "give one of concurrent.futures or dask.distributed, or the address of a scheduler"
        raise UsageError(f"executor={given!r} is no executor", hint)
