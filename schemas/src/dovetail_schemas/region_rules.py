"""The section `region:` of a backend file: requirements on regions as a whole."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dovetail.plugin import Refusal

from dovetail_schemas.errors import near_miss
from dovetail_schemas.limits import Limit, parse_limits
from dovetail_schemas.policy_file import split_operator
from dovetail_schemas.ranges import parse_range
from dovetail_schemas.terms import parse_term
from dovetail_schemas.yaml_source import Entries, Node, Scalar

REGION_KEYS = ("limits", "need", "count", "bytes")
_COUNTS = ("inputs", "outputs", "nodes", "constants")
_SPLIT = (*_COUNTS, "bytes")
_LARGEST = re.compile(r"(?:\d*\.\.)?(\d+)")
_SIZE = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))? ?(B|KiB|MiB|GiB|KB|MB|GB)?")
_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True, slots=True)
class RegionRule:
    """Requirements on a region as a whole, and on the number of regions.

    Attributes:
        limits: Limits on `inputs`, `outputs`, `nodes`, `constants` and `bytes` of weights.
        need: Operators of which a region must contain at least one; empty for no such requirement.
        need_source: File and line of that requirement.
        count: The maximum number of regions in a model; 0 for any number.
        count_source: File and line of that number.
    """

    limits: tuple[Limit, ...] = ()
    need: tuple[str, ...] = ()
    need_source: str = ""
    count: int = 0
    count_source: str = ""

    def refusals(self, counts: Mapping[str, int], operators: Collection[str]) -> tuple[Refusal, ...]:
        """Return the requirements that a region violates.

        Args:
            counts: Its `inputs`, `outputs`, `nodes`, `constants` and `bytes` of weights; each name that a limit uses is
                required.
            operators: The operators in it, named as in files.
        """
        found = [limit.refusal(counts, "refuse") for limit in self.limits]
        if self.need and not set(self.need) & set(operators):
            found.append(Refusal(f"it holds none of {', '.join(self.need)}", self.need_source))
        return tuple(refusal for refusal in found if isinstance(refusal, Refusal))

    def maxima(self) -> dict[str, int]:
        """Return the maximum number of nodes, inputs, outputs, constants and bytes; larger regions are split."""
        found = {}
        for limit in self.limits:
            largest = _LARGEST.fullmatch(limit.range.text)
            if limit.term.text in _SPLIT and largest:
                found[limit.term.text] = int(largest.group(1))
        return found


def parse_region(entries: Entries) -> RegionRule:
    """Parse the section `region:`.

    Raises:
        SchemaError: A key, name, number or size is invalid.
    """

    def check(place: Node, names) -> None:
        for name in names:
            if name not in _COUNTS:
                raise place.error(f"unknown name '{name}' in limits of region{near_miss(name, _COUNTS)}")

    limits, need = entries.get("limits"), entries.get("need")
    words = need.words("need") if need else []
    for word in words:
        split_operator(word)
    found = parse_limits(limits.entries("limits"), check) if limits else ()
    if size := entries.get("bytes"):
        # Sizes are known once types are chosen; see `dovetail_placement.regions.limits`.
        largest = parse_range(Scalar(size.file, size.line, f"..{parse_size(size, 'bytes')}"))
        found += (Limit(parse_term("bytes"), largest, size.where),)
    count = entries.get("count")
    return RegionRule(
        found,
        tuple(word.raw for word in words),
        need.where if need else "",
        _parse_count(count, "count") if count else 0,
        count.where if count else "",
    )


def _parse_count(node: Node, what: str) -> int:
    """Parse a number from 1.

    Raises:
        SchemaError: It is something else.
    """
    value = node.plain()
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise node.error(f"{what}: a number from 1 is expected")
    return value


def parse_size(node: Node, what: str) -> int:
    """Parse a size in bytes, with a unit or without: `2MiB`, `1.5 GB`, `65536`.

    Raises:
        SchemaError: It is something else, or no whole number of bytes from 1.
    """
    text = node.text(what)
    found = _SIZE.fullmatch(text)
    size = 0
    if found:
        whole, part, unit = found[1], found[2] or "", _UNITS[found[3] or ""]
        scaled = int(whole + part) * unit
        size = scaled // 10 ** len(part) if scaled % 10 ** len(part) == 0 else 0
    if size < 1:
        raise node.error(f"{what}: '{text}' is no size; write bytes with a unit, such as 2MiB, 512KiB or 1.5GB")
    return size
