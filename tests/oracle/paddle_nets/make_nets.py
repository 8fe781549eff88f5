"""Export the nets with Paddle, and record their inputs and what Paddle computes.

    PADDLE_3 make_nets.py FOLDER [NET...]
    PADDLE_2 make_nets.py FOLDER [NET...]
    python make_nets.py FOLDER --pack          # writes nets.zip, beside this file

The first two are interpreters of environments with Paddle 3 and 2.6. Paddle 3 writes `NET/net.json`, and `NET/io.npz`
with inputs (`in:NAME`) and outputs (`out:N`); Paddle 2.6 writes `NET/legacy.pdmodel` where it can, and `NET/legacy.npz`
with its outputs. Weights and inputs are seeded. Every net has a process of its own, since Paddle crashes on some.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def exported(net, form: str, folder: Path) -> list[np.ndarray]:
    """Export one net, and return what its program computes."""
    import paddle

    paddle.seed(7)
    made = net.make() if isinstance(net.make, type) else net.make
    if isinstance(made, paddle.nn.Layer):
        made.eval()
    specs = [paddle.static.InputSpec(list(given.shape), given.dtype, given.name) for given in net.inputs]
    prefix = str(folder / form)
    paddle.jit.save(paddle.jit.to_static(made, input_spec=specs, full_graph=True), prefix)
    paddle.enable_static()
    executor = paddle.static.Executor(paddle.CPUPlace())
    program, _, results = paddle.static.load_inference_model(prefix, executor)
    return executor.run(program, feed=samples(net), fetch_list=results)


def samples(net) -> dict[str, np.ndarray]:
    """The inputs of a net."""
    generator = np.random.default_rng(11)
    return {given.name: given.values(generator) for given in net.inputs}


def clean(path: Path) -> None:
    """Cut the paths of source files to their names, and sort out files that hold nothing."""
    parameters = path.with_suffix(".pdiparams")
    if parameters.exists() and not parameters.stat().st_size:
        parameters.unlink()
    if path.suffix == ".json":
        text = json.dumps(json.loads(path.read_text()), separators=(",", ":"))
        path.write_text(text.replace(f"{HERE}/", ""))
        return
    from paddle.base.proto import framework_pb2

    program = framework_pb2.ProgramDesc.FromString(path.read_bytes())
    for block in program.blocks:
        for operator in block.ops:
            for attribute in operator.attrs:
                if attribute.name == "op_callstack":
                    frames = [re.sub(r'"[^"]*/', '"', line) for line in attribute.strings]
                    attribute.strings[:] = frames[-2:]
    path.write_bytes(program.SerializeToString())


def make(net, form: str, folder: Path) -> str:
    """Make the files of one net; return what went wrong, or an empty string."""
    folder.mkdir(exist_ok=True)
    path = folder / ("net.json" if form == "net" else "legacy.pdmodel")
    try:
        outputs = exported(net, form, folder)
    except Exception as error:
        for left in folder.glob(f"{form}.*"):
            left.unlink()
        return f"{type(error).__name__}: {' '.join(str(error).split())[-400:]}"
    clean(path)
    for left in (*folder.glob("*.pdiparams.info"), *folder.glob("*.pdmodel.info")):
        left.unlink()
    if form == "net":
        arrays = {f"in:{name}": array for name, array in samples(net).items()}
        arrays |= {f"out:{at}": array for at, array in enumerate(outputs)}
        np.savez_compressed(folder / "io.npz", **arrays)
    else:
        np.savez_compressed(folder / "legacy.npz", **{f"out:{at}": array for at, array in enumerate(outputs)})
    return ""


def pack(folder: Path) -> None:
    """Write all files to one archive, without their dates."""
    with zipfile.ZipFile(HERE / "nets.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(path for path in folder.glob("*/*") if path.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(folder)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


def main() -> None:
    folder, *names = sys.argv[1:]
    if names == ["--pack"]:
        pack(Path(folder))
        return
    sys.path.insert(0, str(HERE))
    import paddle
    from nets import activation, blocks, convolution, detection, reduction, sequence, shapes  # noqa: F401
    from nets.registry import NETS

    form = "legacy" if paddle.__version__.startswith("2.") else "net"
    if len(names) == 1:
        print(f"{form} {names[0]}: {make(NETS[names[0]], form, Path(folder, names[0])) or 'ok'}", flush=True)
        return
    for name in names or list(NETS):
        if subprocess.run([sys.executable, __file__, folder, name], check=False).returncode:
            print(f"{form} {name}: Paddle crashed")
            for left in Path(folder, name).glob(f"{form}.*"):
                left.unlink()


if __name__ == "__main__":
    main()
