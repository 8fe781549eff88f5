"""Generate the tables of `docs/lowering.md` and `docs/decompositions.md` from the rules of `dovetail-transforms`.

    python plugins/transforms/tools/generate_tables.py            rewrite the tables of both pages
    python plugins/transforms/tools/generate_tables.py --check    exit code 1 if they are stale

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`. What an operator computes is the first
sentence of its rule; the notes below that table say where kernels of ONNX Runtime do otherwise.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import onnx
from dovetail_onnx.native_runtime import native_state
from dovetail_transforms.decompositions.rules.all_rules import FAMILIES
from dovetail_transforms.lowering.lowering import LOWEST
from dovetail_transforms.lowering.steps import ANY, LoweringRow, load_table

PAGES = [Path(__file__).parents[3] / "docs" / name for name in ("lowering.md", "decompositions.md")]
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


def step(row: LoweringRow) -> str:
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


def lowering() -> dict[str, str]:
    """Return the content of each table of lowering by name."""
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


def _types_with_kernels() -> dict[str, set[str]]:
    """Return the float types for which CPUs have a kernel, by operator with its domain."""
    found: dict[str, set[str]] = {}
    for kernel in native_state().get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            name = f"{kernel.domain}.{kernel.op_name}" if kernel.domain else kernel.op_name
            found.setdefault(name, set()).update(*kernel.type_constraints.values(), [""])
    return found


def operators() -> str:
    """Return the table: operators by family, what each computes, and whether CPUs have a kernel to compare with."""
    kernels, lines = _types_with_kernels(), ["| operator | computes | compared with |", "|---|---|---|"]
    for family in FAMILIES:
        title = inspect.getdoc(family) or ""
        lines.append(f"| **{title.partition('.')[0].partition(chr(10) * 2)[0].replace(chr(10), ' ')}** | | |")
        for operator, rule in family.RULES.items():
            sentence = (inspect.getdoc(rule) or "").partition("\n\n")[0].replace("\n", " ")
            judge = "its kernel" if operator in kernels else "its formula"
            lines.append(f"| {operator.removeprefix('com.microsoft.')} | {sentence} | {judge} |")
    return "\n".join(lines) + "\n"


def generated(page: str) -> str:
    """Return a page with fresh tables."""
    content = {**lowering(), "operators": operators()}
    return _TABLE.sub(lambda found: found[1] + content[found[2]] + found[3], page)


def main(arguments: list[str]) -> int:
    """Rewrite or check the pages."""
    before = {page: page.read_text(encoding="utf-8") for page in PAGES}
    fresh = {page: generated(text) for page, text in before.items()}
    if "--check" in arguments:
        return int(fresh != before)
    for page, text in fresh.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
