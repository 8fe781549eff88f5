"""What nncase's simulator of the K230 computes, beside the plan that ONNX Runtime executes, and what the cache saves.

    DOVETAIL_K230_ENV=ENVIRONMENT python bench/k230.py [NET ...]

The nets are the digits and those of the conformance suite. The first figure is the SNR of the simulator against the
plan, over twelve inputs; the second that of the worst region alone (`dovetail verify --programs`); then the seconds of
a compilation, and of the same one in the next program, which takes the programs from the user's cache.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dovetail
import numpy as np
import onnxruntime
from dovetail_onnx import ARTIFACTS
from dovetail_testing.model_cases import model_cases

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
INPUTS = 12


def nets(plugins: Any) -> Iterator[tuple[str, Any, list[dict[str, np.ndarray]], dict[str, Any]]]:
    """Yield nets with inputs, and keywords of `compile`."""
    images = np.load(DIGITS / "test.npz")["image"][:INPUTS]
    fixed = {"fix_shapes": {"image": (1, 1, 8, 8)}}
    yield "digits", DIGITS / "digits.onnx", [{"image": image[None]} for image in images], fixed
    generator = np.random.default_rng(3)
    for case in model_cases(None):
        made = case.make(plugins)
        given = made.inputs.items()
        feeds = [{name: other(array, generator) for name, array in given} for _ in range(INPUTS)]
        yield case.name, made.proto or made.model, feeds, {}


def other(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return numbers of the same spread; integers and truth values stay."""
    if array.dtype.kind != "f":
        return array
    return (generator.standard_normal(array.shape) * array.std() + array.mean()).astype(array.dtype)


def main() -> None:
    plugins = dovetail.load_plugins()
    print("| net | simulator against plan | worst region alone | nodes | compiled | again |\n|---|---|---|---|---|---|")
    for name, model, feeds, keywords in nets(plugins):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        seconds = []
        with tempfile.TemporaryDirectory() as folder:
            os.environ[ARTIFACTS.variable] = str(Path(folder) / "cache")
            for _ in range(2):
                began = time.monotonic()
                compiled = dovetail.compile(model, "k230", data=feeds, verify=False, plugins=plugins, **keywords)
                seconds.append(time.monotonic() - began)
            compiled.save(Path(folder) / "out")
            plan = onnxruntime.InferenceSession(Path(folder) / "out" / "model.onnx")
            output = plan.get_outputs()[0].name
            expected = np.concatenate([plan.run([output], one)[0] for one in feeds]).astype(np.float64)
            found = np.concatenate([compiled.run(one)[output] for one in feeds])
            alone = dovetail.program_errors(model, Path(folder) / "out", feeds, plugins=plugins).worst.snr_db
        noise = ((expected - found) ** 2).sum()
        snr = 10 * np.log10((expected**2).sum() / noise) if noise else float("inf")
        where = compiled.coverage().partition(",")[0]
        took = f"{seconds[0]:.1f} s | {seconds[1]:.1f} s"
        print(f"| {name} | {snr:.1f} dB | {alone:.1f} dB | {where} | {took} |", flush=True)


if __name__ == "__main__":
    main()
