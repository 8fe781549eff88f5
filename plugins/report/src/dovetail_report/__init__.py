"""Reports: a result as one page that needs no network, and its graph for other viewers."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the command `report` and the option `--report` of `compile`."""
    registry.command(
        "report",
        "dovetail_report.command:REPORT",
        "understand",
        "Write a result as one page: graph, reasons, borders, errors.",
    )
    registry.option("report", "dovetail_report.option:REPORTED")
