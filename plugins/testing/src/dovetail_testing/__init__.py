"""Conformance suite for backends: compare compiled models and operators with a reference.

    import dovetail
    dovetail.testing.double_run("model.onnx", "acme-npu").check(tolerance=0.01)

`pytest --dovetail-backend NAME` runs the whole suite; see `pytest_plugin`.
"""

from __future__ import annotations

import importlib

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the commands of the vendor's kit."""
    registry.command(
        "new-backend",
        "dovetail_testing.kit.new_backend_command:NEW_BACKEND",
        "extend",
        "Write a distribution for a new backend.",
    )
    registry.command(
        "coverage",
        "dovetail_testing.kit.coverage_command:COVERAGE",
        "understand",
        "Count nodes, work and borders of models that a backend does not take.",
    )
    registry.command(
        "diff", "dovetail_testing.kit.diff_command:DIFF", "understand", "Compare two backends, plans or results."
    )
    registry.command(
        "probe",
        "dovetail_testing.probe.command:PROBE",
        "extend",
        "Measure which operators an engine computes, and write a backend file.",
    )


_PUBLIC = {
    "Case": "dovetail_testing.case",
    "Lists": "dovetail_testing.list_files",
    "Measurement": "dovetail_testing.case",
    "Report": "dovetail_testing.report",
    "Verdict": "dovetail_testing.verdicts",
    "check_installed": "dovetail_testing.kit.installed",
    "check_on_worker": "dovetail_testing.kit.sent_check",
    "coverage": "dovetail_testing.kit.coverage",
    "cases": "dovetail_testing.suites",
    "double_run": "dovetail_testing.report",
    "lists": "dovetail_testing.list_files",
    "measure": "dovetail_testing.running",
    "probe": "dovetail_testing.probe.probing",
    "progress_lines": "dovetail_testing.progress",
    "verdict": "dovetail_testing.verdicts",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'dovetail_testing' has no attribute {name!r}")
