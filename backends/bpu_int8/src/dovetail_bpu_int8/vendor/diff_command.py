"""`dovetail hb-diff`: a result or plan beside a log of the vendor's tool."""

from __future__ import annotations

import argparse
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli.common import PlainCommand, columns, existing, print_json, say
from dovetail.text import pluralize

if TYPE_CHECKING:
    from dovetail_bpu_int8.vendor.log_diff import LogDiff
    from dovetail_bpu_int8.vendor.scale_diff import ScaleDiff


_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("result", type=Path, metavar="OUT", help="the folder of a result for bpu-int8, or a plan file")
    parser.add_argument("log", type=Path, metavar="LOG", help="what hb_mapper or hb_compile printed for the same model")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from dovetail_bpu_int8.vendor.log_diff import hb_diff

    existing(args.result)
    existing(args.log)
    found = hb_diff(args.result, args.log)
    if args.json:
        print_json(found.as_dict())
    else:
        say(*_lines(found))
    return 0


def _lines(found: LogDiff) -> list[str]:
    share = f" ({100 * found.same / found.both:.1f} %)" if found.both else ""
    here, there = found.subgraphs
    lines = [
        f"{pluralize(found.both, 'node')} in both, {found.same} on the same device{share}; "
        f"{pluralize(here, 'subgraph')} on the BPU, {there} in the log"
    ]
    if found.differences:
        rows = [(one.node, one.operator, one.here, one.there, one.type, one.reason) for one in found.differences]
        lines += ["", *columns([("Node", "Operator", "Here", "Log", "Type in the log", "Reason here"), *rows[:_SHOWN]])]
        lines += _more(rows)
    for what, names in (
        ("on the CPU here, and not in the log", found.only_here),
        ("in the log alone", found.only_there),
    ):
        if names:
            lines += ["", f"{pluralize(len(names), 'node')} {what}: {', '.join(names[:_SHOWN])}", *_more(names)]
    if found.thresholds:
        share = f"{100 * found.near / found.thresholds:.1f} %"
        lines += ["", f"thresholds of {pluralize(found.thresholds, 'node')} in both: {share} within 5 %"]
        far = [(name, f"{mine:.6g}", f"{other:.6g}") for name, mine, other in found.farthest]
        lines += columns([("farthest apart", "here", "log"), *far]) if far else []
    return lines + _scale_lines(found.scales)


def _scale_lines(found: ScaleDiff) -> list[str]:
    if not found.nodes:
        return []
    (here, there), (made, logged) = found.scales, found.requantised
    lines = [
        "",
        f"{pluralize(found.nodes, 'node')} with a scale in both, {found.alike} share it with the same nodes "
        f"({100 * found.alike / found.nodes:.1f} %); {pluralize(here, 'scale')}, {there} in the log",
    ]
    if made or logged:
        lines.append(
            f"{pluralize(made, 'value')} requantised, {logged} in the log; {found.requantised_alike} are the same"
        )
    rows = [(name, ", ".join(mine), ", ".join(theirs)) for name, mine, theirs in found.others]
    return lines + (columns([("Node", "shares with, only here", "only in the log"), *rows]) if rows else [])


def _more(listed: Sized) -> list[str]:
    return [f"and {len(listed) - _SHOWN} more (--json has all)"] if len(listed) > _SHOWN else []


HB_DIFF = PlainCommand("hb-diff", "Compare a result for bpu-int8 with a log of hb_mapper.", add_arguments, run)
