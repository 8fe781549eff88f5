"""Whether one request gives one plan on several kinds of CPU: `python bench/machines.py PYTHON [PYTHON ...]`.

The first interpreter's plans are compared with those of the others, which run on other machines or emulated CPUs
(`.ci/emulated VENV FOLDER [CPU]` makes one). Every interpreter compiles five small nets for all backends, with goals
where integers or 16-bit floats are, and prints what `dovetail diff` finds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
REQUESTS = {
    "cpu-bf16": ("cpu-bf16", {"min_snr": 45}),
    "cpu-int8": ("cpu-int8", {}),
    "cpu-int8 with a goal": ("cpu-int8", {"min_snr": 35}),
    "gpu-fp16": ("gpu-fp16", {"min_snr": 70, "target_only": True}),
    "ppl-int8": ("ppl-int8", {"min_snr": 30}),
    "bpu-int8": ("bpu-int8:march=bayes", {"target_only": True}),
    "qnn": ("qnn", {"min_snr": 30, "target_only": True}),
    "integers, then floats": (("cpu-int8", "cpu-bf16"), {"min_snr": 40}),
}


def nets():
    """Five nets by name, each with samples."""
    from dovetail_builder import Builder

    rng = np.random.default_rng(0)

    def weight(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def built(make, *extents):
        builder = Builder()
        builder.output(make(builder, builder.input("x", "float32", [1, *extents])), "y")
        return builder.model(), {"x": rng.standard_normal((48, *extents)).astype(np.float32)}

    def conv(b, x):
        x = b.Relu(b.Conv(x, b.constant(weight(8, 3, 3, 3)), b.constant(weight(8)), pads=[1, 1, 1, 1]))
        x = b.Relu(b.Conv(x, b.constant(weight(8, 1, 3, 3)), group=8, pads=[1, 1, 1, 1]))
        x = b.Add(x, b.Conv(x, b.constant(weight(8, 8, 1, 1))))
        return b.Gemm(b.Flatten(b.GlobalAveragePool(x)), b.constant(weight(8, 5)))

    def steep(b, x):
        for _ in range(3):
            x = b.Tanh(b.MatMul(x, b.constant(weight(16, 16) * 10.0 ** rng.uniform(-1, 1, 16).astype(np.float32))))
        return b.Softmax(b.MatMul(x, b.constant(weight(16, 10))))

    def attention(b, x):
        q, k, v = (b.MatMul(x, b.constant(weight(16, 16))) for _ in range(3))
        x = b.Add(x, b.MatMul(b.Softmax(b.MatMul(q, b.Transpose(k, perm=[0, 2, 1]))), v))
        return b.MatMul(b.Gelu(b.MatMul(x, b.constant(weight(16, 32)))), b.constant(weight(32, 16)))

    def gated(b, x):
        x = b.Mul(x, b.Sigmoid(b.Conv(x, b.constant(weight(3, 3, 1, 1)))))
        return b.Concat(b.MaxPool(x, kernel_shape=[2, 2]), b.AveragePool(x, kernel_shape=[2, 2]), axis=1)

    import dovetail

    digits = {"image": np.load(DIGITS / "test.npz")["image"][:64]}
    yield "digits", dovetail.open(DIGITS / "digits.onnx"), digits
    for make, extents in ((conv, (3, 8, 8)), (steep, (16,)), (attention, (6, 16)), (gated, (3, 8, 8))):
        yield make.__name__, *built(make, *extents)


def compile_all(folder: Path) -> None:
    """Save the plan of every request, or its error."""
    import dovetail

    for name, model, data in nets():
        for request, (backends, how) in REQUESTS.items():
            more = {"fix_shapes": "data"} if name != "digits" else {"fix_shapes": {"image": [1, 1, 8, 8]}}
            try:
                compiled = dovetail.compile(model, backends, data=data, **more, **how)
            except dovetail.ResultError as error:
                compiled = error.compiled
            except dovetail.DovetailError as error:
                (folder / f"{name}, {request}.txt").write_text(error.message)
                continue
            compiled.plan.save(folder / f"{name}, {request}.yaml")
            print(name, request, compiled.summary(), flush=True)


def _plans(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".yaml", ".txt"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.into is not None:
        compile_all(args.into)
        return
    import dovetail
    from dovetail_testing.kit.differences import differences

    plugins = dovetail.load_plugins()
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / str(number) for number in range(len(args.python))]
        for python, folder in zip(args.python, folders):
            folder.mkdir()
            subprocess.run([python, __file__, "--into", str(folder)], check=True)
        first = _plans(folders[0])
        for python, folder in zip(args.python[1:], folders[1:]):
            other = _plans(folder)
            changed = [name for name in {*first, *other} if name not in first or name not in other]
            for name in first:
                if name in changed:
                    continue
                if name.endswith(".txt"):
                    found = [] if (folders[0] / name).read_text() == (folder / name).read_text() else ["another error"]
                else:
                    found = differences(str(folders[0] / name), str(folder / name), plugins)[1]
                if found:
                    changed.append(name)
                    print(f"{name}: {found[0]}", flush=True)
            print(f"{python}: {len(first)} requests, {len(changed)} differ: {', '.join(sorted(changed)) or 'none'}")


if __name__ == "__main__":
    main()
