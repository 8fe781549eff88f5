"""File format of plans: YAML with one line per node, join and group of remarks; or JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail.files import seen
from dovetail.ir import gc_paused
from dovetail.passes import Request
from dovetail.planning import VERSION, Edit, Plan, PlannedBackend, Remark

from dovetail_onnx.files.parsing import Malformed, parse_json
from dovetail_onnx.files.reading import file_sha256, read_input
from dovetail_onnx.files.writing import write_text
from dovetail_onnx.results.document import (
    NODE_FIELDS,
    DocumentEntries,
    document_lines,
    join_of,
    join_row,
    json_text,
    node_of,
    node_row,
    parse_document,
    source_of,
)
from dovetail_onnx.results.manifest import PLAN, REMARKS
from dovetail_onnx.results.provenance import located
from dovetail_onnx.results.reading import find_result
from dovetail_onnx.results.remark_file import grouped, ungrouped
from dovetail_onnx.results.writing import copy_beside, files_beside

_READ = (1, VERSION)
_LARGEST = 1 << 30  # bytes
_TEXTS = ("name", "strategy", "distribution", "sha256")
_BACKEND_KEYS = {*_TEXTS, "contract", "options"}
_NOTES = {
    "nodes": "[name, output, operator, backend/precision, region, key, {fields that differ from their defaults}]",
    "joins": "[value, from, to, kind, first reader, bytes]",
    "edits": "{kind, at: value that the node computes, side, operator of the node, key}",
    "sources": "[node of the source model, operator, why it is gone]",
}


def save_plan(plan: Plan, path: Path) -> None:
    """Write `plan` with its remarks to `path`, as JSON if the name ends in `.json`.

    Raises:
        DovetailError: The file cannot be written.
    """
    if plan.source is not None and seen(plan.source).is_file() and "sha256" not in plan.model:
        plan.model["sha256"] = file_sha256(plan.source)
    text = json.dumps(plan.as_dict(), indent=1) + "\n" if path.suffix == ".json" else plan_text(plan)
    write_text(path, text)
    copy_beside(plan.files, path)


def plan_text(plan: Plan, remarks: dict[str, Any] | None = None) -> str:
    """Return the plan as YAML, ending in a newline.

    Args:
        plan: The plan.
        remarks: Reference to a file of remarks, as `file` and `sha256`; if None, remarks are part of the text.
    """
    data: dict[str, Any] = {
        "version": VERSION,
        "model": plan.model,
        "backends": [backend.as_dict() for backend in plan.backends],
        "nodes": [node_row(node) for node in plan.nodes],
        "joins": [join_row(join) for join in plan.joins],
        "values": plan.values,
        "edits": plan.edits,
        "sources": [list(node) for node in plan.sources],
        "remarks": grouped(plan.remarks) if remarks is None else remarks,
        "summary": plan.summary_document(),
    }
    return "".join(document_lines(data, _NOTES))


def remarks_text(remarks: Iterable[Remark]) -> str:
    """Return the text of `remarks.json`: a list with one line per group of remarks."""
    lines = ",\n".join(json_text(line) for line in grouped(remarks))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def read_plan(path: Path) -> dict[str, Any]:
    """Read the fields of the plan at `path`, a file or the folder of a result, with its remarks.

    Raises:
        DovetailError: The file is missing, not a plan, or has a malformed entry.
    """
    texts: Mapping[str, bytes] = {}
    if path.is_dir():
        with contextlib.suppress(DovetailError):  # a folder without its model may still have a plan
            found = find_result(path)
            texts = found.texts if found else {}
        path = path / PLAN
    if PLAN not in texts and not seen(path).exists():
        raise DovetailError(f"{path} does not exist", "`dovetail plan MODEL -o plan.yaml` makes one")
    with gc_paused():
        return _with_remarks(path, texts)


def _with_remarks(path: Path, texts: Mapping[str, bytes]) -> dict[str, Any]:
    fields, remarks = parse_plan(_decoded(texts[PLAN]) if PLAN in texts else _read(path), str(path))
    if remarks is not None:
        beside = path.with_name(REMARKS)
        content = texts.get(REMARKS) or (read_input(beside, _LARGEST) if seen(beside).is_file() else b"")
        if hashlib.sha256(content).hexdigest() == remarks.get("sha256"):
            fields["remarks"] = parse_remarks(_decoded(content), str(beside))
        else:
            why = f"{REMARKS} is not the file that was saved with this plan, so the reasons are unknown"
            fields["remarks"] = [Remark("analysis", "", "plan", "remarks", why)]
    fields["files"] = files_beside(fields["summary"], path)
    fields["backends"] = located(fields["backends"], path.parent)
    return fields


def _decoded(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="replace")


def _read(path: Path) -> str:
    return _decoded(read_input(path, _LARGEST))


def parse_plan(text: str, name: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Parse a plan; return its fields with the reference to its remarks, if they are in another file.

    Raises:
        DovetailError: The text is not a plan, or has a malformed entry; names the line if it is known.
    """
    try:
        data = parse_json(text) if name.endswith(".json") else parse_document(text, name)
    except Malformed as error:
        raise DovetailError(error.at(name), "`dovetail plan MODEL -o plan.yaml` makes one") from None
    if not isinstance(data, dict) or data.get("version") not in _READ or isinstance(data["version"], bool):
        raise DovetailError(
            f"{name} is not a plan of version {VERSION}", "`dovetail plan MODEL -o plan.yaml` makes one"
        )
    remarks = data.get("remarks") or []
    elsewhere = remarks if isinstance(remarks, dict) else None
    fields = {
        "model": _of_type(dict, data, "model", name),
        "backends": [_backend(entry, name) for entry in _of_type(list, data, "backends", name)],
        "nodes": _entries(data, "nodes", node_of, name),
        "joins": _entries(data, "joins", join_of, name),
        "values": _of_type(dict, data, "values", name),
        "edits": _entries(data, "edits", lambda entry: Edit.from_dict(entry).as_dict(), name),
        "remarks": [] if elsewhere is not None else _remarks(_of_type(list, data, "remarks", name), name),
        "summary": (summary := dict(_of_type(dict, data, "summary", name))),
        "request": _request(summary.pop("request", None), name),
        "sources": _entries(data, "sources", source_of, name),
    }
    return fields, elsewhere


