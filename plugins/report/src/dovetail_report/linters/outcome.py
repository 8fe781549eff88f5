"""Linters for the outcome as a whole: what the compilation failed to do, and what the comparison warns of."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail_report.linters.finding import Finding, Subject


def failures(subject: Subject) -> Iterator[Finding]:
    """Find what failed for the model as a whole, such as an accuracy goal."""
    for remark in subject.plan.remarks:
        if remark.kind == "failed" and not remark.node:
            yield Finding(remark.rule, "warning", remark.why, advice=remark.suggest)


def inaccurate_outputs(subject: Subject) -> Iterator[Finding]:
    """Find the outputs that the comparison with the original warns of."""
    for text in subject.verification.warnings if subject.verification is not None else ():
        yield Finding("inaccurate", "warning", text, advice=subject.verification.advice if subject.verification else "")
