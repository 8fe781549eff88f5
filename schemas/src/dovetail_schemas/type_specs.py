"""Type specifications in a backend file: element types, and how they are quantized."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from dovetail.ir import FLOATS, SCHEMES, Format
from dovetail.plugin import DovetailError, ObserverChoice, ParameterRule

from dovetail_schemas.errors import near_miss
from dovetail_schemas.limits import Guard, parse_guards
from dovetail_schemas.yaml_source import Entries, Node, Scalar

if TYPE_CHECKING:
    from dovetail.plugin import Observer
    from dovetail.plugin.loading import Table


def parse_observer(node: Node | None) -> ObserverChoice:
    """Parse the key `observer:` of a type; without it, the default observer.

    Raises:
        SchemaError: The name is missing, or an option is not a single number, word or boolean.
    """
    if node is None:
        return ObserverChoice()
    if not isinstance(node, Entries):
        return ObserverChoice(node.text("observer"), (), node.where)
    name = node.require("name").text("observer")
    options = []
    for key, value in node:
        if key.raw == "name":
            continue
        if not isinstance(value, Scalar) or value.is_null:
            raise value.error(f"option '{key.raw}' of observer '{name}': one number or word is expected")
        options.append((key.raw, value.value))
    return ObserverChoice(name, tuple(options), node.where)


def resolve_observer(choice: ObserverChoice, table: Table) -> Callable[..., Observer]:
    """Look up a registered observer, and check that it takes the options of a choice.

    Args:
        choice: Name and options.
        table: The registered observers.

    Raises:
        DovetailError: The name is not registered, the observer has no such option, or a value has another type than the
            default of its option. The message begins with file and line.
    """
    where = f"{choice.source}: " if choice.source else ""
    try:
        found = table[choice.name]
    except DovetailError as error:
        raise DovetailError(f"{where}{error.message}", error.hint) from None
    known = _options(found)
    if known is None:
        return found
    for key, value in choice.options:
        if key not in known:
            problem = f"{where}{table.title(choice.name)} has no option '{key}'{near_miss(key, known)}"
            raise DovetailError(problem, f"its options: {', '.join(known) or 'none'}")
        if not _fits(value, known[key]):
            problem = f"{where}{key}: {value!r} is no option of {table.title(choice.name)}"
            raise DovetailError(problem, f"its default is {known[key]!r}")
    return found


@lru_cache(64)
def _options(made: Callable[..., Observer]) -> dict[str, object] | None:
    """Return the keywords after the format with defaults (None for one without); None if any keyword is accepted."""
    keywords = list(inspect.signature(made).parameters.values())[1:]
    if any(one.kind is one.VAR_KEYWORD for one in keywords):
        return None
    return {one.name: None if one.default is one.empty else one.default for one in keywords}


def _fits(value: object, default: object) -> bool:
    if default is None or type(value) is type(default):
        return True
    return type(default) is float and type(value) is int


DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "float8e8m0", "float6e2m3", "float6e3m2", "float4e2m1", "int64", "int32", "int16", "int8", "int4", "int2", "uint64",
    "uint32", "uint16", "uint8", "uint4", "uint2", "bool", "string", "complex64", "complex128",
)  # fmt: skip
INPUTS_OF_PRODUCTS = ("X", "W")
"""Placeholders in scales for the first and second input of operators whose ports have other names."""

_KEYS = ("dtype", "scheme", "granularity", "axis", "group", "observer", "scale", "when")
_GRANULARITIES = ("tensor", "channel", "group")
_SCALE = re.compile(r"compute|[A-Za-z_]\w*(\s*\*\s*[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A named type.

    Attributes:
        name: Its name in the file, or the element type itself.
        dtype: Element types, in order of preference.
        scheme: `symmetric`, `asymmetric`, or empty for a type that is not quantized.
        granularity: `tensor`, `channel`, `group`, or empty.
        axis: The axis of a granularity by channel or group, or None. For a scale that is a product of ports: the axis
            of this port that corresponds to the channels of a factor.
        group: The number of elements along the axis that share a scale, or None.
        observer: The observer that computes the scale; without a name, the default one.
        scale: The source of the scale if no observer computes it: a product of ports (`X*W`), `compute`, or empty.
        when: The condition under which the type is allowed.
    """

    name: str
    dtype: tuple[str, ...]
    scheme: str = ""
    granularity: str = ""
    axis: int | None = None
    group: int | None = None
    observer: ObserverChoice = ObserverChoice()
    scale: str = ""
    when: Guard = field(default_factory=Guard)

    @property
    def quantized(self) -> bool:
        """Whether its values represent real numbers through a scale."""
        return bool(self.scheme or self.granularity or self.observer.name or self.scale)

    @property
    def parameters(self) -> ParameterRule:
        """The source of scale and zero point."""
        return ParameterRule(self.observer, self.scale)

    def quantizes(self, dtype: str) -> bool:
        """Check whether `dtype`, one of its element types, needs a scale; plain floats never do."""
        return self.quantized and dtype not in FLOATS

    def formats(self, dtype: str, channels: int = 1, expressed: str = "float32") -> tuple[Format, ...]:
        """Return the quantized formats for one of its element types.

        A scale that is a product of ports has the granularity of its factors: one scale if each has one, else one per
        channel. This is known only once the factors have formats, so both are returned.

        Args:
            dtype: The element type.
            channels: The axis of the value's channels, for a scale that is a product and names no axis.
            expressed: The float type of the value.
        """
        if self.parameters.factors:
            along = self.axis if self.axis is not None else channels
            return tuple(_format(dtype, self.scheme, where, None, expressed) for where in (None, along))
        return (_format(dtype, self.scheme, self.axis, self.group, expressed),)


