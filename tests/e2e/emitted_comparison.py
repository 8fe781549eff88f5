"""Compares what emitted files compute with what the result does, by the reader of each backend's files."""

import dovetail
import numpy as np
import onnx

from .emitted_files import acme_files, onnxruntime_without_optimizers, ppl_json
from .engine_files import differences_of_engines, differences_of_programs
from .hb_files import hb_files

READERS = {"acme-int8": acme_files, "ppl-int8": ppl_json, "bpu-int8": hb_files}


def differences(backend, model, data, plugins, folder, close=False, **request):
    """The outputs of emitted files that are not those of the result, with how many elements differ.

    Integers are compared bit for bit, floats of programs within rounding. `request` is what else is asked of the
    compilation. With `close`, floats of nodes on the host may differ by rounding: a file has another opset, and so
    other kernels.
    """
    name = backend.partition(":")[0]
    calibrates = "int8" in backend or request.get("fix_shapes") == "data"
    result = dovetail.compile(model, backend, data=data if calibrates else None, plugins=plugins, **request)
    result.save(folder)
    if name == "acme-aot":
        return differences_of_programs(folder, data, result.run(data))
    if name == "tensorrt":
        return differences_of_engines(folder, data)
    computed = onnxruntime_without_optimizers(onnx.load(folder / "model.onnx"), data) | data
    found = {}
    for written in sorted((folder / "artifacts").glob("*/*")):
        program = READERS[name](written)
        given = program.run({value.name: computed[value.name] for value in program.model.graph.input})
        for output in (value.name for value in program.model.graph.output):
            held, ours, theirs = program.made.get(output), given[output], computed[output]
            if held is not None:
                ours, theirs = held.of(ours), held.of(theirs)
            near = close and held is None
            same = np.allclose(ours, theirs, 1e-5, 1e-6, equal_nan=True) if near else np.array_equal(ours, theirs)
            if not same:
                found[written.name, output] = int((ours != theirs).sum())
    return found
