"""The registered result store: results as folders, plans as files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import ResultStore

if TYPE_CHECKING:
    from dovetail.planning import Plan
    from dovetail.plugin import CompiledModel, CompileJob, PluginSet, Recognition


class FolderStore(ResultStore):
    """Stores a result in a folder, next to unrelated files; see `dovetail.plugin.ResultStore`."""

    suffixes = ("",)

    def check(self, path: Path) -> None:
        """Check that the path is not a file."""
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
        """Write a result, atomically replacing an earlier one in the same folder."""
        from dovetail_onnx.results.saving import save_result

        save_result(compiled, path, external=external, progress=progress)

    def add_comparison(self, compiled: CompiledModel, path: Path) -> None:
        """Write `verification.json` next to the result, and the manifest that lists it."""
        from dovetail_onnx.results.saving import add_comparison

        add_comparison(compiled, path)

    def load(self, path: Path, plugins: PluginSet) -> CompiledModel:
        """Read the result in a folder, or in a model file alone."""
        from dovetail_onnx.results.loading import load_result

        return load_result(path, plugins)

    def identity(self, path: Path) -> str:
        """Return the digest of the manifest, which names the digests of all files."""
        from dovetail_onnx.results.reading import find_result

        found = find_result(path)
        if found is None:
            raise DovetailError(f"{path} holds no result", "`dovetail compile ... -o FOLDER` writes one")
        return hashlib.sha256(found.manifest.text().encode()).hexdigest()

    def recognize(self, job: CompileJob) -> Recognition:
        """Check by cache key and content digest whether the model is the result of the same request."""
        from dovetail_onnx.results.loading import recognize

        return recognize(job)

    def save_plan(self, plan: Plan, path: Path) -> None:
        """Write a plan as YAML, or as JSON if the name ends in `.json`."""
        from dovetail_onnx.results.plan_file import save_plan

        save_plan(plan, path)

    def load_plan(self, path: Path) -> Plan:
        """Read a plan from a file, or from the folder of a result."""
        from dovetail.planning import Plan

        from dovetail_onnx.results.plan_file import read_plan

        return Plan(**read_plan(path))

    def plan_text(self, plan: Plan) -> str:
        """Return the plan as YAML."""
        from dovetail_onnx.results.plan_file import plan_text

        return plan_text(plan)
