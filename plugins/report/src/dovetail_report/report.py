"""`dovetail.report`: a result as one page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail import api
from dovetail.ir import gc_paused
from dovetail_onnx.files.writing import replacing_file

from dovetail_report.collect.comparison import compared
from dovetail_report.collect.document import document
from dovetail_report.page import page

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet


@dataclass(frozen=True, repr=False)
class Report:
    """A report on a result; a notebook renders it directly.

    Attributes:
        document: Its data, as JSON-compatible objects.
    """

    document: dict[str, Any]

    def html(self) -> str:
        """Return the page, which needs no network."""
        return "".join(page(self.document))

    def save(self, path: str | Path) -> None:
        """Write the page atomically.

        Raises:
            DovetailError: The file cannot be written.
        """
        with gc_paused(), replacing_file(Path(path)) as file:
            for part in page(self.document):
                file.write(part.encode("utf-8"))

    def __repr__(self) -> str:
        return f"<Report on {self.document['title']}: {self.document['coverage']}>"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for notebooks."""
        shown = html.escape(self.html())
        return f'<iframe srcdoc="{shown}" style="width:100%;height:720px;border:0" sandbox="allow-scripts"></iframe>'


def report(
    result: CompiledModel | str | Path,
    other: CompiledModel | str | Path | None = None,
    *,
    trace: str | Path | None = None,
    data: object = None,
    plugins: PluginSet | None = None,
) -> Report:
    """Make a report on a result: `dovetail.report("out").save("report.html")`.

    Args:
        result: A compiled model, or the path of a saved one.
        other: A second result of the same model, to compare the first with.
        trace: The timeline of a run of the first (`dovetail run --trace`), for the measured times of its regions.
        data: Data to run the results on, as for `dovetail.verify`, for histograms of activations in 8 bits.
        plugins: The plugins to load results with; all installed ones by default.

    Raises:
        DovetailError: There is no whole result at a path, a weight cannot be read, the trace is of another result, or
            the data does not fit.
    """
    first = _document(result, plugins, None if trace is None else Path(trace), data)
    if other is not None:
        first["comparison"] = compared(first, _document(other, plugins, None, data))
    return Report(first)


def _document(
    result: CompiledModel | str | Path, plugins: PluginSet | None, trace: Path | None, data: object
) -> dict[str, Any]:
    if isinstance(result, (str, Path)):
        return document(api.load(result, plugins), Path(result), trace, data, plugins)
    return document(result, None, trace, data, plugins)
