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
import functools
import json
import sys
from pathlib import Path

from dovetail.plugin import Tool, ToolEndedError

sys.path.insert(0, str(Path(__file__).parent))

SECONDS = 120  # for one model in one configuration
ENGINE = "engine"


def main() -> int:
    """Run the sweep; the exit code is 1 if anything is wrong."""
    from random_graphs.checking import CONFIGURATIONS

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
    given = {"operators": options.operators, "single": options.single, "rare": options.rare}
    worker = Worker(__file__, **given, minimize=str(options.minimize or ""))
    configurations = [ENGINE] if options.engine else options.only or CONFIGURATIONS
    with options.results.open("w") as out:
        for seed in range(options.first, options.last):
            for configuration in configurations:
                outcome, why = worker(seed=seed, configuration=configuration)
                counts[configuration, outcome] += 1
                if outcome != "ok":
                    line = {"seed": seed, "configuration": configuration, "outcome": outcome, "why": why}
                    print(json.dumps(line), file=out, flush=True)
    worker.close()
    outcomes = sorted({outcome for _, outcome in counts})
    print("| configuration |", " | ".join(outcomes), "|")
    for configuration in dict.fromkeys(name for name, _ in counts):
        print("|", configuration, "|", " | ".join(str(counts[configuration, o]) for o in outcomes), "|")
    return int(any(outcome not in ("ok", "skipped") for outcome in outcomes))


class Worker:
    """A process that checks models, and is replaced if it ends or takes too long.

    Args:
        file: The script whose function `checked` does it.
        given: Keyword arguments for every call.
    """

    def __init__(self, file: str, **given: object):
        self._tool, self._given = Tool.start(file, title="the check", timeout=SECONDS), given

    def __call__(self, **task: object) -> tuple[str, str]:
        """Return outcome and explanation for one task, such as a seed."""
        try:
            outcome, why = self._tool.ask("checked", **self._given, **task)
        except ToolEndedError as error:
            return "timeout" if error.is_late else "crash", error.message
        return outcome, why

    def close(self) -> None:
        """End the process."""
        self._tool.close()


@functools.cache
def _plugins():
    import dovetail

    return dovetail.load_plugins()


@functools.lru_cache(1)
def _known(seed: int, single: tuple[str, ...], rare: bool):
    """Return the model of a seed with its outputs, or why there is none."""
    from random_graphs import random_model
    from random_graphs.checking import truth

    try:
        return truth(*random_model(seed, single, rare))
    except Exception as error:  # nothing fits, or ONNX Runtime, the reference, cannot run it
        return str(error)


def checked(seed: int, configuration: str, operators: list[str], single: bool, rare: bool, minimize: str) -> list[str]:
    """Return outcome and explanation for one model and configuration; `engine` is the engine alone."""
    from random_graphs import OPERATORS
    from random_graphs.checking import check, check_engine
    from random_graphs.minimizer import minimized

    names = tuple(operators or OPERATORS)
    known = _known(seed, names[seed % len(names) :][:1] if single else (), rare)
    if isinstance(known, str):
        return ["skipped", known[:300]]

    def again(one):
        if configuration == ENGINE:
            return check_engine(one, _plugins().registry.engine["openvino-cpu"]())
        return check(one, configuration, seed, _plugins())

    outcome, why = again(known)
    if outcome == "wrong" and minimize:
        small = minimized(known, lambda one: again(one)[0] == outcome)
        save(small, Path(minimize) / f"seed{seed}_{configuration}")
    return [outcome, why[:300]]


def save(known, path: Path) -> None:
    """Write a model and its inputs."""
    import numpy as np
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(known.model, path.with_suffix(".onnx"))
    np.savez(path.with_suffix(".npz"), **known.feeds)


if __name__ == "__main__":
    raise SystemExit(main())
