"""Compilations that were done before: what a session compiles is kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail_runtime.data.sources import data_digest
from dovetail_runtime.machine import cpus
from dovetail_runtime.processor import cpu_facts
from dovetail_runtime.result_cache import file_states, hash_of, result_cache

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet

_INSTALLED = (".dist-info", ".egg-info", ".egg-link")
_SOURCES = (".py", ".yaml", ".c", ".cu")
_VARIES = ("cpu MHz", "bogomips", "apicid", "initial apicid", "processor", "core id", "microcode")
_OWN = "DOVETAIL_"


def compiled_or_cached(
    model: object,
    request: Mapping[str, Any],
    compile_: Callable[[], CompiledModel],
    plugins: PluginSet | None = None,
) -> CompiledModel:
    """Return the result of an earlier process for the same model and request, or compile and keep the result.

    Only what can be recognized in another process is kept: an ONNX file, or a model in memory, with a request of plain
    data. The key covers the content of all files that the request names, everything that is installed, and the machine.

    Args:
        model: The model as it was given.
        request: Keywords of `dovetail.compile`.
        compile_: Compiles the model.
        plugins: The plugins, to load a result with.
    """
    cache = result_cache()
    key = _key(model, request) if cache is not None else ""
    if cache is None or not key:
        return compile_()
    if (found := cache.load(key, plugins)) is not None:
        return found
    compiled = compile_()
    # A file that was written meanwhile is another model.
    if (compiled.verification is None or not compiled.verification.broken) and _key(model, request) == key:
        about = f"{_name(model)} for {', '.join(map(str, request.get('backends') or ())) or 'host'}"
        with contextlib.suppress(OSError):  # its files were removed meanwhile
            cache.keep(key, compiled, about, file_states(_weights(model)))
    return compiled


def _key(model: object, request: Mapping[str, Any]) -> str:
    """Return a hash of all that the result depends on; empty if something cannot be recognized again."""
    digest = _digest_of_model(model)
    try:
        asked = {name: _plain(name, value) for name, value in request.items()} if digest else {}
    except TypeError:
        return ""
    return hash_of(digest, asked, _installed(), _machine(), _environment()) if digest else ""


def _digest_of_model(model: object) -> str:
    """Hash the content of a model; empty for what is read from elsewhere, such as programs of several files."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix != ".onnx" or not path.is_file():
            return ""
        with path.open("rb") as file:
            # Files with its weights are found beside it, so that the folder belongs to the model.
            return f"{path.absolute().parent}|{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if isinstance(model, bytes):
        return hashlib.sha256(model).hexdigest()
    serialize = getattr(model, "SerializeToString", None)  # a class of protobuf, which need not be imported for this
    return hashlib.sha256(serialize(deterministic=True)).hexdigest() if serialize is not None else ""


def _plain(name: str, value: Any) -> Any:
    """Return an argument as plain data, with the content of files that it names.

    Raises:
        TypeError: It is code, or data that another process cannot recognize.
    """
    if name == "data" and value is not None:
        if not (digest := data_digest(value)):
            raise TypeError(name)
        return digest
    if isinstance(value, Mapping):
        return {str(key): _plain("", one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain("", one) for one in value]
    if isinstance(value, (str, os.PathLike)):
        path = Path(value)
        if path.is_dir():
            raise TypeError(name)
        is_file = len(str(value)) < 4096 and path.is_file()
        return [str(value), hashlib.sha256(path.read_bytes()).hexdigest()] if is_file else str(value)
    json.dumps(value)
    return value


def _installed() -> list[object]:
    """Return the names of all installed distributions, which hold their versions, and the state of editable sources."""
    found: list[object] = [sys.version]
    for place in map(Path, sys.path):
        try:
            entries = [entry for entry in os.scandir(place) if entry.name.endswith(_INSTALLED)]
        except OSError:
            continue
        for entry in sorted(entries, key=lambda one: one.name):
            found.append(entry.name)
            if (source := _editable(Path(entry.path))) is not None:
                found.append(_latest(source))
    return found


def _editable(distribution: Path) -> Path | None:
    """Return the folder of a distribution that is installed in place, whose code changes without its version."""
    try:
        about = json.loads((distribution / "direct_url.json").read_text())
        url, is_editable = about["url"], about.get("dir_info", {}).get("editable")
    except (OSError, ValueError, LookupError, AttributeError):
        return None
    return Path(url.removeprefix("file://")) if is_editable and str(url).startswith("file://") else None


def _latest(folder: Path) -> list[int]:
    """Return how many sources a folder has, and when the last one was written."""
    times = [
        os.stat(os.path.join(at, name)).st_mtime_ns
        for at, _, names in os.walk(folder)
        for name in names
        if name.endswith(_SOURCES)
    ]
    return [len(times), max(times, default=0)]


def _machine() -> list[object]:
    kinds = dict.fromkeys(fact for fact in cpu_facts() if fact.partition("\t")[0].strip() not in _VARIES)
    return [list(kinds), cpus()]


def _environment() -> list[tuple[str, str]]:
    return sorted((name, value) for name, value in os.environ.items() if name.startswith(_OWN))


def _name(model: object) -> str:
    return Path(model).name if isinstance(model, (str, os.PathLike)) else f"a {type(model).__name__}"


def _weights(model: object) -> Sequence[Path]:
    """Return the files beside a model file that hold its weights."""
    if not isinstance(model, (str, os.PathLike)):
        return ()
    import onnx

    path = Path(model)
    names: set[str] = set()
    proto = onnx.load(path, load_external_data=False)
    waiting: list[Any] = [proto.graph, *proto.functions]
    while waiting:
        graph = waiting.pop()
        attributes = [attribute for node in graph.node for attribute in node.attribute]
        tensors = [*getattr(graph, "initializer", ()), *(one for each in attributes for one in (each.t, *each.tensors))]
        names.update(entry.value for one in tensors for entry in one.external_data if entry.key == "location")
        waiting += [one for each in attributes for one in (each.g, *each.graphs) if one.node]
    return [path.parent / name for name in sorted(names)]
