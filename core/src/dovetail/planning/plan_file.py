"""Plans on disk: YAML with one line per node, join and remark, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail.files import write_text
from dovetail.planning.join import Join
from dovetail.planning.plan import VERSION, Plan, PlannedNode
from dovetail.planning.remark import Remark

__all__ = ["load_plan", "plan_text", "save_plan"]

_NODE_FIELDS = {field.name for field in fields(PlannedNode)}


def save_plan(plan: Plan, path: Path) -> None:
    """Write `plan` to `path`, beside it first.

    Raises:
        DovetailError: The file cannot be written.
    """
    text = json.dumps(plan.as_dict(), indent=1) + "\n" if path.suffix == ".json" else plan_text(plan)
    write_text(path, text)


def plan_text(plan: Plan) -> str:
    """The plan as YAML, ending in a newline."""
    return "".join(_lines(plan.as_dict()))


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """YAML whose leaves are JSON: a hundred thousand lines are written in a second, and read well one by one."""
    for key, value in data.items():
        if isinstance(value, list) and value:
            yield f"{key}:\n"
            for item in value:
                yield f"  - {_flow(item)}\n"
        else:
            yield f"{key}: {_flow(value)}\n"


def _flow(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load_plan(path: Path) -> Plan:
    """Read the plan at `path`, or `plan.yaml` in that folder.

    Raises:
        DovetailError: It is missing, no plan, or has an entry that says what no plan says.
    """
    if path.is_dir():
        path /= "plan.yaml"
    if not path.is_file():
        raise DovetailError(f"{path} does not exist", "`dovetail plan MODEL -o plan.yaml` makes one")
    data = _parsed(path)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise DovetailError(f"{path} is no plan of version {VERSION}", "`dovetail plan MODEL -o plan.yaml` makes one")
    try:
        return Plan(
            data.get("model") or {},
            data.get("backends") or [],
            [_node(entry, path) for entry in data.get("nodes") or []],
            [Join.from_dict(entry) for entry in data.get("joins") or []],
            data.get("values") or {},
            data.get("edits") or [],
            [Remark.from_dict(entry) for entry in data.get("remarks") or []],
            data.get("summary") or {},
        )
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DovetailError(f"{path}: an entry is not as plans have it: {error}") from error


def _parsed(path: Path) -> Any:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise DovetailError(f"{path}:{error.lineno}: {error.msg}") from None
    import yaml

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise DovetailError(f"{path}{line}: {getattr(error, 'problem', None) or error}") from None


def _node(entry: dict[str, Any], path: Path) -> PlannedNode:
    unknown = sorted(entry.keys() - _NODE_FIELDS)
    if unknown or "output" not in entry or "backend" not in entry:
        what = f"unknown key '{unknown[0]}'" if unknown else "no output or no backend"
        keys = ", ".join(sorted(_NODE_FIELDS))
        raise DovetailError(f"{path}: node '{entry.get('name', '?')}': {what}", f"keys: {keys}")
    defaults = {"name": "", "key": "", "op_type": "", "precision": ""}
    return PlannedNode(**{**defaults, **entry, "origin": tuple(entry.get("origin", ()))})
