"""Generate the tables of `docs/lowering.md` from onnx's schemas and the table of `dovetail-transforms`.

    python plugins/transforms/tools/generate_table.py            rewrite the tables of the page
    python plugins/transforms/tools/generate_table.py --check    exit code 1 if they are stale

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx
from dovetail_transforms.lowering.lowering import LOWEST
from dovetail_transforms.lowering.steps import ANY, Row, load_table

PAGE = Path(__file__).parents[3] / "docs/lowering.md"
NEWEST = 26  # the newest opset that models are compiled in
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def versions() -> dict[str, list[int]]:
    """Return the versions of every operator of the default domain up to `NEWEST`, deprecated operators left out."""
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and schema.since_version <= NEWEST:
            found.setdefault(schema.name, []).append(schema.since_version)
    newest = {name: onnx.defs.get_schema(name, max(numbers), "") for name, numbers in found.items()}
    return {name: sorted(numbers) for name, numbers in sorted(found.items()) if not newest[name].deprecated}


def step(row: Row) -> str:
    """Describe what the table does with a node of one version."""
    parts = []
    for name, neutral in row.drop.items():
        parts.append(f"loses `{name}`" + ("" if neutral == ANY else f" if it is `{neutral}`"))
    for name, others in row.values.items():
        parts.append(f"`{name}`: " + ", ".join(f"`{new}` is `{old}`" for new, old in others.items()))
    for name, known in row.only.items():
        parts.append(f"`{name}` is one of " + ", ".join(f"`{value}`" for value in known))
    if row.changed:
        parts.append(f"{row.changed}" + (f": stays if *{row.unless}*" if row.unless else ""))
    if row.rewrite:
        parts.append(f"else *{row.rewrite}*" if parts else f"*{row.rewrite}*")
    if row.function:
        parts.append("its body in ONNX")
    if row.refuse:
        parts.append(f"refused: {row.refuse}")
    return "; ".join(parts)


def tables() -> dict[str, str]:
    """Return the content of each table by name."""
    changed, same, refused = [], [], []
    for name, numbers in versions().items():
        rows = {number: load_table().get((name, number)) for number in numbers if number > LOWEST}
        came = min(numbers)
        if came > LOWEST and not (rows[came] and (rows[came].rewrite or rows[came].function)):
            refused.append(f"{name} ({came})")
            continue
        steps = [f"{number}: {step(row)}" for number, row in sorted(rows.items()) if row]
        if steps:
            changed.append(f"| {name} | {'<br>'.join(steps)} |")
        else:
            same.append(name)
    return {
        "changed": "\n".join(["| operator | what becomes of a node of that version |", "|---|---|", *changed]) + "\n",
        "same": _wrapped(same),
        "refused": _wrapped(refused),
    }


def _wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        word = f"{name}," if name is not names[-1] else name
        if len(line) + len(word) > 118:
            lines.append(line.rstrip())
            line = ""
        line += f"{word} "
    return "\n".join([*lines, line.rstrip()]) + "\n"


def generated(page: str) -> str:
    """Return the page with fresh tables."""
    content = tables()
    return _TABLE.sub(lambda found: found[1] + content[found[2]] + found[3], page)


def main(arguments: list[str]) -> int:
    """Rewrite or check the page."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = generated(page)
    if "--check" in arguments:
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
