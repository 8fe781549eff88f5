"""What calls IREE, in a process of its own; it imports nothing of Dovetail."""

import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path


def version():
    """Return the version of the compiler, without loading it."""
    return f"iree {metadata.version('iree-base-compiler')}"


def compile(model, cpu):
    """Compile a model in ONNX for a kind of CPU."""
    with tempfile.TemporaryDirectory() as name:
        source, mlir, program, sizes = (Path(name) / file for file in ("net.onnx", "net.mlir", "net.vmfb", "sizes.txt"))
        source.write_bytes(model)
        yield "iree: importing"
        _called("iree.compiler.tools.import_onnx", source, "-o", mlir)
        yield "iree: compiling"
        _called(
            "iree.compiler.tools.scripts.iree_compile", mlir, "-o", program, "--iree-input-type=onnx",
            "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
            f"--iree-llvmcpu-target-cpu={cpu}", "--iree-scheduling-dump-statistics-format=csv",
            f"--iree-scheduling-dump-statistics-file={sizes}",
        )  # fmt: skip
        return {"program": program.read_bytes(), "dispatches": sizes.read_text().count(',"dispatch",')}


def load(program):
    """Load a program, and return its function for `run`."""
    import iree.runtime

    config = iree.runtime.Config("local-sync")
    module = iree.runtime.VmModule.copy_buffer(config.vm_instance, program)
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(module)
    (function,) = [name for name in module.function_names if not name.startswith("__") and not name.endswith("$async")]
    return context.modules[module.name][function]


def run(function, inputs):
    """Run a program on inputs in its order, and return its outputs."""
    import numpy as np

    results = function(*inputs)
    return [np.asarray(one.to_host()) for one in (results if isinstance(results, (tuple, list)) else [results])]


def _called(module, *words):
    done = subprocess.run([sys.executable, "-m", module, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
