"""A compiled language model: its parts, where a generator runs them, and the comparison with the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.planning import HOST, Remark
from dovetail.plugin import CompiledFolder, TemporaryFolder
from dovetail.text import pluralize
from dovetail_commands.folder_model import outcome_of
from dovetail_onnx.native_runtime import return_freed_memory

from dovetail_decoder.folder import LOGITS
from dovetail_decoder.genai_config import CONFIG, PROVIDERS
from dovetail_decoder.runtime_option import OPENVINO_GENAI
from dovetail_decoder.saving import save_folder, save_for_openvino

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

    from dovetail_decoder.caches import Ports
    from dovetail_decoder.comparison import Comparison
    from dovetail_decoder.folder import GeneratorFolder, Part
    from dovetail_decoder.measure import Measurement
    from dovetail_decoder.tokens import Prompt


class CompiledGenerator(CompiledFolder):
    """A compiled language model.

    Args:
        source: The source folder.
        parts: The result of each part, by name.
        failed: Problems of single parts, as sentences.
        prompts: The prompts that it was compiled with, or None.
        request: The keywords of `dovetail.compile`.
        ports: The ports of each part, by name.
        runtime: The program that the folder is for; None for that of the source.

    Attributes:
        source, parts, failed, prompts: As given; comparing adds to `failed`.
        comparison: How it compares with the source; None before `compare`.
    """

    def __init__(
        self,
        source: GeneratorFolder,
        parts: Mapping[str, CompiledModel],
        failed: Sequence[str],
        prompts: Sequence[Prompt] | None,
        request: Mapping[str, Any],
        ports: Mapping[str, Ports],
        runtime: str | None = None,
    ):
        self.source, self.prompts = source, prompts
        self.parts: dict[str, CompiledModel] = dict(parts)
        self._measured_source: Measurement | None = None
        self._said: dict[str, tuple[str, list[str]]] = {}
        self.failed = list(failed)
        self.comparison: Comparison | None = None
        self._request, self._ports, self._runtime = request, ports, runtime
        self._saved: Path | None = None
        self._notes = list(source.notes)
        self._providers = {name: self._provider(compiled) for name, compiled in parts.items()}

    def __repr__(self) -> str:
        return f"<CompiledGenerator {self.source.path.name}: {self.summary()}>"

    def save(
        self,
        folder: str | Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write the folder; see `CompiledFolder.save`."""
        if self._runtime == OPENVINO_GENAI:
            (compiled,) = self.parts.values()
            notes = save_for_openvino(self.source, self._ports, compiled, Path(folder), progress)
        else:
            notes = save_folder(self.source, self.parts, Path(folder), self._providers, external, progress)
        self._notes += [text for text in notes if text not in self._notes]
        self._saved = Path(folder)

    @property
    def is_saved(self) -> bool:
        """Whether it was written to a folder."""
        return self._saved is not None

    def compare(self) -> Comparison | None:
        """Run source and result in ONNX Runtime on the prompts, and return how they compare.

        Returns None, with a note, if the source does not run there. What the result misses is added to `failed`.
        """
        if self.measure() is not None:
            self.failed += self.missed()
        return self.comparison

    def measure(self) -> Comparison | None:
        """Compare as `compare` does, without recording the goals that the result misses."""
        from dovetail_decoder.comparison import compared
        from dovetail_decoder.measure import measured

        self._unload()
        with TemporaryFolder("generator") as place:
            saved = self._saved if self._runtime is None else None  # ONNX Runtime runs both
            folder = saved or place / "result"
            if saved is None:
                save_folder(self.source, self.parts, folder, self._providers, None, None)
            try:
                prompts = self._prompts()
                before = self._measured_source or measured(self.source, prompts)
            except DovetailError as error:
                self._notes.append(
                    f"source and result were not compared, because the source does not run: {error.message}"
                )
                return None
            self._measured_source = before
            try:
                self.comparison = compared(
                    self.source, self._result_in(folder), prompts, before, self.prompts is not None
                )
            except DovetailError as error:
                self.failed.append(f"generators cannot run the result: {error.message}")
                return None
        return self.comparison

    def _unload(self) -> None:
        """Release the sessions of all parts, which hold the weights once more; what their engines said is kept."""
        for name, compiled in self.parts.items():
            if name not in self._said:
                self._said[name] = compiled.summary(), compiled.notes()
                compiled.unload()
        return_freed_memory()

    def missed(self) -> list[str]:
        """Return the goals over the next token that the whole was found to miss, as sentences."""
        return [] if self.comparison is None else self.comparison.missed(self.goals)

    @property
    def unscored(self) -> list[Part]:
        """The parts that compute no token scores, to which goals over tokens do not apply directly."""
        return [part for part in self.source.parts if self._ports[part.name].output(LOGITS) is None]

    def replace(self, part: Part, compiled: CompiledModel) -> None:
        """Take another result for a part, of which the whole has not been measured yet."""
        self.parts[part.name], self.comparison = compiled, None
        self._said.pop(part.name, None)
        self._providers[part.name] = self._provider(compiled)

    def note(self, text: str) -> None:
        """Add a note about the whole."""
        self._notes.append(text)

    def leave_out_comparison(self, limit: int) -> None:
        """Note that source and result were not run, because they are large and there is no data to judge them by."""
        self.note(
            f"source and result were not run to compare their speed: the source has more than {limit >> 30} GiB; "
            "--data FILE compares them in spite of it"
        )

    def tables(self) -> list[list[dict[str, Any]]]:
        """Return the table of the parts, and that of source and result if they were compared."""
        missed = {text.partition(":")[0] for text in self.failed}
        rows = []
        for part in self.source.parts:
            status = "missed" if part.name in missed else "ok"
            row = outcome_of(part.file, status, self.parts[part.name], None).row()
            rows.append({"part": part.name, **{key: value for key, value in row.items() if key != "MB"}})
        return [rows, *([self.comparison.rows()] if self.comparison is not None else [])]

    def notes(self) -> list[str]:
        """Return the notes of all parts, and those about the whole."""
        found: dict[str, list[str]] = {}
        for part in self.source.parts:
            compiled = self.parts[part.name]
            # Caches grow, so that their extents stay open.
            open_ = {r.why for r in compiled.remarks if r.rule == "open-extents"} if part.phase != "once" else ()
            notes = self._said[part.name][1] if part.name in self._said else compiled.notes()
            for text in dict.fromkeys(notes):
                if text not in open_:
                    found.setdefault(text, []).append(part.name)
        whole = len(self.parts)
        texts = [text if len(names) == whole else f"{', '.join(names)}: {text}" for text, names in found.items()]
        return [*self._notes, *texts]

    def summary(self) -> str:
        """Return one line: the coverage of a single part, or how many parts there are."""
        if len(self.parts) == 1:
            ((name, compiled),) = self.parts.items()
            return self._said[name][0] if name in self._said else compiled.summary()
        return f"{pluralize(len(self.parts), 'part')} compiled: {', '.join(self.parts)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        parts = {
            part.name: {
                **outcome_of(part.file, "ok", self.parts[part.name], None).as_dict(),
                "provider": self._providers[part.name] or "cpu",
                "verification": (found := self.parts[part.name].verification) and found.as_dict(),
            }
            for part in self.source.parts
        }
        comparison = self.comparison.as_dict() if self.comparison is not None else None
        return {"parts": parts, "comparison": comparison, "failed": list(self.failed), "notes": self.notes()}

    def _prompts(self) -> Sequence[Prompt]:
        from dovetail_decoder.comparison import random_prompt

        return self.prompts or [random_prompt(self.source, self._ports)]

    @property
    def goals(self) -> dict[str, float]:
        """The goals of the request."""
        from dovetail_verify.accuracy.goals import Goals
        from dovetail_verify.arguments import GOALS

        return Goals(**{name: self._request.get(name) for name in GOALS}).as_dict()

    def _result_in(self, folder: Path) -> GeneratorFolder:
        from dovetail_decoder.reading import read_folder

        return read_folder(folder)

    def _provider(self, compiled: CompiledModel) -> str:
        """Return what onnxruntime-genai calls the provider that runs a part; empty for the CPU."""
        if self.source.document is None:
            return ""
        try:
            engines = [engine for backend, all_ in compiled.engines.items() if backend != HOST for engine in all_[:1]]
        except DovetailError:
            return ""
        for engine in engines:
            provider = PROVIDERS.get(engine.name, "")
            if provider and (self._request.get("target_only") or engine.available().ok):
                _remark(compiled, f"{CONFIG} names the provider {provider}, because {engine.name} runs it")
                return provider
            if provider:
                why = f"{CONFIG} names no provider, because {engine.name} is not available here"
                _remark(compiled, why, f'where it is, write "provider_options": [{{"{provider}": {{}}}}]')
        return ""


def _remark(compiled: CompiledModel, why: str, advice: str = "") -> None:
    if not any(remark.rule == "provider" for remark in compiled.plan.remarks):  # of a result that was recognized
        compiled.plan.remarks.append(Remark("analysis", "", "generator", "provider", why, advice=advice))
