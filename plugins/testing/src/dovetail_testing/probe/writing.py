"""The backend file of a probe: compact, with the evidence of each operator beside it."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.text import pluralize, printable

from dovetail_testing.probe.clauses import OperatorRule, reason_of
from dovetail_testing.probe.conditions import RESERVED, Condition, extent_name, written
from dovetail_testing.probe.observing import UNKNOWN
from dovetail_testing.probe.precision import bits_of

if TYPE_CHECKING:
    from dovetail_testing.probe.probing import Probe


_WIDTH = 120
_LONGEST = 90  # characters of a reason
_GROUPED = 3  # operators with one rule that become a group
_LOWEST_OPSET = 7
_ORDER = re.findall(
    r"\w+",
    """float64 float32 float16 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz float8e8m0 float4e2m1
int64 int32 int16 int8 int4 int2 uint64 uint32 uint16 uint8 uint4 uint2 bool string complex64 complex128""",
)


def file_of(found: Probe, name: str) -> str:
    """Return the backend file that says what was measured.

    Args:
        found: The probe.
        name: Name of the backend.
    """
    return _File(found, name).text()


@dataclass
class _Entry:
    """The rule of one operator as text: its types, and lines for shape and limits."""

    rule: OperatorRule
    types: str
    lines: list[str]


class _File:
    """Writes one file."""

    def __init__(self, found: Probe, name: str):
        self._found, self._name = found, name
        self._taken = [rule for rule in found.rules.values() if rule.is_taken]
        self._types = _named_types(self._taken)

    def text(self) -> str:
        """Return the whole file."""
        found = self._found
        entries = [_Entry(rule, self._port_types(rule), self._conditions(rule)) for rule in self._taken]
        plain: dict[str, list[OperatorRule]] = {}
        for entry in entries:
            if not entry.lines:
                plain.setdefault(entry.types, []).append(entry.rule)
        groups = {f"g{number}": rules for number, rules in enumerate(_large(plain.values()), 1)}
        lines = [*self._head(), *self._type_lines()]
        if groups:
            lines.append("groups:")
            lines += [_folded(f"  {key}: [{', '.join(_operators(rules))}]") for key, rules in groups.items()]
        lines += ["unlisted: refuse", "ops:"]
        for types, rules in plain.items():
            key = next((f"${key}" for key, grouped in groups.items() if grouped is rules), ", ".join(_operators(rules)))
            lines.append(_folded(f"  {key}: {{{types}note: {_quoted(_evidence(rules))}}}"))
        for entry in entries:
            if entry.lines:
                lines.append(f"  {entry.rule.operator}:")
                lines += [f"    {entry.types.removesuffix(', ')}"] if entry.types else []
                lines += [f"    {line}" for line in entry.lines]
                lines.append(f"    note: {_quoted(_evidence([entry.rule]))}")
        lines += self._not_taken()
        lines += ["place: {strategy: autocast}", f"emit: {{engines: [{found.engine}]}}"]
        return "\n".join(lines) + "\n"

    def _head(self) -> Iterator[str]:
        found = self._found
        versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
        options = "".join(f", {key}={value}" for key, value in found.chosen.items())
        about = (
            f"Measured by `dovetail probe {found.backend or found.engine}`: {pluralize(found.known, 'node')} of one "
            f"operator each, on {found.engine}{options} with {versions}. A note says how many nodes were tried, how "
            "many are right, and to how many bits of the largest value."
        )
        yield from textwrap.wrap(about, _WIDTH - 2, initial_indent="# ", subsequent_indent="# ")
        right, of = found.empty_right
        if right < of:
            yield f"# Of {pluralize(of, 'node')} with an extent of 0, {right} are right; no limit here is about them."
        if found.unfinished:
            left = ", ".join(found.unfinished)
            yield from textwrap.wrap(
                f"The time limit left out nodes of {left}.",
                _WIDTH - 2,
                initial_indent="# ",
                subsequent_indent="# ",
            )
        yield f"backend: {self._name}"
        yield f"summary: what {found.engine} computes, as measured"
        yield f"device: {found.engine}"
        yield f"opset: {_LOWEST_OPSET}..{found.reads.opset}"
        right, of = found.open_right
        if of and right >= 0.9 * of:
            yield f"dynamic: accept                  # {right} of {of} operators with open extents are right"
        elif of and right <= 0.1 * of:
            yield f"dynamic: refuse                  # {right} of {of} operators with open extents are right"
        floats = {dtype for rule in self._taken for types in rule.types.values() for dtype in types}
        low = next((name for name in ("float16", "bfloat16") if name in floats), "")
        if "float32" in floats or not low:
            yield f"precision: {{high: float32}}      # which is computed as exactly as {found.precision}"
        else:
            yield f"precision: {{low: {low}, high: float32}}"

    def _type_lines(self) -> Iterator[str]:
        named = {types: name for types, name in self._types.items() if len(types) > 1}
        if named:
            yield "types:"
        for types, name in named.items():
            yield _folded(f"  {name}: [{', '.join(types)}]")

    def _port_types(self, rule: OperatorRule) -> str:
        """Return `types: t1, ` or the types of each port; empty where everything is as the schema says."""
        used = {parameter: self._name_of(types) for parameter, types in rule.types.items() if types}
        ports = {port: used[parameter] for port, parameter in rule.ports.items() if parameter in used}
        if not ports:
            return ""
        if len(rule.types) == 1:
            return f"types: {next(iter(ports.values()))}, "
        return f"types: {{{', '.join(f'{port}: {types}' for port, types in ports.items())}}}, "

    def _name_of(self, types: Sequence[str]) -> str:
        ordered = _ordered(types)
        return ordered[0] if len(ordered) == 1 else self._types[ordered]

    def _conditions(self, rule: OperatorRule) -> list[str]:
        """Return the lines of `shape` and `limits`."""
        blocks: dict[tuple[str, ...], dict[str, tuple[str, str]]] = {}
        for port, parameter in rule.ports.items():
            if not rule.types[parameter]:
                blocks.setdefault((), {})[f"{port}.rank"] = ("0", "wrong in every type")
        clauses = list(rule.clauses)
        for clause in clauses:
            guards = tuple(guard.guard for guard in clause.guards)
            alike = [
                each.condition for each in clauses
                if each.guards == clause.guards and each.condition.name == clause.condition.name
            ]  # fmt: skip
            key, allowed = _limit_of(rule, clause.condition, alike, self)
            own = blocks.setdefault(guards, {})
            said = _short(clause.reason)
            if key not in own:
                own[key] = (allowed, said)
            elif clause.condition.value is None:
                own[key] = _narrower(own[key], (allowed, said))
        if not blocks:
            return []
        used = {each.extent for clause in clauses for each in (*clause.guards, clause.condition) if each.extent}
        lines = _shape_lines(used)
        if set(blocks) == {()}:
            return [*lines, "limits:", *_commented([(f"  {k}: {v}", why) for k, (v, why) in blocks[()].items()])]
        return [*lines, "limits:", *_blocks(blocks)]

    def _not_taken(self) -> Iterator[str]:
        left = [rule for rule in self._found.rules.values() if not rule.is_taken]
        if left:
            yield "# Not computed, in any node that was tried:"
        for rule in left:
            reasons = Counter(reason_of(each) for each in rule.observations if not each.right)
            why = _short(reasons.most_common(1)[0][0]) if reasons else "right where limits cannot say so"
            yield f"#   {rule.operator} ({pluralize(len(rule.observations), 'node')}): {why}"


def _limit_of(rule: OperatorRule, condition: Condition, alike: Sequence[Condition], file: _File) -> tuple[str, str]:
    """Return the key and the range of a limit; values of one name under the same guards share it."""
    if condition.is_type:
        left = [dtype for dtype in rule.types[condition.parameter] if all(each.value != dtype for each in alike)]
        ports = [port for port, parameter in rule.ports.items() if parameter == condition.parameter]
        types = f"[{', '.join(_ordered(left))}]" if len(left) > 1 else left[0]
        return "types", types if len(rule.types) == 1 else f"{{{', '.join(f'{port}: {types}' for port in ports)}}}"
    if condition.value is None:
        return condition.name, condition.limit
    forbidden = [each.value for each in alike if each.value is not None]
    if isinstance(condition.value, int) and not isinstance(condition.value, bool):
        return condition.name, _around(sorted(forbidden))
    found: dict[Any, None] = {}
    for each in rule.observations:
        value = each.names.values.get(condition.name, UNKNOWN)
        if each.right and value is not UNKNOWN:
            found.update(dict.fromkeys(value if isinstance(value, tuple) else (value,)))
    allowed = [value for value in found if value not in forbidden] or list(found)
    if isinstance(condition.value, bool):
        return condition.name, written(not condition.value)
    texts = sorted(written(value) for value in allowed)
    return condition.name, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _around(forbidden: Sequence[int]) -> str:
    """Return the ranges around some numbers: `[..0, 2..]`."""
    parts, low = [], ""
    for number in forbidden:
        if not low or int(low) < number:
            parts.append(f"{low}..{number - 1}" if low and int(low) != number - 1 else low or f"..{number - 1}")
        low = str(number + 1)
    return f"[{', '.join([*filter(None, parts), f'{low}..'])}]"


def _narrower(old: tuple[str, str], new: tuple[str, str]) -> tuple[str, str]:
    """Join a limit from above with one from below; of two others, the first stays."""
    (first, why), (second, _) = old, new
    ends = {text.startswith(".."): text for text in (first, second)}
    if len(ends) == 2 and all(text.count("..") == 1 and "[" not in text for text in ends.values()):
        return ends[False] + ends[True].removeprefix(".."), why
    return old


def _shape_lines(used: set[tuple[str, int]]) -> list[str]:
    ports: dict[str, int] = {}
    for port, place in used:
        ports[port] = max(ports.get(port, 0), place)
    if not ports:
        return []
    texts = [
        f"{port}: ... {' '.join(extent_name(port, at) for at in range(last, -1, -1))}"
        for port, last in sorted(ports.items())
    ]
    return [f"shape: {{{', '.join(texts)}}}"]


def _blocks(blocks: Mapping[tuple[str, ...], Mapping[str, tuple[str, str]]]) -> Iterator[str]:
    """Yield blocks of limits, those without a guard first."""
    for guards in sorted(blocks, key=len):
        lines = [(f"{key}: {allowed}", why) for key, (allowed, why) in blocks[guards].items()]
        if guards:
            when = f"- {{when: {{{', '.join(guards)}}}, "
            yield from _commented([(f"  {when}{line}}}", why) for line, why in lines])
        else:
            yield from _commented(
                [(f"{'    ' if number else '  - '}{line}", why) for number, (line, why) in enumerate(lines)]
            )


def _commented(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield lines with comments: behind them where they fit, else above."""
    for line, why in lines:
        if len(line) + len(why) + 8 <= _WIDTH:
            yield f"{line}  # {why}" if why else line
        else:
            indent = " " * (len(line) - len(line.lstrip()))
            if why:
                yield f"{indent}# {why}"
            yield from _folded(line, _WIDTH - 4).splitlines()


