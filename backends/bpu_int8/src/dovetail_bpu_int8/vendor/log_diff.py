"""Comparison of a plan with a log of the vendor's tool: placement and thresholds by node."""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.planning import Plan, parse_quantized_values
from dovetail.plugin import DovetailError
from dovetail_onnx import read_input

from dovetail_bpu_int8.vendor.report import ReportRow, rows_of

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel


CUT = "..."  # prefix of names that the tool has cut
_MOST, _SHOWN = 20, 3
_JOINING = "Concat"  # the only operator for which the tool requantizes


@dataclass(frozen=True)
class ScaleDiff:
    """Comparison of the scale sharing in a plan and a log.

    Attributes:
        nodes: Number of nodes with a scale in both.
        alike: Number of these that share it with the same nodes in both.
        scales: Number of scales of these nodes here, and in the log.
        others: First differing groups: one node of each, some nodes that share its scale only here, and some only in
            the log.
        requantized: Number of values requantized for a Concat here, and in the log.
        requantized_alike: Number of values requantized in both.
    """

    nodes: int
    alike: int
    scales: tuple[int, int]
    others: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    requantized: tuple[int, int]
    requantized_alike: int


def scale_diff(
    here: Mapping[str, Hashable], there: Mapping[str, Hashable], made: Sequence[str], logged: Sequence[str]
) -> ScaleDiff:
    """Compare which nodes share scales.

    Args:
        here: Identity of the scale of each node's first input, in the plan.
        there: The same in the log.
        made: Values requantized in the plan.
        logged: Values requantized in the log; names may be cut at the front.
    """
    names = [name for name in here if name in there]
    mine, theirs = _classes(names, here), _classes(names, there)
    both: dict[tuple[Hashable, Hashable], list[str]] = {}
    for name in names:
        both.setdefault((here[name], there[name]), []).append(name)
    alike = 0
    others: list[tuple[str, Sequence[str], Sequence[str]]] = []
    for (scale, logged_scale), shared in both.items():
        one, other = mine[scale], theirs[logged_scale]
        if len(one) == len(other) == len(shared):
            alike += len(shared)
        elif len(others) < _MOST:
            others.append((shared[0], _some(one, other), _some(other, one)))
    whole, ends = (
        {name for name in logged if not name.startswith(CUT)},
        [name for name in logged if name.startswith(CUT)],
    )
    same = sum(value in whole or any(value.endswith(end.removeprefix(CUT)) for end in ends) for value in made)
    return ScaleDiff(
        nodes=len(names),
        alike=alike,
        scales=(len(mine), len(theirs)),
        others=others,
        requantized=(len(made), len(logged)),
        requantized_alike=same,
    )


def requantized_in(plan: Plan) -> list[str]:
    """Return the values that a Concat reads at one scale and yields at another."""
    joining = {node.name: node.output for node in plan.nodes if node.op_type == _JOINING}
    given: dict[str, str] = {}
    read: list[tuple[str, str, str]] = []
    for quantized in parse_quantized_values(plan.values):
        given.setdefault(quantized.value, quantized.group)
        names = dict.fromkeys(reader.rpartition(":")[0] for reader in quantized.readers)
        read += [(quantized.value, quantized.group, joining[name]) for name in names if name in joining]
    return list(dict.fromkeys(value for value, group, result in read if given.get(result, group) != group))


def _some(these: Iterable[str], without: Container[str]) -> list[str]:
    return list(islice((name for name in these if name not in without), _SHOWN))


def _classes(names: Iterable[str], scales: Mapping[str, Hashable]) -> dict[Hashable, dict[str, None]]:
    found: dict[Hashable, dict[str, None]] = {}
    for name in names:
        found.setdefault(scales[name], {})[name] = None
    return found


_ROW = re.compile(
    r"(?:^|\s)(?P<node>\S+)\s+(?P<on>BPU|CPU|JIT)\s+(?P<graph>id\(\d+\)|--)\s+(?P<type>[A-Za-z]\w*)(?P<rest>.*)$"
)
_TITLES = re.compile(r"(?:^|\s)Node\s+ON\s+Subgraph\b")
_NUMBER = re.compile(r"\s(-?\d+\.\d+(?:e-?\d+)?)")
_UNIT = "UNIT_CONV_FOR_"
_REQUANTIZED = "_calibrated_Requantize"
_OWN = ("HzPreprocess", "HzSQuantizedPreprocess", "HzRequantize", "HzQuantize", "HzDequantize")
_NEAR = 0.05


@dataclass(frozen=True)
class LogRow:
    """A node in a log.

    Attributes:
        node: Its name; the tool cuts long ones at the front.
        on: `BPU`, `CPU` or `JIT`.
        subgraph: `id(n)`, or `--`.
        type: The operator of the tool, such as `HzSQuantizedConv`.
        threshold: Threshold of its first input; None if the log has none.
    """

    node: str
    on: str
    subgraph: str
    type: str
    threshold: float | None


@dataclass(frozen=True)
class LogDifference:
    """A node that the log places elsewhere.

    Attributes:
        node: Its name.
        operator: Its operator here.
        here: Its placement here.
        there: Its placement in the log.
        type: The tool's operator.
        reason: Why it is not on the BPU here; empty if it is.
    """

    node: str
    operator: str
    here: str
    there: str
    type: str
    reason: str


