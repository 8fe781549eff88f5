"""Generate the table of `docs/decompositions.md` from the decompositions of `dovetail-transforms`.

    python plugins/transforms/tools/generate_decompositions.py            rewrite the table of the page
    python plugins/transforms/tools/generate_decompositions.py --check    exit code 1 if it is stale

The table stands between `<!-- table: operators -->` and `<!-- end of table -->`. What an operator computes is the first
sentence of its rule; the notes below it say where kernels of ONNX Runtime do otherwise.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from dovetail_onnx.native_runtime import native_state
from dovetail_transforms.decompositions.rules.all_rules import FAMILIES

PAGE = Path(__file__).parents[3] / "docs/decompositions.md"
_TABLE = re.compile(r"(<!-- table: operators -->\n).*?(<!-- end of table -->)", re.DOTALL)


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
    """Return the page with a fresh table."""
    return _TABLE.sub(lambda found: found[1] + operators() + found[2], page)


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
