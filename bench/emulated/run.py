"""Run models, or tests, on an emulated CPU with AMX: accuracy, executed precisions, instructions; it knows no times.

    python bench/emulated/run.py WORK BOCHS MODEL...
    python bench/emulated/run.py WORK BOCHS --tests tests/e2e/test_models.py

WORK is what `image.sh` wrote, BOCHS the checkout that `bochs.sh` built. SNR is against ONNX Runtime in float32 here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dovetail
import numpy as np
from dovetail_runtime.data.batches import batches
from dovetail_verify.random_inputs import random_batch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from measure import table  # noqa: E402
from run import onnxruntime_float32  # noqa: E402

CONFIG = """\
config_interface: textconfig
display_library: nogui
memory: guest={memory}, host={memory}
romimage: file={bios}/BIOS-bochs-latest
vgaromimage: file={bios}/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin
boot: cdrom
cpu: model=sapphire_rapids, count=1, ips=100000000, ignore_bad_msrs=1
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, path={root}, mode=flat
ata0-slave: type=disk, path={data}, mode=flat
ata1: enabled=1, ioaddr1=0x170, ioaddr2=0x370, irq=15
ata1-master: type=cdrom, path={disc}, status=inserted
com1: enabled=1, mode=file, dev={serial}
clock: sync=none, time0=utc
log: {log}
panic: action=report
error: action=report
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("bochs", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--tests", help="pytest's arguments instead of models")
    parser.add_argument("--memory", type=int, default=3072, help="MB of the emulated machine (3072)")
    options = parser.parse_intermixed_args()
    if options.tests:
        print(boot(options, _tests(options.tests)))
    for model in options.models:
        text = boot(options, _model(model))
        said = [json.loads(line.split("RESULT ", 1)[1]) for line in text.splitlines() if "RESULT " in line]
        if len(said) != 3:
            raise SystemExit(f"{model.name} did not end well:\n{text}")
        ours, executed, theirs = said
        table(
            [
                {
                    "model": model.stem,
                    "engine": row["engine"],
                    "SNR dB": " / ".join(f"{value:.2f}" for value in row["snr"].values()),
                    "million instructions": row["instructions"] / 1e6,
                }
                for row in (ours, theirs)
            ]
        )
        print(f"\nConv, Gemm and MatMul of {model.stem}: {executed['executed']}\n")


def boot(options: argparse.Namespace, data: Path) -> str:
    """What the machine printed that ran `data/run`; the folder is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / name for name in ("root", "data", "serial", "log", "config")}
        shutil.copy(options.work / "root.img", files["root"])
        megabytes = sum(file.stat().st_size for file in data.rglob("*")) // 900_000 + 64
        subprocess.run(["truncate", "-s", f"{megabytes}M", files["data"]], check=True)
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", data, files["data"]], check=True)
        shutil.rmtree(data)
        bios, disc = options.bochs / "bochs" / "bios", options.work / "boot.iso"
        files["config"].write_text(CONFIG.format(memory=options.memory, bios=bios, disc=disc, **files))
        subprocess.run(
            [options.bochs / "bochs" / "bochs", "-q", "-f", files["config"]],
            env={"BXSHARE": str(bios)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return files["serial"].read_text(errors="replace")


def _model(path: Path) -> Path:
    """A folder with the model, its result, inputs, and what ONNX Runtime computes from them."""
    folder = Path(tempfile.mkdtemp())
    shutil.copy(path, folder / "model.onnx")
    for weights in path.parent.glob(f"{path.name}.*"):
        shutil.copy(weights, folder)
    data = path.with_suffix(".npz")
    model = dovetail.open(path)
    feeds = next(batches(model, data))[0] if data.exists() else random_batch(model)
    np.savez(folder / "inputs.npz", **feeds)
    np.savez(folder / "reference.npz", **onnxruntime_float32(path, 0)(feeds))
    dovetail.compile(path, ["cpu-bf16"], verify=False).save(folder / "compiled")
    shutil.copy(HERE / "guest.py", folder)
    (folder / "run").write_text("python3 guest.py /mnt\n")
    return folder


def _tests(arguments: str) -> Path:
    folder = Path(tempfile.mkdtemp())
    root = HERE.parent.parent
    shutil.copytree(root / "tests", folder / "checkout" / "tests")
    shutil.copy(root / "pyproject.toml", folder / "checkout")
    slow = "DOVETAIL_SLOW=1 " if os.environ.get("DOVETAIL_SLOW") == "1" else ""
    command = f"{slow}python3 -m pytest -v --color=no -p no:cacheprovider {arguments}"
    (folder / "run").write_text(f"cd checkout && {command}\n")
    return folder


if __name__ == "__main__":
    main()
