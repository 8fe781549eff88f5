"""Generate the tables of `docs/backend_files.md` from the JSON schema of backend files.

    python schemas/tools/generate_reference.py            rewrite the tables of the page
    python schemas/tools/generate_reference.py --check    exit code 1 if they are stale

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. Each key of the schema brings its own row:
`description`, `default`, `x-read-by` (what reads it) and, where the schema's own type says too little, `x-type`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "schemas/src/dovetail_schemas/backend.schema.json"
PAGE = ROOT / "docs/backend_files.md"
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_TYPES = {
    "text": "text",
    "words": "word, or list of words",
    "dtype": "element type",
    "dtypes": "element type, or list of them",
    "opset": "`N` or `N..M`, with N at most M",
    "size": "size, such as `2MiB`",
    "types": "mapping from names to types",
    "groups": "mapping from names to words",
    "ops": "mapping from operators to rules",
    "rule": "a rule, `refuse` or `forbid`",
    "row": "a row",
    "portTypes": "types, or mapping from ports to types",
    "shape": "mapping from ports to shapes",
    "limits": "block, or list of blocks",
    "terms": "mapping from terms to ranges",
}


class Reference:
    """The tables of one schema.

    Args:
        schema: The JSON schema of backend files.
    """

    def __init__(self, schema: dict[str, Any]):
        self.schema = schema
        self.definitions: dict[str, Any] = schema["definitions"]

    def properties(self, table: str) -> dict[str, Any]:
        """The keys of the mapping that a table describes: `file`, or the name of a definition."""
        if table == "file":
            return self.schema["properties"]
        if table == "type":
            return self.definitions["types"]["additionalProperties"]["then"]["properties"]
        definition = self.definitions[table]
        return definition.get("then", definition)["properties"]

    def required(self, table: str) -> tuple[str, ...]:
        """The keys that must be there."""
        return {"file": ("backend", "device", "opset"), "variant": ("when",), "type": ("dtype",)}.get(table, ())

    def table(self, name: str) -> str:
        """One table in Markdown, with a row per key."""
        rows = ["| key | type | default | meaning | read by |", "|---|---|---|---|---|"]
        for key, found in self.properties(name).items():
            if name == "variant" and "description" not in found:
                continue
            default = "required" if key in self.required(name) else self._default(found)
            meaning = f"{found['description']}."
            rows.append(f"| `{key}` | {self.type_of(found)} | {default} | {meaning} | {found['x-read-by']} |")
        return "\n".join(rows) + "\n"

    def type_of(self, found: dict[str, Any]) -> str:
        """What a value may be, in words."""
        if "x-type" in found:
            return found["x-type"]
        name = _definition(found)
        if name in _TYPES:
            return _TYPES[name]
        resolved = self.definitions[name] if name else found
        if "enum" in resolved:
            return ", ".join(f"`{word}`" for word in resolved["enum"] if word is not None)
        if "properties" in resolved:
            return "mapping, see below"
        kinds = resolved["type"]
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if kind == "array":
            return "list of rows"
        if kind == "integer":
            return f"whole number from {resolved['minimum']}" if "minimum" in resolved else "whole number"
        return {"object": "mapping from attributes to values", "boolean": "`true` or `false`"}[kind]

    @staticmethod
    def _default(found: dict[str, Any]) -> str:
        return f"`{found['default']}`" if found.get("default", "") != "" else "none"


def _definition(found: dict[str, Any]) -> str:
    """The definition that a key refers to; a layer over another one may also drop the key."""
    return found.get("$ref", "").rpartition("/")[2].removeprefix("droppable_")


def rendered(page: str, schema: dict[str, Any]) -> str:
    """The page with its tables made anew."""
    reference = Reference(schema)
    return _TABLE.sub(lambda found: found[1] + reference.table(found[2]) + found[3], page)


def main(arguments: list[str]) -> int:
    """Rewrite the page, or say that it is stale."""
    page = PAGE.read_text(encoding="utf-8")
    wanted = rendered(page, json.loads(SCHEMA.read_text(encoding="utf-8")))
    if arguments == ["--check"]:
        if wanted != page:
            print(f"{PAGE.name} is stale; run python schemas/tools/generate_reference.py", file=sys.stderr)
        return int(wanted != page)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
