"""How sessions of OpenVINO start again: from OpenVINO's own file of the graph that was compiled."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from dovetail_runtime import Bindable, DeployedSession, KeptSession, SessionStart

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from dovetail.plugin import Executed, RegionModel, Session

    from dovetail_cpu_bf16.calls import Calls
    from dovetail_cpu_bf16.shape_checks import ShapeChecks

_COUNTS = {"threads": "INFERENCE_NUM_THREADS", "streams": "NUM_STREAMS"}


def counts_of(options: Mapping[str, object]) -> dict[str, object]:
    """Return the part of OpenVINO's configuration that options of the caller decide."""
    given = {key: int(cast("int | str", options.get(name, 0))) for name, key in _COUNTS.items()}
    return {key: count for key, count in given.items() if count}


class Keepable(Bindable):
    """Base class of sessions that `OpenVinoStart` keeps.

    Attributes:
        calls: Runs it, without checks.
        configuration: OpenVINO's configuration that it was compiled with.
    """

    calls: Calls
    configuration: Mapping[str, object]

    @property
    @abstractmethod
    def needs_keys(self) -> bool:
        """Whether it fuses attention, and so computes nothing where there are no keys."""

    @abstractmethod
    def write(self, region: RegionModel, path: Path) -> None:
        """Write what OpenVINO compiled, as OpenVINO's `.xml` file with its `.bin`."""

    @abstractmethod
    def needs(self, region: RegionModel) -> list[list[str]]:
        """Return groups of CPU instructions: without one of each, what `write` writes computes other numbers."""


class OpenVinoStart(SessionStart):
    """Starts sessions of `openvino-cpu` and of engines that derive from it.

    OpenVINO's own cache of compiled models is not used: what `export_model` wrote and `import_model` reads
    computes other numbers for recurrent layers (2026.4.1).
    """

    def keep(self, session: Session, region: RegionModel, folder: Path) -> KeptSession | None:
        """Keep the graph and its configuration."""
        if not isinstance(session, Keepable):
            return None
        path = folder / "region.xml"
        session.write(region, path)
        counts = _COUNTS.values()
        data = {
            "configuration": {key: value for key, value in session.configuration.items() if key not in counts},
            "inputs": session.calls.inputs,
            "outputs": session.calls.outputs,
            "passed": list(session.calls.passed.items()),
            "needs_keys": session.needs_keys,
            "needs": session.needs(region),
        }
        return KeptSession(data, (path, path.with_suffix(".bin")))

    def restart(self, kept: KeptSession, options: Mapping[str, object]) -> Session:
        """Compile the graph.

        Raises:
            RuntimeError: OpenVINO refuses it, or has other inputs or outputs; its own errors pass.
        """
        import openvino as ov

        from dovetail_cpu_bf16.calls import Calls
        from dovetail_cpu_bf16.shape_checks import ShapeChecks, loses_errors

        path, _ = kept.files
        config = {**kept.data["configuration"], **counts_of(options)}
        compiled = ov.Core().compile_model(path, "CPU", config)
        inputs, outputs = kept.data["inputs"], kept.data["outputs"]
        if (len(compiled.inputs), len(compiled.outputs)) != (len(inputs), len(outputs)):
            raise RuntimeError(f"{path} has other inputs or outputs than the region that it was made of")
        checks = ShapeChecks(lambda: ov.Core().read_model(path), True) if loses_errors(compiled) else None
        calls = Calls(compiled, inputs, outputs, dict(kept.data["passed"]))
        return _Restarted(calls, checks, kept.data["needs_keys"])

    def deployed(self, kept: KeptSession) -> DeployedSession:
        """Return the configuration, and the instructions that the numbers depend on."""
        data = kept.data
        settings = {
            "device": "CPU",
            "configuration": dict(data["configuration"]),
            "inputs": list(data["inputs"]),
            "outputs": list(data["outputs"]),
            "passed": [list(pair) for pair in data["passed"]],
            "refuses_empty_inputs": bool(data["needs_keys"]),
        }
        return DeployedSession("openvino", settings, tuple(map(tuple, data["needs"])))


class _Restarted(Bindable):
    """A region that was compiled again."""

    def __init__(self, calls: Calls, checks: ShapeChecks | None, needs_keys: bool):
        self._calls, self._checks, self._needs_keys = calls, checks, needs_keys

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe. The caller owns the results.

        Raises:
            RuntimeError: OpenVINO's own error, or the region has to be loaded for such inputs.
        """
        tensors = self._calls.tensors(inputs)
        given = [inputs[name] for name in self._calls.inputs]
        if self._needs_keys and not all(array.size for array in given):
            raise RuntimeError("attention may have no keys")
        if self._checks is not None and self._checks.check(tuple(array.shape for array in given)) and self._needs_keys:
            raise RuntimeError("attention has no keys")
        return self._calls.run(tensors)

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call over fixed arrays; see `Bindable`.

        Raises:
            RuntimeError: The region has to be loaded for such inputs.
        """
        given = [inputs[name] for name in self._calls.inputs]
        if self._checks is not None and self._checks.check(tuple(array.shape for array in given)) and self._needs_keys:
            raise RuntimeError("attention has no keys")
        return self._calls.bind(inputs, outputs)

    def executed(self) -> dict[str, Executed]:
        """Return nothing: the nodes are not known here."""
        return {}
