"""`dovetail report`: a result, or two side by side, as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli import PlainCommand, existing, output, plugins_of, print_json, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("result", type=Path, metavar="DIR", help="folder that compile wrote")
    parser.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="a second result, to compare with")
    parser.add_argument(
        "-o", "--output", type=output, default=Path("report.html"), metavar="FILE.html", help="default: report.html"
    )
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="timeline of `dovetail run --trace`, for measured times"
    )
    parser.add_argument(
        "--data", type=Path, metavar="FILE.npz|FOLDER", help="run the result on it, for histograms of activations"
    )
    parser.add_argument(
        "--netron", type=output, metavar="FILE.onnx", help="also write the model with the reasons as metadata of nodes"
    )
    parser.add_argument(
        "--model-explorer", type=output, metavar="FILE.json", help="also write node data for Google's Model Explorer"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail import api

    from dovetail_report.outputs import check_output
    from dovetail_report.report import report

    results = [path for path in (existing(args.result), existing(args.other)) if path is not None]
    for path in (args.trace, args.data):
        existing(path)
    check_output(args.output, (".html", ".htm"), results)
    for path, suffix in ((args.netron, ".onnx"), (args.model_explorer, ".json")):
        if path is not None:
            check_output(path, (suffix,), results)
    plugins = plugins_of(args)
    made = report(args.result, args.other, trace=args.trace, data=args.data, plugins=plugins)
    made.save(args.output)
    written = [args.output]
    if args.netron is not None or args.model_explorer is not None:
        from dovetail_report.exports import save_for_model_explorer, save_for_netron

        compiled = api.load(args.result, plugins)
        if args.netron is not None:
            save_for_netron(compiled, args.netron)
            written.append(args.netron)
        if args.model_explorer is not None:
            save_for_model_explorer(compiled, args.model_explorer)
            written.append(args.model_explorer)
    findings = made.document["findings"]
    if args.json:
        print_json({"files": list(map(str, written)), "coverage": made.document["coverage"], "findings": findings})
        return 0
    say(made.document["coverage"])
    for finding in [finding for finding in findings if finding["level"] == "warning"][:5]:
        say(f"{finding['level']}: {finding['text']}")
    say(*written)
    return 0


REPORT = PlainCommand(add_arguments, run)
