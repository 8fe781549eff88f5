"""How sessions of ONNX Runtime start again: from the file of a region, with the same settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail_onnx import configure, new_session, quiet_settings
from dovetail_runtime import Bindable, DeployedSession, KeptSession, OnnxRuntimeBacked, SessionStart

from dovetail_host.calls import Calls, ForeignType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    import onnxruntime as ort
    from dovetail.plugin import Executed, RegionModel, Session


class SessionSettings(NamedTuple):
    """How a session was made, without what the caller's settings say.

    Attributes:
        entries: Entries of its configuration.
        providers: Its execution providers, in order of preference.
        without: Names of the optimizers that it leaves out.
    """

    entries: Mapping[str, str]
    providers: tuple[str, ...]
    without: tuple[str, ...]


class Keepable(OnnxRuntimeBacked, Bindable):
    """Base class of sessions that `OnnxRuntimeStart` keeps.

    Attributes:
        settings: How it was made, if in the usual way: with all optimizers but those that are known to fail.
        foreign: The types of inputs and outputs that NumPy lacks.
    """

    settings: SessionSettings | None
    foreign: Mapping[str, ForeignType]

    @abstractmethod
    def write(self, region: RegionModel, folder: Path) -> Path | None:
        """Return the file of what was loaded, which is written if the region has none; None if it has several."""

    @abstractmethod
    def needs(self, region: RegionModel) -> list[list[str]]:
        """Return groups of CPU instructions: without one of each, what was loaded computes other numbers."""


class OnnxRuntimeStart(SessionStart):
    """Starts sessions of `onnxruntime-cpu` and of engines that derive from it."""

    def keep(self, session: Session, region: RegionModel, folder: Path) -> KeptSession | None:
        """Keep the settings, and the region's file: the one that it has, or a new one."""
        if not isinstance(session, Keepable) or session.settings is None:
            return None
        data = {**session.settings._asdict(), "foreign": session.foreign, "needs": session.needs(region)}
        path = session.write(region, folder)
        return KeptSession(data, (path,)) if path is not None else None

    def restart(self, kept: KeptSession, options: Mapping[str, object]) -> Session:
        """Make the session.

        Raises:
            RuntimeError: A provider does not start here; ONNX Runtime would go on without it. Its own errors pass.
        """
        given = cast("ort.SessionOptions | None", options.get("session_options"))
        settings = given if given is not None else quiet_settings()
        if given is None or "threads" in options:
            settings.intra_op_num_threads = int(cast("int | str", options.get("threads", 0)))
        configure(settings, kept.data["entries"])
        providers = kept.data["providers"]
        without = [*kept.data["without"], *cast("Sequence[str]", options.get("disabled_optimizers", ()))]
        session = new_session(str(kept.files[0]), settings, providers, without)
        if missing := set(providers) - set(session.get_providers()):
            raise RuntimeError(f"ONNX Runtime could not start {', '.join(sorted(missing))}")
        return _Restarted(session, {name: ForeignType(*found) for name, found in kept.data["foreign"].items()})

    def deployed(self, kept: KeptSession) -> DeployedSession:
        """Return the settings, and the instructions that the numbers depend on."""
        data = kept.data
        settings = {
            "config_entries": dict(data["entries"]),
            "providers": list(data["providers"]),
            "disabled_optimizers": list(data["without"]),
        }
        return DeployedSession("onnxruntime", settings, tuple(map(tuple, data["needs"])))


class _Restarted(OnnxRuntimeBacked, Bindable):
    """A session of ONNX Runtime that was made again."""

    def __init__(self, session: ort.InferenceSession, foreign: Mapping[str, ForeignType]):
        self._session, self._foreign = session, foreign
        self._calls = Calls(session, foreign)

    @property
    def native(self) -> ort.InferenceSession | None:
        """The session; None if it takes or gives types that NumPy lacks."""
        return None if self._foreign else self._session

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe."""
        return self._calls.run(inputs)

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call over fixed arrays in the memory of the CPU; see `Bindable`."""
        return self._calls.bind(inputs, outputs)

    def executed(self) -> dict[str, Executed]:
        """Return nothing: the nodes are not known here."""
        return {}
