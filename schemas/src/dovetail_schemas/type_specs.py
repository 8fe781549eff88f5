"""Types in a backend file: an element type and, where it is quantised, how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail_schemas.errors import near_miss
from dovetail_schemas.limits import Guard, parse_guards
from dovetail_schemas.yaml_source import Entries, Node

__all__ = ["DTYPES", "PortTypes", "TypeSpec", "parse_dtype", "parse_port_types", "parse_type"]

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "float8e8m0", "float6e2m3", "float6e3m2", "float4e2m1", "int64", "int32", "int16", "int8", "int4", "int2", "uint64",
    "uint32", "uint16", "uint8", "uint4", "uint2", "bool", "string", "complex64", "complex128",
)  # fmt: skip
_KEYS = ("dtype", "scheme", "granularity", "axis", "observer", "scale", "when")
_SCHEMES = ("symmetric", "asymmetric")
_GRANULARITIES = ("tensor", "channel", "group")


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A named type.

    Attributes:
        name: Its name in the file, or the element type itself.
        dtype: Element types, in order of preference.
        scheme: `symmetric`, `asymmetric`, or empty for a type that is not quantised.
        granularity: `tensor`, `channel`, `group`, or empty.
        axis: The axis of a granularity by channel or group, or None.
        observer: Name of the observer that finds the scale, or empty.
        scale: Where the scale comes from instead: a product of ports (`X*W`), `compute`, or empty.
        when: Only while this holds.
    """

    name: str
    dtype: tuple[str, ...]
    scheme: str = ""
    granularity: str = ""
    axis: int | None = None
    observer: str = ""
    scale: str = ""
    when: Guard = field(default_factory=Guard)

    @property
    def quantised(self) -> bool:
        """Its values stand for real numbers by way of a scale."""
        return bool(self.scheme or self.granularity or self.observer or self.scale)


@dataclass(frozen=True, slots=True)
class PortTypes:
    """What stands under `types:` of an operator.

    Attributes:
        common: The types of every port that is not named: one choice for all of them. None: nothing is said.
        ports: The types of ports that are named apart; each chooses for itself.
    """

    common: tuple[TypeSpec, ...] | None = None
    ports: Mapping[str, tuple[TypeSpec, ...]] = field(default_factory=dict)

    def narrowed(self, other: PortTypes) -> PortTypes:
        """With what `other` says laid over."""
        return PortTypes(other.common or self.common, {**self.ports, **other.ports})

    def renamed(self, names: Mapping[str, str]) -> PortTypes:
        """The same with ports under other names."""
        return PortTypes(self.common, {names.get(port, port): types for port, types in self.ports.items()})


def parse_type(name: str, node: Node) -> TypeSpec:
    """An entry of the file's `types:`: an element type, a list of them, or a mapping with `dtype`.

    Raises:
        SchemaError: An unknown key, element type, scheme or granularity.
    """
    if not isinstance(node, Entries):
        return TypeSpec(name, _dtypes(node))
    node.only(f"type '{name}'", _KEYS)
    axis = node.get("axis")
    if axis is not None and (not isinstance(axis.plain(), int) or isinstance(axis.plain(), bool)):
        raise axis.error("axis: a whole number is expected")

    def only_region(place: Node, names: tuple[str, ...]) -> None:
        for used in names:
            if used != "region.last":
                raise place.error(f"unknown name '{used}' in when of type '{name}'{near_miss(used, ['region.last'])}")

    return TypeSpec(
        name,
        _dtypes(node.require("dtype")),
        node.choice("scheme", _SCHEMES),
        node.choice("granularity", _GRANULARITIES),
        axis.plain() if axis else None,
        *(text.text(key) if (text := node.get(key)) else "" for key in ("observer", "scale")),
        parse_guards(node.get("when"), only_region),
    )


def parse_dtype(node: Node, what: str) -> str:
    """The element type under a key.

    Raises:
        SchemaError: There is no such element type, or no single word.
    """
    word = node.text(what)
    if word not in DTYPES:
        raise node.error(f"unknown dtype '{word}'{near_miss(word, DTYPES)}")
    return word


def _dtypes(node: Node) -> tuple[str, ...]:
    return tuple(parse_dtype(word, "dtype") for word in node.words("dtype"))


def parse_port_types(node: Node, types: Mapping[str, TypeSpec]) -> PortTypes:
    """The `types:` of an operator, a row or a block.

    Args:
        node: A type, a list of them, or a mapping from ports to these.
        types: The file's named types.

    Raises:
        SchemaError: An unknown type.
    """
    if isinstance(node, Entries):
        return PortTypes(None, {port.raw: _named(value, types) for port, value in node})
    return PortTypes(_named(node, types))


def _named(node: Node, types: Mapping[str, TypeSpec]) -> tuple[TypeSpec, ...]:
    found = []
    for word in node.words("types"):
        if word.raw in types:
            found.append(types[word.raw])
        elif word.raw in DTYPES:
            found.append(TypeSpec(word.raw, (word.raw,)))
        else:
            raise word.error(f"unknown type '{word.raw}'{near_miss(word.raw, (*types, *DTYPES))}")
    return tuple(found)
