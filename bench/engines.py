"""Compiling a model into a TensorRT engine, against what TensorRT itself takes to parse and build the original file.

    python bench/engines.py MODEL [--data FILE.npz] [--backend tensorrt] [--rounds 3]

The floor is TensorRT alone: parser and builder on the float32 file, with the same profile, in a process of its own; and
the same on the region that we made, which has half of the bytes. Time is of the whole call, modules included; memory is
what no file stands behind. Nothing is taken from the cache of engines.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from measure import Peak, alone, median, table, timed


def ours(model: str, backend: str, data: str | None) -> dict:
    os.environ["DOVETAIL_ENGINE_CACHE"] = "off"
    import dovetail

    with Peak() as peak:
        compiled, seconds = timed(dovetail.compile, model, backend, data=data)
    with tempfile.TemporaryDirectory() as folder:
        compiled.save(folder)
        engines = [path.stat().st_size for path in Path(folder).rglob("engine.plan")]
    return {"seconds": seconds, "MiB": peak.bytes / 2**20, "engines": len(engines), "engine MiB": sum(engines) / 2**20}


def region_file(model: str, backend: str, data: str | None, path: str) -> dict:
    os.environ["DOVETAIL_ENGINE_CACHE"] = "off"
    import dovetail
    from dovetail_runtime.nested_graphs import inline_regions

    part = dovetail.compile(model, backend, data=data).model.clone()
    inline_regions(part)
    part.save(path)
    return {}


def tensorrt(path: str, data: str | None) -> dict:
    import numpy as np
    from dovetail_tensorrt.libraries import library

    feeds = dict(np.load(data)) if data else {}
    with Peak() as peak:
        size, seconds = timed(_built, path, feeds, library())
    return {"seconds": seconds, "MiB": peak.bytes / 2**20, "engines": 1, "engine MiB": size / 2**20}


def _built(path, feeds, found) -> int:
    trt = found.trt
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        raise SystemExit(f"{path}: {parser.get_error(0).desc()}")
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if -1 in tensor.shape:
            profile.set_shape(tensor.name, *[feeds[tensor.name].shape] * 3)
    config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config).nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--data")
    parser.add_argument("--backend", default="tensorrt")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        region = str(Path(folder) / "region.onnx")
        alone(region_file, args.model, args.backend, args.data, region)
        measured = {
            "dovetail": [alone(ours, args.model, args.backend, args.data) for _ in range(args.rounds)],
            "TensorRT on the original": [alone(tensorrt, args.model, args.data) for _ in range(args.rounds)],
            "TensorRT on our region": [alone(tensorrt, region, args.data) for _ in range(args.rounds)],
        }
    rows = {name: median(found) for name, found in measured.items()}
    floor = rows["TensorRT on the original"]
    table([
        {"": name, **row, "time": row["seconds"] / floor["seconds"], "memory": row["MiB"] / floor["MiB"]}
        for name, row in rows.items()
    ])  # fmt: skip


if __name__ == "__main__":
    main()
