"""The store of results that is registered: a result is a folder, a plan is a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.plugin import ResultStore

if TYPE_CHECKING:
    from dovetail.compiler import CompiledModel
    from dovetail.planning import Plan
    from dovetail.plugin import CompileJob, PluginSet, Recognition


class FolderStore(ResultStore):
    """Keeps a result in a folder, beside files of others; see `dovetail.plugin.ResultStore`."""

    suffixes = ("",)

    def check(self, path: Path) -> None:
        """Refuse a file as the folder of a result."""
        from dovetail_onnx.results.saving import check_folder

        check_folder(path)

    def save(
        self,
        compiled: CompiledModel,
        path: Path,
        *,
        external: bool | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Write a result; it takes the place of an earlier one in the same folder as a whole."""
        from dovetail_onnx.results.saving import save_result

        save_result(compiled, path, external=external, progress=progress)

    def load(self, path: Path, plugins: PluginSet) -> CompiledModel:
        """Read the result in a folder, or in a model file alone."""
        from dovetail_onnx.results.loading import load_result

        return load_result(path, plugins)

    def recognize(self, job: CompileJob) -> Recognition:
        """Whether the model is what the same request made, told by its cache key and its content digest."""
        from dovetail_onnx.results.loading import recognize

        return recognize(job)

    def save_plan(self, plan: Plan, path: Path) -> None:
        """Write a plan as YAML, or as JSON if the name ends in `.json`."""
        from dovetail_onnx.results.plan_file import save_plan

        save_plan(plan, path)

    def load_plan(self, path: Path) -> Plan:
        """Read a plan from a file, or that of the result in a folder."""
        from dovetail.planning import Plan

        from dovetail_onnx.results.plan_file import read_plan

        return Plan(**read_plan(path))

    def plan_text(self, plan: Plan) -> str:
        """The plan as YAML."""
        from dovetail_onnx.results.plan_file import plan_text

        return plan_text(plan)
