"""The interface `onnx.backend` over Dovetail: `prepare`, `run_model`, `run_node`, `supports_device`.

import dovetail_adapters.onnx_backend as backend
outputs = backend.prepare(model, backend="cpu-bf16").run([image])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from dovetail.errors import DovetailError, UsageError
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from dovetail_adapters.session import InferenceSession

if TYPE_CHECKING:
    from dovetail.api import AnyModel

_DEVICE = "CPU"
_LATEST = max(helper.VERSION_TABLE, key=lambda row: row[2])[2]


class DovetailRep(BackendRep):
    """A prepared model.

    Attributes:
        session: The session that runs it.
    """

    def __init__(self, session: InferenceSession):
        self.session = session
        self._inputs = [value.name for value in session.get_inputs()]
        names = [value.name for value in session.get_outputs()]
        self._outputs = namedtupledict("Outputs", names)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Compute all outputs.

        Args:
            inputs: Arrays in the order of the model's inputs, or by name; a single array for a model with one input.
            kwargs: Further arguments of `InferenceSession.run`.

        Returns:
            The outputs in order, which the names of outputs index, too.

        Raises:
            DovetailError: There are more inputs than the model has, one is missing or does not fit, or an engine fails.
        """
        if not isinstance(inputs, Mapping):
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(given) > len(self._inputs):
                raise DovetailError(f"{len(given)} inputs are given, the model has {len(self._inputs)}")
            inputs = dict(zip(self._inputs, given))
        # NumPy's scalars are no arrays for ONNX Runtime.
        inputs = {name: np.asarray(one) if isinstance(one, np.generic) else one for name, one in inputs.items()}
        return self._outputs(*self.session.run(None, inputs, **kwargs))


class DovetailBackend(Backend):
    """Compiles models and runs them; see `onnx.backend.base.Backend`."""

    @classmethod
    def is_compatible(cls, model: AnyModel, device: str = _DEVICE, **kwargs: Any) -> bool:
        """Return whether a model can be compiled; with keywords of `prepare`, whether it can be for that request."""
        from dovetail import api

        try:
            api.plan(model, kwargs.pop("backend", "host"), **kwargs)
        except DovetailError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: AnyModel, device: str = _DEVICE, **kwargs: Any) -> DovetailRep:
        """Compile a model, or load a saved result.

        Args:
            model: The model, its path, or the folder of a result.
            device: `CPU`. Where regions run is decided by `backend`.
            kwargs: Keywords of `InferenceSession`: `backend`, `data`, ...

        Raises:
            UsageError: The device is another one.
            DovetailError: The model or the request is at fault.
        """
        if not cls.supports_device(device):
            raise UsageError(
                f"device {device!r} is not supported, only {_DEVICE!r} is", "backend='gpu-fp16' runs on a GPU if it can"
            )
        return DovetailRep(InferenceSession(model, **kwargs))

    @classmethod
    def run_model(cls, model: AnyModel, inputs: Any, device: str = _DEVICE, **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and compute its outputs once; see `prepare` and `DovetailRep.run`."""
        return cls.prepare(model, device, **{"cache": False, **kwargs}).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = _DEVICE,
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Compute the outputs of one node.

        Args:
            node: The node.
            inputs: Its inputs in order or by name, without those that are absent.
            device: As for `prepare`.
            outputs_info: Type and shape of every output; inferred by default.
            kwargs: `opset_version`, by default the latest, and keywords of `InferenceSession`.

        Raises:
            DovetailError: The node is not valid, or cannot be run.
        """
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, map(np.asarray, inputs)))
        version = kwargs.pop("opset_version", _LATEST)
        return cls.run_model(_model_of(node, arrays, outputs_info, version), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device can be named: `CPU`, with a number after it or not."""
        return device.partition(":")[0] == _DEVICE


def _model_of(
    node: onnx.NodeProto,
    arrays: Mapping[str, np.ndarray],
    outputs: Sequence[tuple[np.dtype, tuple[int, ...]]] | None,
    opset: int,
) -> onnx.ModelProto:
    """Return a model of one node, with the types of its inputs."""
    taken = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    names = [name for name in node.output if name]
    if outputs is None:
        given = [helper.make_empty_tensor_value_info(name) for name in names]
    else:
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(names, outputs)
        ]
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(node.domain, 1)] if node.domain else [])]
    graph = helper.make_graph([node], node.op_type, taken, given)
    model = helper.make_model_gen_version(graph, opset_imports=opsets)
    return onnx.shape_inference.infer_shapes(model) if outputs is None else model


is_compatible = DovetailBackend.is_compatible
prepare = DovetailBackend.prepare
run_model = DovetailBackend.run_model
run_node = DovetailBackend.run_node
supports_device = DovetailBackend.supports_device
