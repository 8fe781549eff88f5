"""The engine `openvino-cpu`: OpenVINO's CPU plugin, which computes each operator in the type that the graph says."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.bodies import bodies
from dovetail.runtime.engine import Availability, Executed, Reads, RegionModel
from dovetail.runtime.extraction import extract_body
from dovetail.runtime.serialise import source_of
from dovetail.runtime.tensors import TENSOR_TYPES

from dovetail_cpu_bf16.report import executed_precisions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import openvino as ov
    from dovetail.ir.model import Model

__all__ = ["OpenVinoCpu"]

_TYPES = TENSOR_TYPES - {"string"}
_ALONE = {"reported": "reported-alone"}
_CAVEAT = "no bfloat16 instructions on this CPU: bfloat16 parts are computed in float32"
_NODE = re.compile(r"'<Node\((\w+)\): ([^>]*)>'|Operation name: (\S+)|operations?: (\S+)")


class OpenVinoCpu:
    """OpenVINO's CPU plugin with `INFERENCE_PRECISION_HINT=f32`.

    The hint makes the plugin respect the types in the graph: without it, float32 models run in bfloat16 on machines
    that can. It computes int64 in 32 bits and float64 in float32. On a CPU without bfloat16 instructions it drops
    casts to bfloat16 and computes in float32, so results there do not show bfloat16's rounding.

    Options: `threads` (0: all cores).
    """

    name = "openvino-cpu"

    def available(self) -> Availability:
        """Whether OpenVINO is installed, and whether the CPU has instructions for bfloat16."""
        if importlib.util.find_spec("openvino") is None:
            return Availability(False, "openvino is not installed (pip install openvino)")
        return Availability(True, _CAVEAT if _has_bfloat16() is False else "")

    @property
    def reads(self) -> Reads:
        """What OpenVINO's ONNX frontend reads; operators that are newer than it knows are refused one by one."""
        return Reads(opset=26, ir_version=13, types=_TYPES)

    def load(self, region: RegionModel, options: Mapping[str, object]) -> OpenVinoSession:
        """Make a session; a refusal names the node where OpenVINO does."""
        import openvino as ov

        region = _inlined(region)
        source = source_of(region)
        config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if int(options.get("threads", 0)):
            config["INFERENCE_NUM_THREADS"] = int(options["threads"])
        try:
            core = ov.Core()
            model = core.read_model(source)
            compiled = core.compile_model(model, "CPU", config)
        except Exception as error:  # the binding raises RuntimeError and classes of its own
            raise _refusal(error, "refuses") from error
        return OpenVinoSession(compiled, region, lambda body: self.load(RegionModel(body), options))


class OpenVinoSession:
    """A region compiled by OpenVINO."""

    def __init__(self, compiled: ov.CompiledModel, region: RegionModel, load_body: Callable[[Model], OpenVinoSession]):
        self._compiled = compiled
        self._load_body = load_body
        self._request = compiled.create_infer_request()
        self._model = region.model
        self._inputs = _input_names(compiled, region.model.graph)
        self._outputs = [value.name for value in region.model.graph.outputs]
        if len(self._outputs) != len(compiled.outputs):
            raise DovetailError(
                f"openvino-cpu gives {len(compiled.outputs)} outputs, the region has {len(self._outputs)}"
            )

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name."""
        try:
            held = [_to_tensor(inputs[name]) for name in self._inputs]
            for index, tensor in enumerate(held):
                self._request.set_input_tensor(index, tensor)
            self._request.infer()
            return {name: _to_array(self._request.get_output_tensor(i)) for i, name in enumerate(self._outputs)}
        except Exception as error:
            raise _refusal(error, "fails at") from error

    def executed(self) -> dict[str, Executed]:
        """What the compiled model says about every node.

        OpenVINO does not report the bodies of loops and branches, so each is compiled once more by itself.
        """
        answers = executed_precisions(self._model, self._compiled.get_runtime_model())
        for node in self._model.graph:
            for body in bodies(node):
                answers.update(self._executed_alone(body))
        return answers

    def _executed_alone(self, body: ir.Graph) -> dict[str, Executed]:
        try:
            inner = self._load_body(extract_body(self._model, body)).executed()
        except DovetailError:
            return {}
        return {name: Executed(precision, _ALONE.get(how, how)) for name, (precision, how) in inner.items()}


def _inlined(region: RegionModel) -> RegionModel:
    """The region without model-local functions, which the frontend does not read."""
    if region.path is not None or not region.model.ir.functions:
        return region
    from onnx_ir.passes.common import InlinePass

    model = region.model.clone()
    InlinePass()(model.ir)
    return RegionModel(model)


def _input_names(compiled: ov.CompiledModel, graph: ir.Graph) -> list[str]:
    """The graph's input behind every input of the compiled model.

    Inputs that do not matter are gone. An input that reaches an output through dropped operators alone (Dropout, say)
    carries only the name of that output, so the way back is followed along first inputs.
    """
    wanted = {value.name for value in graph.inputs}
    produced = {output.name: node for node in graph for output in node.outputs}
    found = []
    for port in compiled.inputs:
        names = port.get_names()
        name = next((name for name in names if name in wanted), None) or next(iter(names), "")
        while name not in wanted:
            if name not in produced:
                raise DovetailError(f"openvino-cpu has an input {sorted(names)} that the region does not have")
            name = produced[name].inputs[0].name
        found.append(name)
    return found


def _to_tensor(array: np.ndarray) -> ov.Tensor:
    import numpy as np
    import openvino as ov

    array = np.asarray(array, order="C")
    if array.dtype.kind in "iu":
        # NumPy has two 64-bit integers on some platforms, which differ in name only; the binding knows one.
        array = array.view(np.dtype(array.dtype.str))
    if array.dtype.name == "bfloat16":
        return ov.Tensor(array.view(np.uint16), list(array.shape), ov.Type.bf16)
    return ov.Tensor(array)


def _to_array(tensor: ov.Tensor) -> np.ndarray:
    import ml_dtypes
    import openvino as ov

    # The request writes its next results to the same memory, hence the copy. bfloat16 shows as float16.
    array = tensor.data.copy()
    return array.view(ml_dtypes.bfloat16) if tensor.element_type == ov.Type.bf16 else array


def _has_bfloat16() -> bool | None:
    """Whether the CPU has AVX512-BF16 or AMX-BF16; None where the system does not say without loading OpenVINO."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return None if flags is None else bool({"avx512_bf16", "amx_bf16"} & set(flags))


def _refusal(error: Exception, verb: str) -> DovetailError:
    text = " ".join(str(error).split())
    found = _NODE.search(text)
    node = next((part for part in reversed(found.groups()) if part), "") if found else ""
    what = f"the node of '{node}'" if node else "the region"
    return DovetailError(f"openvino-cpu {verb} {what}: {text[-300:]}")
