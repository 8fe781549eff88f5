"""Workers in processes of their own, one seed after the other: a crash or a hang of a library costs one seed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["run_watched"]

Line = dict[str, Any]


def run_watched(
    script: str,
    words: Iterable[str],
    seeds: Iterable[int],
    jobs: int,
    limit: float,
    report: Callable[[Line], None] = lambda line: None,
) -> list[Line]:
    """Run `script --worker WORDS SEEDS`, which prints one line of JSON per seed, until every seed has one.

    Args:
        script: The script, which is started again with `--worker`.
        words: What the workers are told besides seeds.
        seeds: The seeds.
        jobs: How many workers there are.
        limit: Seconds after which a seed hangs.
        report: Is shown every line when it comes.

    Returns:
        The lines by seed; one with `kind` "crash" or "hang" where a worker ended or was ended.
    """
    seeds, results = list(seeds), []

    def done(line: Line) -> None:
        results.append(line)
        report(line)

    threads = [
        threading.Thread(target=_watched, args=(script, list(words), seeds[job::jobs], limit, done))
        for job in range(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results, key=lambda line: line["seed"])


def _watched(script: str, words: list[str], seeds: list[int], limit: float, done: Callable[[Line], None]) -> None:
    """Run workers until every seed has an outcome; one that dies or hangs is replaced."""
    while seeds:
        command = [sys.executable, script, "--worker", *words, *map(str, seeds)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while seeds:
            clock = threading.Timer(limit, worker.kill)
            clock.start()
            line = worker.stdout.readline()
            late = not clock.is_alive()
            clock.cancel()
            if not line:
                kind = "hang" if late else "crash"
                done({"seed": seeds.pop(0), "kind": kind, "said": f"the process ended with {worker.wait()}"})
                break
            done(json.loads(line))
            seeds.pop(0)
        worker.kill()
        worker.wait()
