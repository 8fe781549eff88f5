"""Policies: the autocast treatment of operators, as columns of names shared by several backends.

    extends: fp16
    policy: {pass: [Exp, Log], fp32: [CumProd]}
    keep: {Resize: [scales]}
    angles: [Cos, Sin]

Settings for an operator replace those of the extended file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dovetail.plugin import Source

from dovetail_schemas.errors import near_miss
from dovetail_schemas.operators import is_operator, known_names, operator_names
from dovetail_schemas.yaml_source import Entries, Scalar, load_tree

POLICIES = (
    "lower", "fp32", "promote", "pass", "fp32-accumulate", "fp32-round-trip", "follow-consumer", "recurse", "none",
)  # fmt: skip
"""Names of the policies of nodes, which a policy file assigns."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The content of a policy file, merged with its bases.

    Attributes:
        policy: Policy by (domain, operator type).
        keep: Ports that stay in the high precision even where the operator goes low, by (domain, operator type).
        angles: Operators that take an angle; a chain that derives it from positions stays in the high precision.
    """

    policy: Mapping[tuple[str, str], str]
    keep: Mapping[tuple[str, str], frozenset[str]]
    angles: frozenset[tuple[str, str]] = frozenset()


def split_operator(key: Scalar) -> tuple[str, str]:
    """Split `Conv` or `com.acme::FusedMlp` into (domain, operator type).

    `::EfficientNMS_TRT` is an operator of the default domain that onnx does not know: exporters write those of a vendor
    there.

    Raises:
        SchemaError: onnx knows the domain, but not the operator.
    """
    domain, separator, op_type = key.raw.rpartition("::")
    is_vendors = bool(separator) and not domain
    domain = "" if domain == "ai.onnx" else domain
    if not is_vendors and not is_operator(domain, op_type):
        raise key.error(f"unknown operator '{key.raw}'{near_miss(op_type, operator_names(domain))}")
    return domain, op_type


def load_policies(source: Source, find: Callable[[Source, str], Source | None]) -> Policies:
    """Load a policy file and the files that it extends.

    Args:
        source: The file.
        find: Looks up the file for a name, given the file that names it.

    Raises:
        SchemaError: The file, or one that it extends, is invalid.
    """
    return _load(source, find, (source,))


def _load(source: Source, find: Callable[[Source, str], Source | None], chain: tuple[Source, ...]) -> Policies:
    tree = load_tree(source).only("policies file", ("extends", "policy", "keep", "angles"))
    base = None
    extends = tree.get("extends")
    if extends:
        name = extends.text("extends")
        other = find(source, name)
        if other is None:
            raise extends.error(f"no policies file '{name}' is found")
        if str(other) in map(str, chain):
            raise extends.error(f"extends goes in a circle: {' -> '.join(file.name for file in (*chain, other))}")
        base = _load(other, find, (*chain, other))
    return parse_policies(tree, base)


def parse_policies(tree: Entries, base: Policies | None = None) -> Policies:
    """Merge the columns of one file into `base`.

    Raises:
        SchemaError: A policy, operator or port is unknown, or an operator is in two columns.
    """
    policy: dict[tuple[str, str], str] = {}
    lines: dict[tuple[str, str], int] = {}
    columns = tree.get("policy")
    for name, members in columns.entries("policy") if columns else ():
        if name.raw not in POLICIES:
            raise name.error(f"unknown policy '{name.raw}'{near_miss(name.raw, POLICIES)}")
        for word in members.words(name.raw, empty=True):
            operator = split_operator(word)
            if operator in policy:
                raise word.error(f"'{word.raw}' is given twice (first on line {lines[operator]})")
            policy[operator], lines[operator] = name.raw, word.line
    keep: dict[tuple[str, str], frozenset[str]] = {}
    kept = tree.get("keep")
    for key, ports in kept.entries("keep") if kept else ():
        operator = split_operator(key)
        keep[operator] = parse_ports(operator, ports.words("keep", empty=True))
    listed = tree.get("angles")
    angles = (
        frozenset(map(split_operator, listed.words("angles", empty=True)))
        if listed
        else base.angles
        if base
        else frozenset()
    )
    return Policies({**(base.policy if base else {}), **policy}, {**(base.keep if base else {}), **keep}, angles)


def parse_ports(operator: tuple[str, str], words: list[Scalar]) -> frozenset[str]:
    """Parse words that name ports of an operator.

    Raises:
        SchemaError: The operator has no such port.
    """
    names = known_names(*operator)
    for word in words:
        if names and word.raw not in names.ports:
            raise word.error(f"{operator[1]} has no port '{word.raw}'{near_miss(word.raw, names.ports)}")
    return frozenset(word.raw for word in words)
