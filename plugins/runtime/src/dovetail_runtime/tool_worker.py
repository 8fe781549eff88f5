"""The process of a tool: calls functions of a worker's file, for `dovetail_runtime.tool`.

    python tool_worker.py PROCESSES WORKER

It may run in an environment that has neither Dovetail nor NumPy, so it imports the standard library alone, and NumPy
for arrays. PROCESSES is the file of `dovetail.plugin.processes`, which does the same.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from typing import IO, Any

_WORKER = "dovetail_tool"
"""The name of the worker's module here."""

_OURS = ("dovetail.errors", "DovetailError")

_KEY = "$part"
"""The key of a mapping that stands for a bytes object or an array; its value is the index among the parts."""


def send(stream: IO[bytes], message: object) -> None:
    """Write a message of plain data, bytes and arrays: a line of JSON, then the bytes of each part."""
    parts: list[tuple[list[object], memoryview]] = []
    text = json.dumps(_flat(message, parts))
    head = json.dumps({"message": text, "parts": [form for form, _ in parts]})
    stream.write(head.encode() + b"\n")
    for _, data in parts:
        stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read what `send` wrote.

    Raises:
        EOFError: The other process has ended.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    head = json.loads(line)
    parts = []
    for form in head["parts"]:
        data = _exactly(stream, form[0])
        parts.append(bytes(data) if len(form) == 1 else _array(data, *form[1:]))
    return json.loads(head["message"], object_hook=lambda found: parts[found[_KEY]] if list(found) == [_KEY] else found)


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    data, done = bytearray(size), 0
    with memoryview(data) as view:
        while done < size:
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]  # pipes are buffered readers
            if not count:
                raise EOFError
            done += count
    return data


def _flat(value: Any, parts: list[tuple[list[object], memoryview]]) -> Any:
    """Return plain data, with bytes and arrays moved to `parts`."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = memoryview(value).cast("B")
        parts.append(([len(data)], data))
        return {_KEY: len(parts) - 1}
    if isinstance(value, dict):
        return {str(key): _flat(item, parts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_flat(item, parts) for item in value]
    import numpy as np

    array = np.ascontiguousarray(value)
    if array.dtype.kind in "OSU":
        raise TypeError(f"{type(value).__name__} is neither plain data nor an array of numbers")
    data = array.reshape(-1).view(np.uint8).data
    parts.append(([len(data), array.dtype.name, list(np.shape(value))], data))
    return {_KEY: len(parts) - 1}


def _array(data: bytearray, name: str, shape: list[int]) -> Any:
    import numpy as np

    try:
        dtype = np.dtype(name)
    except TypeError:
        import ml_dtypes  # noqa: F401, registers the types that NumPy lacks

        dtype = np.dtype(name)
    return np.frombuffer(data, dtype).reshape(shape)


def _module_of(path: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _called(worker: Any, request: Any, answers: IO[bytes], kept: dict[str, Any]) -> Any:
    """Do what a request says, and return the answer.

    A function is called, with what is open under a key before its arguments; its result is kept under one, or is the
    answer.
    """
    if "forget" in request:
        kept.pop(request["forget"], None)
        return None
    opened = [kept[request["with"]]] if "with" in request else []
    found = getattr(worker, request["function"])(*opened, **request["given"])
    found = _finished(found, answers) if inspect.isgenerator(found) else found
    if "keep" not in request:
        return found
    kept[request["keep"]] = found
    return None


def _finished(found: Any, answers: IO[bytes]) -> Any:
    """Return the result of a generator; its values are sent as progress."""
    while True:
        try:
            send(answers, {"progress": str(next(found))})
        except StopIteration as end:
            return end.value


def _failure(error: BaseException) -> dict[str, object]:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    known = vars(error)
    nodes = known.get("nodes", ())
    # Errors of Dovetail have a message that stands alone. Whether one is, is not asked of Dovetail: it may be absent.
    ours = any((base.__module__, base.__name__) == _OURS for base in type(error).__mro__)
    # What the worker itself raises in its own words needs no name of a class before them.
    kind = "" if type(error).__module__ == _WORKER else type(error).__name__
    # The text of some exceptions is a whole traceback, whose last line is the cause.
    cause = -1 if lines and lines[0].startswith("Traceback (most recent call last)") else 0
    told = lines[cause] if lines else type(error).__name__
    if isinstance(error, MemoryError):
        kind, told = "", "there is not enough memory"
    return {
        "error": known["message"] if ours else told, "kind": kind, "ours": ours, "hint": known["hint"] if ours else "",
        "nodes": [str(node) for node in nodes] if isinstance(nodes, (list, tuple)) else [],
    }  # fmt: skip


def main(processes: str, path: str) -> None:
    """Answer requests on standard input; what the tool prints goes to standard error."""
    _module_of(processes, "dovetail_processes").end_with_parent()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    worker = None
    kept: dict[str, Any] = {}
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        try:
            worker = worker or _module_of(path, _WORKER)
            answer = {"answer": _called(worker, request, answers, kept)}
        except (Exception, SystemExit) as error:
            answer = _failure(error)
        try:
            send(answers, answer)
        except TypeError as error:  # a result that cannot be sent; nothing of it was written
            send(answers, _failure(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
