"""The ports of a part: the roles of its inputs, its caches, and their state before the first token."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_decoder.folder import GeneratorFolder, Part

PAST = "past"
_MASK, _POSITIONS = (0, 1), (0, (1 << 24) - 1)
_RANGES = {
    "attention_mask": _MASK, "decoder_attention_mask": _MASK, "encoder_attention_mask": _MASK,
    "position_ids": _POSITIONS, "cache_position": _POSITIONS,
}  # fmt: skip
"""The ranges of integers that generators pass for inputs of these roles; up to 24 bits, float32 is exact."""
_BATCH = re.compile(r"batch", re.IGNORECASE)
_LENGTH = re.compile(r"past|seq|len|total|cache_size", re.IGNORECASE)
_CROSS = re.compile(r"cross|encoder")
_PRESENT = re.compile(r"present(_key_values)?")
_KEEPS = ("past_key_values", "past")
_LAYOUT = (0, 2)  # of batch and length, where extents have no names: [batch, heads, length, head size]
_EXPORT = "export the model again; caches are [batch, heads, length, head size]"


@dataclass(frozen=True)
class PartPort:
    """An input or an output of a part.

    Attributes:
        name: Its name in the model.
        role: Its role, in the terms of the configuration; a cache of layer 3 ends in `.3`.
        dtype: The type of its elements, as NumPy has it.
        shape: Its extents, a number or the name of each; None if its rank is unknown.
        window: For a cache of the last positions only, the number of positions that a token sees; else 0.
        by_position: Whether row t of a cache holds position t of each text, whatever its padding.
    """

    name: str
    role: str
    dtype: np.dtype
    shape: tuple[int | str, ...] | None
    window: int = 0
    by_position: bool = False

    @property
    def is_cache(self) -> bool:
        """Whether earlier calls fill it."""
        return self.role.startswith(PAST) and self.shape is not None and len(self.shape) > 2

    @property
    def is_cross(self) -> bool:
        """Whether it has values that an encoder computes once."""
        return self.is_cache and bool(_CROSS.search(self.role) or _CROSS.search(self.name))


@dataclass(frozen=True)
class Ports:
    """All ports of a part, inputs with a default left out."""

    inputs: Sequence[PartPort]
    outputs: Sequence[PartPort]

    @property
    def caches(self) -> list[PartPort]:
        """The inputs that hold caches."""
        return [port for port in self.inputs if port.is_cache]

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The least and the largest integer that generators give an input, for those with a role that says so."""
        return {
            port.name: _RANGES[port.role] for port in self.inputs if port.role in _RANGES and port.dtype.kind in "iu"
        }

    def output(self, role: str) -> PartPort | None:
        """Return the output of a role, or None."""
        return next((port for port in self.outputs if port.role == role), None)


def ports_of(folder: GeneratorFolder, models: Mapping[str, Model]) -> dict[str, Ports]:
    """Return the ports of all parts by name; a part may fill the caches of another."""
    names = {name_of(value) for model in models.values() for value in model.graph.inputs}
    return {part.name: _ports_of(part, models[part.name], names) for part in folder.parts}


def _ports_of(part: Part, model: Model, names: set[str]) -> Ports:
    """Return the ports of a part; `names` are those of all inputs."""
    inputs = [v for v in model.graph.inputs if not v.is_initializer()]
    found = [
        _port(value, _as_input(_role(name_of(value), part.inputs)), _window(value), _is_by_position(value))
        for value in inputs
    ]
    outputs = []
    for value in model.graph.outputs:
        role = _role(name_of(value), part.outputs)
        outputs.append(_port(value, _as_input(_carried(role, name_of(value), names))))
    return Ports(found, outputs)


