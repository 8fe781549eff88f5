"""Does a folder always hold one whole result? Writers are killed at random moments, and pairs of them race.

    python bench/writers.py [--kills 300] [--races 50] [--layers 6] [--external] [--seed 5]

Two models of `--layers` times 4 MiB are compiled for different backends into one folder. A writer is a process that
runs `dovetail compile`, forked from one that has imported everything, so that most of its time is saving. After each
kill and each race the folder must load, run, and give the outputs, the plan and the remarks of one of both models. The
files that other tools see are compared, too: before `load` completes what a killed writer had decided, and after it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from measure import table
from onnx import TensorProto, helper, numpy_helper

WIDTH = 1024
BACKENDS = {"A": "cpu-bf16", "B": "gpu-fp16"}


def build(path: Path, seed: int, layers: int) -> None:
    """A chain of matrix products with 4 MiB of random weights each."""
    rng, nodes, weights, value = np.random.default_rng(seed), [], [], "x"
    for layer in range(layers):
        array = (rng.standard_normal((WIDTH, WIDTH)) * 0.03).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"], f"mm{layer}"))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"], f"relu{layer}"))
        value = f"r{layer}"
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "chain", borders[:1], borders[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), str(path))


def forked(function: Callable[[], object]) -> multiprocessing.Process:
    """`function` in a process of its own, which says nothing."""

    def quiet() -> None:
        with open(os.devnull, "w") as sink:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
            sys.exit(function())

    process = multiprocessing.get_context("fork").Process(target=quiet)
    process.start()
    return process


def answer(function: Callable[[], object]) -> object:
    """What `function` gives in a process of its own: engines and forks do not go together."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        try:
            send.send(function())
        except Exception as error:
            send.send(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return f"the process ended with {process.exitcode}"
    finally:
        process.join()


class Trial:
    """One folder that writers of both models write to."""

    def __init__(self, work: Path, layers: int, external: bool):
        self.work, self.out, self.external = work, work / "out", external
        for seed, name in enumerate(BACKENDS):
            build(work / f"{name}.onnx", seed, layers)
        self.files: dict[str, dict[str, str]] = {}
        self.loaded: dict[str, object] = {}
        self.seconds = 0.0
        for name in BACKENDS:
            start = time.perf_counter()
            process = self.write(name)
            process.join()
            assert process.exitcode == 0, f"{name} does not compile"
            self.seconds = max(self.seconds, time.perf_counter() - start)
            self.files[name], self.loaded[name] = self.seen(), self.load()
            assert isinstance(self.loaded[name], tuple), self.loaded[name]

    def write(self, name: str) -> multiprocessing.Process:
        from dovetail.cli.main import main

        command = [
            "compile",
            str(self.work / f"{name}.onnx"),
            "--backend",
            BACKENDS[name],
            "--no-try-engines",
            "-o",
            str(self.out),
        ]
        return forked(lambda: main([*command, *(["--external-data"] if self.external else [])]))

    def seen(self) -> dict[str, str]:
        """Every file that is not hidden, by its digest."""
        return {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(self.out.iterdir())
            if file.is_file() and not file.name.startswith(".")
        }

    def load(self) -> object:
        """Outputs, plan and remarks of what the folder holds."""

        def read() -> tuple:
            import dovetail

            compiled = dovetail.load(self.out)
            (result,) = compiled.run({"x": np.ones((1, WIDTH), np.float32)}).values()
            remarks = "".join(sorted(str(remark) for remark in compiled.remarks))
            digest = hashlib.sha256(f"{compiled.plan.nodes}{remarks}".encode()).hexdigest()
            return compiled.plan.backends[0].name, digest, hashlib.sha256(result.tobytes()).hexdigest()

        return answer(read)

    def which(self, files: dict[str, str]) -> str:
        return next((name for name in BACKENDS if files == self.files[name]), "mixed")

    def outcome(self) -> tuple[str, str, str, str]:
        """What other tools see, what `load` gives, what other tools see then, and what is left over."""
        before = self.which(self.seen())
        loaded = self.load()
        given = next((name for name in BACKENDS if loaded == self.loaded[name]), f"wrong: {str(loaded)[:200]}")
        return before, given, self.which(self.seen()), "left" if self.leftovers() else "clean"

    def leftovers(self) -> list[str]:
        return [file.name for file in self.out.iterdir() if file.name.startswith(".")]


def kill(trial: Trial, rng: random.Random, new: str, turn: int) -> str:
    """Start a writer and kill it: anywhere, after it began to save, or when a file takes its place."""
    model = trial.out / "model.onnx"
    inode, manifest = model.stat().st_ino, (trial.out / "result.json").stat().st_ino
    process = trial.write(new)
    mode = ("anywhere", "while it saves", "while it commits")[turn % 3]
    if mode == "anywhere":
        time.sleep(rng.uniform(0, trial.seconds))
    elif mode == "while it saves":
        while process.is_alive() and not trial.leftovers():
            time.sleep(0.0005)
        time.sleep(rng.choice([0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15]))
    else:
        # The moment in which the first file has taken its place: polled without a pause, to be as close as can be.
        watched = rng.choice(["manifest", "manifest", "model"])
        with contextlib.suppress(FileNotFoundError):
            while process.is_alive():
                now = os.stat(model if watched == "model" else trial.out / "result.json").st_ino
                if now != (inode if watched == "model" else manifest):
                    break
        if rng.random() < 0.3:
            time.sleep(rng.choice([0.0002, 0.0005, 0.001]))
    with contextlib.suppress(ProcessLookupError):  # it may have come to its end
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return mode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--layers", type=int, default=6, help="4 MiB of weights each")
    parser.add_argument("--external", action="store_true", help="weights in a file of their own")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    import dovetail
    import onnx_ir  # noqa: F401
    from dovetail.cli import main as commands  # noqa: F401

    dovetail.load_plugins()
    rng, counts = random.Random(options.seed), Counter()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options.layers, options.external)
        current = list(BACKENDS)[-1]
        for turn in range(options.kills):
            new = "A" if current == "B" else "B"
            mode = kill(trial, rng, new, turn)
            before, given, after, left = trial.outcome()
            state = {current: "the old result", new: "the new result"}
            counts[(mode, *(state.get(name, name) for name in (before, given, after)), left)] += 1
            current = given if given in BACKENDS else current
        trial.write(current).join()
        over = [*trial.leftovers(), *(trial.seen().keys() - trial.files[current].keys())]
        for turn in range(options.races):
            pair = [trial.write(name) for name in (("A", "B") if turn % 2 else ("B", "A"))]
            for process in pair:
                process.join()
            codes = "both end with 0" if all(process.exitcode == 0 for process in pair) else "one failed"
            before, given, after, left = trial.outcome()
            one = "one result" if given in BACKENDS else given
            counts[("race: " + codes, "one result" if before in BACKENDS else before, one,
                    "one result" if after in BACKENDS else after, left)] += 1  # fmt: skip
    keys = ("when", "files before load", "load gives", "files after load", "temporary files")
    table([{**dict(zip(keys, row)), "times": number} for row, number in sorted(counts.items())])
    print(f"\nleft over after one more run: {', '.join(over) or 'nothing'}")
    wrong = [row for row in counts if row[2] not in ("the old result", "the new result", "one result")]
    sys.exit(1 if wrong or over else 0)


if __name__ == "__main__":
    main()
