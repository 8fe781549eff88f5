"""Markdown page of results: one row per backend, then for each a folded table with one row per operator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_testing.verdicts import CaseVerdict


_LONGEST = 110


@dataclass(frozen=True)
class BackendTable:
    """Results of one backend for the page.

    Attributes:
        name: The backend with its options.
        engines: Its engines here, as a sentence.
        verdicts: The verdicts on its cases.
        notes: The notes of its lists, as paragraphs.
    """

    name: str
    engines: str
    verdicts: Sequence[CaseVerdict]
    notes: Sequence[str] = ()

    def counts(self) -> Counter[str]:
        """Return the number of cases by status."""
        return Counter(verdict.status for verdict in self.verdicts)

    def summary(self) -> str:
        """Return a one-line summary of all cases."""
        counts = self.counts()
        placed = sum(counts.values()) - counts["host"]
        words = {"exact": "exact", "relaxed": "within their tolerance", "ran": "only run", "known": "fail as listed"}
        parts = [f"{counts[status]} {text}" for status, text in words.items() if counts[status]]
        parts += [f"{counts['skipped']} without a reference"] if counts["skipped"] else []
        parts += [f"{counts['failed']} failed"] if counts["failed"] else []
        cases = f"{len(self.verdicts)} case{'s' if len(self.verdicts) != 1 else ''}"
        return f"{cases}: {placed} on the backend ({', '.join(parts) or 'none'}), {counts['host']} on the host"


def page(backends: Iterable[BackendTable], made_by: str, versions: Mapping[str, str]) -> str:
    """Return the whole page.

    Args:
        backends: The backends.
        made_by: The command that writes the page.
        versions: Installed versions by name.
    """
    backends = list(backends)
    installed = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# Conformance",
        "",
        "| backend | cases | on the host | placed | exact | relaxed | run | failed |",
        "|---|---|---|---|---|---|---|---|",
        *(_overview(backend) for backend in backends),
        "",
        "Each case runs twice: the source model on a reference (ONNX Runtime, else that of the onnx package), and the",
        "model as compiled for the backend:",
        "",
        "- `on the host`: the backend takes no node of the case; such a case counts as nothing else;",
        "- `placed`: at least one node is on the backend. Of these cases,",
        "- `exact` ones give the same numbers, rounded to the format in which the backend holds them;",
        "- `relaxed` ones are within the tolerance that the backend's lists allow;",
        "- `run` ones are not compared, as listed;",
        "- `failed` ones differ by more, or are known defects by the lists.",
        "",
        "The tables per operator also give `worst`, the largest difference as a share of the largest value, and the",
        "most frequent reason why cases are on the host.",
        "",
        f"Written by `{made_by}` with {installed}; do not edit it.",
    ]
    for backend in backends:
        lines += ["", f"## {backend.name}", "", f"{backend.engines} {backend.summary()}."]
        lines += [line for note in backend.notes for line in ("", note)]
        lines += ["", '<details markdown="1"><summary>Every operator</summary>', ""]
        lines += [*_rows(backend.verdicts), *_failures(backend.verdicts), "", "</details>"]
    return "\n".join(lines) + "\n"


def _overview(backend: BackendTable) -> str:
    counts = backend.counts()
    cases = len(backend.verdicts)
    numbers = [cases, counts["host"], cases - counts["host"], counts["exact"], counts["relaxed"]]
    numbers += [counts["ran"] + counts["skipped"], counts["failed"] + counts["known"]]
    return f"| [{backend.name}](#{_anchor(backend.name)}) | {' | '.join(map(str, numbers))} |"


def _anchor(heading: str) -> str:
    """Return the anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _rows(verdicts: Sequence[CaseVerdict]) -> list[str]:
    groups: dict[str, list[CaseVerdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.measurement.operator or verdict.measurement.name, []).append(verdict)
    lines = [
        "| operator | placed | host | exact | relaxed | run | failed | worst | why on the host |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    whole = [name for name, group in groups.items() if all(one.status == "host" for one in group)]
    for name, group in sorted(groups.items()):
        if name in whole:
            continue
        counts = Counter(one.status for one in group)
        failed = counts["failed"] + counts["known"]
        placed = len(group) - counts["host"]
        worst = max((one.measurement.share for one in group if one.status in ("exact", "relaxed")), default=0.0)
        cells = [name, placed, counts["host"], counts["exact"], counts["relaxed"], counts["ran"] + counts["skipped"]]
        lines.append(f"| {' | '.join(map(str, cells))} | {failed} | {_share(worst)} | {_reason(group)} |")
    lines += [] if len(whole) < len(groups) else ["| none | | | | | | | | |"]
    if whole:
        lines += ["", "On the host in every case:", "", "| operator | host | why |", "|---|---|---|"]
        lines += [f"| {name} | {len(groups[name])} | {_reason(groups[name])} |" for name in sorted(whole)]
    return lines


def _failures(verdicts: Iterable[CaseVerdict]) -> list[str]:
    bad = [one for one in verdicts if one.status in ("failed", "known")]
    if not bad:
        return []
    lines = ["", "| fails | why |", "|---|---|"]
    for one in sorted(bad, key=lambda each: each.measurement.key):
        text = one.text if one.status == "failed" else f"listed: {one.text}"
        lines.append(f"| {one.measurement.name} | {_cell(text.partition('; add to the lists')[0])} |")
    return lines


def _share(share: float) -> str:
    return f"{share:.1e}" if share else ""


def _reason(group: Iterable[CaseVerdict]) -> str:
    """Return the most frequent reason why cases are on the host."""
    reasons = Counter(reason for one in group if one.status == "host" for reason in one.measurement.reasons[:1])
    return _cell(max(reasons, key=lambda reason: (reasons[reason], reason))) if reasons else ""


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
