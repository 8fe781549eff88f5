"""bpu-int8 in integers (`arithmetic: integers`), between conversions, and in float32: accuracy and time.

    python bench/integers.py --wheels FOLDER [--nets NAME ...] [--march bayes] [--repeat 20]

The nets and their inputs are those of `trained.py`; half of the inputs calibrate (16 at most), the others are judged.
Open extents are those of the first input. The first table has a row per float output: SNR against float32 of both
forms, and of each other. The second has a row per net: nodes on the BPU and how many of them compute floats in the
integer form; milliseconds of `CompiledModel.run` in float32, between conversions and in integers, the least of
alternating runs, and the median of their ratios.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path

import dovetail
import numpy as np
from dovetail.plugin import load_plugins
from int8 import BY_NAME
from measure import table
from trained_nets import candidates, judging
from trained_nets.wheels import Wheels

NETS = ("digits", "page orientation", "NudeNet 320n", "malware as pictures", "speech embedding")
CALIBRATED_ON = 16


def measured(name: str, options: argparse.Namespace) -> tuple[list[dict], dict]:
    """The rows of one net."""
    net, wheels = BY_NAME[name], Wheels(options.wheels)
    model = wheels.file(net.wheel, net.path) if net.wheel else Path(net.path)
    streams = net.streams(wheels)
    shapes = {key: list(array.shape) for key, array in streams[0][0].items()}
    streams = [
        stream for stream in streams if all(list(feeds[key].shape) == shapes[key] for feeds in stream for key in shapes)
    ]
    float32 = candidates.onnxruntime_float32(model)
    test, others = streams[0::2], streams[1::2]
    expected = judging.computed(float32.run, test, net.carried)
    data = [feeds for stream in others for feeds in stream]
    data = data[:: max(1, len(data) // CALIBRATED_ON)][:CALIBRATED_ON]
    forms, seconds = {}, {}
    for form in ("conversions", "integers"):
        plugins = load_plugins()
        if form == "conversions":
            plugins.registry.pass_.drop("integer-arithmetic")
        start = time.perf_counter()
        forms[form] = dovetail.compile(
            model, f"bpu-int8:march={options.march}", data=data, fix_shapes=shapes, plugins=plugins
        )
        seconds[form] = time.perf_counter() - start
    found = {form: judging.computed(result.run, test, net.carried) for form, result in forms.items()}
    against = {form: judging.qualities(expected, each) for form, each in found.items()}
    beside = judging.qualities(found["conversions"], found["integers"])
    rows = [
        {"net": name, "output": output[:16], "inputs": len(test),
         **{f"{form} dB": f"{each[output].difference.snr_db:.1f}" for form, each in against.items()},
         "of each other dB": f"{beside[output].difference.snr_db:.1f}"}
        for output in beside
    ]  # fmt: skip
    return rows, speed(name, forms, seconds, float32, test[0][0], options)


def speed(name, forms, seconds, float32, feeds, options) -> dict:
    nodes = [node for node in forms["integers"].plan.nodes if node.backend == "bpu-int8"]
    remarks = forms["integers"].remarks
    left = {remark.node for remark in remarks if remark.rule == "computed-in-floats"}
    base = forms["conversions"].run
    plain, _, _ = judging.paired(float32.run, base, feeds, options.repeat, time.perf_counter)
    integers, between, ratio = judging.paired(forms["integers"].run, base, feeds, options.repeat, time.perf_counter)
    return {
        "net": name, "on the BPU": len(nodes), "in floats": len(left), "compile s": f"{seconds['integers']:.1f}",
        "without the pass s": f"{seconds['conversions']:.1f}", "float32 ms": plain * 1e3,
        "conversions ms": between * 1e3, "integers ms": integers * 1e3, "integers / conversions": f"{ratio:.2f}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--nets", nargs="*", default=list(NETS), metavar="NAME", choices=BY_NAME)
    parser.add_argument("--march", default="bayes")
    parser.add_argument("--repeat", type=int, default=20, help="rounds of each pair")
    options = parser.parse_args()
    np.seterr(all="ignore")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        results = [pool.apply(measured, (name, options)) for name in options.nets]
    table([row for rows, _ in results for row in rows])
    print()
    table([row for _, row in results])


if __name__ == "__main__":
    main()
