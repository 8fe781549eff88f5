"""What each part of a compilation decided, one line each, from the counts of its passes and the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.planning import coverage_line
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail.passes import Result
    from dovetail.plugin import CompiledModel

_DECIDE = "place"  # the first pass that decides
_CARRY_OUT = "calibrate"  # the first pass that carries decisions out
_NAMED = 3  # operators that were folded


def stage_lines(compiled: CompiledModel, results: list[Result], seconds: bool = False) -> list[str]:
    """Return a line for each part: what it found or decided, and with `seconds` its time over all rounds.

    Args:
        compiled: The result.
        results: The results of all pipelines that ran for it.
        seconds: Whether to add times.
    """
    times = _times(results)
    parts = (
        ("prepare", _prepared(compiled)),
        ("decide", _decided(compiled, len(results))),
        ("carry out", _carried_out(compiled)),
    )
    lines = []
    for name, facts in parts:
        took = f"{times[name]:8.2f} s  " if seconds else ""
        lines.append(f"{name:<10}{took}{'; '.join(facts)}")
    return lines


def _times(results: list[Result]) -> dict[str, float]:
    """Return the seconds of each part; a pipeline is in the order of the parts."""
    times = dict.fromkeys(("prepare", "decide", "carry out"), 0.0)
    for result in results:
        part = "prepare"
        for step in result.passes:
            if step.name == _DECIDE:
                part = "decide"
            elif step.name == _CARRY_OUT:
                part = "carry out"
            times[part] += step.seconds + step.verify_seconds
    return times


def _prepared(compiled: CompiledModel) -> Iterator[str]:
    plan = compiled.plan
    yield pluralize(len(plan.nodes), "node")
    gone = Counter(source.operator for source in plan.sources)
    if gone:
        named = ", ".join(f"{name} {number}" for name, number in gone.most_common(_NAMED))
        yield f"{len(plan.sources)} folded or removed ({named}{', ...' if len(gone) > _NAMED else ''})"


def _decided(compiled: CompiledModel, rounds: int) -> Iterator[str]:
    plan = compiled.plan
    yield coverage_line(plan.nodes, precisions=True)
    refused = sum(remark.kind == "failed" and bool(remark.node) for remark in plan.remarks)
    if refused:
        yield f"{pluralize(refused, 'node')} refused and placed elsewhere"
    found = plan.summary.get("accuracy")
    if isinstance(found, dict) and found.get("raised"):
        yield f"{pluralize(len(found['raised']), 'node')} raised for the goal"
    if rounds > 1:
        yield f"{rounds} compilations"


def _carried_out(compiled: CompiledModel) -> Iterator[str]:
    plan = compiled.plan
    yield pluralize(len(plan.joins), "conversion")
    quantized = len(plan.values)
    if quantized:
        yield f"{pluralize(quantized, 'value')} quantized"
    yield pluralize(int(plan.summary.get("regions", 0)), "region")
    if compiled.artifacts is not None:
        yield pluralize(sum(1 for _ in compiled.artifacts.files()), "file") + " for other tools"
