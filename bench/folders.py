"""A folder of models, one after the other and beside each other: seconds, and whether the files are the same.

    python bench/folders.py [--models 40] [--nodes 400] [--jobs 2] [--cluster]

The models are those of growth.py for cpu-bf16. `--jobs` compiles them in processes of this machine, `--cluster` on a
dask.distributed cluster of two workers that this program starts; `times as fast` is the time of one process or worker
over that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

import dovetail
import onnx
from dovetail_commands.folder_jobs import machines
from dovetail_commands.folder_processes import processes
from growth import build
from measure import table


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def timed(models: Path, output: Path, executor: object) -> float:
    start = time.perf_counter()
    outcomes = dovetail.compile_folder(models, "cpu-bf16", output, executor=executor)
    assert all(outcome.status == "ok" for outcome in outcomes), [outcome.why for outcome in outcomes]
    return time.perf_counter() - start


@contextlib.contextmanager
def cluster(workers: int):
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as local,
        machines(local.scheduler_address, dovetail.load_plugins()) as (executor, notes),
    ):
        assert not notes, notes
        yield executor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed was compiled once, and is not by each process
    with tempfile.TemporaryDirectory() as work:
        models = Path(work, "models")
        models.mkdir()
        for number in range(options.models):
            onnx.save(build(options.nodes + 5 * number), str(models / f"net{number:02}.onnx"))
        kinds = {"this process": lambda: contextlib.nullcontext(None)}
        kinds |= {f"{jobs} processes": lambda jobs=jobs: processes(jobs) for jobs in (1, options.jobs)}
        if options.cluster:
            kinds |= {f"{workers} workers": lambda workers=workers: cluster(workers) for workers in (1, 2)}
        rows, expected, alone = [], None, 1.0
        for name, context in kinds.items():
            output = Path(work, name)
            with context() as executor:
                seconds = timed(models, output, executor)
            found = files(output)
            expected = expected or found
            alone = seconds if name[0] in "t1" else alone
            rows.append({
                "on": name, "seconds": f"{seconds:.1f}", "times as fast": f"{alone / seconds:.2f}",
                "same files": "yes" if found == expected else "no",
            })  # fmt: skip
    table(rows)


if __name__ == "__main__":
    main()
