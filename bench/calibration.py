"""What measuring ranges takes per batch, as a ratio to one run of the model by ONNX Runtime on the same batch.

    python bench/calibration.py model.onnx --shape 64x2048 --rounds 3

The time of a batch is the difference between planning with five batches and with one, so that loading does not count.
"""

import argparse
import time

import dovetail
import numpy as np
import onnxruntime
from dovetail_verify.random_inputs import random_shapes

FEW, MANY = 1, 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--shape", help="shape of the first input, 1x3x736x736")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    feeds = inputs(args.model, args.shape)
    session = onnxruntime.InferenceSession(args.model)
    session.run(None, feeds)
    runs, batches = [], []
    for _ in range(args.rounds):
        runs.append(seconds(lambda: session.run(None, feeds)))
        few, many = (seconds(lambda n=n: plan(args.model, feeds, n)) for n in (FEW, MANY))
        batches.append((many - few) / (MANY - FEW))
        runs.append(seconds(lambda: session.run(None, feeds)))
    run, batch = min(runs), min(batches)
    print(f"one run {run:.3f} s, one batch measured {batch:.3f} s, ratio {batch / run:.2f}")


def inputs(path, shape):
    """Random inputs; integers below 256, as bytes are."""
    given = list(dovetail.open(path).graph.inputs)
    wanted = {given[0].name: tuple(map(int, shape.split("x")))} if shape else {}
    rng, feeds = np.random.default_rng(0), {}
    for value in given:
        extents = random_shapes(given, wanted)[value.name]
        floats = value.dtype.is_floating_point()
        array = rng.standard_normal(extents) if floats else rng.integers(0, 256, extents)
        feeds[value.name] = array.astype(value.dtype.numpy())
    return feeds


def plan(path, feeds, batches):
    dovetail.plan(path, "gpu-fp16", data=[feeds] * batches)


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
