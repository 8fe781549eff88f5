"""The command that is worth typing next, after a compilation."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.planning import HOST

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel


def next_command(compiled: CompiledModel, output: Path | None, data: object) -> tuple[str, str]:
    """Return a command and what it is for.

    Args:
        compiled: The result.
        output: Where it was saved, if it was.
        data: The data of the request, if there was some.
    """
    plan, verification = compiled.plan, compiled.verification
    where = shlex.quote(str(output)) if output is not None else "OUT"
    if output is None:
        return "the same with -o out", "keeps the result"
    first = plan.backends[0].name if plan.backends else HOST
    away = [node for node in plan.nodes if node.backend != first]
    if verification is not None and verification.warnings:
        return f"dovetail report {where}", "shows where the accuracy goes"
    if away:
        share = f"{len(away)} of {len(plan.nodes)} nodes are not on {first}"
        return f"dovetail explain {where} --all", f"says why {share}, and what would help"
    if data is None:
        model = shlex.quote(str(compiled.source)) if compiled.source is not None else "MODEL"
        return f"dovetail verify {model} {where} --data FILE", "measures on your data how exact it is"
    return f"dovetail report {where}", "shows it as a page"