def parse_remarks(text: str, name: str) -> list[Remark]:
    """Parse the text of `remarks_text`.

    Raises:
        DovetailError: The text is malformed.
    """
    try:
        data = parse_json(text)
    except Malformed as error:
        raise DovetailError(error.at(name), "compile again into this folder") from None
    if not isinstance(data, list):
        raise DovetailError(f"{name} is not a list of remarks")
    return _remarks(data, name)


def _remarks(lines: list, name: str) -> list[Remark]:
    try:
        return list(ungrouped(lines))
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise DovetailError(f"{name}: a remark is malformed: {error}") from error


def _of_type(kind: type, data: dict[str, Any], key: str, name: str) -> Any:
    value = data.get(key) or kind()
    if not isinstance(value, kind):
        wanted = "a mapping" if kind is dict else "a list"
        raise DovetailError(f"{name}: '{key}' must be {wanted}")
    return value


def _entries(data: dict[str, Any], key: str, make: Any, name: str) -> list:
    entries = _of_type(list, data, key, name)
    lines = entries.lines if isinstance(entries, DocumentEntries) else None
    made = []
    for index, entry in enumerate(entries):
        try:
            made.append(make(entry))
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            where = f"{name}:{lines[index]}" if lines else f"{name}: entry {index + 1} of {key}"
            raise DovetailError(f"{where}: {_reason(error)}", _hint(key)) from error
    return made


def _reason(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"malformed: {error}"


def _hint(key: str) -> str:
    mapping = f", or a mapping with keys {', '.join(sorted(NODE_FIELDS))}" if key == "nodes" else ""
    return f"write {_NOTES[key]}{mapping}"


def _backend(entry: Any, name: str) -> PlannedBackend:
    """Parse a backend. A path in the file is ignored, because it may belong to another machine."""
    if isinstance(entry, dict) and isinstance(entry.get("name"), str):
        options, texts = entry.get("options", {}), [value for key, value in entry.items() if key in _TEXTS]
        if isinstance(options, dict) and all(isinstance(value, str) for value in (*options.values(), *texts)):
            return PlannedBackend(**{key: value for key, value in entry.items() if key in _BACKEND_KEYS})
    raise DovetailError(f"{name}: an entry of 'backends' is malformed", "write {name: cpu-bf16, options: {key: value}}")


def _request(recorded: Any, name: str) -> Request | None:
    if not recorded:
        return None
    try:
        return Request.from_dict(recorded)
    except DovetailError as error:
        raise DovetailError(f"{name}: 'request' in 'summary': {error.message}", error.hint) from None


class SavedPlan(Plan):
    """A plan that is parsed on first access, which takes a second for a large model.

    Thread-safe: one thread reads the plan, and all see the same one.
    """

    def __init__(self, load: Callable[[], Plan]):
        self.__dict__.update(_load=load, _loading=threading.Lock())

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__
        if name.startswith("__") or "_loading" not in held or name in ("_load", "_loading"):
            raise AttributeError(name)
        with held["_loading"]:
            load = held.get("_load")
            if load is not None:
                held.update(vars(load()))
                held["_load"] = None
        if name not in held:
            raise AttributeError(name)
        return held[name]
