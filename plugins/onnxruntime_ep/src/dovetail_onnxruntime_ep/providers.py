"""Where a provider's sessions are: in this process, or in that of a tool in another environment."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.installed import version_of
from dovetail.plugin import Availability, EngineError, Tool
from dovetail_commands import environment_of, variable_of

from dovetail_onnxruntime_ep import sessions
from dovetail_onnxruntime_ep.sessions import NO_DEVICE, OTHER_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping


_WORKER = "dovetail_onnxruntime_ep.sessions"
_found: dict[tuple[str, str, str], Mapping[str, Any] | EngineError] = {}
_lock = threading.Lock()
_SECONDS = 600.0  # of one call in another environment: large models compile for minutes
_MOST_SESSIONS = 200  # of one process, one after the other


@dataclass(frozen=True)
class Provider:
    """An execution provider of ONNX Runtime.

    Attributes:
        name: Its name, such as `QNNExecutionProvider`.
        key: Its name in variables of the environment, such as `QNN`.
        library: The module that brings it as a plugin library; empty if it is only built into packages.
        package: The package to install, with the system in parentheses if it is built into that of one system alone.
        options: Its options. A value `@name` is what the function `name` of the library's module returns.
        without_device: What to do where it finds no device.
        crashes: Whether its library is known to end the process on some models, so that it always has one of its own.
    """

    name: str
    key: str
    library: str
    package: str
    options: Mapping[str, str] = field(default_factory=dict)
    without_device: str = ""
    crashes: bool = False

    @property
    def variable(self) -> str:
        """The variable that names the environment with the provider's ONNX Runtime."""
        return variable_of(self.key)

    @property
    def place(self) -> str:
        """The environment in which it runs; empty for this process."""
        return environment_of(self.key, installed=self._is_installed())

    @property
    def hint(self) -> str:
        """What to do if it is not here."""
        return (
            f"pip install {self.package}, or name an environment that has it: --engine-env PATH, {self.variable}=PATH"
        )

    def way_out(self, message: str) -> str:
        """Return what to do about an error: where versions do not fit, or there is no device, what would help."""
        if OTHER_VERSION in message:
            return (
                f"pip install -U onnxruntime {self.package}, or name an environment where they fit: "
                f"--engine-env PATH, {self.variable}=PATH"
            )
        return self.without_device if self.without_device and NO_DEVICE in message else self.hint

    def available(self) -> Availability:
        """Return whether it may run here: a library that is installed is loaded once and asked for its devices."""
        if place := self.place:
            there = os.path.exists(place)
            return Availability(there, f"in {place}" if there else f"{self.variable} names no folder: {place}")
        if importlib.util.find_spec("onnxruntime") is None:
            return Availability(False, f"onnxruntime is not installed ({self.hint})")
        if self.library and importlib.util.find_spec(self.library) is not None:
            try:
                self.devices()
            except EngineError as error:
                return Availability(False, f"{error.message}{f' ({error.hint})' if error.hint else ''}")
            return Availability(True, "")
        if self._is_built_in():
            return Availability(True, "")
        return Availability(False, f"{self.package} is not installed ({self.hint})")

    def _is_installed(self) -> bool:
        library = bool(self.library) and importlib.util.find_spec(self.library) is not None
        return library or self._is_built_in()

    def _is_built_in(self) -> bool:
        """Check whether its package is installed. ONNX Runtime, which takes long to import, is asked on loading."""
        if self.library:
            return False  # the package is that of the library, whose module would be here
        package, _, system = self.package.partition(" ")
        if system:
            return sys.platform == "darwin"
        return bool(version_of(package))

    def devices(self) -> list[str]:
        """Return its devices here, as `gpu NVIDIA`; empty if it is built into ONNX Runtime, which lists none.

        Raises:
            EngineError: It finds none, or does not load.
        """
        return list(self.described()["devices"])

    def described(self) -> Mapping[str, Any]:
        """Return the versions of ONNX Runtime and of the provider's library, and its devices; asked once.

        Raises:
            EngineError: It finds no device, or does not load.
        """
        key = self.name, self.library, self.place
        with _lock:
            if key not in _found:
                _found[key] = self._asked()
        found = _found[key]
        if isinstance(found, EngineError):
            raise found
        return found

    def _asked(self) -> Mapping[str, Any] | EngineError:
        # In a process of its own, because listings ask, too, and importing ONNX Runtime takes long.
        tool = self.tool(self.package, self.place)
        try:
            found: Mapping[str, Any] = tool.ask("describe", provider=self.name, library=self.library)
            return found
        except EngineError as error:
            if OTHER_VERSION in error.message:
                error.hint = self.way_out(error.message)
            return error
        finally:
            tool.close()

    def tool(self, title: str, place: str) -> Tool:
        """Return a process in an environment, empty for this one, that serves `dovetail_onnxruntime_ep.sessions`."""
        return Tool.start(_WORKER, title=title, hint=self.hint, python=place, timeout=_SECONDS)

    def host(self, title: str, idle: IdleProcesses | None = None) -> ProviderHost:
        """Return what holds a session of the provider: this process, or one of its own, in its environment or this.

        Args:
            title: The name of the engine, for messages.
            idle: Processes without sessions, which are used before another one is started.
        """
        place = self.place
        apart = bool(place) or self.crashes
        return OtherEnvironment(self, title, place, idle) if apart else ThisProcess(self, title)


