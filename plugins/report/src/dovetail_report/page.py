"""The page of a report: a document, style and script in one HTML file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

_LONG = 500  # rows of a table
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@cache
def asset(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("dovetail_report") / "assets" / name).read_text(encoding="utf-8")


def json_text(document: Any) -> str:
    """Return JSON that cannot end the element that holds it, in ASCII, so that no name changes what is read."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False)
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return text


def packed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with its long tables as columns: `{"columns": keys, "rows": lists}`, a third of the size."""
    found = dict(document)
    for name, rows in document.items():
        if isinstance(rows, list) and len(rows) > _LONG and isinstance(rows[0], dict):
            keys = list(dict.fromkeys(key for row in rows for key in row))
            found[name] = {"columns": keys, "rows": [[row.get(key) for key in keys] for row in rows]}
    if comparison := document.get("comparison"):
        found["comparison"] = {**comparison, "second": packed(comparison["second"])}
    return found


def page(document: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of the page. Its policy allows only its own script, and no addresses."""
    script, style = asset("report.js"), asset("report.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
              "base-uri 'none'; form-action 'none'")  # fmt: skip
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(document['title'])} - Dovetail report</title>\n"
        f"<style>\n{style}</style>\n</head>\n<body>\n"
        '<div id="app"></div>\n<noscript>This report needs JavaScript; it loads nothing from the network.</noscript>\n'
        '<script type="application/json" id="data">'
    )
    yield json_text(packed(document))
    yield f'</script>\n<script>{script}</script>\n<details id="licenses"><summary>Licenses</summary><pre>'
    yield html.escape(asset("report.LICENSES.txt"))
    yield "</pre></details>\n</body>\n</html>\n"
