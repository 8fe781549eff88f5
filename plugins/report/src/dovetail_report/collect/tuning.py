"""The tuning table next to a result: candidates with their measured times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail_report.collect.texts import short

TUNING = "tune.json"
_CELLS = {"name": "candidate", "seconds": "seconds", "snr_db": "SNR dB", "answers": "answers", "bytes": "bytes",
          "remark": "remark"}  # fmt: skip


def tuning(folder: Path | None) -> dict[str, Any]:
    """Return the candidates and the certificate of `tune.json` in a folder; empty if there is no readable one."""
    if folder is None or not (folder / TUNING).is_file():
        return {}
    try:
        found = json.loads((folder / TUNING).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    candidates = found.get("candidates") if isinstance(found, Mapping) else None
    if not isinstance(candidates, list):
        return {}
    rows = [
        {title: short(row[key]) if isinstance(row[key], str) else row[key] for key, title in _CELLS.items()
         if isinstance(row.get(key), (str, int, float))}
        for row in candidates
        if isinstance(row, Mapping)
    ]  # fmt: skip
    return {"candidates": rows, "certificate": short(found.get("certificate", ""), 2000)}
