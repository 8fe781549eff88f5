"""The keyword `executor` of `dovetail.compile`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dovetail.plugin import Option, load_plugins

if TYPE_CHECKING:
    from dovetail.plugin import CompileJob


class DataWorkersOption(Option):
    """The keyword `executor`: calibration, verification and trials of a search on parts of the data, beside each other.

    Keyword arguments of `dovetail.compile`:
        executor: Runs the parts: one of `concurrent.futures` or of dask.distributed, the address of a scheduler of the
            latter, or `DataWorkers`. Data is divided between its files, which the workers read under the same paths.
            The result is the same as without it.
    """

    commands = ("compile",)
    keywords = ("executor",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add nothing: `compile` has `--cluster`."""

    @contextmanager
    def begin(self, job: CompileJob) -> Iterator[None]:
        """Have the workers for all that follows.

        Raises:
            UsageError: The executor is none.
            DovetailError: The scheduler does not answer.
        """
        from dovetail_runtime.data_workers import workers_of, working_on

        plugins = job.ctx.plugins or load_plugins()
        with workers_of(job.keywords.get("executor"), plugins) as (workers, notes), working_on(workers):
            for text in notes:
                job.ctx.remark("missed", "", "data-workers", text)
            yield


DATA_WORKERS = DataWorkersOption()