class ProviderHost(Protocol):
    """Holds a session of a provider."""

    def load(self, **given: Any) -> Mapping[str, Any]:
        """Load a model, and return how its nodes are assigned; see `load` and `about` of the module `sessions`.

        Raises:
            EngineError: The provider is not here, or refuses the model or some of its nodes.
        """

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute all outputs of what is loaded.

        Raises:
            EngineError: It fails.
        """

    def close(self) -> None:
        """Release the session."""


class ThisProcess:
    """A session in this process.

    Args:
        provider: The provider.
        title: The name of the engine, for messages.
    """

    def __init__(self, provider: Provider, title: str):
        self._provider, self._title = provider, title
        self._loaded: sessions.Loaded | None = None

    def load(self, **given: Any) -> Mapping[str, Any]:
        """Load a model; see `ProviderHost`."""
        try:
            self._loaded = sessions.load(**given)
        except sessions.ProviderError as error:
            raise EngineError(
                f"{self._title}: {error}", self._provider.way_out(str(error)), nodes=error.nodes
            ) from error
        return sessions.about(self._loaded)

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute all outputs; see `ProviderHost`."""
        if self._loaded is None:
            raise EngineError("the session is closed")
        try:
            return sessions.run(self._loaded, dict(inputs))
        except Exception as error:  # of the binding
            raise EngineError(f"{self._title} fails: {error}") from error

    def close(self) -> None:
        """Release the session."""
        self._loaded = None


class IdleProcesses:
    """Processes of an engine whose sessions are closed: importing ONNX Runtime and a provider takes a second.

    One of them is kept, as long as this object lives, and replaced after many sessions, as providers leak.
    """

    def __init__(self) -> None:
        self._kept: tuple[str, Tool, int] | None = None
        self._lock = threading.Lock()

    def take(self, place: str) -> tuple[Tool | None, int]:
        """Return a process of an environment and its number of sessions so far; None if there is none."""
        with self._lock:
            if self._kept is None or self._kept[0] != place:
                return None, 0
            (_, tool, sessions), self._kept = self._kept, None
            return tool, sessions

    def give(self, place: str, tool: Tool, sessions: int) -> None:
        """Keep a process, or end it."""
        with self._lock:
            if self._kept is None and sessions < _MOST_SESSIONS:
                self._kept = place, tool, sessions
                return
        tool.close()


class OtherEnvironment:
    """A session in a process of another environment. A process that ended is replaced, and loads the model again.

    Args:
        provider: The provider.
        title: The name of the engine, for messages.
        place: The environment's folder, or its interpreter; empty for this one.
        idle: Processes to use before another one is started; this one goes there when it is closed.
    """

    def __init__(self, provider: Provider, title: str, place: str, idle: IdleProcesses | None = None):
        self._idle, self._place = idle, place
        known, self._sessions = idle.take(place) if idle is not None else (None, 0)
        self._tool: Tool | None = known or provider.tool(title, place)
        self._loaded: Tool | None = None

    def load(self, **given: Any) -> Mapping[str, Any]:
        """Load a model; see `ProviderHost`."""
        if self._tool is None:
            raise EngineError("the session is closed")
        self._loaded = self._tool.opened("load", **given)
        found: Mapping[str, Any] = self._loaded.ask("about")
        return found

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute all outputs; see `ProviderHost`."""
        if self._loaded is None:
            raise EngineError("the session is closed")
        found: Mapping[str, Any] = self._loaded.ask("run", inputs=dict(inputs))
        return found

    def close(self) -> None:
        """Release the session, and end the process or leave it to others."""
        tool, self._tool = self._tool, None
        loaded, self._loaded = self._loaded, None
        if tool is None:
            return
        if self._idle is None:
            tool.close()
            return
        if loaded is not None:
            loaded.close()
        self._idle.give(self._place, tool, self._sessions + 1)