def _format(dtype: str, scheme: str, axis: int | None, group: int | None, expressed: str) -> Format:
    words = [scheme or "symmetric"]
    words += [f"{key}={number}" for key, number in (("axis", axis), ("group", group)) if number is not None]
    return Format.of(f"{dtype}[{','.join((*words, f'expressed={expressed}'))}]")


@dataclass(frozen=True, slots=True)
class PortTypes:
    """The types under `types:` of an operator.

    Attributes:
        common: The types shared as one choice by all ports that are not named; None if not given.
        ports: The types of ports named separately; each port chooses for itself.
    """

    common: tuple[TypeSpec, ...] | None = None
    ports: Mapping[str, tuple[TypeSpec, ...]] = field(default_factory=dict)

    def may_be(self, element: str | None) -> bool:
        """Check whether a port may have this element type; True if no types are given for any port."""
        if self.common is None and not self.ports:
            return True
        specs = (*(self.common or ()), *(spec for held in self.ports.values() for spec in held))
        return any(element in spec.dtype and not spec.quantized for spec in specs)

    def narrowed(self, other: PortTypes) -> PortTypes:
        """Return these types, narrowed by `other`."""
        return PortTypes(other.common or self.common, {**self.ports, **other.ports})

    def renamed(self, names: Mapping[str, str]) -> PortTypes:
        """Return these types with ports renamed."""
        return PortTypes(self.common, {names.get(port, port): types for port, types in self.ports.items()})


def parse_type(name: str, node: Node) -> TypeSpec:
    """Parse an entry of the file's `types:`: an element type, a list of them, or a mapping with `dtype`.

    Raises:
        SchemaError: A key, element type, scheme or granularity is unknown.
    """
    if not isinstance(node, Entries):
        return TypeSpec(name, _dtypes(node))
    node.only(f"type '{name}'", _KEYS)

    def only_region(place: Node, names: Iterable[str]) -> None:
        for used in names:
            if used != "region.last":
                raise place.error(f"unknown name '{used}' in when of type '{name}'{near_miss(used, ['region.last'])}")

    scale = text.text("scale") if (text := node.get("scale")) else ""
    if not _SCALE.fullmatch(scale or "compute"):
        raise node.require("scale").error(f"scale: '{scale}' is neither a product of ports, such as X*W, nor compute")
    granularity = node.choice("granularity", _GRANULARITIES)
    spec = TypeSpec(
        name,
        _dtypes(node.require("dtype")),
        node.choice("scheme", SCHEMES),
        granularity,
        *_granularity(node, granularity, bool(scale) and scale != "compute"),
        parse_observer(node.get("observer")),
        scale,
        parse_guards(node.get("when"), only_region),
    )
    for dtype in spec.dtype if spec.quantized else ():
        try:
            _ = spec.formats(dtype) if spec.quantizes(dtype) else ()
        except DovetailError as error:
            raise node.error(f"type '{name}': {error.message}") from None
    return spec


def _granularity(node: Entries, granularity: str, follows: bool) -> tuple[int | None, int | None]:
    """Parse the axis and the group size, which must fit the granularity."""
    axis, group = (_whole(node, key) for key in ("axis", "group"))
    if group is not None and group < 1:
        raise node.require("group").error("group: a number from 1 is expected")
    if granularity in ("channel", "group") and axis is None:
        raise node.error(f"a granularity by {granularity} needs an axis to run along; add `axis: 0`")
    if (granularity == "group") != (group is not None):
        if group is None:
            raise node.error("a granularity by group needs the size of a group; add `group: 128`")
        raise node.require("group").error("group: only a granularity by group has a size; add `granularity: group`")
    if axis is not None and granularity not in ("channel", "group") and not follows:
        raise node.require("axis").error("axis: only a granularity by channel or group runs along one")
    return axis, group


def _whole(node: Entries, key: str) -> int | None:
    found = node.get(key)
    if found is None:
        return None
    value = found.plain()
    if not isinstance(value, int) or isinstance(value, bool):
        raise found.error(f"{key}: a whole number is expected")
    return value


def parse_dtype(node: Node, what: str) -> str:
    """Parse the element type under a key.

    Raises:
        SchemaError: It is not a single word, or not an element type.
    """
    word = node.text(what)
    if word not in DTYPES:
        raise node.error(f"unknown dtype '{word}'{near_miss(word, DTYPES)}")
    return word


def _dtypes(node: Node) -> tuple[str, ...]:
    return tuple(parse_dtype(word, "dtype") for word in node.words("dtype"))


def parse_port_types(node: Node, types: Mapping[str, TypeSpec]) -> PortTypes:
    """Parse the `types:` of an operator, a row or a block.

    Args:
        node: A type, a list of them, or a mapping from ports to these.
        types: The file's named types.

    Raises:
        SchemaError: A type is unknown.
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
