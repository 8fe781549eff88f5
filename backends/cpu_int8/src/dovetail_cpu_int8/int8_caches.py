"""The passes `cache-ranges` and `int8-caches`: keys and values that a decoder passes on in int8."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import FLOAT32, name_of
from dovetail.passes import Pass
from dovetail_quantize import RefinementRecord, observe
from dovetail_runtime import SCALE_KEY

from dovetail_cpu_int8.backend import BACKEND, new_nodes, weights_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail_quantize import Watcher


_DOMAIN = "com.microsoft"
_RANGES = "dovetail.cache_ranges"
_STEP = "cache-ranges"  # in the record of what data changed, so that a replay needs none
_PASTS, _PRESENTS, _LENGTHS, _SCALES = (3, 4), (1, 2), 5, (12, 13)
_LARGEST = 127
_INTEGERS = ir.TensorType(ir.DataType.INT8)


class CacheRanges(Pass):
    """Measure the ranges of the channels of keys, after their rotation, and of values, for `cpu-int8:cache=int8`.

    Given:  %y, %keys, %values = GroupQueryAttention(%q, %k, %v, %past_k, %past_v, ...), and data
    Result: the same, and the largest magnitude of every channel of %keys and %values, noted at the node
    """

    name = "cache-ranges"
    stage = "calibrate"
    for_backend = "cpu-int8"
    before = ("calibrate",)
    after = ("smooth",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Run the model on the data.

        Raises:
            UsageError: Caches in int8 are asked for without the kernels that have them, or without data.
        """
        backend = ctx.backend(BACKEND)
        if backend is None or backend.chosen["cache"] != "int8" or ctx.refusals.fresh:
            return False
        if not weights_alone(backend) or backend.chosen["kernel"] != "nbits":
            raise UsageError(
                "cpu-int8: cache=int8 is an attribute of ONNX Runtime's GroupQueryAttention",
                "write --backend cpu-int8:weights=int4,kernel=nbits,cache=int8",
            )
        found = [node for node in self.own_nodes(model) if node.op_type == "GroupQueryAttention"]
        kept = []
        for node in found:
            if why := _unfit(node):
                ctx.remark("missed", node, "int8-caches", f"its caches stay as they are: {why}")
            else:
                kept.append(node)
        if not kept:
            if not found:
                ctx.remark("missed", "", "int8-caches", "there is no GroupQueryAttention, so no cache is in int8")
            return False
        record = RefinementRecord.of(ctx)
        saved = {node: both for node in kept if (both := _saved(record, node)) is not None}
        for node, both in (saved if len(saved) == len(kept) else _measured(model, kept, ctx)).items():
            node.meta[_RANGES] = [
                record.save(_STEP, name_of(node.outputs[index]), largest)
                for index, largest in zip(_PRESENTS, both, strict=True)
            ]
        return False


def _saved(record: RefinementRecord, node: ir.Node) -> list[np.ndarray] | None:
    """Return the largest magnitudes that a replayed plan has; None if it has none, or the extents are open."""
    found = []
    for index in _PRESENTS:
        shape = node.outputs[index].shape or ()
        extents = tuple(extent for extent in (*shape[1:2], *shape[3:]) if isinstance(extent, int))
        largest = record.saved(_STEP, name_of(node.outputs[index]), extents) if len(extents) > 1 else None
        if largest is None:
            return None
        found.append(largest)
    return found


def _measured(model: Model, nodes: Sequence[ir.Node], ctx: Context) -> dict[ir.Node, list[np.ndarray]]:
    """Return the largest magnitudes of the channels of keys and values on the data."""
    if ctx.request.data is None:
        raise UsageError(
            "cpu-int8: cache=int8 needs data for the ranges of keys and values", "give --data: prompts of the model"
        )
    ranges: dict[str, _Range] = {}
    watchers: dict[str, list[Watcher]] = {}
    for node in nodes:
        for index in _PRESENTS:
            name = name_of(node.outputs[index])
            ranges[name] = _Range()
            if _drops_rows(node):
                lengths = node.inputs[_LENGTHS]
                assert lengths is not None, "the operator needs the lengths"
                used = _RangeOfRows(node.attributes.get_int("local_window_size", 0))
                ranges[name] = used
                watchers.setdefault(name_of(lengths), []).append(used.lengths)
            watchers.setdefault(name, []).append(ranges[name])
    observe(model, watchers, ctx)
    found = {}
    for node in nodes:
        both = [ranges[name_of(node.outputs[index])].largest for index in _PRESENTS]
        if any(one is None for one in both):
            raise DovetailError(f"the data gives no finite keys and values of '{node.name}'", "look at the data")
        found[node] = [one for one in both if one is not None]
    return found