def _large(groups: Any) -> list[list[OperatorRule]]:
    return [rules for rules in groups if len(rules) >= _GROUPED]


def _operators(rules: Sequence[OperatorRule]) -> list[str]:
    return sorted(rule.operator for rule in rules)


def _evidence(rules: Sequence[OperatorRule]) -> str:
    """Return what was measured of operators: `82 of 123 nodes right, to 20 bits`."""
    observations = [each for rule in rules for each in rule.observations]
    right = [each for each in observations if each.right]
    accepted = [(rule, each) for rule in rules for each in rule.observations if rule.accepts(each.names)]
    wrong = sum(not each.right for _, each in accepted)
    refused = len(right) - (len(accepted) - wrong)
    bits = min((bits_of(each.outcome) for each in right), default=0.0)
    exact = all(each.outcome.exact for each in right)
    how = "exact" if exact else f"to {math.floor(bits)} bits"
    text = f"{len(right)} of {pluralize(len(observations), 'node')} right, {how}"
    if wrong:
        text += f"; {wrong} accepted and wrong"
    if refused:
        text += f"; {refused} refused and right"
    return text


def _named_types(rules: Sequence[OperatorRule]) -> dict[tuple[str, ...], str]:
    """Return a short name for every set of several types, the most frequent first."""
    counts = Counter(_ordered(types) for rule in rules for types in rule.types.values() if len(types) > 1)
    return {types: f"t{number}" for number, (types, _) in enumerate(counts.most_common(), 1)}


def _ordered(types: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in _ORDER if name in types)


def _short(reason: str) -> str:
    text = " ".join(printable(reason).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _quoted(text: str) -> str:
    plain = not RESERVED.match(text) and not re.search(r"[:#\[\]{},&*!|>'\"%@`]", text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _folded(entry: str, width: int = _WIDTH) -> str:
    """Wrap a long entry; YAML continues until the bracket closes."""
    lines = textwrap.wrap(entry, width, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
