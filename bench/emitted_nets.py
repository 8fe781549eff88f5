"""Files that emitters write for trained nets, executed from the files alone and compared with the plan's result.

    python bench/emitted_nets.py --wheels FOLDER [--nets NAME ...] [--only ppl-int8,tensorrt]

The nets and their inputs are those of `trained.py`; one input calibrates, and is what files and result compute.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TextIO

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

BACKENDS = ("acme-int8", "acme-aot", "ppl-int8:strategy=conservative", "bpu-int8:arithmetic=floats", "tensorrt")


def work(folder: Path, backends: list[str], name: str, out: TextIO) -> None:
    """Try one net, and write a line of JSON."""
    import onnx
    from dovetail.errors import DovetailError
    from e2e.emitted_comparison import differences
    from property.grown_trial import plugins_with_examples
    from trained_nets.wheels import Wheels

    plugins, found = plugins_with_examples(), {}
    net, wheels = _nets()[name], Wheels(folder.absolute())
    feeds = net.streams(wheels)[0][0]
    model = onnx.load(wheels.root(net.wheel) / net.path)
    for backend in backends:
        with tempfile.TemporaryDirectory() as place:
            try:
                wrong = differences(backend, model, feeds, plugins, Path(place, "out"), close=True, fix_shapes="data")
                emitted = any(Path(place, "out", "artifacts").glob("*/*"))
                found[backend] = [f"other: {wrong}" if wrong else "equal" if emitted else "no file"]
            except DovetailError as error:
                found[backend] = ["refused", str(error)]
            except Exception as error:
                found[backend] = ["fails", f"{type(error).__name__}: {error}"[:400]]
    print(json.dumps({"seed": name, "kind": "done", "found": found}), file=out, flush=True)


def _nets() -> dict:
    from trained_nets.catalog import NETS as TRAINED

    return {net.name: net for net in TRAINED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--only", default=",".join(BACKENDS), help="backends")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a net hangs")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        folder, backends, *names = options.worker
        out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no line of the table
        for name in names:
            work(Path(folder), backends.split(","), name, out)
        return
    from watched import run_watched

    backends = options.only.split(",")
    print(f"| net | {' | '.join(backends)} |\n|---|{'---|' * len(backends)}", flush=True)

    def report(line: dict) -> None:
        found = line.get("found", {})
        cells = [found[each][0] if each in found else line["kind"] for each in backends]
        print(f"| {line['seed']} | {' | '.join(cells)} |", flush=True)
        for each in (f"{backend}: {said}" for backend, (kind, *rest) in found.items() for said in rest):
            print(f"{line['seed']}: {each}", file=sys.stderr, flush=True)

    words = [str(options.wheels), options.only]
    run_watched(__file__, words, options.nets or list(_nets()), 1, options.limit, report)


if __name__ == "__main__":
    main()
