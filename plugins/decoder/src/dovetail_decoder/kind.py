"""The kind of folder that `dovetail.compile` recognizes, and its result."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import DovetailError, ResultError, UsageError
from dovetail.plugin import CompiledFolder
from dovetail_tune.folders import TunableKind, TunedFolder

from dovetail_decoder.folder import LOGITS, GeneratorFolder, Part
from dovetail_decoder.manifest import MANIFEST
from dovetail_decoder.openvino_genai import IN_FLOAT32, check_parts, check_plan
from dovetail_decoder.openvino_padding import why_one_text
from dovetail_decoder.openvino_tokenizer import check_tokenizer
from dovetail_decoder.raising import raise_unscored
from dovetail_decoder.reading import chain_of, is_generator, models_of, read_folder
from dovetail_decoder.routing import requests_of_parts
from dovetail_decoder.runtime_defaults import ONNXRUNTIME_GENAI, suited_to
from dovetail_decoder.runtime_option import KEYWORD as RUNTIME_KEYWORD
from dovetail_decoder.runtime_option import RUNTIMES
from dovetail_decoder.saving import check_output, check_source, size_of
from dovetail_decoder.splitting import with_branches_apart

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel, PluginSet, ShippedFolder

    from dovetail_decoder.states import Chain
    from dovetail_decoder.tokens import Prompt

_OF_TOKENS = ("min_top1", "max_kl", "max_perplexity_rise")
"""Goals that are judged over the next token, so that parts without its scores have none of them."""

_MISSED = "the result is complete: lower the goal, name other backends, or keep more in the source's types (--high)"
_LARGEST_UNASKED = 1 << 30
"""Maximum bytes of models that are only timed, without data: ONNX Runtime may need several times as many."""

_OF_ONE_MODEL = ("plan", "report")
"""Keywords that belong to a single model."""


class GeneratorKind(TunableKind):
    """Folders of language models, as onnxruntime-genai or Optimum have them."""

    def recognizes(self, folder: Path) -> bool:
        """Return whether there is a configuration of onnxruntime-genai, or a decoder beside a `config.json`."""
        return is_generator(folder)

    def check(self, folder: Path, output: Path) -> None:
        """Reject an output that is the source itself, or the result of another version."""
        check_output(_source(folder), output)

    def compile(self, folder: Path, *, plugins: PluginSet, **request: Any) -> CompiledFolder:
        """Compile every part by one request; see `FolderKind.compile`."""
        from dovetail import api

        from dovetail_decoder.compiled_generator import CompiledGenerator

        for name in _OF_ONE_MODEL:
            if request.get(name) is not None:
                raise UsageError(
                    f"--{name} belongs to one model, and {folder} has several parts",
                    f"compile a part alone with --{name}",
                )
        source = with_branches_apart(_source(folder))
        keep, data = request.pop("keep", None), request.pop("data", None)
        request = {name: value for name, value in request.items() if name not in _OF_ONE_MODEL}
        prompts = None
        if data is not None:
            from dovetail_decoder.tokens import read_prompts

            prompts = read_prompts(data, source)
        runtime = request.pop(RUNTIME_KEYWORD, None)
        notes: Sequence[str] = ()
        if runtime is None and source.document is not None:
            backends, notes = suited_to(ONNXRUNTIME_GENAI, request.get("backends") or (), plugins)
            request["backends"] = tuple(backends)
        models = models_of(source, plugins)
        chain = chain_of(source, models)
        if runtime is not None:
            _check_runtime(runtime, source, chain)
        requests = requests_of_parts(models, request)

        def compile_part(part: Part, **stricter: Any) -> CompiledModel:
            given = _keywords(part, chain, {**requests[part.name], **stricter}, prompts)
            return api.compile(source.file_of(part), plugins=plugins, **given)

        parts, failed = {}, []
        try:
            for part in source.parts:
                try:
                    parts[part.name] = compile_part(part)
                except ResultError as error:
                    parts[part.name] = error.compiled
                    failed.append(f"{part.name}: {error.message}")
                except DovetailError as error:
                    if isinstance(error, UsageError):
                        raise
                    raise DovetailError(f"{part.name}: {error.message}", error.hint) from error
            compiled = CompiledGenerator(source, parts, failed, prompts, request, chain.ports, runtime)
            measurable = request.get("verify") is not False and request.get("try_engines") is not False
            if measurable and prompts is not None and not failed:
                raise_unscored(compiled, compile_part)
        finally:
            chain.close()
        for note in notes:
            compiled.note(note)
        if source.apart is not None:
            compiled.note(f"{source.merged}: its two branches are compiled apart, and put together again")
        if runtime is not None:
            for part in source.parts:
                check_plan(part, parts[part.name])
                if why := why_one_text(chain.ports[part.name]):
                    compiled.note(f"LLMPipeline takes one text at a time, and refuses batches of several: {why}")
                if not any(str(node.precision) == "bfloat16" for node in parts[part.name].plan.nodes):
                    compiled.note(IN_FLOAT32)
        if keep is not None:
            keep(compiled)
        if compiled.comparison is not None:
            compiled.failed += compiled.missed()
        elif measurable and prompts is not None:
            compiled.compare()
        elif measurable and compiled.is_saved:
            if size_of(source) > _LARGEST_UNASKED:
                compiled.leave_out_comparison(_LARGEST_UNASKED)
            else:
                compiled.compare()
        if compiled.failed:
            raise ResultError(cast("CompiledModel", compiled), "; ".join(compiled.failed), _MISSED)
        return compiled

    def tune(self, folder: Path, *, plugins: PluginSet, **request: Any) -> TunedFolder:
        """Find the fastest result within goals over the next token; see `TunableKind.tune`."""
        from dovetail_decoder.tuning import tune_folder

        return tune_folder(_source(folder), plugins, **request)

    def shipped(self, result: Path) -> ShippedFolder | None:
        """Return the files that a generator loads, and what goes along; see `FolderKind.shipped`."""
        from dovetail_decoder.shipping import shipped_files

        return shipped_files(result)


def _check_runtime(runtime: str, source: GeneratorFolder, chain: Chain) -> None:
    """Check that a program can run a folder, before anything is compiled.

    Raises:
        UsageError: There is no such program.
        DovetailError: It cannot.
    """
    if runtime not in RUNTIMES:
        raise UsageError(f"runtime={runtime!r} is none of {', '.join(RUNTIMES)}")
    check_parts(source, chain.ports)
    check_tokenizer(source.path)


def _source(folder: Path) -> GeneratorFolder:
    """Read a folder that is to be compiled.

    Raises:
        DovetailError: It is a result itself, or cannot be read.
    """
    if (folder / MANIFEST).is_file():
        check_source(folder)
        raise DovetailError(f"{folder} is a result already", "name the folder that it was compiled from")
    return read_folder(folder)


def _keywords(part: Part, chain: Chain, request: Mapping[str, Any], prompts: Sequence[Prompt] | None) -> dict[str, Any]:
    """Return the keywords of `dovetail.compile` for one part: its own inputs, and the goals that apply to it."""
    from dovetail_runtime.data.kept import KeptBatches
    from dovetail_transforms.canonicalize.input_ranges import ranges_by_name
    from dovetail_verify.arguments import GOALS

    from dovetail_decoder.states import batches

    given = dict(request)
    ranges = {**chain.ports[part.name].ranges, **ranges_by_name(request.get("input_ranges") or {})}
    if ranges:
        given["input_ranges"] = ranges
    dropped: Sequence[str]
    if prompts is None:
        dropped = () if chain.ports[part.name].output(LOGITS) is not None else _OF_TOKENS
    else:
        numbers: list[int] = []
        found = batches(chain, part, prompts, recordings=numbers) if part.phase != "never" else iter(())
        first = next(found, None)
        if first is not None:
            given["data"] = KeptBatches(itertools.chain([first], found), recordings=numbers)
        scores = any(name.startswith("labels:") for name in first or ())
        dropped = GOALS if first is None else () if scores else _OF_TOKENS
    for name in dropped:
        given.pop(name, None)
    return given
