"""Opening the argument of a session: a saved result is loaded, any other model is compiled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx
from dovetail import load_plugins
from dovetail.api import AnyModel, compile, load
from dovetail.api import open as open_model
from dovetail.errors import UsageError
from dovetail.planning import HOST
from dovetail_onnx.native_runtime import new_session, onnx_runtime

from dovetail_adapters.result_cache import ResultCache, weight_files
from dovetail_adapters.result_key import NotCacheable, RequestKey

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.plugin import CompiledModel, PluginSet

Providers: TypeAlias = "Sequence[str | tuple[str, Mapping[str, object]]]"
"""Names of execution providers, or pairs of a name and its options, as ONNX Runtime takes them."""

_MODEL, _MANIFEST = "model.onnx", "result.json"
_PROVIDER = "ExecutionProvider"
_OF_HOST = ("CPUExecutionProvider", "AzureExecutionProvider")
"""Providers that every ONNX Runtime lists; the second runs only operators that call remote services."""


def open_compiled(
    model: AnyModel,
    backend: str | Sequence[str] = (),
    *,
    providers: Providers | None = None,
    plugins: PluginSet | None = None,
    cache: bool = True,
    **options: Any,
) -> CompiledModel:
    """Load a saved result, or compile a model; what an earlier program compiled is loaded from the user's cache.

    Args:
        model: The folder of a result, its `model.onnx`, or any model that `dovetail.compile` takes.
        backend: The backends to compile for; by default those among `providers`, else the host. A saved result has its
            backends already.
        providers: Names of backends, in order of preference; see `backends_of`.
        plugins: The plugins to use; all installed ones by default.
        cache: Whether to look into the cache of results, and to keep this one there; see `ResultCache`.
        options: Further keywords of `dovetail.compile`: `data`, `min_snr`, `pins`, ...

    Raises:
        UsageError: A saved result is to be compiled again.
        DovetailError: The model or the request is at fault.
    """
    plugins = plugins or load_plugins()
    saved = saved_result(model)
    if saved is None:
        backends = backend or backends_of(providers or (), plugins)
        found = ResultCache.of_user() if cache else None
        if found is None:
            return compile(model, backends, plugins=plugins, **options)
        return _cached(found, model, backends, plugins, options)
    given = [*(["backend"] if backend else []), *options]
    if given:
        raise UsageError(
            f"{saved} is a result already: {', '.join(given)} cannot change it",
            "leave that out, or name the source model, which is compiled",
        )
    return load(saved, plugins)


def source_session(model: AnyModel, settings: ort.SessionOptions | None) -> ort.InferenceSession:
    """Return ONNX Runtime's own session of a source model.

    Raises:
        UsageError: ONNX Runtime does not read it.
    """
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    if not isinstance(model, bytes) and not (isinstance(model, (str, os.PathLike)) and Path(model).suffix == ".onnx"):
        raise UsageError("background=True runs the source model at first, and this is no ONNX file", "leave it out")
    source = model if isinstance(model, bytes) else os.fspath(model)
    try:
        return new_session(source, settings or onnx_runtime().SessionOptions(), ["CPUExecutionProvider"])
    except Exception as error:
        problem = f"background=True runs the source model at first, and ONNX Runtime refuses it: {error}"
        raise UsageError(problem, "leave it out") from error


def _cached(
    cache: ResultCache, model: AnyModel, backends: str | Sequence[str], plugins: PluginSet, options: dict[str, Any]
) -> CompiledModel:
    """Load the result of this request from the cache, or compile it and keep it there."""
    try:
        key = RequestKey(model, {"backends": backends, **options}, plugins)
    except NotCacheable:
        return compile(model, backends, plugins=plugins, **options)
    kept = cache.load(key.digest, plugins)
    if kept is not None:
        return kept
    opened = open_model(model, plugins)
    compiled = compile(opened, backends, plugins=plugins, **options)
    names = backends if isinstance(backends, str) else ", ".join(backends)
    about = f"{opened.path or 'a model in memory'} for {names}"
    cache.store(key.digest, compiled, about, [*key.files, *weight_files(opened)])
    return compiled


def saved_result(model: object) -> Path | None:
    """Return the folder of a result that a path names; None if it names a model to compile."""
    if not isinstance(model, (str, os.PathLike)) or not os.fspath(model):
        return None
    path = Path(model)
    if path.is_dir():
        return path
    return path.parent if path.name == _MODEL and (path.parent / _MANIFEST).is_file() else None


def backends_of(providers: Providers, plugins: PluginSet) -> list[str]:
    """Return the backends among the providers that a program names; the host if there are none.

    ONNX Runtime's own providers name no backend. `CPUExecutionProvider` is the host, and for any other a warning says
    how to name one, as ONNX Runtime warns of providers that it does not have.

    Raises:
        UsageError: An entry is neither a name nor a pair of a name and options.
    """
    found: list[str] = []
    for entry in providers:
        name = entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if not isinstance(name, str):
            raise UsageError(f"{entry!r} is no provider", "write a name, or a pair of a name and its options")
        if name in plugins.registry.backend:
            found.append(_with_options(name, entry[1] if isinstance(entry, tuple) else {}))
        elif name.endswith(_PROVIDER):
            if name not in _OF_HOST:
                warnings.warn(
                    f"{name} is a provider of ONNX Runtime and no backend; the backends here are "
                    f"{', '.join(sorted(plugins.registry.backend))}",
                    stacklevel=3,
                )
        else:
            found.append(name)  # compiling names what is missing
    return found or [HOST]


def _with_options(name: str, options: Mapping[str, object]) -> str:
    texts = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{name}:{texts}" if texts else name
