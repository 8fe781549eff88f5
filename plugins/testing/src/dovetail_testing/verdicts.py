"""Verdicts on measurements according to a backend's lists, and suggested list entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dovetail_testing.case import CaseMeasurement
    from dovetail_testing.list_files import Expectation, Lists


_OTHER = 0.5  # a result this far off counts as wrong

Status = Literal["exact", "relaxed", "ran", "host", "skipped", "known", "failed"]


@dataclass(frozen=True)
class CaseVerdict:
    """The verdict on one measurement.

    Attributes:
        status: `exact`, `relaxed` (within its tolerance), `ran` (results are not compared, as listed), `host`,
            `skipped` (nothing computes the expected results), `known` (it fails, as listed), `failed`.
        text: The reason.
        measurement: The measurement.
        expectation: The entry of the lists that decided; None if none did.
    """

    status: Status
    text: str
    measurement: CaseMeasurement
    expectation: Expectation | None = None

    @property
    def unlisted(self) -> bool:
        """Whether it failed only because no list contains it."""
        return self.status == "failed" and self.expectation is None and self.measurement.outcome == "compared"


def verdict(measured: CaseMeasurement, lists: Lists) -> CaseVerdict:
    """Judge a measurement according to lists."""
    line = measured.line()
    if measured.outcome == "host":
        return CaseVerdict("host", line, measured)
    entry = lists.expectation(measured.name, measured.operator)
    if entry is not None and entry.kind == "fails":
        good = measured.outcome != "error" and measured.exact
        return CaseVerdict("exact" if good else "known", line if good else f"{entry.why}; {line}", measured, entry)
    if measured.outcome == "error":
        return CaseVerdict("failed", line, measured, entry)
    if entry is not None and entry.kind == "run_only":
        return CaseVerdict("ran", entry.why, measured, entry)
    if measured.outcome == "no-reference":
        return CaseVerdict("skipped", line, measured, entry)
    if entry is None:
        what = f"operator {measured.operator}" if measured.operator else f"model {measured.name}"
        text = f"{what} is on no list of {measured.backend.partition(':')[0]}; {line}; add to the lists:\n"
        return CaseVerdict("failed", text + text_to_add([measured]), measured)
    if measured.exact:
        return CaseVerdict("exact", line, measured, entry)
    if measured.problem:
        return CaseVerdict("failed", line, measured, entry)
    if entry.kind == "relaxed" and measured.share <= entry.tolerance:
        return CaseVerdict("relaxed", line, measured, entry)
    allowed = f"tolerance: {entry.tolerance:g}" if entry.kind == "relaxed" else "exact"
    return CaseVerdict("failed", f"{line}; {entry.where} says {allowed}", measured, entry)


def text_to_add(measured: Iterable[CaseMeasurement]) -> str:
    """Return missing list entries as YAML, by operator, with a sufficient tolerance; reasons are left to fill in."""
    shares: dict[tuple[bool, str], float] = {}
    wrong = []
    for one in measured:
        if one.problem or one.share > _OTHER:
            wrong.append(one)
            continue
        key = (bool(one.operator), one.operator or one.name)
        shares[key] = max(shares.get(key, 0.0), 0.0 if one.exact else max(one.share, 1e-12))
    lines = []
    exact = {key for key, share in shares.items() if not share}
    if exact:
        lines.append("exact:")
        for of_operator, label in ((True, "operators"), (False, "tests")):
            names = sorted(name for kind, name in exact if kind is of_operator)
            lines += [f"  {label}: [{', '.join(names)}]"] if names else []
    if shares.keys() - exact:
        lines.append("relaxed:")
        for (of_operator, name), share in sorted(shares.items()):
            if share:
                label = "operators" if of_operator else "tests"
                lines += [f"  - {label}: [{name}]", f"    tolerance: {_rounded_up(share):g}", "    why:"]
    if wrong:
        lines.append("run_only:  # or fails, if it is a defect")
        for one in wrong:
            lines += [f"  - tests: [{one.name}]", f"    why:  # {one.line()}"]
    return "\n".join(lines)


def rotten(verdicts: Iterable[CaseVerdict], covered: Mapping[int, int]) -> list[str]:
    """Return entries that could be stricter, because all of their cases are exact.

    Args:
        verdicts: The verdicts of the run.
        covered: Number of cases per entry, by its `id`; an entry is only judged if all of them were run.
    """
    seen: dict[int, list[CaseVerdict]] = {}
    entries: dict[int, Expectation] = {}
    for one in verdicts:
        entry = one.expectation
        if entry is not None and entry.kind != "exact":
            entries[id(entry)] = entry
            seen.setdefault(id(entry), []).append(one)
    texts = []
    for key, entry in entries.items():
        measured = [one.measurement for one in seen[key]]
        if not all(one.outcome == "compared" and one.exact for one in measured):
            continue
        hosts = covered.get(key, len(measured))
        if len(measured) < hosts:
            continue
        names = ", ".join(name.raw for name in entry.names)
        count = "its test is" if len(measured) == 1 else f"all of its {len(measured)} tests are"
        texts.append(f"{entry.where}: {names}: listed as {entry.kind}, and {count} exact; move it to exact")
    return texts


def _rounded_up(share: float) -> float:
    """Round a difference up to one digit with some margin: 0.00134 gives 0.002."""
    digit = 10.0 ** math.floor(math.log10(share * 1.25))
    return math.ceil(share * 1.25 / digit) * digit
