"""Public converters to narrow floats on the same models as ours: Casts, SNR, seconds and memory, in one run.

    python bench/peers.py MODEL... [--bfloat16] [--low-io] [--no-snr] [--tools NAME ...]
                          [--python modelopt=PYTHON] [--limit SECONDS] [--json]

Tables of tools by models: `CASTS @ SNR`, with a star where onnx's checker (with types) refuses the result, and seconds.

Each tool has its defaults and runs in a process of its own; one that is not installed, here or in the environment that
`--python` gives for its package, is left out, and so is one that has no such conversion. `casts` counts bodies too. SNR
is that of the worst float output against the original, both run whole by ONNX Runtime's CPU provider, on `MODEL.npz`
where that is there and else on random inputs; `does not load` is what ONNX Runtime says of the result. It computes
float16 in float32, and rounds what it keeps; bfloat16 it does not compute, so there every bfloat16 value is rounded by
a pair of casts (see `emulate.py`). Seconds are those from the opened model on, after a first conversion of a model of
one node in the same process. Saving is not counted, but for ours: it converts while it saves. `--json` prints rows
instead, with the largest resident memory of the process; what is mapped from files is in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from converters import TOOLS, Wanted, installed
from measure import alone, table

# Run by the interpreter of the tool: a first conversion to import everything, then the one that counts.
CHILD = """
import json, resource, sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from converters import TOOLS, Wanted
convert, wanted = TOOLS[{tool!r}].convert, {wanted!r}
try:
    convert(Path({first!r}), Path({target!r}), wanted)
except Exception:
    pass
try:
    row = {{"convert s": convert(Path({source!r}), Path({target!r}), wanted)}}
except Exception as error:
    row = {{"error": (str(error).strip() or type(error).__name__).partition(chr(10))[0]}}
row["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print("ROW" + json.dumps(row))
"""
FIRST = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x) => (float[2,2] y) { y = MatMul (x, x) }'


def measured(tool: str, python: str, source: Path, wanted: Wanted, limit: float, runs: bool = True) -> dict:
    """One row: a tool on a model."""
    row = {"model": source.stem, "tool": tool, "casts": "", "SNR dB": "", "checker": "", "convert s": "", "peak MB": ""}
    with tempfile.TemporaryDirectory() as folder:
        target, first = Path(folder, "model.onnx"), Path(folder, "first.onnx")
        alone(_write_first, first)
        here = str(Path(__file__).parent)
        paths = {"folder": here, "first": str(first), "source": str(source), "target": str(target)}
        code = CHILD.format(tool=tool, wanted=wanted, **paths)
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return row | {"SNR dB": f"not done in {limit:.0f} s"}
        said = next((line[3:] for line in done.stdout.splitlines() if line.startswith("ROW")), None)
        if said is None:
            return row | {"SNR dB": f"ends with code {done.returncode}"}
        row |= json.loads(said)
        if "error" in row:
            return row | {"SNR dB": f"fails: {row.pop('error')[:80].replace('|', '/')}"}
        return row | alone(judged, source, target, runs)


def _write_first(path: Path) -> dict:
    import onnx.parser

    onnx.save(onnx.parser.parse_model(FIRST), path)
    return {}


def judged(source: Path, target: Path, runs: bool) -> dict:
    """What a result is worth; without running it if that would take too long."""
    import onnx

    nodes = _nodes(onnx.load(target, load_external_data=False).graph)
    row = {"casts": sum(node.op_type == "Cast" for node in nodes), "checker": "ok"}
    try:
        onnx.checker.check_model(target, full_check=True)
    except Exception:
        row["checker"] = "refuses"
    return row | {"SNR dB": _snr(source, target) if runs else ""}


def _snr(source: Path, target: Path) -> float | str:
    import dovetail
    import numpy as np
    import onnxruntime
    from dovetail_runtime.data.batches import fitted
    from dovetail_verify.compare import verify

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    result = dovetail.open(target)
    sessions = []
    for path in (source, target):
        try:
            content = _emulated(path) if path == target else str(path)
            sessions.append(onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]))
        except Exception:
            return "does not load" if path == target else "the original does not load"
    names = [output.name for output in sessions[0].get_outputs()]

    def original(feeds):
        return dict(zip(names, sessions[0].run(names, feeds), strict=True))

    def converted(feeds):
        given = fitted(result, feeds)
        plain = {name: a if a.dtype.isbuiltin == 1 else a.astype(np.float32) for name, a in given.items()}
        return dict(zip(names, sessions[1].run(names, plain), strict=True))

    data = source.with_suffix(".npz")
    try:
        return verify(dovetail.open(source), original, converted, data if data.exists() else None).worst_snr_db
    except Exception as error:
        return f"does not run: {str(error).strip().partition(chr(10))[0][:80].replace('|', '/')}"


def _emulated(path: Path) -> str:
    """The model itself, or, if it computes in bfloat16, one beside it in which that is rounded."""
    import onnx
    import onnx_ir as ir
    from emulate import emulate

    low, graph = onnx.TensorProto.BFLOAT16, onnx.load(path, load_external_data=False).graph
    casts = (attribute.i for node in _nodes(graph) for attribute in node.attribute if attribute.name == "to")
    if low not in {*casts, *(tensor.data_type for tensor in graph.initializer)}:
        return str(path)
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.load(path)))
    emulate(model, fused=False)
    beside = path.with_name("emulated.onnx")
    ir.save(model, beside)
    return str(beside)


def _nodes(graph) -> Iterator:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _nodes(body)


def print_tables(rows: list[dict]) -> None:
    """What tools give, and what they take, by model."""
    tools = dict.fromkeys(row["tool"] for row in rows)
    found = {(row["tool"], row["model"]): row for row in rows}
    models = dict.fromkeys(row["model"] for row in rows)
    for cell in (_worth, lambda row: row["convert s"]):
        table([{"tool": tool} | {model: cell(found[tool, model]) for model in models} for tool in tools])
        print()


def _worth(row: dict) -> str:
    if row["checker"] == "":
        return row["SNR dB"].partition(":")[0]
    snr = f" @ {row['SNR dB']:.1f}" if isinstance(row["SNR dB"], float) else f" {row['SNR dB']}".rstrip()
    return f"{row['casts']}{snr}{'' if row['checker'] == 'ok' else ' *'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--bfloat16", action="store_true", help="bfloat16 instead of float16")
    parser.add_argument("--low-io", action="store_true", help="inputs and outputs in the narrow type, too")
    parser.add_argument("--no-snr", action="store_true", help="do not run the results")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), metavar="NAME")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PYTHON")
    parser.add_argument("--limit", type=float, default=300, help="seconds that one conversion may take")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    elsewhere = dict(pair.split("=", 1) for pair in options.python)
    wanted = Wanted(options.bfloat16, options.low_io)
    tools = [tool for tool in options.tools if TOOLS[tool].can(wanted)]
    pythons = {tool: elsewhere.get(TOOLS[tool].module.partition(".")[0], sys.executable) for tool in tools}
    tools = [tool for tool in tools if installed(tool, pythons[tool])]
    rows = []
    for model in options.models:
        for tool in tools:
            rows.append(measured(tool, pythons[tool], model, wanted, options.limit, not options.no_snr))
            if options.json:
                print(json.dumps(rows[-1]), flush=True)
    if not options.json:
        print_tables(rows)


if __name__ == "__main__":
    main()
