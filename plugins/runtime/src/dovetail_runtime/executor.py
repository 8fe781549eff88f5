"""The executor: runs a model region by region, each on the first engine of its backend that accepts it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import dovetail.plugin
from dovetail.errors import DovetailError, NoEngineError
from dovetail.ir import constant_of, dtype_of, name_of
from dovetail.planning import Region, extract, numbered_regions, placed_backend, regions_from
from dovetail.plugin import Engine, Executed, RegionModel, TemporaryFolder
from dovetail.plugin.loading import FUNCTIONS, ArtifactFolder, artifact_of
from dovetail.text import did_you_mean
from dovetail_onnx.external import lies_beside
from dovetail_transforms.canonicalize.input_ranges import declared_range

from dovetail_runtime.bound_run import BoundRuns, BoundStep, Like
from dovetail_runtime.direct_run import DirectRun, direct_run
from dovetail_runtime.engines import GuardedEngine, guarded
from dovetail_runtime.feeds import DeclaredInputs, required_inputs, without_defaults
from dovetail_runtime.foreign_programs import artifact_folder, shared_folder
from dovetail_runtime.guarded_session import GuardedSession
from dovetail_runtime.joint_session import joint_session
from dovetail_runtime.nested_graphs import calls, inline_regions
from dovetail_runtime.parallel_run import WAYS, Pace, ParallelRun, RegionDependencies
from dovetail_runtime.region_runner import NOT_REPORTED, NoEngine, RegionRefusal, RegionRunner, described
from dovetail_runtime.serialize import needs_file, value_type, write_scratch
from dovetail_runtime.target_operators import way_out
from dovetail_runtime.unpartitioned import ready_regions

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model

    from dovetail_runtime.timeline import RecordedRun, Timeline


_AWAY = "install what it needs, or run the result where the engine is (--no-try-engines compiles without it)"


class RegionExecutor(dovetail.plugin.Executor):
    """Runs a placed model; thread-safe.

    Args:
        model: The model. A node of the main graph belongs to the backend of its placement, `host` if it has none.
        engines_of: The engines of every backend, in order of preference.
        options: Passed to every engine (`threads`, `profile`, ...), which ignores options that it does not know. `spin`
            defaults to false with several regions, because spinning threads of one region slow down the next.
            `parallel` belongs to the executor: independent regions run at the same time (`on`), never (`off`), or
            whichever was faster in the first runs (`auto`, the default).
        backend_of: Overrides the backend of a node's placement.
        regions: The regions to run; by default those of the placements, or else regions formed by backend.
        artifacts: Files that emitters created for regions.

    Attributes:
        model: The model.
        regions: The regions in execution order.
        runners: A runner for each region; regions whose outputs are unused are not run.
        options: Options with which the engines were loaded.
        notes: Messages for the user: engines that are missing, have a caveat, or refused a region.
        timeline: Timeline that records runs; None records nothing.

    Raises:
        DovetailError: No engine of a backend accepts one of its regions; the message lists all reasons.
    """

    def __init__(
        self,
        model: Model,
        engines_of: Mapping[str, Sequence[Engine | GuardedEngine]],
        options: Mapping[str, object] | None = None,
        backend_of: Callable[[ir.Node], str] | None = None,
        regions: Sequence[Region] | None = None,
        artifacts: ArtifactFolder | None = None,
    ):
        self.notes: list[str] = []
        self.timeline: Timeline | None = None
        self.regions = _regions(model.graph, backend_of) if regions is None else list(regions)
        self.model = model
        self._engines_of = engines_of
        self._artifacts = artifacts
        self._replacing: dict[frozenset[str], RegionExecutor] = {}
        self._lock = threading.Lock()
        self.options = dict(options or {})
        self._pace = Pace(_way(self.options))
        self._files: TemporaryFolder | None = None
        self._caveats: dict[str, str] = {}
        self._usable = {name: self._available(engines) for name, engines in engines_of.items()}
        self.runners = [self._load(region) for region in self.regions if region.outputs]
        self._last_use = _last_uses(self.regions)
        self._dependencies = RegionDependencies.of([runner.region for runner in self.runners])
        self._threads: ThreadPoolExecutor | None = None
        self._inputs = DeclaredInputs(model.graph)
        self._outputs = {name_of(value): value for value in model.graph.outputs}
        self._may_join = regions is None

    @property
    def is_sequence(self) -> bool:
        """Whether each region waits for the one before, so that none run at the same time."""
        return self._dependencies.width <= 1

    @cached_property
    def joint(self) -> GuardedSession | None:
        """The session that runs all regions together where one engine runs each of them; else None."""
        return joint_session(self.model, self.runners, self.options) if self._may_join else None

    @cached_property
    def _direct(self) -> DirectRun | None:
        return direct_run(self.runners, self.joint, self.model.graph)

    @cached_property
    def _bound(self) -> BoundRuns | None:
        """Runs over planned buffers, one region after the other; None if values are no tensors of numbers."""
        graph, fed = self.model.graph, required_inputs(self.model.graph)
        is_numeric = all(value_type(value) not in ("", "string") for value in (*fed, *graph.outputs))
        if self._direct is not None or not self.runners or not is_numeric:
            return None
        if len(fed) != len(graph.inputs):  # sessions may hold the defaults of inputs as weights
            return None
        known = {*map(name_of, fed), *(name for runner in self.runners for name in runner.outputs)}
        if not known >= self._outputs.keys():
            return None
        types = {name_of(value): dtype_of(value).numpy() for value in fed}
        ranges = {name_of(value): found for value in fed if (found := declared_range(value)) is not None}
        return BoundRuns(types, ranges, list(self._outputs))

    @property
    def engines(self) -> list[str]:
        """Engine of each region, by name."""
        return [runner.engine for runner in self.runners]

    @property
    def refusals(self) -> list[RegionRefusal]:  # type: ignore[override]  # never set
        """Refusals of regions by engines."""
        return [refusal for runner in self.runners for refusal in runner.refusals]

    def run(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Compute the model's outputs by name.

        Args:
            inputs: An array, list or number for each input. Arrays must have the declared type; lists and numbers are
                converted to it.

        Raises:
            DovetailError: An input is missing, unknown or does not match, or no engine runs a region.
        """
        if names := self._inputs.replaced(inputs):
            return self._without_defaults(names).run(inputs)
        if self.timeline is None and self._direct is not None:
            found = self._direct.run(inputs)
            if found is not None:
                return found
        in_order = self.is_sequence or self._pace.is_in_order
        bound = self._bound if in_order and self.timeline is None else None
        if bound is not None:
            found = bound.run(inputs, [runner.bindable for runner in self.runners])
            if found is not None:
                return found
        values = self._inputs.checked(inputs)
        if bound is not None and bound.is_due(values):
            self._learn(bound, values)
        elif self.timeline is None:
            self._run(values, None)
        else:
            with self.timeline.run(values) as recorded:
                self._run(values, recorded)
        return {name: values[name] if name in values else _constant(value) for name, value in self._outputs.items()}

    def _run(self, values: dict[str, np.ndarray], recorded: RecordedRun | None) -> None:
        """Run all regions, in one or several threads."""
        independent = self._dependencies.width > 1
        parallel, start = independent and self._pace.next(), time.perf_counter()
        if parallel:
            threads = self._workers()
            ParallelRun(self.runners, self._dependencies, values, self._outputs, threads, recorded).run()
        else:
            for _ in self._steps(values, self._outputs, recorded):
                pass
        if independent:
            self._pace.took(parallel, time.perf_counter() - start)

    def _learn(self, bound: BoundRuns, values: dict[str, np.ndarray]) -> None:
        """Run all regions, and plan buffers for further calls."""
        given, seen = dict(values), {}
        for runner, live in self._steps(values, self._outputs):
            seen.update({name: Like.of(live[name]) for name in runner.outputs})
        steps = [
            BoundStep(session, runner.inputs, runner.outputs)
            for runner in self.runners
            if (session := runner.bindable) is not None
        ]
        if len(steps) == len(self.runners):
            bound.learn(given, steps, seen)

    def _workers(self) -> ThreadPoolExecutor:
        if self._threads is None:
            most = min(self._dependencies.width - 1, os.cpu_count() or 1)
            self._threads = ThreadPoolExecutor(max(1, most), thread_name_prefix="dovetail")
        return self._threads

    def steps(self, inputs: Mapping[str, object]) -> Iterator[tuple[RegionRunner, Mapping[str, np.ndarray]]]:
        """Run region by region. A value lives until one step after its last reading region.

        Yields:
            The region's runner, and the live values: its inputs, its outputs, and inputs of later regions.
        """
        names = self._inputs.replaced(inputs)
        executor = self._without_defaults(names) if names else self
        yield from executor._steps(executor._inputs.checked(inputs), frozenset())

    def rest(self, runner: RegionRunner, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the regions behind one that `steps` has yielded.

        Args:
            runner: The runner of that region.
            values: The values that these regions read from before, which may differ from what `steps` computed.

        Returns:
            All values, with the results of these regions.
        """
        executor = next(one for one in (self, *self._replacing.values()) if runner in one.runners)
        found = dict(values)
        for later in executor.runners[executor.runners.index(runner) + 1 :]:
            found.update(later.run({name: found[name] for name in later.inputs}))
        return found

    def _without_defaults(self, names: frozenset[str]) -> RegionExecutor:
        """Return the executor of the same regions for runs that give values to inputs with a default.

        Engines have the defaults among their weights, so they load the regions once more, with further inputs.
        """
        with self._lock:
            known = self._replacing.get(names)
            if known is None:
                model = without_defaults(self.model, names)
                copies = dict(zip(self.model.graph, model.graph, strict=True))
                backends = {copies[node]: region.backend for region in self.regions for node in region.nodes}
                groups = [[copies[node] for node in region.nodes] for region in self.regions]
                regions = regions_from(model.graph, groups, backends.__getitem__)
                known = RegionExecutor(
                    model, self._engines_of, self.options, regions=regions, artifacts=self._artifacts
                )
                self._replacing[names] = known
        known.timeline = self.timeline
        return known

    def _steps(
        self, values: dict[str, np.ndarray], kept: Collection[str], recorded: RecordedRun | None = None
    ) -> Iterator[tuple[RegionRunner, Mapping[str, np.ndarray]]]:
        for runner in self.runners:
            # A model that is a single region is passed on unchanged, with its unused inputs.
            wanted = list(values) if len(self.regions) == 1 else runner.inputs
            # No local variable may hold an array, or it would outlive its last use.
            if recorded is None:
                values.update(runner.run({name: values[name] for name in wanted}))
            else:
                with recorded.region(runner) as made:
                    made.update(runner.run({name: values[name] for name in wanted}))
                values.update(made)
                made.clear()
            yield runner, values
            for name in self._last_use[runner.index]:
                if name not in kept:
                    if recorded is not None:
                        recorded.freed(values[name])
                    del values[name]

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed, by node name; what is reported of a program holds for its nodes."""
        found: dict[str, Executed] = {}
        for runner in self.runners:
            reported = runner.executed()
            found.update(reported)
            engines = map(guarded, self._engines_of[runner.backend])
            runs_programs = any(engine.loads_artifacts for engine in engines if engine.name == runner.engine)
            for node in runner.region.nodes if runs_programs else ():
                backend, _, region = artifact_of(node).partition("/")
                whole = reported.get(node.name or "", NOT_REPORTED)
                for inside in self.model.ir.functions.get((f"{FUNCTIONS}{backend}", region, ""), ()):
                    how = found.get(inside.name or "", whole)
                    found[inside.name or ""] = Executed("", "in-program") if how == NOT_REPORTED else how
        return found

    def _available(self, engines: Sequence[Engine | GuardedEngine]) -> list[GuardedEngine]:
        usable = []
        for engine in map(guarded, engines):
            ok, why = engine.available()
            if ok:
                usable.append(engine)
                self._caveats[engine.name] = why
            else:
                self._note(f"{engine.name} is not available: {why}")
        return usable

    def _absent(self, backend: str) -> list[str]:
        """Say which engines of a backend are not here, and why: regions may have been compiled for one of them."""
        answers = ((engine.name, engine.available()) for engine in map(guarded, self._engines_of[backend]))
        return [f"{name} is not available: {found.why}" for name, found in answers if not found.ok]

    def _load(self, region: Region) -> RegionRunner:
        if region.backend not in self._usable:
            raise DovetailError(f"no engines are known for backend '{region.backend}' ({described(region)})")
        engines = self._usable[region.backend]
        if not engines:
            why = "; ".join(self.notes) or "it names none"
            raise NoEngineError(f"no engine runs {described(region)}: {why}", _AWAY)
        options = {"spin": len(self.regions) == 1, **self.options}
        try:
            # No reference to this executor: its sessions are closed as soon as it goes.
            note = partial(_add_note, self.notes)
            runner = RegionRunner(region, self._with_artifact(region, engines), engines, options, note)
        except NoEngine as error:
            if not any(engine.stands_in for engine in engines):
                error.message = "; ".join([error.message, *self._absent(region.backend)])
                error.hint = error.hint or way_out(region.nodes, self.model)
                raise
            raise NoEngineError(f"{region.backend} has no engine here, and {error.message}", _AWAY) from error
        if runner.stands_in:
            what = f"{runner.engine} computes its regions from the compiled model, not as the device does"
            self._note(f"{region.backend} has no engine here: {what}")
        if self._caveats[runner.engine]:
            self._note(f"{runner.engine}: {self._caveats[runner.engine]}")
        return runner

    def _with_artifact(self, region: Region, engines: Sequence[GuardedEngine]) -> RegionModel:
        """Extract a region as a model, with the artifact that one of its nodes calls.

        If no engine wants artifacts, the call is inlined, because engines do not optimize nodes inside functions.
        """
        wanted = any(engine.loads_artifacts for engine in engines)
        name = next(filter(None, map(artifact_of, region.nodes)), "")
        made = self._region_model(region, inlined=not wanted)
        if not name or self._artifacts is None:
            return made
        folder, shared = artifact_folder(self._artifacts, name), shared_folder(self._artifacts, name)
        return replace(made, artifact=folder, shared=shared)

    def _region_model(self, region: Region, inlined: bool) -> RegionModel:
        """Extract a region as a model; use a file if its weights do not fit in memory or are in files already."""
        whole = len(self.regions) == 1
        part = self.model if whole else extract(self.model, region)
        if inlined and calls(part):
            part, whole = part.clone(), False
            inline_regions(part)
        if not needs_file(part):
            return RegionModel(part)
        path = self.model.path
        if whole and path is not None and path.suffix == ".onnx" and self.model.revision == 0:
            weights = (value.const_value for value in part.graph.initializers.values())
            if lies_beside(weights, path):
                return RegionModel(part, path)
        if self._files is None:
            self._files = TemporaryFolder("regions")
        path = self._files.path / f"region{region.index}.onnx"
        write_scratch(part, path)
        return RegionModel(part, path)

    def _note(self, text: str) -> None:
        _add_note(self.notes, text)


def _add_note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _regions(graph: ir.Graph, backend_of: Callable[[ir.Node], str] | None) -> list[Region]:
    numbered = numbered_regions(graph) if backend_of is None else None
    return ready_regions(graph, backend_of or placed_backend) if numbered is None else numbered


def _way(options: Mapping[str, object]) -> str:
    """Return the option `parallel`.

    Raises:
        DovetailError: Its value is not allowed.
    """
    way = str(options.get("parallel", WAYS[0]))
    if way not in WAYS:
        raise DovetailError(f"parallel={way!r} is not one of {', '.join(WAYS)}{did_you_mean(way, WAYS)}")
    return way


def _last_uses(regions: Sequence[Region]) -> list[list[str]]:
    """Return for every region the values whose last use it is."""
    last = {name_of(value): region.index for region in regions for value in (*region.outputs, *region.inputs)}
    dying: list[list[str]] = [[] for _ in regions]
    for name, index in last.items():
        dying[index].append(name)
    return dying


def _constant(output: ir.Value) -> np.ndarray:
    """Return the value of an output that is a constant."""
    return constant_of(output).numpy()
