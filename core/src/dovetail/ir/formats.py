"""Numeric formats: an element type and, for quantized values, the mapping from integers to real numbers.

A format combines the storage type and the expressed type of MLIR's quant dialect. Scale and zero point are not part of
it: they belong to a value.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from dovetail.errors import UsageError
from dovetail.ir.types import FLOATS, dtype_name, from_name, promote
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    import onnx_ir as ir


SCHEMES = ("symmetric", "asymmetric", "power-of-two")
"""Quantization schemes: no zero point, with a zero point, or no zero point and power-of-two scales."""

_ELEMENTS = (
    *FLOATS,
    *("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"),
    *("float6e2m3", "float6e3m2", "float4e2m1"),
    *("int64", "int32", "int16", "int8", "int4", "int2", "uint64", "uint32", "uint16", "uint8", "uint4", "uint2"),
    *("bool", "string", "complex64", "complex128"),
)
_TEXT = re.compile(r"\s*([^\s\[\]]+)\s*(?:\[([^\[\]]*)\])?\s*")
_NUMBERS = ("axis", "group")
_DEFAULT_EXPRESSED = "float32"


class Format:
    """The numeric format of a value.

    Formats are interned: equal formats are the same object, even after copying and unpickling, so they compare and hash
        by identity. Create them with `Format.of`.

    Attributes:
        element: Name of the element type: `bfloat16`, `int8`.
        scheme: One of `SCHEMES`; empty if the format is not quantized.
        expressed: The float type that a quantized format approximates; empty if it is not quantized.
        axis: The axis along which scales differ; None for one scale per tensor.
        group: How many elements along `axis` share a scale; None for one scale per index.
    """

    __slots__ = ("axis", "element", "expressed", "group", "scheme", "text")

    _known: ClassVar[dict[str, Format]] = {}

    element: str
    scheme: str
    expressed: str
    axis: int | None
    group: int | None
    text: str

    @classmethod
    def of(cls, text: str | Format) -> Format:
        """Parse the text form: `bfloat16`, `int8[symmetric]`, `int4[asymmetric,axis=1,group=128,expressed=bfloat16]`.

        Raises:
            UsageError: The text is not a format; the message suggests the nearest valid word.
        """
        if isinstance(text, Format):
            return text
        found = cls._known.get(text)
        return found if found is not None else _parsed(text)

    @property
    def quantized(self) -> bool:
        """Whether values need a scale to be interpreted."""
        return bool(self.scheme)

    @property
    def computes_in(self) -> str:
        """The element type of arithmetic in this format: the expressed type if quantized, else its own."""
        return self.expressed or self.element

    @property
    def is_float(self) -> bool:
        """Whether this is an unquantized float type of mixed precision."""
        return not self.scheme and self.element in FLOATS

    @property
    def dtype(self) -> ir.DataType:
        """The element type in onnx-ir."""
        return from_name(self.element)

    def fits_in(self, other: Format) -> bool:
        """Check whether the float format `other` represents every value of this one; False unless both are floats."""
        return self.is_float and other.is_float and other.element in FLOATS[self.element]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Format.of({self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Format.of, (self.text,)

    def __copy__(self) -> Format:
        return self

    def __deepcopy__(self, _: object) -> Format:
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} cannot be changed")

    def join(self, *others: Format) -> Format:
        """Return the smallest float format that holds all expressed types: float16 and bfloat16 join to float32.

        Raises:
            KeyError: One of the formats is neither a float nor quantized.
        """
        formats = (self, *others)
        if all(other is self for other in formats):
            return self
        return Format.of(promote(*(part.computes_in for part in formats)))


@cache
def _parsed(text: str) -> Format:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no format", "write ELEMENT or ELEMENT[SCHEME,...], as in int8[symmetric,axis=0]")
    element, inside = match.groups()
    if element not in _ELEMENTS:
        raise UsageError(f"{text!r}: there is no element type {element!r}{did_you_mean(element, _ELEMENTS)}")
    if inside is None:
        return _interned(element, "", "", None, None)
    scheme, *rest = (word.strip() for word in inside.split(","))
    if scheme not in SCHEMES:
        raise UsageError(
            f"{text!r}: {scheme!r} is no scheme{did_you_mean(scheme, SCHEMES)}", f"one of {', '.join(SCHEMES)}"
        )
    options: dict[str, str] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if key not in (*_NUMBERS, "expressed") or not equals or key in options:
            near = did_you_mean(key, (*_NUMBERS, "expressed"))
            raise UsageError(
                f"{text!r}: {word!r} is not understood{near}", "axis=N, group=N or expressed=TYPE, once each"
            )
        options[key] = value
    return _quantized(text, element, scheme, options)


def _quantized(text: str, element: str, scheme: str, options: dict[str, str]) -> Format:
    if element in FLOATS or element in ("bool", "string") or element.startswith("complex"):
        raise UsageError(f"{text!r}: {element} is not quantized", "only integers and narrow floats have a scheme")
    numbers: dict[str, int] = {}
    for key in _NUMBERS:
        if key in options:
            if not re.fullmatch(r"-?\d+", options[key]) or (key == "group" and int(options[key]) < 1):
                raise UsageError(f"{text!r}: {key}={options[key]} is no {key}", "an integer; a group is 1 or more")
            numbers[key] = int(options[key])
    if "group" in numbers and "axis" not in numbers:
        raise UsageError(f"{text!r}: a group needs an axis to run along", "add axis=N")
    expressed = options.get("expressed", _DEFAULT_EXPRESSED)
    if expressed not in FLOATS:
        raise UsageError(f"{text!r}: {expressed!r} is no float type{did_you_mean(expressed, FLOATS)}")
    return _interned(element, scheme, expressed, numbers.get("axis"), numbers.get("group"))


def _interned(element: str, scheme: str, expressed: str, axis: int | None, group: int | None) -> Format:
    words = [scheme]
    words += [f"{key}={value}" for key, value in (("axis", axis), ("group", group)) if value is not None]
    words += [f"expressed={expressed}"] if expressed not in ("", _DEFAULT_EXPRESSED) else []
    text = f"{element}[{','.join(words)}]" if scheme else element
    made = object.__new__(Format)
    for name, value in (
        ("element", element), ("scheme", scheme), ("expressed", expressed), ("axis", axis), ("group", group),
        ("text", text),
    ):  # fmt: skip
        object.__setattr__(made, name, value)
    # `setdefault` is atomic, so threads agree on one object.
    return Format._known.setdefault(text, made)


FLOAT_FORMATS = tuple(map(Format.of, FLOATS))
"""The float formats of mixed precision, narrow ones first."""

FLOAT32 = Format.of("float32")


def float_format(value: ir.Value | None) -> Format | None:
    """Return the float format of `value`; None if it is not a float tensor or its type is unknown."""
    kind = None if value is None else value.type
    return _of_float(kind.dtype) if kind is not None and kind.__class__.__name__ == "TensorType" else None


@cache
def _of_float(dtype: ir.DataType) -> Format | None:
    name = dtype_name(dtype)
    return Format.of(name) if name in FLOATS else None


@cache
def format_of(dtype: ir.DataType | None) -> Format | None:
    """Return the unquantized format of an element type; None if the type is None or undefined."""
    name = "undefined" if dtype is None else dtype_name(dtype)
    return None if name == "undefined" else Format.of(name)