@dataclass(frozen=True)
class LogDiff:
    """Comparison of a plan with a log.

    Attributes:
        both: Number of nodes in both.
        same: Number of these on the same device.
        differences: The nodes on different devices.
        only_here: Nodes on the CPU here without a row in the log: the tool fused or removed them.
        only_there: Nodes of the log that the plan lacks, except those that the tool inserts.
        subgraphs: Number of BPU subgraphs here, and in the log.
        thresholds: Number of nodes with a threshold in both.
        near: Number of these within 5 percent.
        farthest: Nodes with the largest threshold difference: name, here, in the log.
        scales: Comparison of the scale sharing.
    """

    both: int
    same: int
    differences: Sequence[LogDifference]
    only_here: Sequence[str]
    only_there: Sequence[str]
    subgraphs: tuple[int, int]
    thresholds: int
    near: int
    farthest: Sequence[tuple[str, float, float]]
    scales: ScaleDiff

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def parse_log(text: str) -> list[LogRow]:
    """Parse the last node table in a log of hb_mapper or hb_compile: name, device, subgraph, type, numbers.

    Raises:
        DovetailError: There is no table.
    """
    tables: list[list[LogRow]] = [[]]
    for line in text.splitlines():
        match = _ROW.search(line)
        if match is None:
            if _TITLES.search(line) and tables[-1]:
                tables.append([])
            continue
        numbers = [float(number) for number in _NUMBER.findall(match["rest"])]
        threshold = numbers[1] if len(numbers) > 1 else None
        tables[-1].append(LogRow(match["node"], match["on"], match["graph"], match["type"], threshold))
    found = next((table for table in reversed(tables) if table), None)
    if found is None:
        raise DovetailError(
            "the log has no table of nodes: lines such as 'conv_1  BPU  id(0)  HzSQuantizedConv  0.999  12.5'",
            "give the output of hb_mapper makertbin or checker, or of hb_compile",
        )
    return found


def hb_diff(result: CompiledModel | Plan | str | Path, log: str | Path) -> LogDiff:
    """Compare a result or plan with a log of the vendor's tool for the same model.

    Args:
        result: A result, its folder, a plan or a plan file.
        log: The log.

    Raises:
        DovetailError: The result is not for `bpu-int8`, or the log cannot be read or has no table of nodes.
    """
    plan = _plan_of(result)
    rows = {row.node: row for row in rows_of(plan)}
    logged = parse_log(read_input(Path(log)).decode(errors="replace"))
    there = _by_name(logged, rows)
    both = [name for name in rows if name in there]
    differences = [
        LogDifference(name, rows[name].type, rows[name].on, there[name].on, there[name].type, rows[name].reason)
        for name in both
        if (rows[name].on == "BPU") is not (there[name].on == "BPU")
    ]
    pairs = [(name, rows[name].threshold, there[name].threshold) for name in both]
    known = [(name, here, other) for name, here, other in pairs if here and other]
    apart = sorted(known, key=lambda pair: -abs(pair[1] - pair[2]) / pair[2])
    near = sum(abs(here - other) <= _NEAR * other for _, here, other in known)
    return LogDiff(
        both=len(both),
        same=len(both) - len(differences),
        differences=differences,
        only_here=[name for name, row in rows.items() if name not in there and row.on != "BPU"],
        only_there=[row.node for name, row in there.items() if name not in rows and not row.type.startswith(_OWN)],
        subgraphs=(_subgraphs(rows), _subgraphs(there)),
        thresholds=len(known),
        near=near,
        farthest=[pair for pair in apart if abs(pair[1] - pair[2]) > _NEAR * pair[2]][:10],
        scales=scale_diff(
            {name: row.scale for name, row in rows.items() if row.scale},
            {name: row.threshold for name, row in there.items() if row.threshold is not None},
            requantized_in(plan),
            [row.node.removesuffix(_REQUANTIZED) for row in logged if row.node.endswith(_REQUANTIZED)],
        ),
    )


def _plan_of(result: CompiledModel | Plan | str | Path) -> Plan:
    if isinstance(result, Plan):
        return result
    return Plan.load(Path(result)) if isinstance(result, (str, Path)) else result.plan


def _by_name(log: Sequence[LogRow], rows: Mapping[str, ReportRow]) -> dict[str, LogRow]:
    """Return the rows of a log by full node name, resolving names that the tool cut at the front."""
    ends: dict[str, list[str]] = {}
    for row in log:
        if row.node.startswith(CUT):
            ends.setdefault(row.node.removeprefix(CUT), [])
    for name in rows if ends else ():
        for end in ends:
            if name.endswith(end):
                ends[end].append(name)
    found = {}
    for row in log:
        name = row.node.removeprefix(_UNIT)
        whole = ends.get(name.removeprefix(CUT), [])
        found[whole[0] if name.startswith(CUT) and len(whole) == 1 else name] = row
    return found


def _subgraphs(rows: Mapping[str, ReportRow | LogRow]) -> int:
    return len({row.subgraph for row in rows.values()} - {"--"})
