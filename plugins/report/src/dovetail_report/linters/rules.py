"""All linters, in the order in which their findings are shown."""

from __future__ import annotations

from itertools import islice

from dovetail_report.linters.conversions import inverse_casts, islands
from dovetail_report.linters.finding import Finding, Subject
from dovetail_report.linters.numbers import few_levels, ill_fitting_scales, noisy_layers
from dovetail_report.linters.outcome import failures, inaccurate_outputs
from dovetail_report.linters.regions import large_borders, small_regions

LINTERS = (failures, inaccurate_outputs, inverse_casts, islands, small_regions, large_borders, noisy_layers,
           ill_fitting_scales, few_levels)  # fmt: skip

_MOST = 1000  # findings of one linter on a page


def lint(subject: Subject) -> list[Finding]:
    """Run all linters; of each at most 1000 findings, and one that says that there are more; warnings first."""
    findings: list[Finding] = []
    for linter in LINTERS:
        found = list(islice(linter(subject), _MOST + 1))
        findings += found[:_MOST]
        if len(found) > _MOST:
            findings.append(Finding(found[0].rule, "note", f"there are more than these {_MOST} findings of this kind"))
    return sorted(findings, key=lambda finding: finding.level != "warning")
