"""One of the two models that refining runs, in blocks that each become a model for an engine when their turn comes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.required import name_of
from dovetail.plugin import RegionModel
from dovetail_runtime.engines import engines_of
from dovetail_runtime.region_runner import RegionRunner
from dovetail_runtime.serialise import needs_file
from dovetail_transforms.regions.extraction import extract
from dovetail_transforms.regions.regions import given_regions

from dovetail_quantize.refining.activation_cache import ActivationCache, Batch

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail_runtime.guard import GuardedEngine
    from dovetail_transforms.regions.regions import Region


class Side:
    """A model in blocks.

    Args:
        model: The model; its outputs are replaced by what is wanted.
        blocks: Its nodes in blocks, in an order in which these can run.
        wanted: Values that somebody wants to see.
        inputs: The inputs of the model.
        ctx: The run, whose host executes it.
    """

    def __init__(
        self,
        model: Model,
        blocks: Sequence[Sequence[ir.Node]],
        wanted: Iterable[ir.Value],
        inputs: ActivationCache,
        ctx: Context,
    ):
        self._model = model
        model.graph.outputs.clear()
        model.graph.outputs.extend(dict.fromkeys(value for value in wanted if value.producer() is not None))
        self._regions = given_regions(model.graph, blocks)
        self._cache = ActivationCache(inputs)
        self._last = {value.name: region.index for region in self._regions for value in region.inputs}
        # A step of refining changes constants, so that a block is loaded when its turn comes.
        self._engines = [engine for engine in engines_of([ctx.host], ctx.registry)[ctx.host.name] if _is_here(engine)]
        if not self._engines:
            raise DovetailError("no engine of the host is available to refine weights with", "install onnxruntime")

    def runner(self, block: int) -> Runner:
        """What runs a block, with the constants that it has now."""
        return Runner(self._model, self._regions[block], self._engines)

    def read(self, block: int, batches: int) -> Iterator[dict]:
        """What enters a block, batch by batch."""
        return self._cache.read([name_of(value) for value in self._regions[block].inputs], batches)

    def writing(self) -> AbstractContextManager[Callable[[Batch], None]]:
        """A function that keeps what leaves blocks; see `ActivationCache.writing`."""
        return self._cache.writing()

    def leaving(self, block: int, results: Batch) -> Batch:
        """Those of the results of a block that later ones read."""
        return {name: array for name, array in results.items() if self._last.get(name, -1) > block}

    def forget(self, block: int) -> None:
        """Forget what no block behind this one reads."""
        for value in self._regions[block].inputs:
            if self._last[value.name] <= block:
                self._cache.drop(name_of(value))


class Runner:
    """Runs one block; nothing where nobody wants its results."""

    def __init__(self, model: Model, region: Region, engines: Sequence[GuardedEngine]):
        self._session = None
        if region.outputs:
            self._folder = tempfile.TemporaryDirectory(prefix="dovetail-refine-")
            part = extract(model, region)
            path = Path(self._folder.name) / "block.onnx" if needs_file(part) else None
            if path is not None:
                part.save(path)
            options = {"optimise": "none", "spin": False}
            self._session = RegionRunner(region, RegionModel(part, path), engines, options, lambda text: None)

    def run(self, inputs: Batch) -> Batch:
        """What the block computes."""
        return {} if self._session is None else self._session.run(inputs)


def _is_here(engine: GuardedEngine) -> bool:
    return engine.available()[0]
