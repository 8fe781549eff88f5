"""Does a refactoring change any plan, remark or file? Compile the same requests with two installations, and compare.

    python bench/unchanged.py FOLDER ... --before PYTHON

Every ONNX file in the folders is compiled for combinations of backends, with the `.npz` file of the same name as data
if there is one. `--before` is the interpreter of an environment with an earlier state. Plans, remarks and files must be
equal byte by byte; metadata of a model that names the installation is left out. Remarks name lines of backend files, so
an edit of these shows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dovetail
import onnx

REQUESTS: tuple[tuple[list[str], dict[str, Any]], ...] = (
    (["gpu-fp16"], {}),
    (["cpu-bf16"], {}),
    (["cpu-int8"], {}),
    (["bpu-int8", "cpu-bf16"], {}),
    (["ppl-int8", "gpu-fp16"], {}),
    (["tensorrt", "cpu-bf16"], {}),
    (["tensorrt:precision=int8", "gpu-fp16"], {}),
    (["gpu-fp16", "cpu-int8"], {"solver": "min-cut"}),
    (["cpu-bf16"], {"solver": "fixpoint", "keep_io_types": False}),
)
_OF_THE_INSTALLATION = ("plan.yaml", "result.json")  # with digests; the text of the plan is compared


def digests(folder: Path) -> dict[str, str]:
    """The digests of the files of a result."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name in _OF_THE_INSTALLATION:
            continue
        content = path.read_bytes()
        if path.suffix == ".onnx":
            model = onnx.load_model_from_string(content)
            del model.metadata_props[:]
            content = model.SerializeToString(deterministic=True)
        found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def compiled(path: Path, backends: list[str], request: dict[str, Any]) -> dict[str, Any]:
    """What one compilation gives, as data."""
    data = path.with_suffix(".npz")
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = dovetail.compile(path, backends, data=data if data.exists() else None, **request)
            plan = dovetail.plan_text(made.plan)
            made.save(Path(folder) / "result")
        except dovetail.DovetailError as error:
            return {"error": str(error).replace(folder, "")}
        return {"plan": plan, "remarks": list(map(str, made.remarks)), "files": digests(Path(folder) / "result")}


def rows(folders: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Compile everything, each with its name."""
    for path in sorted(file for folder in folders for file in folder.rglob("*.onnx")):
        for backends, request in REQUESTS:
            yield f"{path.name} {','.join(backends)} {' '.join(request)}".rstrip(), compiled(path, backends, request)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--before", type=Path, help="the interpreter of an environment with another state")
    options = parser.parse_args()
    if options.before is None:
        for row in rows(options.folders):
            print(json.dumps(row, sort_keys=True), flush=True)
        return 0
    texts = [
        subprocess.run(
            [python, __file__, *map(str, options.folders)], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": "0", "PATH": str(Path(python).parent)},
        ).stdout
        for python in (options.before, sys.executable)
    ]  # fmt: skip
    before, after = (dict(map(json.loads, text.splitlines())) for text in texts)
    differing = [name for name in before if before[name] != after.get(name)]
    for name in differing:
        now = after.get(name, {})
        print(f"{name}: {', '.join(part for part in before[name] if before[name][part] != now.get(part))}")
    print(f"{len(before)} compilations, {len(differing)} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
