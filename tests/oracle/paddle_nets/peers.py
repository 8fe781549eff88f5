"""What other converters make of the nets: `peers.json`.

    PYTHON peers.py FOLDER          # FOLDER as `make_nets.py` wrote it

PYTHON is the interpreter of an environment with `paddle2onnx` (and `paddlepaddle`, which it needs), `p2o` and
`onnxruntime`. Each conversion has a process of its own, since some abort. A translation agrees if ONNX Runtime computes
what Paddle did, within 1e-5 of the largest value (2e-3 where there is float16); `error` is the largest difference as
a share of it. paddle2onnx may choose opset 17 or 20.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PADDLE2ONNX = """
import sys, paddle2onnx
paddle2onnx.export(sys.argv[1], sys.argv[2], sys.argv[3], opset_version=int(sys.argv[4]), verbose=False)
"""
SECONDS = 120
COLOR = re.compile(r"\x1b\[[0-9;]*m")
DATE = re.compile(r"^[-0-9]+ [:0-9]+ ")
TOLD = re.compile(r"^Error: |\tFailed to|Unsupported|not supported|\[ERROR\].*(?!abort)")


def recorded(program: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The inputs by name, and the outputs in order."""
    with np.load(program.parent / "io.npz") as arrays:
        inputs = {name.removeprefix("in:"): arrays[name] for name in arrays.files if name.startswith("in:")}
    with np.load(program.parent / ("io.npz" if program.suffix == ".json" else "legacy.npz")) as arrays:
        return inputs, [arrays[f"out:{at}"] for at in range(sum(name.startswith("out:") for name in arrays.files))]


def converted(commands: list[list[str]], target: Path) -> str:
    """Try the commands until one writes the model; return what the last one said of its failure."""
    said = ""
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            said = f"no result after {SECONDS} s"
            continue
        if target.exists() and target.stat().st_size:
            return ""
        lines = [COLOR.sub("", line).strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = [line for line in lines if TOLD.search(line)]
        said = (told or lines or [f"exit status {done.returncode}"])[0 if told else -1][-160:]
    return DATE.sub("", said)


def judged(model: Path, program: Path) -> dict:
    """Whether a model computes what Paddle did."""
    import onnxruntime

    inputs, expected = recorded(program)
    try:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        known = {given.name for given in session.get_inputs()}
        found = session.run(None, {name: array for name, array in inputs.items() if name in known})
    except Exception as error:
        return {"agrees": False, "refused by ONNX Runtime": " ".join(str(error).split())[-160:]}
    if len(found) != len(expected):
        return {"agrees": False, "outputs": f"{len(found)} instead of {len(expected)}"}
    share = 2e-3 if any(array.dtype == np.float16 for array in expected) else 1e-5
    worst = 0.0
    for array, wanted in zip(found, expected):
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            was = f"{array.dtype}{list(array.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
            return {"agrees": False, "outputs": was}
        finite = np.isfinite(wanted) if wanted.dtype.kind == "f" else np.ones(wanted.shape, bool)
        if not np.array_equal(array[~finite], wanted[~finite], equal_nan=True):
            return {"agrees": False, "outputs": "differ where Paddle's are not finite"}
        most = max(np.abs(wanted[finite].astype(np.float64)).max(initial=0), 1e-3)
        worst = max(worst, np.abs(array[finite].astype(np.float64) - wanted[finite]).max(initial=0) / most)
    return {"agrees": bool(worst <= share), "error": float(f"{worst:.1e}")}


def main() -> None:
    folder = Path(sys.argv[1])
    results: dict[str, dict] = {}
    for program in sorted([*folder.glob("*/net.json"), *folder.glob("*/legacy.pdmodel")]):
        parameters = program.with_suffix(".pdiparams")
        row = results[str(program.relative_to(folder))] = {}
        with tempfile.TemporaryDirectory() as scratch:
            for peer in ("paddle2onnx", "p2o"):
                target = Path(scratch, f"{peer}.onnx")
                if peer == "p2o":
                    tool = Path(sys.executable).with_name("p2o")
                    given = parameters if parameters.exists() else Path(scratch, "none.pdiparams")
                    if given != parameters:
                        given.touch()  # p2o wants a file where there are no parameters, too
                    commands = [[str(tool), str(program), str(given), str(target)]]
                else:
                    start = [sys.executable, "-c", PADDLE2ONNX, str(program)]
                    given = str(parameters) if parameters.exists() else ""
                    commands = [[*start, given, str(target), opset] for opset in ("17", "20")]
                said = converted(commands, target)
                row[peer] = (
                    {"translated": False, "said": said} if said else {"translated": True, **judged(target, program)}
                )
        print(program.relative_to(folder), {peer: made.get("agrees", False) for peer, made in row.items()}, flush=True)
    counts = {
        form: {
            peer: sum(made[peer].get("agrees", False) for name, made in results.items() if name.endswith(form))
            for peer in ("paddle2onnx", "p2o")
        }
        | {"programs": sum(name.endswith(form) for name in results)}
        for form in (".json", ".pdmodel")
    }
    text = json.dumps({"agree": counts, "programs": results}, indent=1).replace(str(folder), "FOLDER")
    (HERE / "peers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
