"""The backend that a backend file describes: plain data, and a rule per operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import dovetail.plugin
from dovetail.plugin import Border, Refusal

from dovetail_schemas.policy_file import Policies
from dovetail_schemas.region_rules import RegionRule
from dovetail_schemas.rules import Rule
from dovetail_schemas.type_specs import TypeSpec

if TYPE_CHECKING:
    from dovetail.plugin import Fact, Source

    from dovetail_schemas.legality import RuleJudge


_WIDE_OR_NARROW = frozenset({"int16", "uint16", "int4", "uint4", "int2", "uint2"})


@dataclass(frozen=True)
class FileBackend(dovetail.plugin.Backend):
    """A backend with its options chosen.

    Attributes:
        name: Its name, as after `--backend`.
        summary: A one-line description.
        device: The device it runs on.
        low: The low precision, or None.
        high: The high precision, or None.
        accumulate: The accumulator type, or None.
        widened: Float types of source models that are treated as float32.
        opset: Lowest and highest version of the default ONNX domain that its tools read.
        dynamic: Treatment of extents unknown until run time: `refuse` rejects nodes with such an extent, `accept` and
            `profile` assume that it is allowed; empty: only a limit that needs the extent rejects the node.
        dynamic_source: File and line of `dynamic`.
        integers: Treatment of nodes that compute in integers or Booleans which no type lists: `refuse` rejects them,
            `accept` says that they are meant; empty: they are taken.
        integers_source: File and line of `integers`.
        open_cost: The cost to its engines of such an extent, if accepted; empty for none.
        open_facts: The facts that tell whether a node has such an extent.
        given_facts: Values of facts that hold for every node, regardless of the registered functions.
        options: The values of every option, the default first.
        chosen: The chosen value of every option.
        idle_options: Options that do not affect placement, only the treatment of regions and the quantization of the
            same element types.
        unused_options: Options without effect given the other choices.
        types: The named types.
        region: The requirements on a region.
        border: Positions of conversions at the border of regions.
        refine: Refinements of quantized weights, unless the request names others.
        floor: The SNR that a node in integers must leave; see `dovetail.plugin.Backend`.
        strategy: Name of the strategy that claims nodes for it; empty for none.
        regions: Name of its partitioner; empty for the default.
        prepare: The fusions of nodes that are offered to it, with file and line of each.
        runtimes: Options that suit a program which loads results, by its name; see `dovetail.plugin.Backend`.
        interacting: Groups of options of which one changes what another gains.
        place: The other keys under `place:`, which are options of its strategy.
        place_sources: File and line of each of these keys.
        engines: Engines in order of preference.
        artifacts: Names of its emitters.
        arithmetic: The arithmetic of quantized nodes on its engines: `floats` between conversions, or `integers`.
        source: Name of its file.
        files: Every file that it was loaded from: its own, its bases, variants, policies and dialects.
    """

    name: str
    summary: str
    device: str
    low: str | None
    high: str | None
    accumulate: str | None
    widened: tuple[str, ...] = field()
    opset: tuple[int, int]
    dynamic: Literal["refuse", "accept", "profile", ""]
    dynamic_source: str
    integers: Literal["refuse", "accept", ""] = field()
    integers_source: str
    open_cost: str = field()
    open_facts: frozenset[str]
    given_facts: Mapping[str, object] = field()
    options: Mapping[str, tuple[str, ...]] = field()
    chosen: Mapping[str, str]
    idle_options: frozenset[str] = field()
    unused_options: frozenset[str] = field()
    types: Mapping[str, TypeSpec]
    region: RegionRule
    border: Border = field()
    refine: tuple[str, ...] = field()
    floor: tuple[float, str] | None = field()
    strategy: str
    regions: str = field()
    prepare: Mapping[str, str] = field()
    runtimes: Mapping[str, Mapping[str, str]] = field()
    interacting: tuple[tuple[str, ...], ...] = field()
    place: Mapping[str, object] = field()
    place_sources: Mapping[str, str] = field(repr=False)
    engines: tuple[str, ...]
    artifacts: tuple[str, ...] = field()
    arithmetic: Literal["floats", "integers"] = field()
    source: str
    files: tuple[Source, ...] = field(repr=False)
    _rules: Mapping[tuple[str, str], Rule] = field(repr=False)
    _unlisted: Rule = field(repr=False)
    _policies: Policies = field(repr=False)
    _facts: frozenset[str] = field(repr=False)

    def rule(self, domain: str, op_type: str) -> Rule:
        """Return the rule for an operator, with the shared policy unless the file sets one."""
        operator = ("" if domain == "ai.onnx" else domain, op_type)
        rule = self._rules.get(operator)
        if rule is None:
            rule = replace(self._unlisted, domain=operator[0], op_type=op_type)
        return replace(
            rule,
            policy=rule.policy or self._policies.policy.get(operator, ""),
            keep=rule.keep or self._policies.keep.get(operator, frozenset()),
        )

    def policy(self, domain: str, op_type: str) -> str:
        """Return the autocast policy of an operator; empty if there is none."""
        return self.rule(domain, op_type).policy

    def takes_angles(self, domain: str, op_type: str) -> bool:
        """Return whether nodes that derive the operator's input from positions must stay in the high precision."""
        return ("" if domain == "ai.onnx" else domain, op_type) in self._policies.angles

    def lists(self, domain: str, op_type: str) -> bool:
        """Return whether the file names an operator, directly or in a group."""
        return self.rule(domain, op_type).listed

    def takes(self, domain: str, op_type: str) -> bool:
        """Return whether the file supports some nodes of an operator."""
        return self.rule(domain, op_type).status == "ok"

    @property
    def border_types(self) -> frozenset[str]:
        """The element types of the file's named types, the low precision, and the high precision if values may have it.

        A device that supports only float16 has `high: float32` for the precision of its nodes elsewhere.
        """
        named = {dtype for spec in self.types.values() for dtype in spec.dtype}
        high = {self.high} if self._has_high else set()
        return frozenset(name for name in (*named, self.low, *high) if name is not None)

    @cached_property
    def _has_high(self) -> bool:
        """Return whether values in the high precision may cross its border, for an operator or for its conversions."""
        if "inside" in (self.border.into, self.border.out) or self.border.floats == "high":
            return True
        taken = [rule.types for rule in (*self._rules.values(), self._unlisted) if rule.status == "ok"]
        return any(types is None or types.may_be(self.high) for types in taken)

    def judge(self, opsets: Mapping[str, int], facts: Mapping[str, Fact], as_typed: bool = False) -> RuleJudge:
        """Return the judge for the nodes of one model; see `dovetail_schemas.legality.RuleJudge`."""
        from dovetail_schemas.legality import RuleJudge

        return RuleJudge(self, facts=facts, opset=opsets, as_typed=as_typed)

    def listed(self) -> tuple[tuple[str, str], ...]:
        """Return the operators that the file names, directly or in a group, as (domain, operator type)."""
        return tuple(self._rules)

    @property
    def limits_regions(self) -> bool:  # type: ignore[override]  # never set
        """Whether it has requirements on regions as a whole."""
        return bool(self.region.limits or self.region.need or self.region.count)

    def region_refusals(self, counts: Mapping[str, int], operators: Collection[str]) -> tuple[Refusal, ...]:
        """Return why it rejects a region as a whole; see `RegionRule.refusals`."""
        return self.region.refusals(counts, operators)

    @cached_property
    def region_maxima(self) -> dict[str, int]:  # type: ignore[override]  # never set
        """The maximum number of nodes, inputs, outputs, constants and bytes of a region; larger regions are split."""
        return self.region.maxima()

    @property
    def region_count(self) -> tuple[int, str]:  # type: ignore[override]  # never set
        """The maximum number of regions in a model, 0 for any number, with file and line."""
        return self.region.count, self.region.count_source

    @property
    def lowest_opset(self) -> int:
        """The lowest opset that can express its formats.

        QuantizeLinear supports per-channel scales from opset 13 on; scales in types other than float32 from 19 on;
        blocks, 16 bits and 4 bits from 21 on.
        """
        quantized = [spec for spec in self.types.values() if spec.quantized]
        new = any(spec.granularity == "group" or _WIDE_OR_NARROW & set(spec.dtype) for spec in quantized)
        computed = self.low != "float32" and any(spec.scale == "compute" for spec in quantized)
        return max(self.opset[0], 21 if new else 19 if computed else 13 if quantized else 0)

    @cached_property
    def asks_region(self) -> bool:  # type: ignore[override]  # never set
        """Whether a limit, a row or a type depends on `region.last`."""
        rows = [row for rule in (*self._rules.values(), self._unlisted) for row in rule.rows]
        return any("region.last" in row.names for row in rows) or any(spec.when.limits for spec in self.types.values())

    @property
    def facts(self) -> frozenset[str]:
        """Names of the facts that its limits evaluate."""
        return self._facts
