"""Random models in six configurations, compiled, executed and compared with ONNX Runtime in float32.

    python sweep.py 0 2000 results.jsonl                 seeds 0 to 1999, six configurations each
    python sweep.py 0 200 results.jsonl --only bf16-fwd
    python sweep.py 0 200 results.jsonl --engine         the models as they are on openvino-cpu, in float32
    python sweep.py 0 1000 results.jsonl --rare          any attributes and extents, not only common ones
    python sweep.py 0 2000 results.jsonl --rare --single one operator per model
    python sweep.py 0 200 results.jsonl --minimize DIR   and every wrong one cut down, as DIR/seedN_CONFIGURATION.onnx

Writes one line of JSON per model and configuration that is not right, and prints a table of counts. Models run in a
separate process, because OpenVINO may crash it.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Callable
from pathlib import Path

from dovetail.plugin import spawn_context

sys.path.insert(0, str(Path(__file__).parent))

SECONDS = 120  # for one model


def main() -> int:
    """Run the sweep; the exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="configurations")
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--single", action="store_true", help="models of one operator")
    parser.add_argument("--operators", nargs="*", default=[], help="with --single: only these")
    parser.add_argument("--minimize", type=Path)
    options = parser.parse_args()
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    worker = Worker(options, serve)
    with options.results.open("w") as out:
        for seed in range(options.first, options.last):
            for configuration, outcome, why in worker(seed):
                counts[configuration, outcome] += 1
                if outcome != "ok":
                    line = {"seed": seed, "configuration": configuration, "outcome": outcome, "why": why}
                    print(json.dumps(line), file=out, flush=True)
    worker.stop()
    outcomes = sorted({outcome for _, outcome in counts})
    print("| configuration |", " | ".join(outcomes), "|")
    for configuration in dict.fromkeys(name for name, _ in counts):
        print("|", configuration, "|", " | ".join(str(counts[configuration, o]) for o in outcomes), "|")
    return int(any(outcome not in ("ok", "skipped") for outcome in outcomes))


class Worker:
    """A worker process that checks models and is replaced if it ends or times out."""

    def __init__(self, options: argparse.Namespace, serve: Callable):
        self.options, self.serve, self.process, self.pipe = options, serve, None, None

    def __call__(self, task: object) -> list[tuple[str, str, str]]:
        """Return (configuration, outcome, explanation) for one task, such as a seed."""
        if self.process is None:
            context = spawn_context()
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=self.serve, args=(theirs, self.options), daemon=True)
            self.process.start()
            theirs.close()
        self.pipe.send(task)
        found = []
        try:
            while True:
                if not self.pipe.poll(SECONDS):
                    found.append(("?", "timeout", ""))
                    break
                said = self.pipe.recv()
                if said is None:
                    return found
                found.append(said)
        except (EOFError, ConnectionError):
            found.append(("?", "crash", ""))
        self.stop()
        return found

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def serve(pipe, options: argparse.Namespace) -> None:
    """Check every seed read from standard input."""
    import dovetail
    from random_graphs import OPERATORS, random_model
    from random_graphs.checking import CONFIGURATIONS, check, check_engine, truth
    from random_graphs.minimizer import minimized

    plugins = dovetail.load_plugins()
    names = tuple(options.operators or OPERATORS)
    while True:
        seed = pipe.recv()
        single = names[seed % len(names) :][:1] if options.single else ()
        try:
            model, feeds = random_model(seed, single, options.rare)
            known = truth(model, feeds)
        except Exception as error:  # nothing fits, or ONNX Runtime, the reference, cannot run it
            pipe.send(("all", "skipped", str(error)[:300]))
            pipe.send(None)
            continue
        for configuration in ["engine"] if options.engine else options.only or CONFIGURATIONS:
            if options.engine:
                again = lambda t: check_engine(t, plugins.registry.engine["openvino-cpu"]())  # noqa: E731
            else:
                again = lambda t, c=configuration, n=seed: check(t, c, n, plugins)  # noqa: E731
            outcome, why = again(known)
            pipe.send((configuration, outcome, why[:300]))
            if outcome == "wrong" and options.minimize:
                small = minimized(known, lambda t, again=again, outcome=outcome: again(t)[0] == outcome)
                save(small, options.minimize / f"seed{seed}_{configuration}")
        pipe.send(None)


def save(known, path: Path) -> None:
    """Write a model and its inputs."""
    import numpy as np
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(known.model, path.with_suffix(".onnx"))
    np.savez(path.with_suffix(".npz"), **known.feeds)


if __name__ == "__main__":
    raise SystemExit(main())
