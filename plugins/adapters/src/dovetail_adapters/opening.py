"""Opening the argument of a session: a saved result is loaded, any other model is compiled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.errors import UsageError
from dovetail.files import Reading, recorded
from dovetail.planning import HOST
from dovetail_onnx import new_session, onnx_runtime
from dovetail_onnx.native_runtime import return_freed_memory

from dovetail_adapters.model_facts import SessionFacts
from dovetail_adapters.read_files import ReadFiles, Unsettled
from dovetail_adapters.result_cache import ResultCache
from dovetail_adapters.result_key import NotCacheable, RequestKey, is_proto

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.api import AnyModel
    from dovetail.plugin import CompiledModel, PluginSet, Registry
    from dovetail_runtime.restarting import RestartedResult

Providers: TypeAlias = "Sequence[str | tuple[str, Mapping[str, object]]]"
"""Names of execution providers, or pairs of a name and its options, as ONNX Runtime takes them."""

_MODEL, _MANIFEST = "model.onnx", "result.json"
_PROVIDER = "ExecutionProvider"
_OF_HOST = ("CPUExecutionProvider", "AzureExecutionProvider")
"""Providers that every ONNX Runtime lists; the second runs only operators that call remote services."""


class Opening:
    """What a session is made of: a saved result, or a model that is compiled for a request.

    What an earlier program compiled or loaded is taken from the user's cache. Where its engines can, the cache says how
    to make the sessions that run it, and neither the result nor other plugins are loaded.

    Args:
        model: The folder of a result, its `model.onnx`, or any model that `dovetail.compile` takes.
        backend: The backends to compile for; by default those among `providers`, else the host. A saved result has its
            backends already.
        providers: Names of backends, in order of preference; see `backends_of`.
        plugins: The plugins to use; all installed ones by default.
        cache: Whether to look into the cache of results, and to keep this one there; see `ResultCache`.
        options: Further keywords of `dovetail.compile`: `data`, `min_snr`, `pins`, ...

    Attributes:
        saved: The folder of the saved result; None for a model.

    Raises:
        UsageError: A saved result is to be compiled again.
    """

    def __init__(
        self,
        model: AnyModel,
        backend: str | Sequence[str] = (),
        *,
        providers: Providers | None = None,
        plugins: PluginSet | None = None,
        cache: bool = True,
        options: Mapping[str, Any] = MappingProxyType({}),
    ):
        if "backends" in options:
            raise UsageError("a session has no keyword 'backends'", "it is 'backend': a name, or a list of names")
        self.saved = saved_result(model)
        self._model, self._backend, self._providers = model, backend, providers or ()
        self._given, self._options = plugins, dict(options)
        self._cache = ResultCache.of_user() if cache else None
        self._reading, self._made_of = Reading(), ""
        given = [*(["backend"] if backend else []), *options]
        if self.saved is not None and given:
            raise UsageError(
                f"{self.saved} is a result already: {', '.join(given)} cannot change it",
                "leave that out, or name the source model, which is compiled",
            )

    def restarted(self, options: Mapping[str, object]) -> tuple[RestartedResult, SessionFacts] | None:
        """Return what runs the result without loading it, and what a session says of it.

        None if the cache does not know how to make its sessions.

        Args:
            options: Options of engines.
        """
        if self._cache is None or self._key is None or self._backends is None:
            return None
        found = self._cache.start(self._key.digest)
        if found is None:
            return None
        from dovetail_runtime.restarting import RestartedResult

        folder, start = found
        try:
            return RestartedResult(start["kept"], folder, options, self._registry_of), SessionFacts.of(start["facts"])
        except Exception:  # a damaged record, or whatever an engine raises: the whole result is loaded then
            return None

    def _registry_of(self, distributions: Sequence[str]) -> Registry:
        from dovetail import load_plugins

        return (self._given or load_plugins(allow=distributions)).registry

    def compiled(self) -> CompiledModel:
        """Load the saved result, or that of this request from the cache, or compile the model and keep its result.

        Raises:
            DovetailError: The model or the request is at fault.
        """
        from dovetail import api

        plugins = self._plugins
        if self.saved is not None:
            with recorded() as self._reading:
                return api.load(self.saved, plugins)
        backends = self._backends or backends_of(self._providers, plugins)
        if self._cache is None or self._key is None:
            return compile(self._model, backends, plugins=plugins, **self._options)
        kept = self._cache.load(self._key.digest, plugins)
        if kept is not None:
            self._made_of = kept.made_of
            return kept.compiled
        with recorded() as self._reading:
            opened = api.open(self._model, plugins)
            compiled = compile(opened, backends, plugins=plugins, **self._options)
        about = f"{opened.path or 'a model in memory'} for {', '.join(map(str, backends))}"
        self._made_of = self._keep_read(about)
        if self._made_of:
            self._cache.store(self._key.digest, compiled, about, self._made_of)
        return compiled

    def _keep_read(self, about: str) -> str:
        """Keep what a result was made of, and return a digest of it; empty if that is not known for sure."""
        assert self._cache is not None and self._key is not None, "nothing is kept without them"
        try:
            read = ReadFiles.of(self._reading, self._key.files, self._key.packages)
        except Unsettled:
            return ""
        return self._cache.store_read(self._key.digest, about, read)

    def keep(self, compiled: CompiledModel, facts: SessionFacts) -> None:
        """Keep how the next program makes the sessions that run a result, if their engines can.

        A plugin that is broken warns at every start, so that it has to be loaded.

        Args:
            compiled: The result, which engines have loaded.
            facts: What a session says of it.
        """
        from dovetail_onnx.skeleton import data_files
        from dovetail_runtime.keeping import keep_sessions

        if self._cache is None or self._key is None or self._plugins.broken:
            return
        if self.saved is not None:
            # A writer leaves its files in the folder until all are there, which changes the time of the folder.
            files = [self.saved / _MODEL, self.saved, *data_files(compiled.model)]
            self._made_of = self._keep_read(str(self.saved))
        else:
            files = self._cache.result_files(self._key.digest)
        if not files or not self._made_of:  # not kept, such as for lack of space
            return
        return_freed_memory()  # of compiling, so that writing does not add to it

        def write(folder: Path) -> dict[str, Any] | None:
            kept = keep_sessions(compiled, files[0].absolute(), folder)
            return None if kept is None else {"kept": kept, "facts": facts.as_dict()}

        self._cache.store_start(self._key.digest, str(self.saved or ""), self._made_of, files, write)

    @cached_property
    def _plugins(self) -> PluginSet:
        from dovetail import load_plugins

        return self._given or load_plugins()

    @cached_property
    def _backends(self) -> Sequence[str] | None:
        """The backends, if they are known without plugins; None if a provider may need a warning."""
        if self._backend:
            return [self._backend] if isinstance(self._backend, str) else list(self._backend)
        if any(map(_is_foreign, self._providers)):
            return None
        return [_named(entry) for entry in self._providers if _name_of(entry) not in _OF_HOST] or [HOST]

    @cached_property
    def _key(self) -> RequestKey | None:
        backends = self._providers if self._backends is None else self._backends
        request = {"backends": backends, **self._options}
        model = self._model if self.saved is None else self.saved / _MODEL
        try:
            return RequestKey(model, {"is result": self.saved is not None, **request}, self._given)
        except NotCacheable:
            return None


def compile(*arguments: Any, **keywords: Any) -> CompiledModel:
    """Compile; see `dovetail.compile`."""
    from dovetail import api

    return api.compile(*arguments, **keywords)


def source_session(model: AnyModel, settings: ort.SessionOptions | None) -> ort.InferenceSession:
    """Return ONNX Runtime's own session of a source model.

    Raises:
        UsageError: ONNX Runtime does not read it.
    """
    if is_proto(model):
        model = model.SerializeToString()
    if not isinstance(model, bytes) and not (isinstance(model, (str, os.PathLike)) and Path(model).suffix == ".onnx"):
        raise UsageError("background=True runs the source model at first, and this is no ONNX file", "leave it out")
    source = model if isinstance(model, bytes) else os.fspath(model)
    try:
        return new_session(source, settings or onnx_runtime().SessionOptions(), ["CPUExecutionProvider"])
    except Exception as error:
        problem = f"background=True runs the source model at first, and ONNX Runtime refuses it: {error}"
        raise UsageError(problem, "leave it out") from error


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
        name = _name_of(entry)
        if name in plugins.registry.backend or not name.endswith(_PROVIDER):
            found.append(_named(entry))  # compiling names what is missing
        elif name not in _OF_HOST:
            warnings.warn(
                f"{name} is a provider of ONNX Runtime and no backend; the backends here are "
                f"{', '.join(sorted(plugins.registry.backend))}",
                stacklevel=3,
            )
    return found or [HOST]


def joined(providers: Providers | None, options: Sequence[Mapping[str, object]] | None) -> Providers | None:
    """Pair providers with their options.

    Raises:
        UsageError: There are more or fewer options than providers.
    """
    if not options:
        return providers
    if providers is None or len(providers) != len(options):
        raise UsageError(
            f"{len(providers or ())} providers and {len(options)} sets of options are given", "give one for each"
        )
    return [(entry if isinstance(entry, str) else entry[0], given) for entry, given in zip(providers, options)]


def _is_foreign(entry: object) -> bool:
    """Whether an entry of the providers has to be compared with the names of backends, and may be warned of."""
    name = _name_of(entry)
    return name.endswith(_PROVIDER) and name not in _OF_HOST


def _name_of(entry: object) -> str:
    """Return the name in an entry of the providers.

    Raises:
        UsageError: It is neither a name nor a pair of a name and options.
    """
    name = entry[0] if isinstance(entry, tuple) and len(entry) == 2 else entry
    if not isinstance(name, str):
        raise UsageError(f"{entry!r} is not a provider", "write a name, or a pair of a name and its options")
    return name


def _named(entry: str | tuple[str, Mapping[str, object]]) -> str:
    """Return an entry of the providers as a backend with its options, as after `--backend`."""
    name, options = (entry, {}) if isinstance(entry, str) else entry
    texts = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{name}:{texts}" if texts else name
