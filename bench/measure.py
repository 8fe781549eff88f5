"""What the benchmarks share: running something in a process of its own, and its time and memory."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path


def anonymous_memory() -> int:
    """Bytes of memory of this process that no file stands behind (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


class Peak:
    """The peak of anonymous memory inside a block, sampled every five milliseconds, beyond what it was before."""

    def __enter__(self) -> Peak:
        self._before = self.bytes = anonymous_memory()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.bytes = max(self.bytes, anonymous_memory())

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()
        self.bytes = max(self.bytes, anonymous_memory()) - self._before


def alone(function: Callable[..., dict], *arguments) -> dict:
    """What `function` gives when it runs in a fresh process."""
    result, why = within(None, function, *arguments)
    if result is None:
        raise SystemExit(f"{function.__name__}{arguments} {why}")
    return result


def within(limit: float | None, function: Callable[..., dict], *arguments) -> tuple[dict | None, str]:
    """What `function` gives in a fresh process, which an engine may end, or None and why; `limit` is in seconds."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, function, arguments))
    process.start()
    send.close()
    result, why = None, ""
    try:
        if receive.poll(limit):
            result = receive.recv()
        else:
            process.kill()
            why = f"is not done in {limit:.0f} s"
    except EOFError:
        pass
    process.join()
    return result, why or f"ended with exit code {process.exitcode}"


def _child(send, function, arguments) -> None:
    send.send(function(*arguments))


def median(rows: list[dict]) -> dict:
    """The median of every number over rows with the same keys."""
    keys = [key for key, value in rows[0].items() if isinstance(value, (int, float))]
    return {key: statistics.median(row[key] for row in rows) for key in keys}


def timed(function: Callable, *arguments, **options):
    """The result of a call and its seconds."""
    start = time.perf_counter()
    result = function(*arguments, **options)
    return result, time.perf_counter() - start


def table(rows: list[dict], as_json: bool = False) -> None:
    """Print rows as a Markdown table, or as JSON lines."""
    if as_json:
        print("\n".join(json.dumps(row) for row in rows))
        return
    keys = list(rows[0])
    print("| " + " | ".join(keys) + " |")
    print("|" + "---|" * len(keys))
    for row in rows:
        print("| " + " | ".join(_cell(row.get(key, "")) for key in keys) + " |")


def _cell(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
