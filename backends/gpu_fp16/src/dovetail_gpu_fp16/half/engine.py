"""The engine `half-sums`: a CPU that computes float16 as a device that sums in float16 does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np
from dovetail.ir import bodies, is_onnx, name_of
from dovetail.plugin import Availability, Engine, EngineError, Executed, RegionModel, Session, TemporaryFolder
from dovetail_host import OnnxRuntimeCpu
from dovetail_runtime import Instruction, Program, control_flow, holds, needs_file

from dovetail_gpu_fp16.half import functions, products, reductions

if TYPE_CHECKING:
    import onnx_ir as ir


Compute = Callable[[products.Operands, products.Attributes], "np.ndarray | None"]

KERNELS: Mapping[str, Compute] = MappingProxyType(
    {
        "AveragePool": reductions.average_pool,
        "BatchNormalization": reductions.batch_normalization,
        "Clip": functions.clip,
        "Conv": products.conv,
        "ConvTranspose": products.conv_transpose,
        "CumSum": reductions.cumulative_sum,
        "Elu": functions.elu,
        "Erf": functions.erf,
        "Exp": functions.power_of_e,
        "Gelu": functions.gelu,
        "Gemm": products.gemm,
        "GlobalAveragePool": reductions.global_average_pool,
        "HardSigmoid": functions.hard_sigmoid,
        "HardSwish": functions.hard_swish,
        "InstanceNormalization": reductions.instance_normalization,
        "LayerNormalization": reductions.layer_normalization,
        "Log": functions.log,
        "LogSoftmax": reductions.log_softmax,
        "MatMul": products.matmul,
        "RMSNormalization": reductions.rms_normalization,
        "ReduceL1": reductions.reduction(np.abs),
        "ReduceL2": reductions.reduction(reductions.square, "sqrt"),
        "ReduceLogSum": reductions.reduction(None, "log"),
        "ReduceMean": reductions.reduction(None, "mean"),
        "ReduceSum": reductions.reduction(None),
        "ReduceSumSquare": reductions.reduction(reductions.square),
        "Relu": functions.relu,
        "Sigmoid": functions.sigmoid,
        "Softmax": reductions.softmax,
        "Tanh": functions.tanh,
    }
)
"""Operators that are computed here where their result is float16; ONNX Runtime computes and rounds the others."""

_FLOAT16 = 10


class HalfSums(Engine):
    """Emulates a device that sums in float16, as ONNX Runtime's WebGPU provider does, on any CPU.

    Products, reductions, softmax and functions of one element round every step to float16 (`KERNELS`); everything else
    is computed by `onnxruntime-cpu`. Slow: about 0.3 billion products a second.
    """

    name = "half-sums"
    emulates = True

    def __init__(self) -> None:
        self._others = OnnxRuntimeCpu()
        self.reads = self._others.reads

    def available(self) -> Availability:
        """Check whether ONNX Runtime is installed."""
        found = self._others.available()
        return (
            found if not found.ok else Availability(True, "emulates sums in float16 as WebGPU's shaders compute them")
        )

    def load(self, region: RegionModel, options: Mapping[str, object]) -> HalfSession:
        """Load a region as a program of instructions.

        Raises:
            EngineError: ONNX Runtime refuses what is not emulated.
        """

        def make(node: ir.Node, program_of: Callable[[ir.Graph], Program]) -> Instruction | None:
            if _is_emulated(node):
                return _Emulated(node)
            return control_flow(node, program_of) if bodies(node) and holds(node, _is_emulated) else None

        files = TemporaryFolder("half-sums")

        def load(part: RegionModel) -> Session:
            if needs_file(part.model):
                path = files.path / f"part{next(numbers)}.onnx"
                part.model.save(path, external=True)
                part = RegionModel(part.model, path)
            return self._others.load(part, options)

        numbers = itertools.count()
        return HalfSession(Program(region.model, make, load), files)


class HalfSession(Session):
    """A region as a program.

    Args:
        program: Its instructions.
        files: The folder of weights that other engines read from files.
    """

    def __init__(self, program: Program, files: TemporaryFolder):
        self._program, self._files = program, files

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name."""
        return cast("dict[str, np.ndarray]", self._program.run(inputs))

    def executed(self) -> dict[str, Executed]:
        """Return that emulated nodes were computed in float16; of the others, what ONNX Runtime reports."""
        return self._program.executed()


def _is_emulated(node: ir.Node) -> bool:
    """Check whether a node has a kernel here, one output that is read, and that in float16."""
    outputs = [value for value in node.outputs if value.name]
    if not is_onnx(node) or node.op_type not in KERNELS or len(outputs) != 1 or node.outputs[0] is not outputs[0]:
        return False
    kind = outputs[0].dtype
    return kind is not None and kind.value == _FLOAT16 and not node.attributes.get("training_mode")


class _Emulated(Instruction):
    """Computes one node."""

    runs_on_constants = True

    def __init__(self, node: ir.Node):
        self.title, self.about = node.name or node.op_type, {"operator": node.op_type}
        self._inputs = tuple(name_of(value) if value is not None else "" for value in node.inputs)
        self.reads = tuple(dict.fromkeys(name for name in self._inputs if name))
        self.writes = (name_of(node.outputs[0]),)
        self._name, self._compute = node.name or self.writes[0], KERNELS[node.op_type]
        self._attributes = {name: attribute.value for name, attribute in node.attributes.items()}

    def run(self, values: dict[str, object], dying: frozenset[str]) -> None:
        del dying
        given = [_operand(cast("np.ndarray", values[name])) if name else None for name in self._inputs]
        result = self._compute(given, self._attributes)
        if result is None:
            raise EngineError(f"half-sums: node '{self._name}' has attributes that are not emulated", node=self._name)
        with np.errstate(over="ignore"):
            values[self.writes[0]] = np.asarray(result).astype(np.float16)

    def executed(self) -> dict[str, Executed]:
        return {self._name: Executed("float16", "reported")}


def _operand(array: np.ndarray) -> np.ndarray:
    """Return floats as float32, and integers (axes) as they are."""
    return array.astype(np.float32) if array.dtype.kind == "f" else array
