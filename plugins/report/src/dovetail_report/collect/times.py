"""Measured times of regions, from the timeline that `dovetail run --trace` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError
from dovetail_commands.plan_graph.result_graph import ResultGraph

from dovetail_report.collect.texts import short

_REGION = re.compile(r"region (\d+): ")
_HINT = "name the file that `dovetail run RESULT --data FILE --trace FILE` wrote for this result"


def times(path: Path, graph: ResultGraph) -> list[dict[str, Any]]:
    """Return a row for each region that ran: engine, runs, median and total milliseconds.

    The first run of a region is not counted if there are others, because engines initialize in it.

    Raises:
        DovetailError: The file is no timeline, or that of another result.
    """
    known = {region.number: (index, region.backend) for index, region in enumerate(graph.regions)}
    found: dict[int, list[float]] = {}
    engines: dict[int, str] = {}
    for event in _events(path):
        match = _REGION.match(str(event.get("name", ""))) if event.get("cat") == "region" else None
        if match is None:
            continue
        number, arguments = int(match[1]), event.get("args") or {}
        index, backend = known.get(number, (-1, ""))
        if index < 0 or not isinstance(arguments, dict) or arguments.get("backend") != backend:
            raise DovetailError(f"{path}: region {number} is not one of this result", _HINT)
        if not isinstance(event.get("dur"), (int, float)):
            raise DovetailError(f"{path}: an event of region {number} has no duration", _HINT)
        found.setdefault(index, []).append(event["dur"] / 1000)
        engines[index] = short(arguments.get("engine", ""))
    if not found:
        raise DovetailError(f"{path} has no times of regions", _HINT)
    rows = []
    for index, all_runs in sorted(found.items()):
        runs = sorted(all_runs[1:] or all_runs)
        rows.append({
            "region": index, "engine": engines[index], "runs": len(runs), "ms": round(runs[len(runs) // 2], 4),
            "total": round(sum(runs), 3),
        })  # fmt: skip
    return rows


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DovetailError(f"{path}: {error.strerror}", _HINT) from None
    except ValueError as error:
        raise DovetailError(f"{path} is no timeline: {error}", _HINT) from None
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise DovetailError(f"{path} is no timeline: it has no list 'traceEvents'", _HINT)
    return events
