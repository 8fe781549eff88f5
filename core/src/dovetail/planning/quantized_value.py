"""Quantized values: the quantized formats of values and their parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir.formats import Format

if TYPE_CHECKING:
    import numpy as np


class Parameters(NamedTuple):
    """Scale and zero point of a quantized value: real = (integer - zero point) * scale.

    Attributes:
        scale: One number; or one per index along the axis of the format, or one per group, in the order of the groups
            in the tensor, the last axis first.
        zero_point: As many numbers.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]


class Observer(ABC):
    """Collects statistics of a value during calibration, and computes parameters from them.

    Registered as `registry.observer("acme-p99", "acme_npu.observers:P99")`, and created once per sharing group as
    `P99(format)`. Its options are the keyword arguments after the format: `observer: {name: acme-p99, rounds: 3}` in a
    backend file calls `P99(format, rounds=3)`; an option has the type of the keyword's default. Data is seen only once,
    so an observer stores a bounded amount, independent of the number of batches.

    Attributes:
        follows_maxima: Whether, for a value of which only maxima are used (MaxPool, ReduceMax), it sees only the
            maxima.
    """

    follows_maxima: ClassVar[bool] = False

    @abstractmethod
    def update(self, array: np.ndarray) -> None:
        """Observe one batch of the value, or a weight."""

    def extrema(self, low: np.ndarray, high: np.ndarray) -> None:
        """Observe the minimum and maximum of one batch, one each per scale; NaN if one is infinite or NaN.

        An observer that needs only extrema overrides this: it is called instead of `update` where an engine computes
        the extrema. It is never called on other observers.
        """
        raise NotImplementedError

    @abstractmethod
    def parameters(self) -> Parameters:
        """Compute one scale and zero point, or one of each per index along the axis of the format.

        Raises:
            ValueError: The observed data yields no parameters.
        """


@dataclass(frozen=True, slots=True)
class QuantizedValue:
    """One value in one quantized format, with one set of parameters.

    Attributes:
        value: Name of the value.
        format: The format.
        group: Name of the sharing group; all quantized values of a group have the same parameters.
        source: Origin of the parameters: `minmax`, `weights`, `X*W of conv_1`, `replayed`.
        parameters: Scale and zero point; None before they are known.
        readers: The uses of the value: `node:port`.
        made_by: The output that computes these integers, `node:port`; empty if they are converted from another form. A
            value that is produced in one form and read in another is requantized. Not saved in plans.
    """

    value: str
    format: Format
    group: str
    source: str = ""
    parameters: Parameters | None = None
    readers: tuple[str, ...] = ()
    made_by: str = ""


def quantized_values_document(quantized_values: Iterable[QuantizedValue]) -> dict[str, list[dict[str, Any]]]:
    """Return quantized values as in plans, by value name.

    Parameters that follow from weights are left out: they are recomputed.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for quantized in quantized_values:
        entry: dict[str, Any] = {"format": str(quantized.format), "group": quantized.group, "source": quantized.source}
        if quantized.parameters is not None and len(quantized.parameters.scale) == 1:
            entry |= {"scale": quantized.parameters.scale[0], "zero_point": quantized.parameters.zero_point[0]}
        elif quantized.parameters is not None and quantized.source != "weights":
            entry |= {"scale": list(quantized.parameters.scale), "zero_point": list(quantized.parameters.zero_point)}
        if quantized.readers:
            entry["readers"] = list(quantized.readers)
        found.setdefault(quantized.value, []).append(entry)
    return found


def parse_quantized_values(document: Mapping[str, Any]) -> list[QuantizedValue]:
    """Parse a document of `quantized_values_document`.

    Raises:
        DovetailError: An entry is malformed; the error names the value.
    """
    found = []
    for value, entries in document.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            try:
                found.append(_parsed(value, entry))
            except (KeyError, TypeError, ValueError, DovetailError) as error:
                own = isinstance(error, (ValueError, DovetailError))
                why = error.args[0] if own else f"{type(error).__name__}: {error}"
                raise DovetailError(
                    f"plan: the quantized value '{value}' cannot be read: {why}",
                    "replay a plan as it was saved, or leave the entry out and give --data",
                ) from None
    return found


def _parsed(value: str, entry: Mapping[str, Any]) -> QuantizedValue:
    format_ = Format.of(str(entry["format"]))
    parameters = None
    if "scale" in entry:
        scale, zero = (given if isinstance(given, list) else [given] for given in (entry["scale"], entry["zero_point"]))
        if not all(isinstance(one, (int, float)) and one > 0 for one in scale):
            raise ValueError(f"scale {entry['scale']!r} is not a positive number")
        if not all(isinstance(one, int) for one in zero) or len(zero) != len(scale):
            raise ValueError(f"zero_point {entry['zero_point']!r} is not a whole number per scale")
        parameters = Parameters(tuple(map(float, scale)), tuple(zero))
    readers = tuple(map(str, entry.get("readers", ())))
    return QuantizedValue(
        value, format_, str(entry.get("group", value)), str(entry.get("source", "")), parameters, readers
    )


@dataclass(frozen=True, slots=True)
class ObserverChoice:
    """An observer with its options. Two choices that differ only in their source are equal.

    Attributes:
        name: Its registered name; empty for the default observer.
        options: Its options, as pairs of keyword and value.
        source: File and line of the choice, or the command-line argument.
    """

    name: str = ""
    options: tuple[tuple[str, object], ...] = ()
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}{{{options}}}" if options else self.name
