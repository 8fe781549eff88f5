"""Wheels for a machine without network: made here, cut into parts, joined and installed there."""

from __future__ import annotations

import hashlib
import json
import re
import site
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from gpu_parts.device_code import slim

ROOT = Path(__file__).parents[2]
MANIFEST = "parts.json"
WANTED = ("numpy", "onnx", "onnxruntime", "onnxruntime-ep-webgpu", "pytest")
ON_NVIDIA = ("onnxruntime-gpu", "onnxruntime-ep-nv-tensorrt-rtx")


def make(
    folder: Path, parts: int, python: str, more: list[str] | None, there: list[str] | None = None, architecture: int = 0
) -> None:
    """Download and build wheels into a folder; with `parts`, cut an archive of them into parts of so many bytes.

    Args:
        folder: Where they go.
        parts: The size of a part in bytes; 0 for none.
        python: The version of Python there, such as `3.12`.
        more: Further requirements, such as those of providers for NVIDIA's GPUs; one that is not found is left out.
        there: Packages that the machine has already.
        architecture: The compute capability of its GPU, such as 90, to leave out the device code of others; 0 for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    distributions = [
        path.parent for path in sorted(ROOT.glob("*/pyproject.toml")) + sorted(ROOT.glob("*/*/pyproject.toml"))
    ]
    distributions = [
        path for path in distributions if path.parts[-2] in ("plugins", "backends") or path.name in ("core", "schemas")
    ]
    _pip("wheel", "-q", "--no-deps", "-w", str(folder), *map(str, distributions))
    needed = {*WANTED}
    for distribution in distributions:
        project = tomllib.loads((distribution / "pyproject.toml").read_text("utf-8"))["project"]
        needed |= {each for each in project.get("dependencies", ()) if not each.startswith("dovetail")}
    target = ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp"]
    for version in ("2_17", "2_27", "2_28", "2_34"):
        target += ["--platform", f"manylinux_{version}_x86_64"]
    _pip("download", "-q", "-d", str(folder), *target, "--platform", "manylinux2014_x86_64", *sorted(needed))
    for requirement in more or ():
        try:
            _pip("download", "-q", "--no-deps", "-d", str(folder), *target, requirement)
        except SystemExit as error:
            print(f"left out: {error}")
    for path in folder.glob("*.whl"):
        if _name(path) in (there or ()):
            path.unlink()
        elif architecture and any(path.name.startswith(each.replace("-", "_")) for each in ON_NVIDIA):
            slim(path, architecture)
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} wheels of {size / 1e6:.0f} MB in {folder}")
    if parts:
        _cut(folder, parts)


def _cut(folder: Path, size: int) -> None:
    archive = folder / "wheels.tar.xz"
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for path in sorted(folder.glob("*.whl")):
            tar.add(path, path.name)
            path.unlink()
    listed = []
    with archive.open("rb") as file:
        while piece := file.read(size):
            name = f"wheels.tar.xz.{len(listed):03d}"
            (folder / name).write_bytes(piece)
            listed.append({"name": name, "sha256": hashlib.sha256(piece).hexdigest()})
    archive.unlink()
    (folder / MANIFEST).write_text(json.dumps(listed, indent=1), "utf-8")
    print(f"{len(listed)} parts of {size / 1e6:.0f} MB at most; there: python bench/gpu.py --from-wheels {folder.name}")


def install(folder: Path, environment: Path) -> Path:
    """Join the parts of a folder if it has some, and install its wheels into a new environment; return its Python.

    Raises:
        SystemExit: A part is missing or damaged, or pip fails.
    """
    manifest = folder / MANIFEST
    wheels = folder
    if manifest.is_file():
        wheels = environment.with_name(f"{environment.name}-wheels")
        wheels.mkdir(parents=True, exist_ok=True)
        archive = wheels / "wheels.tar.xz"
        with archive.open("wb") as file:
            for part in json.loads(manifest.read_text("utf-8")):
                path = folder / part["name"]
                data = path.read_bytes() if path.is_file() else b""
                if hashlib.sha256(data).hexdigest() != part["sha256"]:
                    raise SystemExit(f"{path} is {'damaged' if data else 'missing'}: bring it here again")
                file.write(data)
        with tarfile.open(archive) as tar:
            tar.extractall(wheels, filter="data")
        archive.unlink()
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(environment)], check=True)
    _see_packages_of_this_environment(environment)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    names = sorted({_name(path) for path in wheels.glob("*.whl")})
    gpu = "onnxruntime-gpu" in names  # it has the modules of onnxruntime
    names = [name for name in names if not (gpu and name == "onnxruntime")]
    command = [str(python), "-m", "pip", "install", "-q", "--no-index", "--find-links", str(wheels)]
    done = subprocess.run([*command, "--no-deps", *names], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pip fails: {done.stderr.strip().splitlines()[-1]}")
    return python


def _see_packages_of_this_environment(environment: Path) -> None:
    """Let an environment see the packages of this one, whose own `--system-site-packages` are those of its base.

    ONNX Runtime looks for CUDA's libraries beside itself, where PyTorch did not put them.
    """
    here = [Path(each) for each in site.getsitepackages() if Path(each).is_dir()]
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "beside.pth").write_text("".join(f"{each}\n" for each in here), "utf-8")
    for nvidia in (each / "nvidia" for each in here if (each / "nvidia").is_dir()):
        (packages / "nvidia").symlink_to(nvidia)
        break


def _name(wheel: Path) -> str:
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()


def _pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip fails"]
        raise SystemExit(f"{arguments[-1]}: {lines[-1]}")