def check_caches(folder: GeneratorFolder, part: Part, ports: Ports, given: frozenset[str] = frozenset()) -> None:
    """Check that the caches of a part are those that the configuration describes.

    Args:
        folder: The folder.
        part: The part.
        ports: Its ports.
        given: Roles of what other parts compute.

    Raises:
        DovetailError: A cache has another rank, other heads, no output that fills it, or a layer has none.
    """
    own = [port for port in ports.caches if not port.is_cross]
    for port in own:
        where = f"{folder.file_of(part)}: cache '{port.name}'"
        shape = port.shape or ()
        if ports.output(port.role) is None and port.role not in given:
            outputs = ", ".join(output.name for output in ports.outputs[:4])
            raise DovetailError(f"{where} has no output that fills it", f"the outputs are {outputs}: {_EXPORT}")
        if not _attends(port):
            continue
        if len(shape) != 4:
            raise DovetailError(f"{where} has {len(shape)} axes {list(shape)}, and 4 are expected", _EXPORT)
        for axis in (1, 3):
            if isinstance(shape[axis], str) and _LENGTH.search(str(shape[axis])):
                raise DovetailError(f"{where} is {list(shape)}: its length is axis {axis}", _EXPORT)
        for axis, key, wanted in ((1, "num_key_value_heads", folder.kv_heads), (3, "head_size", folder.head_size)):
            extent = shape[axis]
            if isinstance(extent, int) and extent > 0 and wanted is not None and extent != wanted:
                raise DovetailError(
                    f"{where} is {list(shape)}, and {folder.config.name} says that {key} is {wanted}",
                    f"correct {folder.config.name}, or {_EXPORT}",
                )
    layers = {int(found[-1]) for port in own if _attends(port) and (found := re.findall(r"\d+", port.role))}
    missing = set(range(max(layers, default=0))) - layers  # the last layers may use caches of earlier ones
    if layers and missing and not _has_other_states(own):
        raise DovetailError(
            f"{folder.file_of(part)} has no cache for layer {min(missing)}, and one for layer {max(layers)}", _EXPORT
        )


def empty(port: PartPort, folder: GeneratorFolder, part: Part) -> np.ndarray:
    """Return a cache before the first token.

    Raises:
        DovetailError: The extents do not say which axis is the length.
    """
    import numpy as np

    shape = [
        extent if isinstance(extent, int) and extent >= 0 else _extent(port, axis, str(extent), folder)
        for axis, extent in enumerate(port.shape or ())
    ]
    if _attends(port) and not port.window and 0 not in shape:
        raise DovetailError(
            f"{folder.file_of(part)}: cache '{port.name}' is {list(port.shape or ())}, which has a fixed length: "
            "it cannot be filled token by token",
            "export the model with caches that grow, or compile without --data",
        )
    return np.zeros(shape, port.dtype)


def _extent(port: PartPort, axis: int, name: str, folder: GeneratorFolder) -> int:
    if _BATCH.search(name) or axis == _LAYOUT[0]:
        return 1
    if _LENGTH.search(name) or axis == _LAYOUT[1]:
        return port.window if _attends(port) else 1
    known = folder.kv_heads if axis == 1 else folder.head_size
    return known or 1


def _attends(port: PartPort) -> bool:
    """Return whether a cache holds keys or values; states of convolutions and recurrences have a fixed size."""
    return bool(re.search(r"key|value|kv", port.role))


def _has_other_states(caches: Sequence[PartPort]) -> bool:
    return any(not _attends(port) for port in caches)


def _role(name: str, named: Mapping[str, str]) -> str:
    """Return the role of a name: that of the configuration, with the number of its layer, or the name itself."""
    for role, pattern in named.items():
        if pattern == name:
            return role
        if "%d" in pattern:
            begin, _, end = pattern.partition("%d")
            if found := re.fullmatch(f"{re.escape(begin)}(\\d+){re.escape(end)}", name):
                return f"{role}.{found[1]}"
    return name


def _carried(role: str, name: str, inputs: set[str]) -> str:
    """Return the role of an output: that of the input which it fills, if there is one."""
    if role == name:
        for past in _KEEPS:
            candidate = _PRESENT.sub(past, name, count=1)
            if candidate != name and candidate in inputs:
                return candidate
    return role


def _as_input(role: str) -> str:
    """Write `cross_present_key_names` and `cross_past_key_names` alike, so that roles of caches begin with `past`."""
    bare, found = re.subn(r"_?(present|past)_?", "_", role, count=1)
    return f"{PAST}.{bare.strip('_.')}" if found else role


def _window(value: ir.Value) -> int:
    """Return the window of the attention that drops rows of a cache which are out of it; 0 where none does.

    Such a cache has all its rows from the first token on, as `GroupQueryAttention` says of `sliding_window_cache`.
    """
    for node, _ in value.uses():
        if node.op_type == "GroupQueryAttention" and node.attributes.get_int("sliding_window_cache", 0) != 0:
            return node.attributes.get_int("local_window_size", 0)
    return 0


def _is_by_position(value: ir.Value) -> bool:
    """Return whether attention fills a cache by positions: `GroupQueryAttention` takes padding at the end of texts."""
    return any(node.op_type == "GroupQueryAttention" for node, _ in value.uses())


def _port(value: ir.Value, role: str, window: int = 0, by_position: bool = False) -> PartPort:
    import numpy as np

    dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
    shape = None if value.shape is None else tuple(_name(extent) for extent in value.shape)
    return PartPort(name_of(value), role, np.dtype(dtype), shape, window, by_position)


def _name(extent: object) -> int | str:
    if isinstance(extent, int):
        return extent
    return str(getattr(extent, "value", "") or "")
