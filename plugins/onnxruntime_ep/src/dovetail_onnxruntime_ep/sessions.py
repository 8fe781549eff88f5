"""Sessions of an execution provider, in this process or as the worker of a tool in another environment.

It imports ONNX Runtime, NumPy and the standard library, and nothing of Dovetail.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import threading
from typing import Any, NamedTuple

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_RENAMED = re.compile(r"_token_\d+$|/(?:duplicated|fused).*$")  # of changes of layout and fusions
NO_DEVICE = "finds no device"
OTHER_VERSION = "does not load in onnxruntime"
_WARNINGS, _ERRORS = 2, 3  # severities; the first is ONNX Runtime's default
_registered: dict[str, str] = {}
_lock = threading.Lock()


class ProviderError(Exception):
    """A provider is not here, or refuses a model; `nodes` are those that it leaves to the CPU."""

    def __init__(self, text: str, nodes: Any = ()):
        super().__init__(text)
        self.nodes = list(nodes)


class Loaded(NamedTuple):
    """A model on a provider.

    Attributes:
        session: The session of ONNX Runtime.
        nodes: How many parts of the graph the provider has; 0 if it does not report them.
        left: Names of nodes that stay on the CPU.
    """

    session: Any
    nodes: int
    left: list[str]


def describe(provider: str, library: str) -> dict[str, Any]:
    """Return the version of ONNX Runtime and of the library, and the devices of a provider.

    Args:
        provider: The provider's name, such as `QNNExecutionProvider`.
        library: The module that brings it as a plugin library; empty if it is built in.
    """
    import onnxruntime

    found: dict[str, Any] = {"onnxruntime": onnxruntime.__version__, "library": "", "devices": []}
    if _is_library(library):
        devices = _devices(provider, library)
        found["library"] = f"{library} {_version(library)}"
        found["devices"] = [_about(device) for device in devices]
    elif provider not in onnxruntime.get_available_providers():
        raise ProviderError(f"onnxruntime {onnxruntime.__version__} has no {provider}")
    return found


def load(
    provider: str, library: str, model: Any, options: dict[str, str], entries: dict[str, str], names: list[str],
    threads: int = 0, stay: Any = (),
) -> Loaded:  # fmt: skip
    """Load a model on a provider.

    Args:
        provider: The provider's name.
        library: The module of its plugin library; empty if it is built in.
        model: The bytes of the model, or the path of its file.
        options: Options of the provider.
        entries: Entries of the session's configuration.
        names: Names of the nodes of the model. Empty for a program, whose nodes the provider does not report.
        threads: The number of threads of what runs on the CPU; 0 for ONNX Runtime's own choice.
        stay: Names of nodes that may stay on the CPU, such as arithmetic of shapes.

    Raises:
        ProviderError: The provider is not here, refuses the model, or leaves some of the nodes to the CPU.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    if threads:
        settings.intra_op_num_threads = threads
    records = _has_records(onnxruntime.__version__)
    record = {"session.record_ep_graph_assignment_info": "1"} if records else {"session.disable_cpu_ep_fallback": "1"}
    for name, value in {**(record if names else {}), **entries}.items():
        settings.add_session_config_entry(name, value)
    if _is_library(library):
        settings.add_provider_for_devices(_devices(provider, library)[:1], _filled(options, library))
        providers = None
    elif provider in onnxruntime.get_available_providers():
        if provider == "CUDAExecutionProvider":  # pip puts its libraries where the dynamic linker does not search
            with contextlib.redirect_stdout(io.StringIO()):
                onnxruntime.preload_dlls(directory="")
        providers = [(provider, options)]
    else:
        raise ProviderError(f"onnxruntime {onnxruntime.__version__} has no {provider}")
    try:
        session = onnxruntime.InferenceSession(model, settings, providers=providers, enable_fallback=0)
    except Exception as error:  # the binding's exceptions share no base class below Exception
        raise ProviderError(_first_line(error)) from None
    own = 0
    left: list[str] = []
    if records and names:
        own, left = _check_assignment(session, provider, names, set(stay))
    elif provider not in session.get_providers():
        raise ProviderError(f"{provider} was left out by ONNX Runtime when it loaded the model")
    return Loaded(session, own, left)


def about(loaded: Loaded) -> dict[str, Any]:
    """Return how the nodes of a loaded model are assigned, as plain data."""
    return {"nodes": loaded.nodes, "left": loaded.left}


def run(loaded: Loaded, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run a loaded model, and return its outputs by name."""
    names = [value.name for value in loaded.session.get_outputs()]
    return dict(zip(names, loaded.session.run(names, inputs)))


def _is_library(library: str) -> bool:
    """Check whether a provider's library is installed; ONNX Runtime lists its provider as its own once it is loaded."""
    return bool(library) and importlib.util.find_spec(library) is not None


def _devices(provider: str, library: str) -> list[Any]:
    """Register the library of a provider once, and return the provider's devices."""
    import onnxruntime

    with _lock:
        if library not in _registered:
            try:
                module = importlib.import_module(library)
                path = module.get_library_path()
            except ImportError as error:
                raise ProviderError(f"the module {library} is not installed: {_first_line(error)}") from None
            onnxruntime.set_default_logger_severity(_ERRORS)
            try:
                onnxruntime.register_execution_provider_library(provider, path)
            except Exception as error:
                text = f"{library} {_version(library)} {OTHER_VERSION} {onnxruntime.__version__}"
                raise ProviderError(f"{text}: {_first_line(error)}") from None
            finally:
                onnxruntime.set_default_logger_severity(_WARNINGS)
            _registered[library] = path
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
    if not devices:
        raise ProviderError(f"{provider} {NO_DEVICE} on this machine")
    return devices


def _filled(options: dict[str, str], library: str) -> dict[str, str]:
    """Return options in which a value `@name` is what the function `name` of the library's module returns."""
    module = importlib.import_module(library)
    return {
        name: str(getattr(module, value[1:])()) if value.startswith("@") else value for name, value in options.items()
    }


def _check_assignment(session: Any, provider: str, names: list[str], stay: set[str]) -> tuple[int, list[str]]:
    """Return how many parts of the graph the provider has, and which nodes of those that may stay are on the CPU.

    Raises:
        ProviderError: It leaves other nodes of the model to another provider.
    """
    known, left, own, here = set(names), {}, 0, []
    for part in session.get_provider_graph_assignment_info():
        nodes = part.get_nodes()
        if part.ep_name == provider:
            own += len(nodes)
            continue
        for node in nodes:
            name = node.name if node.name in known else _RENAMED.sub("", node.name)
            if name in stay:
                here.append(name)
            elif name in known or not stay:  # ONNX Runtime itself adds nodes beside those that stay
                left[name] = node.op_type
    nodes = [name for name in left if name in known]
    if left:
        shown = ", ".join(f"'{name}' ({left[name]})" for name in (nodes or list(left))[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        raise ProviderError(f"{provider} leaves {shown}{more} to the CPU", nodes)
    return own, here


def _has_records(version: str) -> bool:
    """Check whether this ONNX Runtime reports which provider has which node."""
    numbers = re.findall(r"\d+", version)[:2]
    return tuple(map(int, numbers)) >= (1, 24)


def _version(library: str) -> str:
    try:
        from importlib import metadata

        return metadata.version(library.replace("_", "-"))
    except Exception:
        return "of an unknown version"


def _about(device: Any) -> str:
    kind = str(device.device.type).rpartition(".")[2].lower()
    return f"{kind} {device.ep_vendor}".strip()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