class Int8Caches(Pass):
    """Pass keys and values on in int8, with a scale per channel, for `cpu-int8:cache=int8`.

    Given:  %y, %keys, %values = GroupQueryAttention(%q, %k, %v, %past_k, %past_v, ...)
    Result: %y, %keys, %values = GroupQueryAttention<k_quant_type = "PER_CHANNEL", kv_cache_bit_width = 8, ...>(
                %q, %k, %v, %past_k, %past_v, ..., %k_scale, %v_scale), whose caches are int8

    The inputs and outputs of the model change their type, and metadata of each names its scale.
    """

    name = "int8-caches"
    stage = "join"
    for_backend = "cpu-int8"
    requires = ("join",)
    after = ("accuracy-level",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Rewrite the nodes with ranges."""
        found = [node for node in model.graph if _RANGES in node.meta]
        if not found or ctx.refusals.fresh:
            return False
        nodes = new_nodes(model, ctx)
        before = after = 0
        for node in found:
            ranges: list[np.ndarray] = node.meta.pop(_RANGES)
            node.resize_inputs(max(len(node.inputs), _SCALES[-1] + 1))
            for past, present, at, largest in zip(_PASTS, _PRESENTS, _SCALES, ranges, strict=True):
                given, result = node.inputs[past], node.outputs[present]
                assert given is not None, "a node with ranges has caches"
                scale = np.where(largest > 0, largest / _LARGEST, 1).astype(np.float32)[None, :, None, :]
                before, after = before + 4 * scale.size, after + scale.size
                value = nodes.constant(ir.tensor(scale, name=f"{result.name}_scale"))
                node.replace_input_with(at, value)
                for end in (given, result):
                    end.type = _INTEGERS
                    end.metadata_props[SCALE_KEY] = name_of(value)
            for word in "kv":
                node.attributes[f"{word}_quant_type"] = ir.AttrString(f"{word}_quant_type", "PER_CHANNEL")
            node.attributes["kv_cache_bit_width"] = ir.AttrInt64("kv_cache_bit_width", 8)
            names = [name_of(end) for end in (node.inputs[_PASTS[0]], node.outputs[_PRESENTS[0]]) if end is not None]
            why = f"'{names[0]}', '{names[1]}' and those of values are int8 now, with a scale per channel"
            ctx.remark("passed", node, "int8-caches", why)
        why = f"the model's caches are int8: {after} bytes per token instead of {before}; callers must hand these on"
        ctx.remark("analysis", "", "int8-caches", why)
        ctx.count("caches", 2 * len(found))
        model.touch()
        return True


class _Range:
    """Keeps the largest magnitude of every channel of a cache, [heads, size]."""

    extrema = None
    format: Format = FLOAT32

    def __init__(self) -> None:
        self.largest: np.ndarray | None = None

    def update(self, array: np.ndarray) -> None:
        """Add the numbers of a batch; those with infinities and without tokens are left out."""
        if array.size and np.isfinite(array).all():
            found = np.abs(array).max(axis=(0, 2))
            self.largest = found if self.largest is None else np.maximum(self.largest, found)


class _Lengths:
    """Shows the lengths of a batch, the last positions, to the range of a cache."""

    extrema = None
    format: Format = FLOAT32

    def __init__(self, show: Callable[[np.ndarray], None]) -> None:
        self._show = show

    def update(self, array: np.ndarray) -> None:
        """Pass the lengths of a batch on."""
        self._show(array)


class _RangeOfRows(_Range):
    """The range of a cache that drops rows, over the rows that hold a position; the operator leaves others open.

    Caches and lengths of a batch come in any order.

    Args:
        window: The number of positions that a token sees.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.lengths = _Lengths(self._take_lengths)
        self._window = window
        self._waiting: tuple[deque[np.ndarray], deque[np.ndarray]] = deque(), deque()

    def update(self, array: np.ndarray) -> None:
        """Add the rows of a batch, once their number is known."""
        self._waiting[0].append(array)
        self._add()

    def _take_lengths(self, array: np.ndarray) -> None:
        self._waiting[1].append(array)
        self._add()

    def _add(self) -> None:
        caches, lengths = self._waiting
        while caches and lengths:
            cache, last = caches.popleft(), lengths.popleft()
            for entry, tokens in zip(cache, last.reshape(-1).tolist(), strict=True):
                super().update(entry[np.newaxis, :, : self._used(int(tokens) + 1, entry.shape[1])])

    def _used(self, tokens: int, rows: int) -> int:
        """Return how many rows hold a position: several leave at once, so that not every call moves the others."""
        step = max(rows - self._window + 1, 1)
        return tokens - step * max(-((rows - tokens) // step), 0)


def _drops_rows(node: ir.Node) -> bool:
    return bool(node.attributes.get_int("sliding_window_cache", 0))


def _unfit(node: ir.Node) -> str:
    """Return why the caches of a GroupQueryAttention cannot be int8; empty if they can."""
    if node.attributes.get_string("k_quant_type", "NONE") != "NONE":
        return "they are quantized already"
    lengths = node.inputs[_LENGTHS] if len(node.inputs) > _LENGTHS else None
    if _drops_rows(node) and (lengths is None or lengths.const_value is not None):
        return "they have rows that the operator leaves open, and data does not tell which"
    for past, present in zip(_PASTS, _PRESENTS, strict=True):
        given = node.inputs[past] if past < len(node.inputs) else None
        result = node.outputs[present] if present < len(node.outputs) else None
        if given is None or result is None or not given.is_graph_input() or not result.is_graph_output():
            return "not all of them are inputs and outputs of the model"
        if len(given.uses()) > 1 or result.uses():
            return "other nodes read them"
        if given.dtype != ir.DataType.FLOAT or result.dtype != ir.DataType.FLOAT:
            return "they are not float32"
    return ""
