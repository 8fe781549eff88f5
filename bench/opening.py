"""What checking a source model costs: opening a large model with the check and without, and building its graph.

    python bench/opening.py [--nodes 100000] [--repeat 5]

The model is that of `growth.py`. Times are CPU seconds of this process, the smallest of the repetitions.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnx
from growth import build
from measure import table


def best(run: Callable[[], object], repeat: int) -> float:
    """The smallest CPU time of `run`."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    from dovetail_onnx import opening
    from dovetail_onnx.opening import open_model

    check = opening.check_source
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        onnx.save(build(options.nodes), str(path))
        for what, run in (
            ("open", lambda: open_model(path)),
            ("open and build the graph", lambda: open_model(path).graph),
        ):
            with_check = best(run, options.repeat)
            opening.check_source = lambda *_: None
            without = best(run, options.repeat)
            opening.check_source = check
            rows.append({"step": what, "checked": with_check, "unchecked": without, "ratio": with_check / without})
    table(rows)


if __name__ == "__main__":
    main()
