"""Ranking of a request's nodes by lost accuracy."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.plugin import Outcome, Stepwise
from dovetail.text import html_table, pluralize

from dovetail_verify.accuracy.baseline import measure_baseline
from dovetail_verify.accuracy.goals import Goals
from dovetail_verify.accuracy.search import allowed_noise, cheapest, loudest_splittable
from dovetail_verify.accuracy.trials import decibels
from dovetail_verify.metrics import decibels_text, plain_decibels

if TYPE_CHECKING:
    from dovetail.passes import Request
    from dovetail.plugin import Steps
    from dovetail_runtime.engines import GuardedEngine

    from dovetail_verify.accuracy.baseline import Baseline
    from dovetail_verify.accuracy.groups import Groups, UnitGroup
    from dovetail_verify.accuracy.trials import AccuracyTrial, AccuracyTrials, Noise


_PARTS = re.compile(r"[^/._:\d]*(?:\d+|[/._:]|$)")
_PATTERN = frozenset("*?[")
_FORMS = ("name:", "type:", "region:")


def shortest_selectors(wanted: Collection[str], others: Collection[str], operators: Mapping[str, str]) -> list[str]:
    """Return selectors for the nodes in `wanted`: patterns and operators where they match, otherwise names.

    The time is linear in the total length of all names.

    Args:
        wanted: Names of nodes.
        others: Names of nodes that no selector may match. Nodes in neither collection may match.
        operators: The operator of every one of these nodes, by name.
    """
    covers: dict[str, set[str]] = defaultdict(set)
    refused: set[str] = set()
    for name in others:
        refused.add(f"type:{operators[name]}")
        refused.update(_patterns(name))
    for name in wanted:
        for selector in (f"type:{operators[name]}", *_patterns(name)):
            if selector not in refused:
                covers[selector].add(name)
    left, found = dict.fromkeys(wanted), []
    # Largest selectors first, then shortest. A selector for a single node is no shorter than its name.
    for selector, names in sorted(covers.items(), key=lambda item: (-len(item[1]), len(item[0]), item[0])):
        if len(names) > 1 and sum(name in left for name in names) > 1:
            found.append(selector)
            for name in names:
                left.pop(name, None)
    return [*found, *(f"name:{name}" if name.startswith(_FORMS) else name for name in left)]


def _patterns(name: str) -> list[str]:
    """Return patterns that match a name: prefixes cut after numbers and separators, plus `*`."""
    if _PATTERN & set(name) or name.startswith(_FORMS):
        return []
    ends = [0, *(found.end() for found in _PARTS.finditer(name))]
    return list(dict.fromkeys(f"{name[:end]}*" for end in ends if end < len(name)))


_BETTER = 10.0  # dB by which the proposed nodes improve the result if there is no goal
_SOUND = 20.0  # dB to propose for a broken result
_NAMED = 2  # nodes of a group named in a table


@dataclass(frozen=True)
class RankedNodes:
    """A node, or consecutive nodes, and their loss of accuracy.

    Attributes:
        nodes: Their names, in graph order. A node includes its bodies.
        operators: Their operators, by number of nodes.
        share: Their share of the total loss. The loss of a node is its noise relative to the noise that the goals
            allow, at the worst output: much noise where much is allowed counts less than little noise where little is
            allowed. Without goals every output must have 10 dB more than the worst one has now.
        cumulated: The share of this row and all rows before it.
        snr_alone: The SNR of the worst output in decibels with only these nodes low.
        measured: Whether `snr_alone` was measured; otherwise it is a rough difference of other figures.
        suspect: Of several nodes, the one that is least accurate alone on exact inputs.
        raised: Whether the nodes are among those that `Ranking.high` raises.
    """

    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    share: float
    cumulated: float
    snr_alone: float
    measured: bool
    suspect: str
    raised: bool

    @property
    def name(self) -> str:
        """The nodes in short."""
        if len(self.nodes) <= _NAMED:
            return ", ".join(self.nodes)
        return f"{self.nodes[0]} .. {self.nodes[-1]} ({pluralize(len(self.nodes), 'node')})"

    @property
    def alone(self) -> str:
        """The SNR as text; empty if the difference is too small to measure."""
        if self.measured:
            return decibels_text(self.snr_alone)
        return f"~{decibels_text(self.snr_alone)}" if self.share else ""


@dataclass(frozen=True, repr=False)
class Ranking:
    """Ranking of a request's nodes by lost accuracy.

    Attributes:
        rows: Rows, worst first.
        runs: Number of compilations and runs of the request.
        high: Selectors for `high=` or `--high` that repair the accuracy.
        raised: The names of the nodes that `high` raises.
        goals: Goals of that repair.
        met: Whether the goals are met with `high`, as measured.
        snr_low, snr_repaired, snr_high: The SNR of the worst output in decibels: of the request, with `high`, and with
            everything high.
        errors: Own and accumulated error of every node, as SNR in decibels, from one run.
        notes: Caveats about the figures.
        request: The ranked request, as modified by plugin options.
    """

    rows: list[RankedNodes]
    runs: int
    high: list[str]
    raised: list[str]
    goals: Goals
    met: bool
    snr_low: float
    snr_repaired: float
    snr_high: float
    errors: Mapping[str, tuple[float, float]] = field(repr=False, default_factory=dict)
    notes: tuple[str, ...] = ()
    request: Request | None = field(repr=False, compare=False, default=None)

    def __repr__(self) -> str:
        worst = f"worst {self.rows[0].name} with {100 * self.rows[0].share:.0f} % of the error; " if self.rows else ""
        return f"<Ranking of {pluralize(len(self.rows), 'group')}: {worst}{self.lines()[-1]}>"

    def _repr_html_(self) -> str:
        """Return the table and its summary, for notebooks."""
        return html_table(self.table_rows(), *self.lines(), *self.notes)

    def lines(self) -> list[str]:
        """Return summary lines to print after `table_rows`."""
        both = f"SNR {decibels_text(self.snr_low)} as it is, {decibels_text(self.snr_high)} with all of them high"
        lines = [f"{pluralize(self.runs, 'run')}: {both}"]
        if not self.goals:
            return [*lines, "raising precision does not help: with all of them high it is no better"]
        if not self.raised:
            return [*lines, f"nothing needs to be raised: {self.goals} is met" if self.met else "nothing can be raised"]
        repaired = f"{pluralize(len(self.raised), 'node')} high: SNR {decibels_text(self.snr_repaired)}"
        return [*lines, f"{repaired}, {self.goals} is {'met' if self.met else 'not met'}"]

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the table as one mapping per row."""
        return [
            {
                "rank": number,
                "nodes": row.name,
                "operators": ", ".join(row.operators[:3]) + (", ..." if len(row.operators) > 3 else ""),
                "share": f"{100 * row.share:.1f} %",
                "cumulated": f"{100 * row.cumulated:.1f} %",
                "SNR alone": row.alone,
                "suspect": row.suspect if len(row.nodes) > 1 else "",
                "raise": "yes" if row.raised else "",
            }
            for number, row in enumerate(self.rows, start=1)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; infinite figures become strings, because JSON has no infinity."""
        return {
            "rows": [{**asdict(row), "snr_alone": plain_decibels(row.snr_alone)} for row in self.rows],
            "runs": self.runs,
            "high": self.high,
            "raised": self.raised,
            "goals": self.goals.as_dict(),
            "met": self.met,
            "snr_low": plain_decibels(self.snr_low),
            "snr_repaired": plain_decibels(self.snr_repaired),
            "snr_high": plain_decibels(self.snr_high),
            "errors": {name: {"own": plain_decibels(own), "accumulated": plain_decibels(both)} for name, (own, both) in
                       self.errors.items()},
            "notes": list(self.notes),
        }  # fmt: skip


class Ranked(Stepwise):
    """Ranks the nodes of a request.

    Args:
        trials: Trials of the request with nodes raised.
        request: The request.
        engines: The host's engines, for the run over single nodes.
        goals: Goals for `Ranking.high`; without any, 10 dB more than now.
        runs: Number of runs that refine the ranking; by default enough to find the worst node, and some more. Proposals
            are measured in further runs.

    Attributes:
        ranking: The ranking, once it was found.
    """

    phase, name = "raise", "ranking"

    def __init__(
        self,
        trials: AccuracyTrials,
        request: Request,
        engines: Mapping[str, Sequence[GuardedEngine]],
        goals: Goals,
        runs: int | None = None,
    ):
        super().__init__()
        self._trials, self._request, self._engines = trials, request, engines
        self._goals, self._runs = goals, runs
        self.ranking: Ranking | None = None

    def steps(self) -> Steps[Outcome]:
        """Rank.

        Raises:
            DovetailError: The request cannot be compiled or run, or nothing in it may be raised.
        """
        trials, goals = self._trials, self._goals
        low = yield from trials.run((), why="the request as it is")
        worst = low.verification.worst_snr_db
        if worst is None:
            raise DovetailError("no output holds floats, so there is no accuracy to rank nodes by")
        goals.missed(low.verification)  # raises if a goal cannot be measured
        # Where programs replaced regions, a search may run the nodes; what it proposes is judged by the programs.
        data = trials.measured_by.data
        search = trials if low.result.with_nodes is None else trials.over(data, is_search=True)
        baseline = yield from measure_baseline(search, self._request, self._engines, by_nodes=True)
        groups = baseline.groups
        units = sum(len(group.units) for group in groups.groups)
        if not units:
            raise DovetailError(
                _nothing(baseline), "name a backend with a low precision, or take back what keeps nodes low"
            )
        highest = baseline.high.worst_snr_db
        if not goals:
            better = worst + _BETTER if math.isfinite(worst) else _SOUND
            goals = Goals(min_snr=max(round(min(better, highest) - 0.05, 1), 0.0)) if worst < highest else goals
        # Without an achievable goal, all outputs tolerate the same noise.
        bearable = allowed_noise(goals, low.verification) if goals else {}
        yield from groups.refine(
            lambda _: loudest_splittable(groups, bearable), self._runs or 2 * units.bit_length() + 6
        )
        raised: frozenset[str] = frozenset()
        chosen: list[UnitGroup] = []
        repaired = baseline.low
        if goals.missed(baseline.high.verification):
            raised, chosen, repaired = baseline.high.raised, groups.groups, baseline.high
        elif goals.missed(baseline.low.verification):
            raised, chosen = yield from cheapest(search, groups, goals, baseline.low, search.runs, spare=0)
        if search is not trials or raised != repaired.raised:
            repaired = yield from trials.measure(raised, why="what the ranking proposes to raise")
        runs = search.runs if search is trials else search.runs + trials.runs
        found = _ranking(baseline, groups, chosen, repaired, goals, bearable, runs)
        self.ranking = replace(found, request=self._request)
        return Outcome()


def _ranking(
    baseline: Baseline,
    groups: Groups,
    chosen: Sequence[UnitGroup],
    repaired: AccuracyTrial,
    goals: Goals,
    bearable: Noise,
    runs: int,
) -> Ranking:
    units = [unit for group in groups.groups for unit in group.units]
    names = [name for group in chosen for name in group.names]
    kept = set(names)
    others = [unit.name for unit in units if unit.name not in kept] + list(baseline.locked)
    operators = {**{unit.name: unit.operator for unit in units}, **baseline.operators}
    streamed = baseline.streamed
    notes = (f"single nodes were not looked at: {streamed.failure}",) if streamed.failure else ()
    return Ranking(
        _rows(groups, set(chosen), bearable, {name: errors.own.share for name, errors in streamed.errors.items()}),
        runs,
        shortest_selectors(names, others, operators),
        names,
        goals,
        not goals.missed(repaired.verification),
        baseline.low.worst_snr_db,
        repaired.worst_snr_db,
        baseline.high.worst_snr_db,
        {name: (decibels(e.own.share), decibels(e.accumulated.share)) for name, e in streamed.errors.items()},
        notes,
    )


def _rows(groups: Groups, chosen: set[UnitGroup], bearable: Noise, own: Mapping[str, float]) -> list[RankedNodes]:
    loud = [(group.worst(bearable), group) for group in groups.groups]
    sum_ = sum(share for share, _ in loud) or 1.0
    rows, cumulated = [], 0.0
    for share, group in sorted(loud, key=lambda pair: -pair[0]):
        cumulated += share / sum_
        counts: dict[str, int] = {}
        for unit in group.units:
            counts[unit.operator] = counts.get(unit.operator, 0) + 1
        operators = tuple(sorted(counts, key=lambda operator: -counts[operator]))
        whole = max((value for (_, kind), value in group.noise.items() if kind == "whole"), default=0.0)
        suspect = max(group.names, key=lambda name: own.get(name, 0.0))
        row = RankedNodes(
            tuple(group.names), operators, share / sum_, min(cumulated, 1.0), decibels(whole), not group.derived,
            suspect, group in chosen,
        )  # fmt: skip
        rows.append(row)
    return rows


def _nothing(baseline: Baseline) -> str:
    if baseline.locked:
        reasons = ", ".join(list(dict.fromkeys(baseline.locked.values()))[:3])
        return f"no node may be raised: {reasons}"
    return "no node is computed in a low precision, so there is nothing to raise"
