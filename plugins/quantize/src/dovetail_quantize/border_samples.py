"""Calibration samples of a region's inputs, for tools of vendors that quantize by themselves.

The source model runs on the data in floats, on the host, once for all regions: what one region has computed is kept in
files, and the next run starts there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from dovetail.errors import DovetailError
from dovetail.ir import name_of, used_values
from dovetail.planning import HOST, Region, extract, given_regions, placed_backend
from dovetail.plugin import TemporaryFolder
from dovetail_onnx.files.writing import write_array
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, samples_at_once
from dovetail_runtime.engines import engines_of
from dovetail_runtime.executor import RegionExecutor

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import EmittedRegion

MOST = 128
"""Samples that a tool gets unless it asks for another number: calibration gains little from more."""


def region_samples(region: EmittedRegion, most: int = MOST) -> RegionSamples:
    """Return what the calibration data is at the inputs of a region; nothing is computed before it is read.

    The data is that of the request, without the part that judges the result. Emitters that use it set
    `reads_samples = True`, so that an artifact is not used again for other data.

    Args:
        region: The region that an emitter got.
        most: The number of samples after which no further batch is read.

    Raises:
        DovetailError: The request has no data, or the region belongs to no compilation.
    """
    ctx = region.context
    if ctx is None or ctx.outcome.decided is None:
        raise DovetailError("samples exist while a model is compiled only", "call region_samples in Emitter.emit")
    if ctx.request.data is None:
        raise DovetailError(
            f"{region.backend.name} calibrates {region.name} on samples", "give --data with inputs of the model"
        )
    known = ctx.measured.get(_BorderSamples)
    if known is None or known.key != (id(ctx.request.data), most):
        known = ctx.measured.put(_BorderSamples(ctx.request.data, most))
    return RegionSamples(region, known, ctx.outcome.decided, ctx)


class RegionSamples:
    """The samples of a region's inputs, batch by batch; each iteration begins again.

    An iteration yields the arrays of one batch by the names of the inputs of `EmittedRegion.source`, in their order and
    in the types of the source model. One batch is in memory at a time.

    Args:
        region: The region.
        known: The samples of all borders so far.
        model: The source model as it was decided on, whose values the inputs are.
        ctx: The context of the compilation.
    """

    def __init__(self, region: EmittedRegion, known: _BorderSamples, model: Model, ctx: Context):
        self._names = [name_of(value) for value in region.source.graph.inputs if not value.is_initializer()]
        self._known, self._model, self._ctx = known, model, ctx

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for number in range(self._known.extend(self._model, self._names, self._ctx)):
            yield self._known.read(self._names, number)

    def write(self, folder: Path) -> list[Path]:
        """Write a file `INPUT_0.npy`, `INPUT_1.npy`, ... for each input, in their order, with all batches in sequence.

        Raises:
            DovetailError: The batches of an input differ in more than their first extent.
        """
        count = self._known.extend(self._model, self._names, self._ctx)
        paths = []
        for index, name in enumerate(self._names):
            shapes = [self._known.read([name], number, lazily=True)[name].shape for number in range(count)]
            if len({shape[1:] for shape in shapes}) > 1:
                differing = " and ".join(map(str, sorted(set(shapes))[:2]))
                raise DovetailError(f"samples of '{name}' have the shapes {differing}", "read them batch by batch")
            paths.append(folder / f"INPUT_{index}.npy")
            rows = [shape[0] if shape else 1 for shape in shapes]
            sample = self._known.read([name], 0, lazily=True)[name]
            shape = (sum(rows), *sample.shape[1:])
            if 0 in shape:
                write_array(paths[-1], np.empty(shape, sample.dtype))
                continue
            joined = np.lib.format.open_memmap(paths[-1], "w+", sample.dtype, shape)
            for number, end in enumerate(np.cumsum(rows)):
                joined[end - rows[number] : end] = self._known.read([name], number, lazily=True)[name]
            joined.flush()
        return paths


class _BorderSamples:
    """The numbers of values on the calibration data, in files.

    Args:
        data: The data of the request.
        most: The number of samples after which no further batch is read.

    Attributes:
        key: What these samples are of.
    """

    def __init__(self, data: object, most: int):
        self.key = id(data), most
        self._data, self._most = data, most  # the data is kept, so that no other object has its id
        self._folder = TemporaryFolder("samples")
        self._numbers: dict[str, int] = {}
        self._count = 0

    def read(self, names: Sequence[str], number: int, lazily: bool = False) -> dict[str, np.ndarray]:
        """Return values of a batch by name; lazily, they are read from their files when they are used."""
        return {name: np.load(self._path(name, number), mmap_mode="r" if lazily else None) for name in names}

    def extend(self, model: Model, names: Sequence[str], ctx: Context) -> int:
        """Compute what is not known yet of values of a model, and return the number of batches.

        Raises:
            DovetailError: The data does not fit, has no batch, or no engine of the host runs the model.
        """
        missing = [name for name in names if name not in self._numbers]
        if missing:
            self._compute(model, missing, ctx)
        return self._count

    def _compute(self, model: Model, names: Sequence[str], ctx: Context) -> None:
        part = _part(model, set(names), self._numbers.keys())
        names = [*names, *(name for name in _crossing(part) if name not in self._numbers and name not in names)]
        part = replace(part, outputs=tuple(v for node in part.nodes for v in node.outputs if v.name in set(names)))
        executor = None
        if part.nodes:
            work = extract(model, part)
            options = {"share_weights": True}
            regions = given_regions(work.graph, [list(work.graph)])
            executor = RegionExecutor(work, engines_of([ctx.host], ctx.registry), options, regions=regions)
        for name in names:
            self._numbers[name] = len(self._numbers)
        at_once, counting = samples_at_once(model), inputs_of_samples(model)
        number = samples = 0
        for number, (feeds, _) in enumerate(batches(model, self._data), start=1):
            values = dict(feeds)
            if executor is not None:
                entering = [name_of(value) for value in part.inputs]
                kept = self.read([name for name in entering if name not in feeds], number - 1)
                values |= executor.run({name: kept[name] if name in kept else feeds[name] for name in entering})
            for name in names:
                write_array(self._path(name, number - 1), values[name])
            rows = max((len(feeds[name]) for name in counting if name in feeds), default=1)
            samples += rows if at_once is None else at_once
            if ctx.progress:
                ctx.progress("samples of regions", number, 0)
            if samples >= self._most:
                break
        if not number:
            raise DovetailError("the data holds no batch to calibrate on", "give at least one")
        self._count = number

    def _path(self, name: str, number: int) -> Path:
        return self._folder.path / f"{self._numbers[name]}_{number}.npy"


def _crossing(part: Region) -> list[str]:
    """Return the values of a part that another backend reads: later regions have them as inputs."""
    return [
        name_of(value) for node in part.nodes for value in node.outputs
        if any(placed_backend(reader) != placed_backend(node) for reader, _ in value.uses())
    ]  # fmt: skip


def _part(model: Model, wanted: set[str], known: Collection[str]) -> Region:
    """Return the nodes that compute values from those that are known, and from the inputs of the model."""
    waiting = [value for node in model.graph for value in node.outputs if value.name in wanted]
    outputs, inputs, needed = tuple(waiting), dict[ir.Value, None](), set[ir.Node]()
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if producer is None or (value.name in known and value not in outputs):
            if not value.is_initializer():
                inputs[value] = None
        elif producer not in needed:
            needed.add(producer)
            waiting.extend(used_values(producer))
    nodes = tuple(node for node in model.graph if node in needed)
    return Region(0, HOST, nodes, tuple(inputs), outputs)
